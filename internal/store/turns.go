package store

import (
	"context"
	"time"

	"laneway/internal/chat"
)

// Turns lists what people call runs: a message that leads a turn, or would lead one, with its run. Messages that share the turn of another are not listed.
type Turns interface {
	// Turns lists turns: those without an outcome by their age, the oldest first, and those with one by their end, the newest first.
	Turns(ctx context.Context, f TurnFilter) ([]Turn, error)
}

// Which turns a list has.
const (
	TurnsOpen    = "open" // running and waiting
	TurnsRunning = "running"
	TurnsWaiting = "waiting"
	TurnsEnded   = "ended"
)

// TurnFilter selects turns; zero fields select all.
type TurnFilter struct {
	// ID is that of the message, in every state; "" = those in the state Which, by default [TurnsOpen].
	ID, Which string
	Session   chat.SessionKey
	// Parent selects the sub-turns of a run, in every state.
	Parent string
	Lane   string
	// Outcome selects those that ended like this.
	Outcome chat.Outcome
	// Visible restricts to turns of a principal.
	Visible string
	// Before restricts to those accepted, or with [TurnsEnded] ended, before this instant; Since to those at or after it.
	Before, Since time.Time
	// After is the last turn of the page before; nil = the first page.
	After *TurnMark
	// Limit is how many are listed at most; 0 = [DefaultTasks].
	Limit int
}

// TurnMark is the place of a turn in a list.
type TurnMark struct {
	At time.Time // when it was accepted, in a list of turns that have ended when it ended
	ID string
}

// Most is Limit with its default.
func (f *TurnFilter) Most() int { return TaskFilter{Limit: f.Limit}.Most() }

// Turn is a turn, or a message that waits to become one.
type Turn struct {
	// ID is that of the message that leads it, and of its run. Text is the begin of the message, of at most [TaskText] characters.
	ID            string
	Session       chat.SessionKey
	Seq           int64 // the number of the message
	Lane, Channel string
	Text          string
	Principal     string
	Parent, Root  string // the runs that it is a sub-turn of; "" = none
	State         string // waiting, running, yielded, stopping: a stop was asked for, done
	Outcome       chat.Outcome
	// Reason, Error and Detail say why it ended; see [FinishParams].
	Reason, Error, Detail string
	// StopBy asked to stop it; "" = nothing did.
	StopBy string
	// Node runs it, or owns its session; "" = no process does.
	Node    string
	Attempt int // 0 = it has not begun
	Usage   chat.Usage

	AcceptedAt time.Time
	StartedAt  time.Time // zero = it has not begun
	EndedAt    time.Time // zero = it has not ended

	// Sent is what it sends, in its order. It is read with [TurnFilter].ID only.
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
