package sqlstore

import (
	"context"
	"strconv"
	"strings"

	"laneway/internal/store"
)

// turnSQL reads the messages that lead turns, or would; %s is an index hint, and conditions follow. $1 characters of the message.
const turnSQL = `SELECT i.message_id, i.session_key, i.seq, i.lane, i.channel, COALESCE(substr({json i.body} ->> 'text', 1, CAST($1 AS integer)), ''), i.principal,
		COALESCE(i.parent, ''), COALESCE(i.root, ''), i.state,
		COALESCE(r.state, ''), COALESCE(r.stop_by, ''), COALESCE(i.outcome, ''), i.reason, COALESCE(r.error, ''), COALESCE(r.detail, ''),
		COALESCE(NULLIF(r.owner, ''), s.owner, ''), COALESCE(r.attempt, 0), COALESCE(r.input_tokens, 0), COALESCE(r.output_tokens, 0),
		COALESCE(r.model, ''), COALESCE(r.provider, ''), i.accepted_at, r.started_at, i.ended_at
	FROM inbox i%s LEFT JOIN runs r ON r.id = i.message_id LEFT JOIN sessions s ON s.key = i.session_key
	WHERE (i.run_id IS NULL OR i.run_id = i.message_id)`

// sentSQL reads the outgoing messages of a run $1.
const sentSQL = `SELECT channel, chat_id, thread, kind, state, attempt, last_error, COALESCE(provider_id, ''), next_at, done_at FROM outbox WHERE run_id = $1 ORDER BY n`

func scanSending(r Row) (v store.Sending, err error) {
	err = r.Scan(&v.Target.Channel, &v.Target.ChatID, &v.Target.Thread, &v.Kind, &v.State, &v.Attempts, &v.Error, &v.Receipt, instant{&v.NextAt}, instant{&v.DoneAt})
	return v, err
}

func scanTurn(r Row) (v store.Turn, err error) {
	var ran string
	err = r.Scan(&v.ID, keyColumn{&v.Session}, &v.Seq, &v.Lane, &v.Channel, &v.Text, &v.Principal, &v.Parent, &v.Root, &v.State, &ran, &v.StopBy, (*string)(&v.Outcome), &v.Reason,
		&v.Error, &v.Detail, &v.Node, &v.Attempt, &v.Usage.InputTokens, &v.Usage.OutputTokens, &v.Usage.Model, &v.Usage.Provider,
		instant{&v.AcceptedAt}, instant{&v.StartedAt}, instant{&v.EndedAt})
	if v.State = store.StateOf(v.State, ran); v.StopBy != "" && (v.State == store.RunRunning || v.State == store.RunYielded) {
		v.State = store.RunStopping
	}
	return v, err
}

// Turns lists turns; see store.Turns. The cost of a list of open turns is proportional to the open messages, that of ended ones to the page.
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
