package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	questionColumns = `id, owner, state, expires_at, call, result`

	putQuestionSQL = `INSERT INTO tool_questions (id, owner, state, node, expires_at, call, result)
		VALUES ($2, $3, 'open', '', ` + nowSQL + ` + $4::bigint, $5, '')`

	// countQuestionsSQL counts the question itself and the open ones of its person. $1 clock, $2 id, $3 owner.
	countQuestionsSQL = `SELECT count(*) FILTER (WHERE id = $2), count(*) FILTER (WHERE owner = $3 AND state = 'open' AND expires_at > ` + nowSQL + `)
		FROM tool_questions WHERE id = $2 OR owner = $3`

	// takeQuestionsSQL gives a node calls whose node has ended. $1 clock, $2 node, $3 limit.
	takeQuestionsSQL = `UPDATE tool_questions SET node = $2 WHERE id IN (
		SELECT q.id FROM tool_questions q WHERE q.state = 'allowed'
			AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = q.node AND n.lease_until > ` + nowSQL + `)
		ORDER BY q.id LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING ` + questionColumns
)

func scanQuestion(row pgx.CollectableRow) (store.Question, error) { return readQuestion(row) }

func readQuestion(row pgx.Row) (q store.Question, err error) {
	var (
		expires      int64
		call, result string
	)
	if err = row.Scan(&q.ID, &q.Owner, &q.State, &expires, &call, &result); err != nil {
		return q, err
	}
	q.ExpiresAt, q.Call = time.UnixMilli(expires).UTC(), []byte(call)
	if result != "" {
		q.Result = &chat.ToolResult{}
		err = json.Unmarshal([]byte(result), q.Result)
	}
	return q, err
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
		_, err = tx.Exec(ctx, putQuestionSQL, s.clock(), clean(q.ID), clean(q.Owner), store.QuestionLife.Milliseconds(), clean(string(q.Call)))
		return err
	})
}

// AnswerQuestion allows or denies a question, see store.Questions.
func (s *Store) AnswerQuestion(ctx context.Context, a store.AnswerQuestion) (q store.Question, err error) {
	err = s.within(ctx, "answering a question", func(ctx context.Context, tx pgx.Tx) error {
		var now int64
		q, err = readQuestion(tx.QueryRow(ctx, `SELECT `+questionColumns+` FROM tool_questions WHERE id = $1 AND owner = $2 FOR UPDATE`, clean(a.ID), clean(a.By)))
		if err != nil {
			return orNone(err, chat.ErrNotFound)
		}
		if err := tx.QueryRow(ctx, `SELECT `+nowSQL, s.clock()).Scan(&now); err != nil {
			return err
		}
		state, err := q.Answered(a.Allow, time.UnixMilli(now))
		if err != nil || q.State != store.QuestionOpen {
			return err
		}
		q.State = state
		_, err = tx.Exec(ctx, `UPDATE tool_questions SET state = $2, node = $3 WHERE id = $1`, q.ID, state, a.Node)
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
