package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
)

// The values of [TurnFilter].Which.
const (
	TurnsOpen    = "open" // running and waiting
	TurnsRunning = "running"
	TurnsWaiting = "waiting"
	TurnsEnded   = "ended"
)

// TurnFilter selects turns; zero fields select all.
type TurnFilter struct {
	// ID selects one message, in every state; "" = the turns in the state Which, by default
	// [TurnsOpen].
	ID, Which string
	// Message selects the turn that has, or took along, a message: by the id of the message, or
	// among the newest [RecentMessages] of Session also by its id in the chat network.
	Message string
	Session chat.SessionKey
	// Parent selects the sub-turns of a run, in every state.
	Parent string
	Lane   string
	// Outcome selects turns with this outcome.
	Outcome chat.Outcome
	// Visible restricts to turns of a principal.
	Visible string
	// Before selects turns accepted, or with [TurnsEnded] ended, before this instant; Since selects
	// those at or after it.
	Before, Since time.Time
	// After is the last turn of the previous page; nil = the first page.
	After *TurnMark
	// Limit bounds the list; 0 = [DefaultTasks].
	Limit int
}

// RecentMessages is among how many messages of a session one is found by its id in the chat
// network.
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
	// ID is the id of its leading message and of its run. Text is the beginning of the message, at
	// most [TaskText] characters.
	ID            string
	Session       chat.SessionKey
	Seq           int64 // the number of the message
	Ahead         int   // how many messages of the session wait before it, while it waits
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
	Asked   chat.Asked // by its last attempt that has ended; zero = it is not known

	AcceptedAt time.Time
	StartedAt  time.Time // zero = it has not begun
	EndedAt    time.Time // zero = it has not ended

	// Sent lists its outgoing messages in order. It is filled for one turn only, see
	// [TurnFilter.One].
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
	HeldAt   time.Time // until when quiet hours have held it; zero = they have not
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

