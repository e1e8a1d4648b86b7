package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	questionColumns = `id, owner, session_key, state, expires_at, call, node, result`

	questionSQL = `SELECT ` + questionColumns + ` FROM tool_questions WHERE id = $1`

	putQuestionSQL = `INSERT INTO tool_questions (id, owner, session_key, state, node, expires_at, call, result)
		VALUES ($2, $3, $7, 'open', $6, ` + nowSQL + ` + $4::bigint, $5, '')`

	// countQuestionsSQL counts the question itself and the open ones of its person, without those of turns whose node has ended. $1 clock, $2 id, $3 owner.
	countQuestionsSQL = `SELECT count(*) FILTER (WHERE q.id = $2), count(*) FILTER (WHERE q.owner = $3 AND q.state = 'open' AND q.expires_at > ` + nowSQL + `
			AND (q.node = '' OR EXISTS (SELECT 1 FROM nodes n WHERE n.id = q.node AND n.lease_until > ` + nowSQL + `)))
		FROM tool_questions q WHERE q.id = $2 OR q.owner = $3`

	// takeQuestionsSQL gives a node calls whose node has ended. $1 clock, $2 node, $3 limit.
	takeQuestionsSQL = `UPDATE tool_questions SET node = $2 WHERE id IN (
		SELECT q.id FROM tool_questions q WHERE q.state = 'allowed'
			AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = q.node AND n.lease_until > ` + nowSQL + `)
		ORDER BY q.id LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING ` + questionColumns
)

func scanQuestion(row pgx.CollectableRow) (store.Question, error) { return readQuestion(row) }

func readQuestion(row pgx.Row) (q store.Question, err error) {
	var (
		expires                 int64
		key, body, node, result string
	)
	if err = row.Scan(&q.ID, &q.Owner, &key, &q.State, &expires, &body, &node, &result); err != nil {
		return q, err
	}
	q.Session, q.ExpiresAt, q.Body = parseKey(key), time.UnixMilli(expires).UTC(), []byte(body)
	return q.Filled(node, result)
}

// PutQuestion stores an open question, see store.Questions.
func (s *Store) PutQuestion(ctx context.Context, q store.Question) error {
	return s.within(ctx, "keeping a question", func(ctx context.Context, tx pgx.Tx) error {
		if err := onlyOne(ctx, tx, "tool_questions", q.Owner); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM tool_questions WHERE state <> 'allowed' AND expires_at <= `+nowSQL+` - $2::bigint`,
			s.clock(), (store.QuestionKept - store.QuestionLife).Milliseconds())
		if err != nil {
			return err
		}
		var known, open int
		if err := tx.QueryRow(ctx, countQuestionsSQL, s.clock(), clean(q.ID), clean(q.Owner)).Scan(&known, &open); err != nil || known > 0 {
			return err
		}
		if open >= store.MaxQuestions {
			return store.ErrQuestionsFull
		}
		_, err = tx.Exec(ctx, putQuestionSQL, s.clock(), clean(q.ID), clean(q.Owner), q.Lives().Milliseconds(), clean(string(q.Body)), q.Waits, q.Session.String())
		return err
	})
}

// Question returns a question, see store.Questions.
func (s *Store) Question(ctx context.Context, id string) (q store.Question, err error) {
	err = s.do(ctx, "reading a question", func(ctx context.Context) error {
		q, err = readQuestion(s.pool.QueryRow(ctx, questionSQL, clean(id)))
		return orNone(err, chat.ErrNotFound)
	})
	return q, err
}

// AnswerQuestion answers a question, see store.Questions.
func (s *Store) AnswerQuestion(ctx context.Context, a store.AnswerQuestion) (next store.Question, err error) {
	err = s.within(ctx, "answering a question", func(ctx context.Context, tx pgx.Tx) error {
		q, err := readQuestion(tx.QueryRow(ctx, questionSQL+` AND owner = $2 FOR UPDATE`, clean(a.ID), clean(a.By)))
		if err != nil {
			return orNone(err, chat.ErrNotFound)
		}
		var (
			now   int64
			alive bool
		)
		err = tx.QueryRow(ctx, `SELECT `+nowSQL+`, EXISTS (SELECT 1 FROM nodes WHERE id = $2 AND lease_until > `+nowSQL+`)`, s.clock(), q.Waits).Scan(&now, &alive)
		if err != nil {
			return err
		}
		next, err = q.Answered(a, time.UnixMilli(now), alive)
		if err != nil || next.State == q.State {
			return err
		}
		node, result := next.Columns(a.Node)
		_, err = tx.Exec(ctx, `UPDATE tool_questions SET state = $2, node = $3, result = $4 WHERE id = $1`, q.ID, next.State, node, result)
		return err
	})
	return next, err
}

// CloseQuestion ends the wait of a turn, see store.Questions.
func (s *Store) CloseQuestion(ctx context.Context, id string) (q store.Question, err error) {
	err = s.within(ctx, "closing a question", func(ctx context.Context, tx pgx.Tx) error {
		q, err = readQuestion(tx.QueryRow(ctx, questionSQL+` FOR UPDATE`, clean(id)))
		if err != nil {
			return orNone(err, chat.ErrNotFound)
		}
		if q.State != store.QuestionOpen || q.Waits == "" {
			return nil
		}
		q.State = store.QuestionClosed
		_, err = tx.Exec(ctx, `UPDATE tool_questions SET state = $2 WHERE id = $1`, q.ID, q.State)
		return err
	})
	return q, err
}

// EndQuestion stores the result of a call, see store.Questions.
func (s *Store) EndQuestion(ctx context.Context, id string, result chat.ToolResult) (first bool, err error) {
	body, err := encode(result)
	if err != nil {
		return false, err
	}
	err = s.do(ctx, "ending a question", func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, `UPDATE tool_questions SET state = 'done', result = $2 WHERE id = $1 AND state = 'allowed'`, clean(id), body)
		first = tag.RowsAffected() > 0
		return err
	})
	return first, err
}

// TakeQuestions gives the node calls whose node has ended, see store.Questions.
func (s *Store) TakeQuestions(ctx context.Context, nodeID string, limit int) (list []store.Question, err error) {
	err = s.do(ctx, "taking questions over", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, takeQuestionsSQL, s.clock(), nodeID, limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanQuestion)
		return err
	})
	return list, err
}
