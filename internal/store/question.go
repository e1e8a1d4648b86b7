package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"laneway/internal/chat"
)

const (
	// QuestionLife is the longest time for which a question can be answered.
	QuestionLife = 10 * time.Minute
	// MaxQuestions bounds the open questions of one person.
	MaxQuestions = 20
	// questionKept is how long a question is kept after its life, so that a repeated answer gets the same result.
	questionKept = time.Hour
)

// QuestionKept is how long after its creation a question is kept when no further action depends on it.
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

// Question is a question to a person: whether a tool call is allowed, or one whose answer a turn waits for.
type Question struct {
	ID string
	// Owner is the principal that may answer.
	Owner string
	// Session is where the question was asked; it ends with the session.
	Session chat.SessionKey
	// Body is the content of the question, as JSON that the store does not read.
	Body json.RawMessage
	// Waits is the node whose turn waits for the answer; the question ends with that node. "" when no turn waits: any node may then make the call once it is
	// allowed.
	Waits string
	// Life is how long the question can be answered, at most [QuestionLife], which is also the default.
	Life time.Duration

	// The store sets these. Result is nil until the call was made; Option is the option chosen for a turn, counted from 1.
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

// Questions are the questions to persons. An allowed call is durable from the answer on: the node that received the answer makes the call; if that node dies,
// another one does. An answer for which a turn waits is useless without that turn, so its question ends with it.
type Questions interface {
	// PutQuestion stores an open question for its life. A question whose ID exists is left unchanged. [ErrQuestionsFull]: nothing was stored; questions of
	// turns whose node has died do not count.
	PutQuestion(ctx context.Context, q Question) error
	// Question reads a question; chat.ErrNotFound.
	Question(ctx context.Context, id string) (Question, error)
	// OpenQuestions lists at most limit questions of a person that can be answered, the oldest first; owner "" = of all persons.
	OpenQuestions(ctx context.Context, owner string, limit int) ([]Question, error)
	// AnswerQuestion answers an open question and returns it. Repeating the same answer returns the current question. chat.ErrNotFound: this person has no such
	// question, it has expired, it has another answer, or the turn that waited has ended.
	AnswerQuestion(ctx context.Context, a AnswerQuestion) (Question, error)
	// Approvals lists the approvals of a person for the current transcript of a conversation, the oldest first, at most [chat.MaxApprovals].
	Approvals(ctx context.Context, owner string, key chat.SessionKey) ([]chat.Approval, error)
	// Revoke removes one approval, or all with id "", and returns how many it removed.
	Revoke(ctx context.Context, owner string, key chat.SessionKey, id string) (int, error)
	// CloseQuestion ends the wait of a turn: an open question cannot be answered any more. It returns the question as it is then; chat.ErrNotFound.
	CloseQuestion(ctx context.Context, id string) (Question, error)
	// EndQuestion stores the result of an allowed call. first is false when a result exists already; that one is kept.
	EndQuestion(ctx context.Context, id string, result chat.ToolResult) (first bool, err error)
	// TakeQuestions assigns to the node at most Limit allowed calls that no process makes: their node has died, or is this one, which does not know them because
	// the reply to the commit that gave it the call was lost.
	TakeQuestions(ctx context.Context, p TakeQuestionsParams) ([]Question, error)
}

// TakeQuestionsParams are the parameters of TakeQuestions. InHand are the allowed calls that the node is making.
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

// Answered is the question after an answer, or chat.ErrNotFound. It does not check the person. alive: the node of the waiting turn is alive.
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

// Filled is the question with the columns node and result filled in. Their meaning depends on the state.
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

// Columns are the values of the columns node and result for an answered question. node is the node of the answer.
func (q Question) Columns(node string) (column, result string) {
	if q.State == QuestionChosen {
		return q.Waits, strconv.Itoa(q.Option)
	}
	return node, ""
}
