package usage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"laneway/internal/chat"
)

// Who is the subject for which a turn is counted. Job is "" for the turn of a person.
type Who struct{ Principal, Agent, Job string }

// Turn is the usage of one turn. It is safe for concurrent use: the goroutine of a turn may still count after the turn was finished without it.
type Turn struct {
	meter *Meter
	who   Who

	mu      sync.Mutex
	counted chat.Usage // of this attempt and of earlier ones
	cost    Money
	asked   bool // something was counted in this attempt
	notices []State
}

// Turn starts to count a turn.
func (m *Meter) Turn(w Who) *Turn { return &Turn{meter: m, who: w} }

// Bounded reports whether a budget covers the turn.
func (t *Turn) Bounded() bool {
	return !t.meter.cfg.Budgets.Turn.IsZero() || len(t.meter.bounded(t.who.Principal, t.who.Job)) > 0
}

// Before adds what earlier attempts of the turn have counted: it belongs to the budget of the turn and to the whole of [Turn.End].
func (t *Turn) Before(u chat.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(u)
}

// add sums. The caller holds the lock.
func (t *Turn) add(u chat.Usage) Money {
	cost := t.meter.cfg.Prices[t.who.Agent].Of(u)
	t.counted.Add(u)
	t.cost = saturated(t.cost, cost)
	return cost
}

// Count counts one request to a model.
func (t *Turn) Count(u chat.Usage) { t.count(u, Counted{Requests: 1}) }

// count counts usage, with the requests, turns and time that are set in c.
func (t *Turn) count(u chat.Usage, c Counted) {
	t.mu.Lock()
	cost := t.add(u)
	t.asked = t.asked || c.Requests > 0
	t.mu.Unlock()
	c.InputTokens, c.OutputTokens, c.CachedTokens, c.Cost = int64(u.InputTokens), int64(u.OutputTokens), int64(u.CachedTokens), cost
	t.meter.count(t.who, u.Model, c)
	if c.Requests > 0 {
		model := otherModel
		if u.Model == t.meter.cfg.Models[t.who.Agent] {
			model = u.Model
		}
		t.meter.cfg.Observer.Used(t.who.Agent, model, u, cost)
	}
}

// Asked reports whether a request was counted in this attempt.
func (t *Turn) Asked() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asked
}

// Allow returns nil if the turn may call its model, otherwise an [*OverError], or why the totals cannot be read.
func (t *Turn) Allow(ctx context.Context) error {
	m := t.meter
	t.mu.Lock()
	own := State{
		Scope: Scope{Kind: KindTurn}, Limit: m.cfg.Budgets.Turn, Currency: m.cfg.Budgets.Currency,
		Spent: Spent{Tokens: saturated(int64(t.counted.InputTokens), int64(t.counted.OutputTokens)), Cost: t.cost},
	}
	t.mu.Unlock()
	if own.Level() == LevelReached {
		return t.refuse(own)
	}
	if len(m.bounded(t.who.Principal, t.who.Job)) == 0 {
		return nil
	}
	states, err := t.settle(ctx)
	if err != nil {
		return err
	}
	for _, s := range states {
		if s.Level() == LevelReached {
			return t.refuse(s)
		}
	}
	return nil
}

func (t *Turn) refuse(s State) error {
	t.meter.cfg.Observer.Refused(s.Kind)
	return &OverError{s}
}

// Settle returns when the counted usage is committed.
func (t *Turn) Settle(ctx context.Context) error {
	_, err := t.settle(ctx)
	return err
}

func (t *Turn) settle(ctx context.Context) ([]State, error) {
	scopes := t.meter.bounded(t.who.Principal, t.who.Job)
	spent, err := t.meter.settle(ctx, scopes)
	if err != nil {
		return nil, fmt.Errorf("reading the budgets of a turn: %w", err)
	}
	states := t.meter.states(scopes, spent)
	for _, s := range states {
		if level := s.Level(); level > LevelFree && t.meter.note(s.Scope, level) {
			t.mu.Lock()
			t.notices = append(t.notices, s)
			t.mu.Unlock()
		}
	}
	return states, nil
}

// End counts the usage of the whole turn beyond what was counted, and the turn itself. A turn without any tokens counts with the time of its agent.
// Call it once.
func (t *Turn) End(whole chat.Usage, took time.Duration) {
	t.mu.Lock()
	rest := chat.Usage{
		InputTokens: max(0, whole.InputTokens-t.counted.InputTokens), OutputTokens: max(0, whole.OutputTokens-t.counted.OutputTokens),
		CachedTokens: max(0, whole.CachedTokens-t.counted.CachedTokens), Model: whole.Model, Provider: whole.Provider,
	}
	reported := t.counted.InputTokens+t.counted.OutputTokens > 0
	t.mu.Unlock()
	end := Counted{Turns: 1}
	switch {
	case rest.InputTokens+rest.OutputTokens > 0:
		end.Requests = 1
	case !reported:
		end.Unreported = took.Truncate(time.Millisecond)
	}
	t.count(rest, end)
}

// Notices returns the budgets that this turn has raised to a new level of today, in this process; each is returned once.
func (t *Turn) Notices() []State {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.notices
	t.notices = nil
	return list
}
