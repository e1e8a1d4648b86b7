package sqlite

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const questionColumns = `id, owner, state, expires_at, call, result`

func scanQuestion(row scanner) (q store.Question, err error) {
	var (
		expires int64
		call    string
	)
	err = row.Scan(&q.ID, &q.Owner, &q.State, &expires, &call, jsonColumn{&q.Result})
	q.ExpiresAt, q.Call = time.UnixMilli(expires).UTC(), []byte(call)
	return q, err
}

// PutQuestion stores an open question; see the port.
func (s *Store) PutQuestion(ctx context.Context, q store.Question) error {
	return s.write.do(ctx, ordinary("keep a question"), func(ctx context.Context, t *tx) error {
		old := t.now + (store.QuestionLife - store.QuestionKept).Milliseconds()
		if _, err := t.exec(ctx, `DELETE FROM tool_questions WHERE state <> 'allowed' AND expires_at <= ?`, old); err != nil {
			return err
		}
		var known, open int
		err := t.one(ctx, `SELECT count(*) FILTER (WHERE id = ?), count(*) FILTER (WHERE owner = ? AND state = 'open' AND expires_at > ?) FROM tool_questions
			WHERE id = ? OR owner = ?`, q.ID, q.Owner, t.now, q.ID, q.Owner).Scan(&known, &open)
		switch {
		case err != nil || known > 0:
			return err
		case open >= store.MaxQuestions:
			return store.ErrQuestionsFull
		}
		_, err = t.exec(ctx, `INSERT INTO tool_questions (id, owner, state, node, expires_at, call, result) VALUES (?, ?, 'open', '', ?, ?, '')`,
			q.ID, q.Owner, t.now+store.QuestionLife.Milliseconds(), string(q.Call))
		return err
	})
}

// AnswerQuestion allows or denies a question; see the port.
func (s *Store) AnswerQuestion(ctx context.Context, a store.AnswerQuestion) (store.Question, error) {
	return result(ctx, s.write, ordinary("answer a question"), func(ctx context.Context, t *tx) (q store.Question, err error) {
		q, err = scanQuestion(t.one(ctx, `SELECT `+questionColumns+` FROM tool_questions WHERE id = ? AND owner = ?`, a.ID, a.By))
		if none(err) {
			return q, chat.ErrNotFound
		}
		if err != nil {
			return q, err
		}
		state, err := q.Answered(a.Allow, time.UnixMilli(t.now))
		if err != nil || q.State != store.QuestionOpen {
			return q, err
		}
		q.State = state
		_, err = t.exec(ctx, `UPDATE tool_questions SET state = ?, node = ? WHERE id = ?`, state, a.Node, a.ID)
		return q, err
	})
}

// EndQuestion stores the result of a call; see the port.
func (s *Store) EndQuestion(ctx context.Context, id string, end chat.ToolResult) (bool, error) {
	body, err := encode(end)
	if err != nil {
		return false, err
	}
	return result(ctx, s.write, ordinary("end a question"), func(ctx context.Context, t *tx) (bool, error) {
		n, err := t.exec(ctx, `UPDATE tool_questions SET state = 'done', result = ? WHERE id = ? AND state = 'allowed'`, body, id)
		return n > 0, err
	})
}

// TakeQuestions gives the node calls whose node has ended; see the port.
func (s *Store) TakeQuestions(ctx context.Context, nodeID string, limit int) ([]store.Question, error) {
	const orphans = `FROM tool_questions q WHERE q.state = 'allowed' AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = q.node AND n.lease_until > ?)`
	var some bool
	err := s.view(ctx, "look for questions without a node", func(ctx context.Context, q querier) error {
		return q.one(ctx, `SELECT EXISTS (SELECT 1 `+orphans+`)`, s.now().UnixMilli()).Scan(&some)
	})
	if err != nil || !some {
		return nil, err
	}
	return result(ctx, s.write, ordinary("take questions over"), func(ctx context.Context, t *tx) ([]store.Question, error) {
		rows, err := t.query(ctx, `UPDATE tool_questions SET node = ? WHERE id IN (SELECT q.id `+orphans+` ORDER BY q.id LIMIT ?) RETURNING `+questionColumns,
			nodeID, t.now, limit)
		t.wrote = true
		return collect(rows, err, scanQuestion)
	})
}
