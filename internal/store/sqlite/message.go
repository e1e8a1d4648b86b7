package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// messageColumns are read by messageFields, in this order.
const messageColumns = `session_key, seq, coalesce(message_id, ''), state, coalesce(outcome, ''), reason, coalesce(run_id, ''),
	coalesce(merged_into, 0), lane, principal, channel, external_id, body, accepted_at`

// messageFields are the destinations of messageColumns.
func messageFields(m *store.Waiting) []any {
	return []any{
		keyColumn{&m.Session},
		&m.Seq, &m.MessageID, &m.State, &m.Outcome, &m.Reason, &m.RunID,
		&m.MergedInto, &m.Lane, &m.Principal, &m.Channel, &m.ExternalID,
		jsonColumn{&m.Content},
		timeColumn{&m.AcceptedAt},
	}
}

func scanMessage(row scanner) (m store.Waiting, err error) {
	err = row.Scan(messageFields(&m)...)
	return m, err
}

// keyColumn reads a session key.
type keyColumn struct{ to *chat.SessionKey }

// Scan implements sql.Scanner.
func (c keyColumn) Scan(v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("a session key is stored as %T", v)
	}
	*c.to = sessionKey(s)
	return nil
}

// timeColumn reads milliseconds; NULL and 0 are the zero time.
type timeColumn struct{ to *time.Time }

// Scan implements sql.Scanner.
func (c timeColumn) Scan(v any) error {
	ms, ok := v.(int64)
	if !ok && v != nil {
		return fmt.Errorf("a time is stored as %T", v)
	}
	*c.to = instant(ms)
	return nil
}

// jsonColumn reads a JSON text; an empty one leaves the zero value.
type jsonColumn struct{ to any }

// Scan implements sql.Scanner.
func (c jsonColumn) Scan(v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("a JSON text is stored as %T", v)
	}
	if s == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(s), c.to); err != nil {
		return fmt.Errorf("decode a stored JSON text: %w", err)
	}
	return nil
}

// ending is the outcome of messages that wait.
type ending struct {
	outcome chat.Outcome
	reason  string
	notice  *store.Outgoing // nil = no notice
}

// end gives messages that wait (held or waiting) their outcome, in the table and in list, and adds the notice. The caller settles and saves
// r.
func (t *tx) end(ctx context.Context, r *row, list []store.Waiting, e ending) error {
	if len(list) == 0 {
		return nil
	}
	notice, err := t.notify(ctx, r.key, e.notice, len(list))
	if err != nil {
		return err
	}
	for i := range list {
		m := &list[i]
		_, err := t.exec(ctx, `
			UPDATE inbox SET state = 'done', outcome = ?, reason = ?, ended_at = ?, notice_id = coalesce(?, notice_id) WHERE session_key = ? AND seq = ?`,
			string(e.outcome), e.reason, t.now, null(notice), r.key, m.Seq)
		if err != nil {
			return err
		}
		m.State, m.Outcome, m.Reason = store.StateDone, e.outcome, e.reason
	}
	r.waiting -= int64(len(list))
	return sqlstore.EndRunsOf(ctx, t.shared(), list)
}

// queued reads the messages of a session that wait for a turn, oldest first, at most limit.
func queued(ctx context.Context, q querier, key string, limit int) ([]store.Waiting, error) {
	rows, err := q.query(ctx, `SELECT `+messageColumns+` FROM inbox
		WHERE session_key = ? AND state <> 'done' AND state <> 'running' ORDER BY seq LIMIT +?`, key, limit)
	return collect(rows, err, scanMessage)
}

// place is where a read of the queue of a session begins, and how many rows it takes at most.
type place struct {
	key   string
	after int64
	limit int
}

// queuedWithin is queued behind a sequence number, one row after the other until the bytes are used up.
func queuedWithin(ctx context.Context, q querier, at place, b *store.Budget) ([]store.Waiting, error) {
	rows, err := q.query(ctx, `SELECT octet_length(body), `+messageColumns+` FROM inbox
		WHERE session_key = ? AND state <> 'done' AND state <> 'running' AND seq > ? ORDER BY seq LIMIT +?`, at.key, at.after, at.limit)
	return messagesWithin(rows, err, b)
}

// messagesWithin reads the messages of a query that belong to one read. The query selects what scanSizedMessage reads.
func messagesWithin(rows *sql.Rows, err error, b *store.Budget) ([]store.Waiting, error) {
	list, err := collectWithin(rows, err, scanSizedMessage, b, func(v sizedMessage) int { return v.bytes })
	var out []store.Waiting
	for _, v := range list {
		out = append(out, v.Waiting)
	}
	return out, err
}

// sizedMessage is a message with the bytes of its body.
type sizedMessage struct {
	store.Waiting

	bytes int
}

func scanSizedMessage(row scanner) (v sizedMessage, err error) {
	err = row.Scan(append([]any{&v.bytes}, messageFields(&v.Waiting)...)...)
	return v, err
}

