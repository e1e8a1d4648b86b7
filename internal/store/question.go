package store

import (
	"context"
	"encoding/json"
	"time"

	"laneway/internal/chat"
)

const (
	// QuestionLife is how long a question can be answered.
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
)

// ErrQuestionsFull: the person has [MaxQuestions] open questions.
var ErrQuestionsFull = chat.Errorf(chat.CodeLimit, "too many questions wait for this person's answer")

// Question is a call of a tool that is made when a person allows it.
type Question struct {
	ID string
	// Owner is the principal that may answer.
	Owner string
	// Call is what is to be done, JSON that the store does not read.
	Call json.RawMessage

	// The store sets these. Result is nil until the call was made.
	State     string
	ExpiresAt time.Time
	Result    *chat.ToolResult
}

// AnswerQuestion is an answer to a question.
type AnswerQuestion struct {
	ID, By string
	Allow  bool
	// Node makes the call that is allowed.
	Node string
}

// Questions are the calls of tools about which persons are asked. An allowed call is durable from the answer on: the node that took the answer makes it,
// and after the end of that node another one.
type Questions interface {
	// PutQuestion stores an open question for [QuestionLife]. One whose ID is there is left unchanged. [ErrQuestionsFull] stores nothing.
	PutQuestion(ctx context.Context, q Question) error
	// AnswerQuestion allows or denies an open question and returns it. The same answer again returns the question as it is now. chat.ErrNotFound: there
	// is no such question of this person, it has expired, or it was answered otherwise.
	AnswerQuestion(ctx context.Context, a AnswerQuestion) (Question, error)
	// EndQuestion stores the result of an allowed call. first is false when there is one already, which stays.
	EndQuestion(ctx context.Context, id string, result chat.ToolResult) (first bool, err error)
	// TakeQuestions gives the node allowed calls whose node has ended, at most limit of them.
	TakeQuestions(ctx context.Context, nodeID string, limit int) ([]Question, error)
}

// Answered is what an answer makes of a question in a state: the next state, or chat.ErrNotFound. It does not look at the person.
func (q Question) Answered(allow bool, now time.Time) (state string, err error) {
	switch {
	case q.State == QuestionOpen && !q.ExpiresAt.After(now):
		return "", chat.ErrNotFound
	case q.State == QuestionOpen && allow:
		return QuestionAllowed, nil
	case q.State == QuestionOpen:
		return QuestionDenied, nil
	case allow == (q.State == QuestionDenied):
		return "", chat.ErrNotFound
	default:
		return q.State, nil
	}
}
