package usage

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
)

// Limit is how much may be used, in tokens or money; 0 means no bound. If both are set, the one
// that is reached first counts.
type Limit struct {
	// Tokens that the model reads and writes.
	Tokens int64
	Cost   Money
}

// IsZero reports whether there is no bound.
func (l Limit) IsZero() bool { return l == Limit{} }

// Kind is the subject of a budget.
type Kind string

// The kinds of budgets. The budget of a turn applies once; those of the other kinds apply to each
// day.
const (
	KindTurn      Kind = "turn"
	KindJob       Kind = "job"
	KindPrincipal Kind = "principal"
	KindDay       Kind = "day" // everything that the gateway does
)

// Budgets are the limits that the operator sets. The zero value has no limits.
type Budgets struct {
	// Currency of prices and budgets, as it is displayed.
	Currency                  string
	Turn, Job, Principal, Day Limit
}

// Of returns the limit of a kind.
func (b Budgets) Of(kind Kind) Limit {
	switch kind {
	case KindTurn:
		return b.Turn
	case KindJob:
		return b.Job
	case KindPrincipal:
		return b.Principal
	case KindDay:
		return b.Day
	}
	return Limit{}
}

// Scope is one budget of a day. The name of the budget of the whole day is "".
type Scope struct {
	Kind Kind
	Name string
}

// Spent is how much of a budget is used.
type Spent struct {
	Tokens int64
	Cost   Money
}

// Plus returns the sum of both. It saturates.
func (s Spent) Plus(other Spent) Spent {
	return Spent{Tokens: saturated(s.Tokens, other.Tokens), Cost: saturated(s.Cost, other.Cost)}
}

// Level is how far a budget is used.
type Level int

// The levels.
const (
	LevelFree    Level = 0
	LevelNear    Level = 80  // 80 % or more: people are notified
	LevelReached Level = 100 // no further requests are made
)

// level returns the level of a limit for a usage.
func (l Limit) level(s Spent) Level {
	near := func(used, most int64) Level {
		switch {
		case most <= 0:
			return LevelFree
		case used >= most:
			return LevelReached
		case float64(used) >= float64(most)*float64(LevelNear)/float64(LevelReached):
			return LevelNear
		}
		return LevelFree
	}
	return max(near(s.Tokens, l.Tokens), near(int64(s.Cost), int64(l.Cost)))
}

// State is a budget with its usage.
type State struct {
	Scope
	Limit

	Spent
	// Resets is when the next day begins; zero for the budget of a turn.
	Resets time.Time
	// Currency of the costs.
	Currency string
}

// Level returns how far the budget is used.
func (s State) Level() Level { return s.Limit.level(s.Spent) }

// figures returns the usage and the limit, in words.
func (s State) figures() string {
	tokens := fmt.Sprintf("%s of %s tokens", grouped(s.Spent.Tokens), grouped(s.Limit.Tokens))
	cost := fmt.Sprintf("%s of %s %s", s.Spent.Cost, s.Limit.Cost, s.Currency)
	switch {
	case s.Limit.Cost == 0:
		return tokens
	case s.Limit.Tokens == 0:
		return cost
	}
	return tokens + ", " + cost
}

// grouped formats a number with a comma between thousands.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// whose names the budget in a sentence.
func (s State) whose() string {
	switch s.Kind {
	case KindTurn:
		return "The budget of one turn"
	case KindJob:
		return "The budget of this job for today"
	case KindPrincipal:
		return "Your budget for today"
	case KindDay:
	}
	return "The gateway's budget for today"
}

// Sentence returns a sentence for a person that states what they can do.
func (s State) Sentence() string {
	switch {
	case s.Kind == KindTurn:
		return s.whose() + " is used up (" + s.figures() + "); ask for less at once."
	case s.Level() == LevelReached:
		return s.whose() + " is used up (" + s.figures() + "). A new one begins on " + s.Resets.Format("2006-01-02 at 15:04 MST") + "."
	}
	return s.whose() + " is used to " + strconv.Itoa(int(LevelNear)) + " % or more (" + s.figures() + ")."
}