// startable reads those of the named messages that wait for a turn; the others have an outcome or run.
func (t *tx) startable(ctx context.Context, key string, seqs []int64) ([]store.Waiting, error) {
	var list []store.Waiting
	for _, seq := range seqs {
		rows, err := t.query(ctx, `SELECT `+messageColumns+` FROM inbox
			WHERE session_key = ? AND seq = ? AND state IN ('held', 'waiting')`, key, seq)
		found, err := collect(rows, err, scanMessage)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// EndWaiting gives waiting messages an outcome. Messages that have one or run are left unchanged.
func (s *Store) EndWaiting(ctx context.Context, p store.EndParams) ([]store.Waiting, error) {
	if p.Outcome == "" {
		return nil, chat.Errorf(chat.CodeInvalid, "a message that ends needs an outcome")
	}
	return result(ctx, s.write, ordinary("end waiting messages"), func(ctx context.Context, t *tx) ([]store.Waiting, error) {
		r, ok, err := t.find(ctx, p.Session)
		if err != nil || !ok {
			return nil, err
		}
		before, err := t.endedBefore(ctx, p)
		if err != nil {
			return nil, err
		}
		list, err := t.startable(ctx, r.key, p.Seqs)
		if err != nil || len(list) == 0 {
			return before, err
		}
		if err := t.end(ctx, r, list, ending{outcome: p.Outcome, reason: p.Reason, notice: p.Notice}); err != nil {
			return nil, err
		}
		if _, err := t.settle(ctx, r); err != nil {
			return nil, err
		}
		return append(before, list...), t.save(ctx, r)
	})
}

// endedBefore lists the messages that an earlier try of a repeated call has ended.
func (t *tx) endedBefore(ctx context.Context, p store.EndParams) ([]store.Waiting, error) {
	if !p.Again {
		return nil, nil
	}
	var list []store.Waiting
	for _, seq := range p.Seqs {
		m, err := scanMessage(t.one(ctx, `SELECT `+messageColumns+` FROM inbox WHERE session_key = ? AND seq = ? AND state = 'done' AND outcome = ? AND reason = ?`,
			p.Session.String(), seq, string(p.Outcome), p.Reason))
		switch {
		case none(err):
			continue
		case err != nil:
			return nil, err
		}
		list = append(list, m)
	}
	return list, sqlstore.EndRunsOf(ctx, t.shared(), list)
}

// MessageByID finds a message by its id; chat.ErrNotFound.
func (s *Store) MessageByID(ctx context.Context, id string) (m store.Waiting, err error) {
	err = s.view(ctx, "find a message", func(ctx context.Context, q querier) (err error) {
		m, err = scanMessage(q.one(ctx, `SELECT `+messageColumns+` FROM inbox WHERE message_id = ?`, id))
		if none(err) {
			return chat.ErrNotFound
		}
		return err
	})
	return m, err
}

// joinedAhead is how far after its run a message may lie that joined it.
const joinedAhead = 1000

// filesOfRunsSQL reads the messages of the range in which those of the runs lie. Parameters: ?1 the session, ?2 a JSON array of runs, ?3 joinedAhead.
const filesOfRunsSQL = `
	WITH named AS MATERIALIZED (SELECT id, seq_from, seq_to FROM runs WHERE session_key = ?1 AND id IN (SELECT value FROM json_each(?2)))
	SELECT run_id, body ->> '$.attachments' FROM inbox
	WHERE session_key = ?1 AND seq BETWEEN (SELECT min(seq_from) FROM named) AND (SELECT max(seq_to) FROM named) + ?3
		AND run_id IN (SELECT id FROM named) AND body ->> '$.attachments' IS NOT NULL
	ORDER BY seq`

// FilesOfRuns lists the files that came with the messages of runs; see the port.
func (s *Store) FilesOfRuns(ctx context.Context, key chat.SessionKey, runs []string) (map[string][]chat.Attachment, error) {
	type ofMessage struct {
		run   string
		files []chat.Attachment
	}
	var list []ofMessage
	named, err := encode(runs)
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, "look for files of messages", func(ctx context.Context, q querier) (err error) {
		rows, err := q.query(ctx, filesOfRunsSQL, key.String(), named, joinedAhead)
		list, err = collect(rows, err, func(row scanner) (m ofMessage, err error) {
			err = row.Scan(&m.run, jsonColumn{&m.files})
			return m, err
		})
		return err
	})
	found := make(map[string][]chat.Attachment, len(list))
	for _, m := range list {
		found[m.run] = append(found[m.run], m.files...)
	}
	return found, err
}

// PendingInputs lists the waiting messages of a session, oldest first, and returns the number of all of them.
func (s *Store) PendingInputs(ctx context.Context, key chat.SessionKey, after int64, limit int) (list []store.Waiting, total int, err error) {
	err = s.view(ctx, "list waiting messages", func(ctx context.Context, q querier) (err error) {
		err = q.one(ctx, `SELECT count(*) FROM inbox WHERE session_key = ? AND state <> 'done' AND state <> 'running'`, key.String()).Scan(&total)
		if err == nil {
			list, err = queuedWithin(ctx, q, place{key.String(), after, max(limit, 0)}, store.NewBudget(0))
		}
		return err
	})
	return list, total, err
}

// CountUnfinished counts messages without an outcome.
func (s *Store) CountUnfinished(ctx context.Context) (n int, err error) {
	err = s.view(ctx, "count unfinished messages", func(ctx context.Context, q querier) error {
		return q.one(ctx, `SELECT count(*) FROM inbox WHERE state <> 'done'`).Scan(&n)
	})
	return n, err
}
