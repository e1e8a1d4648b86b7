package store

import (
	"cmp"
	"context"
	"fmt"
	"strings"
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
	// Message selects the turn that has, or took along, a message: by the id of the message, or among the newest [RecentMessages] of Session also by its
	// id in the chat network.
	Message string
	Session chat.SessionKey
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

// RecentMessages is among how many messages of a session one is found by its id in the chat network.
const RecentMessages = 200

// One reports whether the filter selects one turn.
func (f *TurnFilter) One() bool { return f.ID != "" || f.Message != "" }

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

	// Sent lists its outgoing messages in order. It is filled for one turn only, see [TurnFilter.One].
	Sent []Sending
}

// Sending is a message that a turn sends.
type Sending struct {
	Target   chat.Target // its channel and chat
	Kind     string
	State    string // see [OutPending]
	Attempts int
	Error    string    // of the last attempt
	Receipt  string    // the id that the channel has given to it; "" = none
	NextAt   time.Time // when it may be sent next
	DoneAt   time.Time // zero = it is pending or being sent
}

// The answers to "where is my answer?". The set is closed.
const (
	WhyWaiting     = "waiting"     // its turn has not begun
	WhyRunning     = "running"     // the agent works on it
	WhySending     = "sending"     // it is answered, and the answer has not arrived yet
	WhyDelivered   = "delivered"   // the answer has arrived where it was sent to
	WhyAnswered    = "answered"    // the answer is in the conversation, and was sent nowhere else
	WhyUndelivered = "undelivered" // the answer was given up, or may not have arrived
	WhyStopped     = "stopped"     // a person, a newer message or a full queue ended it
	WhyFailed      = "failed"
)

// TurnExplanation says where the answer to a message is.
type TurnExplanation struct{ Why, Text string }

// ExplainTurn says from stored facts where the answer of a turn is; what is not stored is not said. waits is what it waits for, nil if nothing.
func ExplainTurn(t *Turn, waits *chat.Waiting, now time.Time) TurnExplanation {
	said := []string{"The message was accepted " + ago(now, t.AcceptedAt) + "."}
	say := func(format string, v ...any) { said = append(said, fmt.Sprintf(format, v...)) }
	if !t.StartedAt.IsZero() {
		where := ""
		if t.Node != "" {
			where = " on " + t.Node
		}
		end := t.EndedAt
		if end.IsZero() {
			end = now
		}
		say("The agent began%s %s later and worked for %s.", where, spell(t.StartedAt.Sub(t.AcceptedAt)), spell(end.Sub(t.StartedAt)))
		if t.Attempt > 1 {
			say("This was attempt %d.", t.Attempt)
		}
	}
	why := explainEnd(t, waits, now, say)
	return TurnExplanation{Why: why, Text: strings.Join(said, " ")}
}

func explainEnd(t *Turn, waits *chat.Waiting, now time.Time, say func(string, ...any)) (why string) {
	switch {
	case t.State != StateDone && waits != nil:
		until := ""
		if !waits.Until.IsZero() {
			until = ", for " + spell(waits.Until.Sub(now)) + " more"
		}
		say("It waits for %s%s.", waits.Text(), until)
		if waits.BlockedBy != "" {
			say("Before it runs %s.", chat.ShownRunID(waits.BlockedBy))
		}
		if t.State != StateWaiting {
			return WhyRunning
		}
		return WhyWaiting
	case t.State == StateWaiting:
		say("It waits for its turn.")
		return WhyWaiting
	case t.State != StateDone:
		say("There is no answer yet.")
		return WhyRunning
	}
	switch t.Outcome {
	case chat.OutcomeAnswered, chat.OutcomeMerged:
		why = explainSent(t.Sent, now, say)
		if why == WhyAnswered {
			say("It was answered %s; the answer is in the conversation.", ago(now, t.EndedAt))
		}
		return why
	case chat.OutcomeFailed, chat.OutcomeDead, chat.OutcomeInterrupted:
		cause := cmp.Or(t.Error, t.Reason, "no reason is stored")
		say("It ended %s without an answer (%s): %s.", ago(now, t.EndedAt), t.Outcome, strings.TrimSuffix(cause, "."))
		why = WhyFailed
	default:
		by := ""
		if t.StopBy != "" {
			by = " by " + t.StopBy
		}
		say("It was not answered: %s%s %s.", t.Outcome, by, ago(now, t.EndedAt))
		why = WhyStopped
	}
	explainSent(t.Sent, now, say)
	return why
}

// explainSent says what became of the messages that a turn has sent, and returns the worst.
func explainSent(sent []Sending, now time.Time, say func(string, ...any)) (why string) {
	why = WhyAnswered
	for _, s := range sent {
		to := s.Target.Channel + " " + s.Target.ChatID
		last := ""
		if s.Error != "" {
			last = ": " + strings.TrimSuffix(s.Error, ".")
		}
		switch s.State {
		case OutDelivered:
			as := ""
			if s.Receipt != "" {
				as = " as message " + s.Receipt
			}
			say("The %s was delivered to %s%s %s.", s.Kind, to, as, ago(now, s.DoneAt))
			if why == WhyAnswered {
				why = WhyDelivered
			}
		case OutPending, OutSending:
			next := ""
			if s.NextAt.After(now) {
				next = ", next in " + spell(s.NextAt.Sub(now))
			}
			say("The %s to %s is not delivered yet, after %d attempts%s%s.", s.Kind, to, s.Attempts, next, last)
			if why != WhyUndelivered {
				why = WhySending
			}
		case OutMaybeSent:
			say("The %s to %s may have arrived and is not sent again%s.", s.Kind, to, last)
			why = WhyUndelivered
		default:
			say("The %s to %s was given up %s (%s)%s.", s.Kind, to, ago(now, s.DoneAt), s.State, last)
			why = WhyUndelivered
		}
	}
	return why
}

func ago(now, at time.Time) string {
	if at.IsZero() {
		return "at an unknown time"
	}
	return spell(now.Sub(at)) + " ago"
}

// spell returns a duration with as many units as a person needs.
func spell(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}
