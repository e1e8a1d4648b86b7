package sqlstore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// SubTurns are messages that running turns have requested.
type SubTurns struct{ db Engine }

// Yield records that a run has no slot, or has one again; see store.Store.
func (s SubTurns) Yield(ctx context.Context, c store.Claim, runID string, away bool) error {
	state := store.RunRunning
	if away {
		state = store.RunYielded
	}
	return s.db.Turn(ctx, "yield a run", Alone, func(ctx context.Context, tx Tx) error {
		if err := fenceRun(ctx, tx, c, runID); err != nil {
			return err
		}
		return tx.Later(ctx, `UPDATE runs SET state = $2 WHERE id = $1`, nil, runID, state)
	})
}

// Announced records that the end of a sub-turn needs no further announcement; see store.Store.
func (s SubTurns) Announced(ctx context.Context, id string) error {
	return s.db.Turn(ctx, "note an announcement", Alone, func(ctx context.Context, tx Tx) error {
		return tx.Later(ctx, `UPDATE inbox SET announce = 0 WHERE message_id = $1`, nil, id)
	})
}

// taskSQL reads sub-turns; %s is an index hint, and conditions follow. $1 characters of the
// message.
const taskSQL = `SELECT i.message_id, i.session_key, i.parent, i.root, i.lane, substr({json i.body} ->> 'text', 1, CAST($1 AS integer)), i.principal, i.state,
		COALESCE(i.outcome, ''), i.reason, COALESCE(r.error, ''), i.announce = 1, COALESCE(p.outcome, ''), i.accepted_at, r.started_at, i.ended_at,
		COALESCE(r.state, '')
	FROM inbox i%s LEFT JOIN inbox p ON p.message_id = i.parent LEFT JOIN runs r ON r.id = i.message_id WHERE i.parent IS NOT NULL`

// taskRows is taskSQL with the index that SQLite must use; "" leaves the choice to SQLite.
func taskRows(index string) string {
	if index != "" {
		index = " {by " + index + "}"
	}
	return strings.Replace(taskSQL, "%s", index, 1)
}

// openTasks is the condition of the index inbox_tasks, which the engines have in two forms.
func openTasks(tx Tx) string {
	return taskRows("inbox_tasks") + ` AND (` + tx.PerEngine(`i.ended_at IS NULL`, `i.state <> 'done'`) + ` OR i.announce = 1)`
}

func scanTask(r Row) (v store.Task, err error) {
	var ran string
	err = r.Scan(&v.ID, keyColumn{&v.Session}, &v.Parent, &v.Root, &v.Lane, &v.Text, &v.Principal, &v.State, &v.Outcome, &v.Reason, &v.Error, &v.Announce,
		&v.ParentOutcome, instant{&v.AcceptedAt}, instant{&v.StartedAt}, instant{&v.EndedAt}, &ran)
	v.Agent, v.State = v.Session.Agent, store.StateOf(v.State, ran)
	return v, err
}

// Tasks lists sub-turns; see store.Store. Reading what a crash may have left is a poll.
func (s SubTurns) Tasks(ctx context.Context, f store.TaskFilter) (list []store.Task, err error) {
	if f.Left {
		return poll(ctx, s.db, store.Poll{Kind: PollTasks}, func(ctx context.Context, tx Tx) (left found[[]store.Task], err error) {
			text, args := tasksSQL(tx, f)
			left.out, err = all(ctx, tx, text, scanTask, args...)
			left.idle = len(left.out) == 0
			return left, err
		})
	}
	err = s.db.List(ctx, "list sub-turns", func(ctx context.Context, tx Tx) (err error) {
		text, args := tasksSQL(tx, f)
		list, err = all(ctx, tx, text, scanTask, args...)
		return err
	})
	return list, err
}

// leftTasks selects what a crash may have left. Its cost is proportional to the open sub-turns.
const leftTasks = ` AND CASE WHEN i.state = 'done' THEN i.announce = 1 WHEN p.outcome IN ('` + string(chat.OutcomeStopped) + `', '` + string(chat.OutcomeSuperseded) + `') THEN true
	ELSE p.outcome IS NOT NULL AND i.announce = 0 END ORDER BY i.accepted_at, i.message_id {limit $2}`

