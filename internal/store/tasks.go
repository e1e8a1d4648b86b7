package store

import (
	"context"
	"errors"
	"time"

	"laneway/internal/chat"
)

// The refusals of [Tasks].Spawn. In each case nothing is stored.
var (
	ErrManyChildren = errors.New("the run has as many sub-turns as one may have")
	ErrManyInTree   = errors.New("the tree has as many sub-turns as one may have")
	ErrRunStops     = errors.New("the run was asked to stop")
)

// Tasks are sub-turns: messages that running turns have requested. They are messages like all others; these operations maintain the parent run of a message and
// the root run of its tree.
type Tasks interface {
	// Spawn accepts the message of a sub-turn under the fence of its running parent. A repetition returns the existing message as a duplicate, whatever the
	// bounds are. [ErrManyChildren], [ErrManyInTree]: a bound is reached. [ErrRunStops]: the parent was stopped. So a stop that first marks the parent and then
	// lists its sub-turns misses none. chat.ErrFenced: the parent does not run under the claim.
	Spawn(ctx context.Context, p SpawnParams) (Accepted, error)
	// Yield records that a run waits for sub-turns and has no slot ([RunYielded]), or that it has one again ([RunRunning]). chat.ErrFenced: it does not run
	// under the claim. Idempotent.
	Yield(ctx context.Context, c Claim, runID string, away bool) error
	// Tasks lists sub-turns, newest first; with Left the oldest first.
	Tasks(ctx context.Context, f TaskFilter) ([]Task, error)
	// Announced records that the end of a sub-turn is announced, or needs no announcement. Idempotent.
	Announced(ctx context.Context, id string) error
}

// SpawnParams is a sub-turn to accept.
type SpawnParams struct {
	// Claim and RunID are the parent's.
	Claim
	RunID string
	// Root is the run at the root of the tree; the parent itself when it is not in a tree.
	Root string
	// Announce: the parent does not wait, and the end is announced in its session.
	Announce bool
	// MaxChildren and MaxTree are how many sub-turns a parent and a tree may have, those that have ended included.
	MaxChildren, MaxTree int
	// Accept is the message.
	Accept AcceptParams
}

// TaskFilter selects sub-turns; zero fields select all.
type TaskFilter struct {
	// ID is the sub-turn, Parents are runs. RootSession is the session of the message at the root of the tree.
	ID          string
	Parents     []string
	RootSession chat.SessionKey
	// Visible restricts to sub-turns of a principal.
	Visible string
	// Open excludes sub-turns that have an outcome.
	Open bool
	// Left selects what a crash may have left: sub-turns without an outcome whose parent was stopped, or whose parent has ended although it waited for them;
	// and those that have ended and are not announced. All other fields except Limit are then ignored.
	Left bool
	// Limit bounds the list; 0 = [DefaultTasks].
	Limit int
}

// DefaultTasks is the default limit of a list of sub-turns, and TaskText how many characters of each message it has.
const (
	DefaultTasks = 100
	TaskText     = 200
)

// Most is Limit with its default.
func (f TaskFilter) Most() int {
	if f.Limit <= 0 {
		return DefaultTasks
	}
	return f.Limit
}

// Task is a sub-turn.
type Task struct {
	// ID is the id of its message and of its run. Text is the beginning of the message.
	ID            string
	Session       chat.SessionKey
	Parent, Root  string
	Lane, Text    string
	Principal     string
	Agent         string
	State         string // of its run while it runs, else of its message: waiting, running, yielded, stopping, done
	Outcome       chat.Outcome
	Reason, Error string
	// Announce: its end is to be announced.
	Announce bool
	// ParentOutcome is the outcome of the leading message of the parent; "" while it has none.
	ParentOutcome chat.Outcome
	AcceptedAt    time.Time
	StartedAt     time.Time // zero = it has not begun
	EndedAt       time.Time // zero = it has not ended
}

// Left reports whether the sub-turn is to be stopped because no parent waits for it: its parent was stopped, or has ended although it waited.
func (t Task) Left() bool {
	switch {
	case t.State == StateDone || t.ParentOutcome == "":
		return false
	case t.ParentOutcome == chat.OutcomeStopped || t.ParentOutcome == chat.OutcomeSuperseded:
		return true
	default:
		return !t.Announce
	}
}

// StateOf is the state of a turn: the state of its run while it runs, else of its row in the inbox; "" when neither exists.
func StateOf(message, run string) string {
	switch {
	case message == StateHeld:
		return StateWaiting
	case message == StateRunning && run != "":
		return run
	}
	return message
}
