package usage

import (
	"fmt"
	"strconv"
	"time"
)

// Limit is how much may be used, in tokens or money; 0 means no bound. If both are set, the one that is reached first counts.
type Limit struct {
	// Tokens that the model reads and writes.
	Tokens int64
	Cost   Money
}

// IsZero reports whether there is no bound.
func (l Limit) IsZero() bool { return l == Limit{} }

// Kind is the subject of a budget.
type Kind string

// The kinds of budgets. The budget of a turn applies once; those of the other kinds apply to each day.
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
