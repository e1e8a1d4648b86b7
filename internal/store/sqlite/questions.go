package sqlite

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const questionColumns = `id, owner, session_key, state, expires_at, call, node, result`

func scanQuestion(row scanner) (q store.Question, err error) {
	var (
		expires            int64
		body, node, result string
	)
	if err = row.Scan(&q.ID, &q.Owner, keyColumn{&q.Session}, &q.State, &expires, &body, &node, &result); err != nil {
		return q, err
	}
	q.ExpiresAt, q.Body = time.UnixMilli(expires).UTC(), []byte(body)
	return q.Filled(node, result)
}

// PutQuestion stores an open question; see the port.
func (s *Store) PutQuestion(ctx context.Context, q store.Question) error {
	return s.write.do(ctx, ordinary("keep a question"), func(ctx context.Context, t *tx) error {
		old := t.now + (store.QuestionLife - store.QuestionKept).Milliseconds()
		if _, err := t.exec(ctx, `DELETE FROM tool_questions WHERE state <> 'allowed' AND expires_at <= ?`, old); err != nil {
			return err
		}
		var known, open int
		err := t.one(ctx, `SELECT count(*) FILTER (WHERE q.id = ?), count(*) FILTER (WHERE q.owner = ? AND q.state = 'open' AND q.expires_at > ?
				AND (q.node = '' OR EXISTS (SELECT 1 FROM nodes n WHERE n.id = q.node AND n.lease_until > ?)))
			FROM tool_questions q WHERE q.id = ? OR q.owner = ?`, q.ID, q.Owner, t.now, t.now, q.ID, q.Owner).Scan(&known, &open)
		switch {
		case err != nil || known > 0:
			return err
		case open >= store.MaxQuestions:
			return store.ErrQuestionsFull
		}
		_, err = t.exec(ctx, `INSERT INTO tool_questions (id, owner, session_key, state, node, expires_at, call, result) VALUES (?, ?, ?, 'open', ?, ?, ?, '')`,
			q.ID, q.Owner, q.Session.String(), q.Waits, t.now+q.Lives().Milliseconds(), string(q.Body))
		return err
	})
}

const questionByID = `SELECT ` + questionColumns + ` FROM tool_questions WHERE id = ?`

// Question returns a question; see the port.
func (s *Store) Question(ctx context.Context, id string) (out store.Question, err error) {
	err = s.view(ctx, "read a question", func(ctx context.Context, q querier) (err error) {
		out, err = scanQuestion(q.one(ctx, questionByID, id))
		if none(err) {
			return chat.ErrNotFound
		}
		return err
	})
	return out, err
}

// AnswerQuestion answers a question; see the port.
func (s *Store) AnswerQuestion(ctx context.Context, a store.AnswerQuestion) (store.Question, error) {
	return result(ctx, s.write, ordinary("answer a question"), func(ctx context.Context, t *tx) (q store.Question, err error) {
		q, err = scanQuestion(t.one(ctx, questionByID+` AND owner = ?`, a.ID, a.By))
		if none(err) {
			return q, chat.ErrNotFound
		}
		if err != nil {
			return q, err
		}
		var alive bool
		err = t.one(ctx, `SELECT EXISTS (SELECT 1 FROM nodes WHERE id = ? AND lease_until > ?)`, q.Waits, t.now).Scan(&alive)
		if err != nil {
			return q, err
		}
		next, err := q.Answered(a, time.UnixMilli(t.now), alive)
		if err != nil || next.State == q.State {
			return next, err
		}
		node, end := next.Columns(a.Node)
		_, err = t.exec(ctx, `UPDATE tool_questions SET state = ?, node = ?, result = ? WHERE id = ?`, next.State, node, end, a.ID)
		return next, err
	})
}

// CloseQuestion ends the wait of a turn; see the port.
func (s *Store) CloseQuestion(ctx context.Context, id string) (store.Question, error) {
	return result(ctx, s.write, ordinary("close a question"), func(ctx context.Context, t *tx) (q store.Question, err error) {
		if _, err = t.exec(ctx, `UPDATE tool_questions SET state = 'closed' WHERE id = ? AND state = 'open' AND node <> ''`, id); err != nil {
			return q, err
		}
		q, err = scanQuestion(t.one(ctx, questionByID, id))
		if none(err) {
			return q, chat.ErrNotFound
		}
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
		rows, err := t.query(ctx, `UPDATE tool_questions SET node = ? WHERE id IN (SELECT q.id `+orphans+` ORDER BY q.id LIMIT +?) RETURNING `+questionColumns,
			nodeID, t.now, limit)
		t.wrote = true
		return collect(rows, err, scanQuestion)
	})
}