// OverError means that a turn may make no further request to its model.
type OverError struct{ State State }

// Error returns the sentence for the person.
func (e *OverError) Error() string { return e.State.Sentence() }

// Money is an amount in billionths of the currency of the gateway.
type Money int64

// Unit is one unit of the currency.
const Unit Money = 1_000_000_000

// MoneyOf rounds an amount in units of the currency to a billionth.
func MoneyOf(amount float64) Money { return Money(math.Round(amount * float64(Unit))) }

// Float returns the amount in units of the currency.
func (m Money) Float() float64 { return float64(m) / float64(Unit) }

// String formats the amount with two to six decimal places.
func (m Money) String() string {
	text := strconv.FormatFloat(m.Float(), 'f', 6, 64)
	short := strings.TrimRight(text, "0")
	if dot := strings.IndexByte(text, '.'); len(short) < dot+3 {
		return text[:dot+3]
	}
	return short
}

// Price of a million tokens of each kind, in the currency of the gateway.
type Price struct {
	// Input is the price of uncached input tokens, Cached that of cached ones.
	Input, Output, Cached Money
}

// million is how many tokens a price is for.
const million = 1_000_000

// Of returns the cost of a request, to a billionth. It saturates.
func (p Price) Of(u chat.Usage) Money {
	cached := min(u.CachedTokens, u.InputTokens)
	total := float64(u.InputTokens-cached)*float64(p.Input) + float64(cached)*float64(p.Cached) + float64(u.OutputTokens)*float64(p.Output)
	if total /= million; total < math.MaxInt64 {
		return Money(math.Round(total))
	}
	return math.MaxInt64
}

// Report is the usage of a day so far.
type Report struct {
	Day      string
	Zone     *time.Location
	Resets   time.Time // when the next day begins
	Currency string
	Today    Counted
	// Budgets of the day that the reader may see, and the limits of turns and jobs, without usage.
	Budgets []State
}

// Report returns the report of today for a principal: its own usage and budget if own is set,
// otherwise those of all principals.
func (m *Meter) Report(ctx context.Context, principal string, own bool) (Report, error) {
	out := Report{Day: m.Today(), Zone: m.cfg.Zone, Resets: m.tomorrow(), Currency: m.cfg.Budgets.Currency}
	states, err := m.States(ctx, principal, "")
	if err != nil {
		return out, err
	}
	for _, s := range states {
		if !own || s.Kind == KindPrincipal {
			out.Budgets = append(out.Budgets, s)
		}
	}
	for _, kind := range []Kind{KindTurn, KindJob} {
		if limit := m.cfg.Budgets.Of(kind); !limit.IsZero() {
			out.Budgets = append(out.Budgets, State{Scope: Scope{Kind: kind}, Limit: limit, Currency: out.Currency})
		}
	}
	q := Query{From: out.Day, To: out.Day}
	if own {
		q.Principal = principal
	}
	rows, err := m.Rows(ctx, q)
	for _, r := range rows {
		out.Today.Add(r.Counted)
	}
	return out, err
}

// Lines returns the report for people: the usage, and each budget.
func (r Report) Lines() []string {
	line := "today: " + grouped(r.Today.Spent().Tokens) + " tokens"
	if r.Today.Cost > 0 {
		line += ", " + r.Today.Cost.String() + " " + r.Currency
	}
	if r.Today.Unreported >= time.Second {
		line += ", and " + r.Today.Unreported.Round(time.Second).String() + " of turns whose agents report none"
	}
	lines := []string{line}
	for _, s := range r.Budgets {
		switch s.Kind {
		case KindPrincipal:
			lines = append(lines, "your budget: "+s.figures())
		case KindDay:
			lines = append(lines, "budget of the day: "+s.figures())
		case KindTurn, KindJob:
		}
	}
	return lines
}
