// Package usage counts what agents use, prices it, and decides whether a turn may continue.
//
// The [Meter] of a process has three ideas.
//
// Counters are batched. A completed request to a model is counted in memory ([Turn.Count]) and
// written together with those of other turns, in one transaction on the goroutine of [Meter.Run]:
// at once when a turn waits for it ([Turn.Settle]), otherwise at most a second later. A batch has a
// number of its writer, so that a batch whose commit was not confirmed is written again without
// counting twice. Counters of a day are rows by principal, agent, model and job, in addition to a
// total for each budget of that day. Replicas write into the same rows.
//
// A budget is checked before each round. [Turn.Allow] writes what this process has counted and
// reads the totals in the same transaction; checks that come at the same time share it. So a round
// begins only while the counted usage, including that of other replicas, is below the budget, and a
// turn exceeds a budget by at most its current round. Without a budget for a turn no totals are
// read.
//
// Usage is committed first. The usage of a round is committed before the round is recorded or the
// turn ends ([Turn.Settle]). If a process is killed between the two, the round is requested again
// and counted twice, and the provider charges both requests. Repeating the end of a turn counts
// nothing. Usage is not written in the transaction of the round: the totals of a day are one row,
// on which the ends of all turns would wait.
//
// Days are those of the gateway's zone. A new day has new rows, so nothing has to be reset.
//
// The package has one goroutine, that of Run, which ends with its context after a last batch. A
// later check fails. An agent without a price costs nothing. The package imports only the
// vocabulary, and declares what it needs of the store ([Store]).
package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/chat"
)

const (
	// every is the longest time until counters are written.
	every = time.Second
	// writeTime bounds one transaction.
	writeTime = 5 * time.Second
	// mostModels is how many models of an agent have separate counters on one day: people may
	// choose any model name.
	mostModels = 50
	// otherModel is the name for all further models.
	otherModel = "other"
	// keepDays is how long counters are kept.
	keepDays = 400
	// pruned is how many rows one step removes.
	pruned = 500
)

// ErrClosed is the error of a check after the end of [Meter.Run].
var ErrClosed = errors.New("the counters of usage are closed")

// Config of a [Meter]. The zero value counts without prices and budgets.
type Config struct {
	Budgets Budgets
	// Prices by agent.
	Prices map[string]Price
	// Models are the configured models by agent. Metrics name only these.
	Models map[string]string
	// Zone in which days begin; nil means UTC.
	Zone *time.Location
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Metrics is where the meter registers its metrics; nil if nobody reads them.
	Metrics prometheus.Registerer
	Logger  *slog.Logger // nil if none
}

// Meter counts the usage of one process. It is safe for concurrent use. Make it with New.
type Meter struct {
	counters *counters
	cfg      Config
	store    Store
	writer   string
	wake     chan struct{} // has a value when a check waits
	dirty    chan struct{} // has a value when there are counters to write
	closed   chan struct{}

	batches []Batch // not confirmed, oldest first; only Run uses them
	number  int64   // of the last batch; only Run uses it

	mu      sync.Mutex
	pending map[Key]Counted
	waiting []*check
	models  map[string]map[string]bool // by agent, of day
	day     string
	noted   map[Scope]Level // of day: the levels of which people were notified
}

// check is a check that waits for its totals.
type check struct {
	scopes []Scope
	spent  map[Scope]Spent
	err    error
	done   chan struct{}
}

// New makes a meter. Nothing is written before [Meter.Run].
func New(cfg Config, store Store) *Meter {
	if cfg.Zone == nil {
		cfg.Zone = time.UTC
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Meter{
		cfg: cfg, counters: newCounters(cfg.Metrics, cfg.Models), store: store, writer: uuid.NewString(), wake: make(chan struct{}, 1), dirty: make(chan struct{}, 1), closed: make(chan struct{}),
		pending: map[Key]Counted{}, models: map[string]map[string]bool{}, noted: map[Scope]Level{},
	}
}

// Budgets returns the configured budgets.
func (m *Meter) Budgets() Budgets { return m.cfg.Budgets }

// Today returns the current day.
func (m *Meter) Today() string { return DayOf(m.cfg.Now(), m.cfg.Zone) }

// Zone returns the time zone of days.
func (m *Meter) Zone() *time.Location { return m.cfg.Zone }

// tomorrow returns when the next day begins.
func (m *Meter) tomorrow() time.Time {
	now := m.cfg.Now().In(m.cfg.Zone)
	return time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, m.cfg.Zone)
}

// Run writes the counters until ctx is done, and then the remaining ones. Call it once.
func (m *Meter) Run(ctx context.Context) {
	timer := time.NewTimer(every)
	timer.Stop()
	prunedOn := ""
	for {
		select {
		case <-ctx.Done():
			m.end(ctx)
			return
		case <-m.dirty:
			timer.Reset(every) // dirty has a value only after the first counter since a write
			continue
		case <-timer.C:
		case <-m.wake:
		}
		if !m.write(ctx) {
			timer.Reset(every)
		}
		if today := m.Today(); today != prunedOn && m.prune(ctx) {
			prunedOn = today
		}
	}
}

