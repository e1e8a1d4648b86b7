package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// question is a question with the node that makes its call.
type question struct {
	store.Question

	node string
}

// PutQuestion stores an open question, see store.Questions.
func (s *Store) PutQuestion(ctx context.Context, q store.Question) error {
	return s.do(ctx, "PutQuestion", func(now time.Time) error {
		open := 0
		for id, known := range s.questions {
			switch {
			case known.State != store.QuestionAllowed && !known.ExpiresAt.After(now.Add(store.QuestionLife-store.QuestionKept)):
				delete(s.questions, id)
			case known.Owner == q.Owner && known.State == store.QuestionOpen && known.ExpiresAt.After(now):
				open++
			}
		}
		switch {
		case s.questions[q.ID] != nil:
			return nil
		case open >= store.MaxQuestions:
			return store.ErrQuestionsFull
		}
		q.Call, q.State, q.ExpiresAt, q.Result = slices.Clone(q.Call), store.QuestionOpen, now.Add(store.QuestionLife), nil
		s.questions[q.ID] = &question{Question: q}
		return nil
	})
}

// AnswerQuestion allows or denies a question, see store.Questions.
func (s *Store) AnswerQuestion(ctx context.Context, a store.AnswerQuestion) (out store.Question, err error) {
	err = s.do(ctx, "AnswerQuestion", func(now time.Time) error {
		q := s.questions[a.ID]
		if q == nil || q.Owner != a.By {
			return chat.ErrNotFound
		}
		state, err := q.Answered(a.Allow, now)
		if err != nil {
			return err
		}
		if q.State == store.QuestionOpen {
			q.State, q.node = state, a.Node
		}
		out = q.copied()
		return nil
	})
	return out, err
}

// EndQuestion stores the result of a call, see store.Questions.
func (s *Store) EndQuestion(ctx context.Context, id string, result chat.ToolResult) (first bool, err error) {
	err = s.do(ctx, "EndQuestion", func(time.Time) error {
		if q := s.questions[id]; q != nil && q.State == store.QuestionAllowed {
			q.State, q.Result, first = store.QuestionDone, &result, true
		}
		return nil
	})
	return first, err
}

// TakeQuestions gives the node calls whose node has ended, see store.Questions.
func (s *Store) TakeQuestions(ctx context.Context, nodeID string, limit int) (out []store.Question, err error) {
	err = s.do(ctx, "TakeQuestions", func(now time.Time) error {
		var orphans []*question
		for _, q := range s.questions {
			if q.State == store.QuestionAllowed && !s.alive(q.node, now) {
				orphans = append(orphans, q)
			}
		}
		slices.SortFunc(orphans, func(a, b *question) int { return cmp.Compare(a.ID, b.ID) })
		for _, q := range orphans[:min(limit, len(orphans))] {
			q.node = nodeID
			out = append(out, q.copied())
		}
		return nil
	})
	return out, err
}

func (q *question) copied() store.Question {
	out := q.Question
	out.Call = slices.Clone(q.Call)
	return out
}
