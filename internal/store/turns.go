package store

import (
	"context"
	"time"

	"laneway/internal/chat"
)

// Turns lists turns, which users call runs: a message that leads a turn, or would lead one, with its run. Messages that share the turn of another are not
// listed.
type Turns interface {
	// Turns lists turns without an outcome by age, oldest first, and those with an outcome by their end, newest first.
	Turns(ctx context.Context, f TurnFilter) ([]Turn, error)
}

// The values of [TurnFilter].Which.
const (
	TurnsOpen    = "open" // running and waiting
	TurnsRunning = "running"
	TurnsWaiting = "waiting"
	TurnsEnded   = "ended"
)

// TurnFilter selects turns; zero fields select all.
type TurnFilter struct {
	// ID selects one message, in every state; "" = the turns in the state Which, by default [TurnsOpen].
	ID, Which string
	Session   chat.SessionKey
	// Parent selects the sub-turns of a run, in every state.
	Parent string
	Lane   string
	// Outcome selects turns with this outcome.
	Outcome chat.Outcome
	// Visible restricts to turns of a principal.
	Visible string
	// Before selects turns accepted, or with [TurnsEnded] ended, before this instant; Since selects those at or after it.
	Before, Since time.Time
	// After is the last turn of the previous page; nil = the first page.
	After *TurnMark
	// Limit bounds the list; 0 = [DefaultTasks].
	Limit int
}

// TurnMark is the position of a turn in a list.
type TurnMark struct {
	At time.Time // when it was accepted; in a list of ended turns, when it ended
	ID string
}

// Most is Limit with its default.
func (f *TurnFilter) Most() int { return TaskFilter{Limit: f.Limit}.Most() }

// Turn is a turn, or a message that waits to become one.
type Turn struct {
	// ID is the id of its leading message and of its run. Text is the beginning of the message, at most [TaskText] characters.
	ID            string
	Session       chat.SessionKey
	Seq           int64 // the number of the message
	Lane, Channel string
	Text          string
	Principal     string
	Parent, Root  string // the parent run and the root run of a sub-turn; "" for other turns
	State         string // waiting, running, yielded, stopping: a stop was asked for, done
	Outcome       chat.Outcome
	// Reason, Error and Detail are why it ended; see [FinishParams].
	Reason, Error, Detail string
	// StopBy is the requester of its stop; "" when no stop was requested.
	StopBy string
	// Node runs it, or owns its session; "" when no process does.
	Node    string
	Attempt int // 0 = it has not begun
	Usage   chat.Usage

	AcceptedAt time.Time
	StartedAt  time.Time // zero = it has not begun
	EndedAt    time.Time // zero = it has not ended

	// Sent lists its outgoing messages in order. It is filled with [TurnFilter].ID only.
	Sent []Sending
}

// Sending is a message that a turn sends.
type Sending struct {
	Target   chat.Target // its channel and chat
	Kind     string
	State    string // see [OutPending]
	Attempts int
	Error    string    // of the last attempt
	DoneAt   time.Time // zero = it is pending or being sent
}