// tasksSQL contains only the conditions in use, so that each can use its index.
func tasksSQL(tx Tx, f store.TaskFilter) (text string, args []any) {
	args = []any{store.TaskText, f.Most()}
	switch {
	case f.Left:
		return openTasks(tx) + leftTasks, args
	case f.ID != "" || len(f.Parents) > 0:
		text = taskRows("")
	case f.Open:
		text = openTasks(tx)
	default:
		text = taskRows("inbox_task_times")
	}
	where := func(condition string, value any) {
		args = append(args, value)
		text += ` AND ` + strings.Replace(condition, "$n", "$"+strconv.Itoa(len(args)), 1)
	}
	if f.Open {
		text += ` AND {open i}`
	}
	if f.ID != "" {
		where(`i.message_id = $n`, f.ID)
	}
	if len(f.Parents) > 0 {
		where(`i.parent {in $n}`, f.Parents)
	}
	if f.Visible != "" {
		where(`i.principal = $n`, f.Visible)
	}
	if !f.RootSession.IsZero() {
		where(`EXISTS (SELECT 1 FROM inbox q WHERE q.message_id = i.root AND q.session_key = $n)`, f.RootSession.String())
	}
	return text + ` ORDER BY i.accepted_at DESC, i.message_id {limit $2}`, args // the order of the index inbox_task_times
}

// turnSQL reads the messages that lead turns, or would; %s is an index hint, and conditions follow.
// $1 characters of the message.
const turnSQL = `SELECT i.message_id, i.session_key, i.seq, i.lane, i.channel, COALESCE(substr({json i.body} ->> 'text', 1, CAST($1 AS integer)), ''), i.principal,
		COALESCE(i.parent, ''), COALESCE(i.root, ''), i.state,
		COALESCE(r.state, ''), COALESCE(r.stop_by, ''), COALESCE(i.outcome, ''), i.reason, COALESCE(r.error, ''), COALESCE(r.detail, ''),
		COALESCE(NULLIF(r.owner, ''), s.owner, ''), COALESCE(r.attempt, 0), COALESCE(r.input_tokens, 0), COALESCE(r.output_tokens, 0),
		COALESCE(r.model, ''), COALESCE(r.provider, ''), COALESCE(r.requests, 0), COALESCE(r.limited, 0), i.accepted_at, r.started_at, i.ended_at,
		CASE WHEN i.state IN ('running', 'done') THEN 0 ELSE (SELECT count(*) FROM inbox w {by inbox_unfinished}
			WHERE w.session_key = i.session_key AND {open w} AND w.state <> 'running' AND w.seq < i.seq) END
	FROM inbox i%s LEFT JOIN runs r ON r.id = i.message_id LEFT JOIN sessions s ON s.key = i.session_key
	WHERE (i.run_id IS NULL OR i.run_id = i.message_id)`

// sentSQL reads the outgoing messages of a run $1.
const sentSQL = `SELECT channel, chat_id, thread, kind, state, attempt, last_error, COALESCE(provider_id, ''), next_at, held_until, done_at FROM outbox WHERE run_id = $1 ORDER BY n`

func scanSending(r Row) (v store.Sending, err error) {
	err = r.Scan(&v.Target.Channel, &v.Target.ChatID, &v.Target.Thread, &v.Kind, &v.State, &v.Attempts, &v.Error, &v.Receipt, instant{&v.NextAt}, instant{&v.HeldAt}, instant{&v.DoneAt})
	return v, err
}

