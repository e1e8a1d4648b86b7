package sqlstore

import (
	"context"
	"strconv"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Questions are the tool calls and turns that wait for an answer of a person.
type Questions struct{ db Engine }

var _ store.Questions = Questions{}

const (
	questionColumns = `id, owner, session_key, state, asked_at, expires_at, call, node, result`
	questionByID    = `SELECT ` + questionColumns + ` FROM tool_questions WHERE id = $1`

	// openQuestion is the condition that a question can be answered: it has not expired, and the node of a waiting turn is alive.
	openQuestion = `q.state = 'open' AND q.expires_at > {now}
		AND (q.node = '' OR EXISTS (SELECT 1 FROM nodes n WHERE n.id = q.node AND n.lease_until > {now}))`

	// countQuestionsSQL counts rows with the id of the question, and the open questions of its person.
	countQuestionsSQL = `SELECT count(*) FILTER (WHERE q.id = $1), count(*) FILTER (WHERE q.owner = $2 AND ` + openQuestion + `)
		FROM tool_questions q WHERE q.id = $1 OR q.owner = $2`

	// leftQuestions are the calls of dead nodes and of node $1.
	leftQuestions = `FROM tool_questions q WHERE q.state = 'allowed'
		AND (q.node = $1 OR NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = q.node AND n.lease_until > {now}))`
)

func scanQuestion(r Row) (q store.Question, err error) {
	var (
		asked, expires     int64
		body, node, result string
	)
	if err := r.Scan(&q.ID, &q.Owner, keyColumn{&q.Session}, &q.State, &asked, &expires, &body, &node, &result); err != nil {
		return q, err
	}
	q.AskedAt, q.ExpiresAt, q.Body = time.UnixMilli(asked).UTC(), time.UnixMilli(expires).UTC(), []byte(body)
	return q.Filled(node, result)
}

// readQuestion reads one question with a query; chat.ErrNotFound.
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
		_, err = tx.Exec(ctx, `INSERT INTO tool_questions (id, owner, session_key, state, node, asked_at, expires_at, call, result)
			VALUES ($1, $2, $3, 'open', $4, {now}, {now} + $5, $6, '')`, q.ID, q.Owner, q.Session.String(), q.Waits, q.Lives().Milliseconds(), string(q.Body))
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

// OpenQuestions lists questions; see store.Questions.
func (s Questions) OpenQuestions(ctx context.Context, owner string, limit int) ([]store.Question, error) {
	return list(ctx, s.db, query{"list open questions", `SELECT ` + questionColumns + ` FROM tool_questions q
		WHERE ` + openQuestion + ` AND ($1 = '' OR q.owner = $1) ORDER BY q.asked_at, q.id LIMIT $2`, []any{owner, limit}}, scanQuestion)
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
		if err == nil && next.State == store.QuestionChosen && a.Always != nil {
			err = approve(ctx, tx, q, *a.Always)
		}
		return next, err
	})
}

// approve stores an approval, once, and removes those of earlier transcripts and the oldest ones beyond the bound.
func approve(ctx context.Context, tx Tx, q store.Question, a chat.Approval) error {
	if err := lockName(ctx, tx, "approvals", q.Owner); err != nil {
		return err
	}
	key := q.Session.String()
	return later(ctx, tx,
		with(`DELETE FROM approvals WHERE session_key = $1 AND owner = $2 AND transcript <> (SELECT session_id FROM sessions WHERE key = $1)`, key, q.Owner),
		with(`INSERT INTO approvals (id, owner, session_key, transcript, agent, act, label, created_at)
			SELECT $1, $2, s.key, s.session_id, $4, $5, $6, {now} FROM sessions s WHERE s.key = $3
				AND NOT EXISTS (SELECT 1 FROM approvals WHERE session_key = $3 AND owner = $2 AND agent = $4 AND act = $5 AND label = $6)`,
			q.ID, q.Owner, key, a.Agent, a.Act, a.Label),
		with(`DELETE FROM approvals WHERE session_key = $1 AND owner = $2 AND created_at <=
			(SELECT created_at FROM approvals WHERE session_key = $1 AND owner = $2 ORDER BY created_at DESC LIMIT 1 OFFSET `+strconv.Itoa(chat.MaxApprovals)+`)`,
			key, q.Owner))
}

// Approvals lists the approvals of a person; see store.Questions.
func (s Questions) Approvals(ctx context.Context, owner string, key chat.SessionKey) ([]chat.Approval, error) {
	return list(ctx, s.db, query{"list approvals", `SELECT a.id, a.agent, a.act, a.label, a.created_at FROM approvals a
		JOIN sessions s ON s.key = a.session_key AND s.session_id = a.transcript
		WHERE a.session_key = $1 AND a.owner = $2 ORDER BY a.created_at, a.id`, []any{key.String(), owner}}, func(r Row) (a chat.Approval, err error) {
		var at int64
		err = r.Scan(&a.ID, &a.Agent, &a.Act, &a.Label, &at)
		a.At = time.UnixMilli(at).UTC()
		return a, err
	})
}

// Revoke removes approvals; see store.Questions.
func (s Questions) Revoke(ctx context.Context, owner string, key chat.SessionKey, id string) (int, error) {
	return result(ctx, s.db.Update, "revoke approvals", func(ctx context.Context, tx Tx) (int, error) {
		n, err := tx.Exec(ctx, `DELETE FROM approvals WHERE session_key = $1 AND owner = $2 AND ($3 = '' OR id = $3)
			AND transcript = (SELECT session_id FROM sessions WHERE key = $1)`, key.String(), owner, id)
		return int(n), err
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

// TakeQuestions assigns to the node calls that no process makes; see store.Questions.
func (s Questions) TakeQuestions(ctx context.Context, p store.TakeQuestionsParams) ([]store.Question, error) {
	return poll(ctx, s.db, store.Poll{Kind: PollQuestions, Node: p.Node}, func(ctx context.Context, tx Tx) (f found[[]store.Question], err error) {
		f.out, err = all(ctx, tx, `WITH free AS MATERIALIZED (SELECT q.id `+leftQuestions+` AND NOT (q.id {in $3}) ORDER BY q.id {limit $2} {skip})
			UPDATE tool_questions SET node = $1 WHERE id IN (SELECT id FROM free) RETURNING `+questionColumns, scanQuestion, p.Node, p.Limit, p.InHand)
		f.idle = len(f.out)+len(p.InHand) == 0 && p.Limit > 0
		f.next = func(ctx context.Context, tx Tx) (int64, error) { return leaseEnds(ctx, tx, p.Node) }
		return f, err
	})
}
