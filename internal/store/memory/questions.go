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
			case known.Owner == q.Owner && known.State == store.QuestionOpen && known.ExpiresAt.After(now) && (known.Waits == "" || s.alive(known.Waits, now)):
				open++
			}
		}
		switch {
		case s.questions[q.ID] != nil:
			return nil
		case open >= store.MaxQuestions:
			return store.ErrQuestionsFull
		}
		q.Body, q.State, q.ExpiresAt, q.Result, q.Option = slices.Clone(q.Body), store.QuestionOpen, now.Add(q.Lives()), nil, 0
		s.questions[q.ID] = &question{Question: q}
		return nil
	})
}

// Question returns a question, see store.Questions.
func (s *Store) Question(ctx context.Context, id string) (out store.Question, err error) {
	err = s.do(ctx, "Question", func(time.Time) error {
		q := s.questions[id]
		if q == nil {
			return chat.ErrNotFound
		}
		out = q.copied()
		return nil
	})
	return out, err
}

// AnswerQuestion answers a question, see store.Questions.
func (s *Store) AnswerQuestion(ctx context.Context, a store.AnswerQuestion) (out store.Question, err error) {
	err = s.do(ctx, "AnswerQuestion", func(now time.Time) error {
		q := s.questions[a.ID]
		if q == nil || q.Owner != a.By {
			return chat.ErrNotFound
		}
		next, err := q.Answered(a, now, s.alive(q.Waits, now))
		if err != nil {
			return err
		}
		if q.State == store.QuestionOpen {
			q.Question, q.node = next, a.Node
		}
		out = q.copied()
		return nil
	})
	return out, err
}

// CloseQuestion ends the wait of a turn, see store.Questions.
func (s *Store) CloseQuestion(ctx context.Context, id string) (out store.Question, err error) {
	err = s.do(ctx, "CloseQuestion", func(time.Time) error {
		q := s.questions[id]
		if q == nil {
			return chat.ErrNotFound
		}
		if q.State == store.QuestionOpen && q.Waits != "" {
			q.State = store.QuestionClosed
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
	out.Body, out.Life = slices.Clone(q.Body), 0
	return out
}