func scanTurn(r Row) (v store.Turn, err error) {
	var ran string
	err = r.Scan(&v.ID, keyColumn{&v.Session}, &v.Seq, &v.Lane, &v.Channel, &v.Text, &v.Principal, &v.Parent, &v.Root, &v.State, &ran, &v.StopBy, (*string)(&v.Outcome), &v.Reason,
		&v.Error, &v.Detail, &v.Node, &v.Attempt, &v.Usage.InputTokens, &v.Usage.OutputTokens, &v.Usage.Model, &v.Usage.Provider, &v.Asked.Requests, &v.Asked.Limited,
		instant{&v.AcceptedAt}, instant{&v.StartedAt}, instant{&v.EndedAt}, &v.Ahead)
	if v.State = store.StateOf(v.State, ran); v.StopBy != "" && (v.State == store.RunRunning || v.State == store.RunYielded) {
		v.State = store.RunStopping
	}
	return v, err
}

// Turns lists turns; see store.Store. The cost of a list of open turns is proportional to the open
// messages, that of ended ones to the page.
func (s SubTurns) Turns(ctx context.Context, f store.TurnFilter) (list []store.Turn, err error) {
	err = s.db.List(ctx, "list turns", func(ctx context.Context, tx Tx) (err error) {
		text, args := turnsSQL(&f)
		if list, err = all(ctx, tx, text, scanTurn, args...); err != nil || !f.One() || len(list) == 0 {
			return err
		}
		list[0].Sent, err = all(ctx, tx, sentSQL, scanSending, list[0].ID)
		return err
	})
	return list, err
}

// turnsSQL contains only the conditions in use, and the order of the list.
func turnsSQL(f *store.TurnFilter) (text string, args []any) {
	args = []any{store.TaskText, f.Most()}
	var conditions strings.Builder
	where := func(condition string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			condition = strings.Replace(condition, "$n", "$"+strconv.Itoa(len(args)), 1)
		}
		conditions.WriteString(` AND ` + condition)
	}
	at, order, later, index := `i.accepted_at`, ``, ` > `, `inbox_unfinished`
	switch {
	case f.ID != "":
		index = "inbox_message"
		where(`i.message_id = $n`, f.ID)
	case f.Message != "" && f.Session.IsZero():
		index = "inbox_message"
		where(`i.message_id = (SELECT COALESCE(run_id, message_id) FROM inbox WHERE message_id = $n)`, f.Message)
	case f.Message != "":
		key := f.Session.String()
		where(`i.message_id = (SELECT COALESCE(run_id, message_id) FROM inbox
			WHERE session_key = $n AND seq > (SELECT max(seq) - $n FROM inbox WHERE session_key = $n) AND (message_id = $n OR {json body} ->> 'network' = $n)
			ORDER BY seq DESC LIMIT 1)`, key, store.RecentMessages, key, f.Message, f.Message)
	case f.Parent != "":
		index = "inbox_parent"
		where(`i.parent = $n`, f.Parent)
	case f.Which == store.TurnsEnded:
		at, order, later, index = `i.ended_at`, ` DESC`, ` < `, `inbox_ended`
		where(`i.ended_at IS NOT NULL`)
	case f.Which == store.TurnsRunning:
		where(`{open i} AND i.state = 'running'`)
	case f.Which == store.TurnsWaiting:
		where(`{open i} AND i.state <> 'running'`)
	default:
		where(`{open i}`)
	}
	if !f.Session.IsZero() {
		index = ""
		where(`i.session_key = $n`, f.Session.String())
	}
	if f.Lane != "" {
		where(`i.lane = $n`, f.Lane)
	}
	if f.Outcome != "" {
		where(`i.outcome = $n`, string(f.Outcome))
	}
	if f.Visible != "" {
		where(`i.principal = $n`, f.Visible)
	}
	if !f.Before.IsZero() {
		where(at+` < $n`, millis(f.Before))
	}
	if !f.Since.IsZero() {
		where(at+` >= $n`, millis(f.Since))
	}
	if f.After != nil {
		where(`(`+at+`, i.message_id)`+later+`($n, $n)`, millis(f.After.At), f.After.ID)
	}
	if index != "" {
		index = " {by " + index + "}"
	}
	return strings.Replace(turnSQL, "%s", index, 1) + conditions.String() + ` ORDER BY ` + at + order + `, i.message_id` + order + ` {limit $2}`, args
}

