package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
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
