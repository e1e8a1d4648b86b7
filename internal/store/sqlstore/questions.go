package sqlstore

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Questions are the calls of tools that wait for an answer of a person.
type Questions struct{ db Engine }

var _ store.Questions = Questions{}

const (
	questionColumns = `id, owner, session_key, state, expires_at, call, node, result`
	questionByID    = `SELECT ` + questionColumns + ` FROM tool_questions WHERE id = $1`

	// countQuestionsSQL counts the question itself and the open ones of its person, without those of turns whose node has ended.
	countQuestionsSQL = `SELECT count(*) FILTER (WHERE q.id = $1), count(*) FILTER (WHERE q.owner = $2 AND q.state = 'open' AND q.expires_at > {now}
			AND (q.node = '' OR EXISTS (SELECT 1 FROM nodes n WHERE n.id = q.node AND n.lease_until > {now})))
		FROM tool_questions q WHERE q.id = $1 OR q.owner = $2`

	leftQuestions = `FROM tool_questions q WHERE q.state = 'allowed'
		AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = q.node AND n.lease_until > {now})`
)

func scanQuestion(r Row) (q store.Question, err error) {
	var (
		expires            int64
		body, node, result string
	)
	if err := r.Scan(&q.ID, &q.Owner, keyColumn{&q.Session}, &q.State, &expires, &body, &node, &result); err != nil {
		return q, err
	}
	q.ExpiresAt, q.Body = time.UnixMilli(expires).UTC(), []byte(body)
	return q.Filled(node, result)
}

// readQuestion reads a question by a query; chat.ErrNotFound.
func readQuestion(ctx context.Context, tx Tx, text string, args ...any) (q store.Question, err error) {
	found, err := one(ctx, tx, text, func(r Row) (err error) { q, err = scanQuestion(r); return err }, args...)
	if err == nil && !found {
		err = chat.ErrNotFound
	}
	return q, err
}

// PutQuestion stores an open question; see store.Questions.
func (s Questions) PutQuestion(ctx context.Context, q store.Question) error {
	return s.db.Update(ctx, "keep a question", func(ctx context.Context, tx Tx) error {
		if err := lockName(ctx, tx, "tool_questions", q.Owner); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM tool_questions WHERE state <> 'allowed' AND expires_at <= {now} - $1`,
			(store.QuestionKept - store.QuestionLife).Milliseconds())
		if err != nil {
			return err
		}
		var known, open int
		_, err = one(ctx, tx, countQuestionsSQL, into(&known, &open), q.ID, q.Owner)
		switch {
		case err != nil || known > 0:
			return err
		case open >= store.MaxQuestions:
			return store.ErrQuestionsFull
		}
		_, err = tx.Exec(ctx, `INSERT INTO tool_questions (id, owner, session_key, state, node, expires_at, call, result)
			VALUES ($1, $2, $3, 'open', $4, {now} + $5, $6, '')`, q.ID, q.Owner, q.Session.String(), q.Waits, q.Lives().Milliseconds(), string(q.Body))
		return err
	})
}

// Question returns a question; see store.Questions.
func (s Questions) Question(ctx context.Context, id string) (q store.Question, err error) {
	err = s.db.View(ctx, "read a question", func(ctx context.Context, tx Tx) (err error) {
		q, err = readQuestion(ctx, tx, questionByID, id)
		return err
	})
	return q, err
}

// AnswerQuestion answers a question; see store.Questions.
func (s Questions) AnswerQuestion(ctx context.Context, a store.AnswerQuestion) (store.Question, error) {
	return result(ctx, s.db.Update, "answer a question", func(ctx context.Context, tx Tx) (next store.Question, err error) {
		q, err := readQuestion(ctx, tx, questionByID+` AND owner = $2 {lock}`, a.ID, a.By)
		if err != nil {
			return next, err
		}
		var (
			now   int64
			alive bool
		)
		_, err = one(ctx, tx, `SELECT {now}, EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND lease_until > {now})`, into(&now, &alive), q.Waits)
		if err != nil {
			return next, err
		}
		next, err = q.Answered(a, time.UnixMilli(now), alive)
		if err != nil || next.State == q.State {
			return next, err
		}
		node, end := next.Columns(a.Node)
		_, err = tx.Exec(ctx, `UPDATE tool_questions SET state = $2, node = $3, result = $4 WHERE id = $1`, q.ID, next.State, node, end)
		return next, err
	})
}

// CloseQuestion ends the wait of a turn; see store.Questions.
func (s Questions) CloseQuestion(ctx context.Context, id string) (store.Question, error) {
	return result(ctx, s.db.Update, "close a question", func(ctx context.Context, tx Tx) (store.Question, error) {
		_, err := tx.Exec(ctx, `UPDATE tool_questions SET state = 'closed' WHERE id = $1 AND state = 'open' AND node <> ''`, id)
		if err != nil {
			return store.Question{}, err
		}
		return readQuestion(ctx, tx, questionByID, id)
	})
}

// EndQuestion stores the result of a call; see store.Questions.
func (s Questions) EndQuestion(ctx context.Context, id string, end chat.ToolResult) (first bool, err error) {
	body, err := encode(end)
	if err != nil {
		return false, err
	}
	return result(ctx, s.db.Update, "end a question", func(ctx context.Context, tx Tx) (bool, error) {
		n, err := tx.Exec(ctx, `UPDATE tool_questions SET state = 'done', result = $2 WHERE id = $1 AND state = 'allowed'`, id, body)
		return n > 0, err
	})
}

// TakeQuestions gives the node calls whose node has ended; see store.Questions. It writes only when there are some.
func (s Questions) TakeQuestions(ctx context.Context, nodeID string, limit int) ([]store.Question, error) {
	some, err := value[bool](ctx, s.db, query{"look for questions without a node", `SELECT EXISTS (SELECT 1 ` + leftQuestions + `)`, nil})
	if err != nil || !some {
		return nil, err
	}
	return result(ctx, s.db.Update, "take questions over", func(ctx context.Context, tx Tx) ([]store.Question, error) {
		return all(ctx, tx, `WITH free AS MATERIALIZED (SELECT q.id `+leftQuestions+` ORDER BY q.id {limit $2} {skip})
			UPDATE tool_questions SET node = $1 WHERE id IN (SELECT id FROM free) RETURNING `+questionColumns, scanQuestion, nodeID, limit)
	})
}