// Questions are the tool calls and turns that wait for an answer of a person.
type Questions struct{ db Engine }

const (
	questionColumns = `id, owner, session_key, state, asked_at, expires_at, call, node, result`
	questionByID    = `SELECT ` + questionColumns + ` FROM tool_questions WHERE id = $1`

	// openQuestion is the condition that a question can be answered: it has not expired, and the
	// node of a waiting turn is alive.
	openQuestion = `q.state = 'open' AND q.expires_at > {now}
		AND (q.node = '' OR EXISTS (SELECT 1 FROM nodes n WHERE n.id = q.node AND n.lease_until > {now}))`

	// countQuestionsSQL counts rows with the id of the question, and the open questions of its
	// person.
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

// PutQuestion stores an open question; see store.Store.
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

// Question returns a question; see store.Store.
func (s Questions) Question(ctx context.Context, id string) (q store.Question, err error) {
	err = s.db.View(ctx, "read a question", func(ctx context.Context, tx Tx) (err error) {
		q, err = readQuestion(ctx, tx, questionByID, id)
		return err
	})
	return q, err
}

// OpenQuestions lists questions; see store.Store.
func (s Questions) OpenQuestions(ctx context.Context, owner string, limit int) ([]store.Question, error) {
	return list(ctx, s.db, query{"list open questions", `SELECT ` + questionColumns + ` FROM tool_questions q
		WHERE ` + openQuestion + ` AND ($1 = '' OR q.owner = $1) ORDER BY q.asked_at, q.id LIMIT $2`, []any{owner, limit}}, scanQuestion)
}

// AnswerQuestion answers a question; see store.Store.
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

// approve stores an approval, once, and removes those of earlier transcripts and the oldest ones
// beyond the bound.
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

// Approvals lists the approvals of a person; see store.Store.
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

// Revoke removes approvals; see store.Store.
func (s Questions) Revoke(ctx context.Context, owner string, key chat.SessionKey, id string) (int, error) {
	return result(ctx, s.db.Update, "revoke approvals", func(ctx context.Context, tx Tx) (int, error) {
		n, err := tx.Exec(ctx, `DELETE FROM approvals WHERE session_key = $1 AND owner = $2 AND ($3 = '' OR id = $3)
			AND transcript = (SELECT session_id FROM sessions WHERE key = $1)`, key.String(), owner, id)
		return int(n), err
	})
}

// CloseQuestion ends the wait of a turn; see store.Store.
func (s Questions) CloseQuestion(ctx context.Context, id string) (store.Question, error) {
	return result(ctx, s.db.Update, "close a question", func(ctx context.Context, tx Tx) (store.Question, error) {
		_, err := tx.Exec(ctx, `UPDATE tool_questions SET state = 'closed' WHERE id = $1 AND state = 'open' AND node <> ''`, id)
		if err != nil {
			return store.Question{}, err
		}
		return readQuestion(ctx, tx, questionByID, id)
	})
}

// EndQuestion stores the result of a call; see store.Store.
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

// TakeQuestions assigns to the node calls that no process makes; see store.Store.
func (s Questions) TakeQuestions(ctx context.Context, p store.TakeQuestionsParams) ([]store.Question, error) {
	return poll(ctx, s.db, store.Poll{Kind: PollQuestions, Node: p.Node}, func(ctx context.Context, tx Tx) (f found[[]store.Question], err error) {
		f.out, err = all(ctx, tx, `WITH free AS MATERIALIZED (SELECT q.id `+leftQuestions+` AND NOT (q.id {in $3}) ORDER BY q.id {limit $2} {skip})
			UPDATE tool_questions SET node = $1 WHERE id IN (SELECT id FROM free) RETURNING `+questionColumns, scanQuestion, p.Node, p.Limit, p.InHand)
		f.idle = len(f.out)+len(p.InHand) == 0 && p.Limit > 0
		f.next = func(ctx context.Context, tx Tx) (int64, error) { return leaseEnds(ctx, tx, p.Node) }
		return f, err
	})
}