// ExplainTurn says from stored facts where the answer of a turn is; what is not stored is not said.
// waits is what it waits for, nil if nothing.
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
		if n := t.Asked; n.Requests > 0 {
			limited := ""
			if n.Limited > 0 {
				limited = " (429 " + often(n.Limited) + ")"
			}
			say("It asked the model %s%s.", often(n.Requests), limited)
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
			if s.HeldAt.After(now) {
				say("The %s to %s is held by quiet hours for %s more.", s.Kind, to, spell(s.HeldAt.Sub(now)))
				if why != WhyUndelivered {
					why = WhySending
				}
				break
			}
			next := ""
			if s.NextAt.After(now) {
				next = ", next in " + spell(s.NextAt.Sub(now))
			}
			say("The %s to %s is not delivered yet, after %d attempts%s%s.", s.Kind, to, s.Attempts, next, last)
			if why != WhyUndelivered {
				why = WhySending
			}
		case OutSuperseded:
			say("The %s to %s was not sent: a later run of its job took its place during quiet hours.", s.Kind, to)
			why = WhyUndelivered
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

// often says how many times.
func often(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return strconv.Itoa(n) + " times"
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

// The refusals of [Store].Spawn. In each case nothing is stored.
var (
	ErrManyChildren = errors.New("the run has as many sub-turns as one may have")
	ErrManyInTree   = errors.New("the tree has as many sub-turns as one may have")
	ErrRunStops     = errors.New("the run was asked to stop")
)

// SpawnParams is a sub-turn to accept.
type SpawnParams struct {
	// Claim and RunID are the parent's.
	Claim
	RunID string
	// Root is the run at the root of the tree; the parent itself when it is not in a tree.
	Root string
	// Announce: the parent does not wait, and the end is announced in its session.
	Announce bool
	// MaxChildren and MaxTree are how many sub-turns a parent and a tree may have, those that have
	// ended included.
	MaxChildren, MaxTree int
	// Accept is the message.
	Accept AcceptParams
}

// TaskFilter selects sub-turns; zero fields select all.
type TaskFilter struct {
	// ID is the sub-turn, Parents are runs. RootSession is the session of the message at the root
	// of the tree.
	ID          string
	Parents     []string
	RootSession chat.SessionKey
	// Visible restricts to sub-turns of a principal.
	Visible string
	// Open excludes sub-turns that have an outcome.
	Open bool
	// Left selects what a crash may have left: sub-turns without an outcome whose parent was
	// stopped, or whose parent has ended although it waited for them; and those that have ended and
	// are not announced. All other fields except Limit are then ignored.
	Left bool
	// Limit bounds the list; 0 = [DefaultTasks].
	Limit int
}

// DefaultTasks is the default limit of a list of sub-turns, and TaskText how many characters of
// each message it has.
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

// Left reports whether the sub-turn is to be stopped because no parent waits for it: its parent was
// stopped, or has ended although it waited.
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

// StateOf is the state of a turn: the state of its run while it runs, else of its row in the inbox;
// "" when neither exists.
func StateOf(message, run string) string {
	if message == StateRunning && run != "" {
		return run
	}
	return message
}

const (
	// QuestionLife is the longest time for which a question can be answered.
	QuestionLife = 10 * time.Minute
	// MaxQuestions bounds the open questions of one person.
	MaxQuestions = 20
	// questionKept is how long a question is kept after its life, so that a repeated answer gets
	// the same result.
	questionKept = time.Hour
)

// QuestionKept is how long after its creation a question is kept when no further action depends on
// it.
const QuestionKept = QuestionLife + questionKept

// States of a question.
const (
	QuestionOpen    = "open"
	QuestionDenied  = "denied"
	QuestionAllowed = "allowed" // the call is still to be made
	QuestionDone    = "done"    // the call was made
	QuestionChosen  = "chosen"  // the waiting turn has its answer
	QuestionClosed  = "closed"  // the turn no longer waits
)

// ErrQuestionsFull means that the person has [MaxQuestions] open questions.
var ErrQuestionsFull = chat.Errorf(chat.CodeLimit, "too many questions wait for this person's answer")

// Question is a question to a person: whether a tool call is allowed, or one whose answer a turn
// waits for.
type Question struct {
	ID string
	// Owner is the principal that may answer.
	Owner string
	// Session is where the question was asked; it ends with the session.
	Session chat.SessionKey
	// Body is the content of the question, as JSON that the store does not read.
	Body json.RawMessage
	// Waits is the node whose turn waits for the answer; the question ends with that node. "" when
	// no turn waits: any node may then make the call once it is allowed.
	Waits string
	// Life is how long the question can be answered, at most [QuestionLife], which is also the
	// default.
	Life time.Duration

	// The store sets these. Result is nil until the call was made; Option is the option chosen for
	// a turn, counted from 1.
	State     string
	AskedAt   time.Time
	ExpiresAt time.Time
	Result    *chat.ToolResult
	Option    int
}

// AnswerQuestion is an answer to a question.
type AnswerQuestion struct {
	ID, By string
	// Option is the number of the chosen option, from 1. Allow: this option allows the call.
	Option int
	Allow  bool
	// Node makes the call when it is allowed.
	Node string
	// Always is stored with the answer of a turn; nil stores nothing.
	Always *chat.Approval
}

// TakeQuestionsParams are the parameters of TakeQuestions. InHand are the allowed calls that the
// node is making.
type TakeQuestionsParams struct {
	Node   string
	InHand []string
	Limit  int
}

// Lives is Life within its bounds.
func (q Question) Lives() time.Duration {
	if q.Life <= 0 || q.Life > QuestionLife {
		return QuestionLife
	}
	return q.Life
}

// Answered is the question after an answer, or chat.ErrNotFound. It does not check the person.
// alive: the node of the waiting turn is alive.
func (q Question) Answered(a AnswerQuestion, now time.Time, alive bool) (Question, error) {
	refused := q.State == QuestionClosed
	switch {
	case q.State == QuestionOpen && (!q.ExpiresAt.After(now) || (q.Waits != "" && !alive)):
		refused = true
	case q.State == QuestionOpen && q.Waits != "":
		q.State, q.Option = QuestionChosen, a.Option
	case q.State == QuestionOpen && a.Allow:
		q.State = QuestionAllowed
	case q.State == QuestionOpen:
		q.State = QuestionDenied
	case q.State == QuestionChosen:
		refused = q.Option != a.Option
	case q.State == QuestionDenied:
		refused = a.Allow
	case q.State == QuestionAllowed, q.State == QuestionDone:
		refused = !a.Allow
	}
	if refused {
		return q, chat.ErrNotFound
	}
	return q, nil
}

// Filled is the question with the columns node and result filled in. Their meaning depends on the
// state.
func (q Question) Filled(node, result string) (out Question, err error) {
	switch q.State {
	case QuestionOpen, QuestionClosed:
		q.Waits = node
	case QuestionChosen:
		q.Waits = node
		q.Option, err = strconv.Atoi(result)
	case QuestionDone:
		q.Result = &chat.ToolResult{}
		err = json.Unmarshal([]byte(result), q.Result)
	}
	if err != nil {
		return q, fmt.Errorf("reading the result of a question: %w", err)
	}
	return q, nil
}

// Columns are the values of the columns node and result for an answered question. node is the node
// of the answer.
func (q Question) Columns(node string) (column, result string) {
	if q.State == QuestionChosen {
		return q.Waits, strconv.Itoa(q.Option)
	}
	return node, ""
}
