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
	// QuestionLife is how long a question can be answered at most.
	QuestionLife = 10 * time.Minute
	// MaxQuestions is how many open questions one person has at most.
	MaxQuestions = 20
	// questionKept is how long an ended question is kept after its life, so that a repeated answer gets the same result.
	questionKept = time.Hour
)

// QuestionKept is how long after it was asked a question that needs nothing more is kept.
const QuestionKept = QuestionLife + questionKept

// States of a question.
const (
	QuestionOpen    = "open"
	QuestionDenied  = "denied"
	QuestionAllowed = "allowed" // the call has to be made
	QuestionDone    = "done"    // the call was made
	QuestionChosen  = "chosen"  // the turn that waits has its answer
	QuestionClosed  = "closed"  // the turn waits no more
)

// ErrQuestionsFull means that the person has [MaxQuestions] open questions.
var ErrQuestionsFull = chat.Errorf(chat.CodeLimit, "too many questions wait for this person's answer")

// Question is what a person is asked: whether a call of a tool may be made, or something for which a turn waits.
type Question struct {
	ID string
	// Owner is the principal that may answer.
	Owner string
	// Session is where it was asked: the question ends with the session.
	Session chat.SessionKey
	// Body is what the question is about, JSON that the store does not read.
	Body json.RawMessage
	// Waits is the node whose turn waits for the answer: the question ends with that node. "" = no turn waits; the call is made when it is allowed, by
	// any node.
	Waits string
	// Life is how long the question can be answered; 0 or more than [QuestionLife] = that.
	Life time.Duration

	// The store sets these. Result is nil until the call was made; Option is what was chosen for a turn, from 1.
	State     string
	AskedAt   time.Time
	ExpiresAt time.Time
	Result    *chat.ToolResult
	Option    int
}

// AnswerQuestion is an answer to a question.
type AnswerQuestion struct {
	ID, By string
	// Option is the number of the chosen option, from 1. Allow: it is one that allows.
	Option int
	Allow  bool
	// Node makes the call that is allowed.
	Node string
	// Always is kept with the answer of a turn, nil = nothing is.
	Always *chat.Approval
}

// Questions are what persons are asked. An allowed call is durable from the answer on: the node that took the answer makes it, and after the end of that node
// another one. An answer for which a turn waits is of no use without that turn, so that question ends with it.
type Questions interface {
	// PutQuestion stores an open question for its life. One whose ID is there is left unchanged. [ErrQuestionsFull] stores nothing; questions of turns whose node has
	// ended do not count.
	PutQuestion(ctx context.Context, q Question) error
	// Question returns a question as it is now; chat.ErrNotFound.
	Question(ctx context.Context, id string) (Question, error)
	// OpenQuestions lists the questions of a person, owner "" = of all, that can be answered, the oldest first, at most limit of them.
	OpenQuestions(ctx context.Context, owner string, limit int) ([]Question, error)
	// AnswerQuestion answers an open question and returns it. The same answer again returns the question as it is now. chat.ErrNotFound: there
	// is no such question of this person, it has expired, it was answered otherwise, or the turn that waited has ended.
	AnswerQuestion(ctx context.Context, a AnswerQuestion) (Question, error)
	// Approvals are those of a person for the current transcript of a conversation, the oldest first, at most [chat.MaxApprovals].
	Approvals(ctx context.Context, owner string, key chat.SessionKey) ([]chat.Approval, error)
	// Revoke removes one of them, id "" = all, and returns how many were removed.
	Revoke(ctx context.Context, owner string, key chat.SessionKey, id string) (int, error)
	// CloseQuestion ends the wait of a turn: a question that is open cannot be answered any more. It returns the question as it is then; chat.ErrNotFound.
	CloseQuestion(ctx context.Context, id string) (Question, error)
	// EndQuestion stores the result of an allowed call. first is false when there is one already, which stays.
	EndQuestion(ctx context.Context, id string, result chat.ToolResult) (first bool, err error)
	// TakeQuestions gives the node allowed calls whose node has ended, at most limit of them.
	TakeQuestions(ctx context.Context, nodeID string, limit int) ([]Question, error)
}

// Lives is the life of the question within its bounds.
func (q Question) Lives() time.Duration {
	if q.Life <= 0 || q.Life > QuestionLife {
		return QuestionLife
	}
	return q.Life
}

// Answered is what an answer makes of the question, or chat.ErrNotFound. It does not look at the person. alive: the node of the turn that waits has not ended.
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

// Filled is the question with what adapters keep in the columns node and result, whose meaning depends on the state.
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

// Columns are what adapters write of an answered question into the columns node and result. node is that of the answer.
func (q Question) Columns(node string) (column, result string) {
	if q.State == QuestionChosen {
		return q.Waits, strconv.Itoa(q.Option)
	}
	return node, ""
}