// end writes the remaining counters and refuses later checks.
func (m *Meter) end(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	m.write(ctx)
	m.mu.Lock()
	close(m.closed)
	late := m.waiting
	m.waiting = nil
	m.mu.Unlock()
	answer(late, nil, ErrClosed)
}

// count adds to a counter of today.
func (m *Meter) count(w Who, model string, c Counted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beginDay()
	key := Key{Day: m.day, Principal: w.Principal, Agent: w.Agent, Model: m.known(w.Agent, model), Job: w.Job}
	was := m.pending[key]
	was.Add(c)
	m.pending[key] = was
	if len(m.pending) == 1 {
		poke(m.dirty)
	}
}

// beginDay drops the state of another day. The caller holds the lock.
func (m *Meter) beginDay() {
	if today := m.Today(); today != m.day {
		m.day, m.models, m.noted = today, map[string]map[string]bool{}, map[Scope]Level{}
	}
}

// known returns the model, or "other" if the agent has too many on this day. The caller holds the
// lock.
func (m *Meter) known(agent, model string) string {
	if m.models[agent] == nil {
		m.models[agent] = map[string]bool{}
	}
	if !m.models[agent][model] {
		if len(m.models[agent]) >= mostModels {
			return otherModel
		}
		m.models[agent][model] = true
	}
	return model
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// settle writes the counters and reads totals; it returns when they are committed.
func (m *Meter) settle(ctx context.Context, scopes []Scope) (map[Scope]Spent, error) {
	c := &check{scopes: scopes, done: make(chan struct{})}
	m.mu.Lock()
	select {
	case <-m.closed:
		m.mu.Unlock()
		return nil, ErrClosed
	default:
	}
	m.waiting = append(m.waiting, c)
	m.mu.Unlock()
	poke(m.wake)
	select {
	case <-c.done:
		return c.spent, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// note reports whether a level of a budget is new today, and records it.
func (m *Meter) note(s Scope, level Level) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beginDay()
	if m.noted[s] >= level {
		return false
	}
	m.noted[s] = level
	return true
}

// Over reports whether this process has seen that a job, its owner or the day has used up a budget
// of today. It does not access the store.
func (m *Meter) Over(principal, job string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beginDay()
	return slices.ContainsFunc(Key{Principal: principal, Job: job}.Scopes(), func(s Scope) bool { return m.noted[s] == LevelReached })
}

// States returns the budgets of a day for a principal and a job, with their usage; those without a
// limit are left out.
func (m *Meter) States(ctx context.Context, principal, job string) ([]State, error) {
	scopes := m.bounded(principal, job)
	if len(scopes) == 0 {
		return nil, nil
	}
	spent, err := m.settle(ctx, scopes)
	if err != nil {
		return nil, err
	}
	return m.states(scopes, spent), nil
}

// bounded returns the scopes of a turn that have a limit.
func (m *Meter) bounded(principal, job string) []Scope {
	var list []Scope
	for _, s := range (Key{Principal: principal, Job: job}).Scopes() {
		if !m.cfg.Budgets.Of(s.Kind).IsZero() {
			list = append(list, s)
		}
	}
	return list
}

func (m *Meter) states(scopes []Scope, spent map[Scope]Spent) []State {
	list := make([]State, 0, len(scopes))
	for _, s := range scopes {
		list = append(list, State{
			Scope: s, Limit: m.cfg.Budgets.Of(s.Kind), Spent: spent[s], Resets: m.tomorrow(), Currency: m.cfg.Budgets.Currency,
		})
	}
	return list
}

// Rows sums counters, including those of this process that are not written yet.
func (m *Meter) Rows(ctx context.Context, q Query) ([]Row, error) {
	if _, err := m.settle(ctx, nil); err != nil {
		return nil, err
	}
	return m.store.UsageRows(ctx, q)
}

// Who is the subject for which a turn is counted. Job is "" for the turn of a person.
type Who struct{ Principal, Agent, Job string }

// Turn is the usage of one turn. It is safe for concurrent use: the goroutine of a turn may still
// count after the turn was finished without it.
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

// Before adds what earlier attempts of the turn have counted: it belongs to the budget of the turn
// and to the whole of [Turn.End].
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
		t.meter.counters.used(t.who.Agent, model, u, cost)
	}
}

// Asked reports whether a request was counted in this attempt.
func (t *Turn) Asked() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asked
}

// Allow returns nil if the turn may call its model, otherwise an [*OverError], or why the totals
// cannot be read.
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
	t.meter.counters.refusals.WithLabelValues(string(s.Kind)).Inc()
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

// End counts the usage of the whole turn beyond what was counted, and the turn itself. A turn
// without any tokens counts with the time of its agent. Call it once.
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

// Notices returns the budgets that this turn has raised to a new level of today, in this process;
// each is returned once.
func (t *Turn) Notices() []State {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.notices
	t.notices = nil
	return list
}
