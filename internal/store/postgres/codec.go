package postgres

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// fromMillis is an instant as the tables keep it; 0 (and NULL, which the queries make 0) is the zero time.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// orNull makes "" NULL, where a table or a unique index asks for absence.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// clean makes text storable: PostgreSQL accepts neither NUL nor invalid UTF-8. Input of people is checked at the border; this is for texts
// of programs and models.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}

// newID makes a UUIDv7.
func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("making an id: %w", err)
	}
	return id.String(), nil
}

// parseKey is the inverse of chat.SessionKey.String. It checks nothing: keys were checked before they were stored.
func parseKey(s string) chat.SessionKey {
	agent, rest, _ := strings.Cut(strings.TrimPrefix(s, "agent:"), ":")
	return chat.SessionKey{Agent: agent, Rest: rest}
}

// waitingColumns are what scanWaiting reads, of a table or result named i.
const waitingColumns = `i.session_key, i.seq, COALESCE(i.message_id, ''), i.state, COALESCE(i.outcome, ''), i.reason,
	COALESCE(i.run_id, ''), COALESCE(i.merged_into, 0), i.lane, i.principal, i.channel, i.external_id, i.body, i.accepted_at`

func scanWaiting(row pgx.CollectableRow) (store.Waiting, error) {
	var (
		w         store.Waiting
		key, body string
		at        int64
	)
	err := row.Scan(&key, &w.Seq, &w.MessageID, &w.State, &w.Outcome, &w.Reason, &w.RunID, &w.MergedInto,
		&w.Lane, &w.Principal, &w.Channel, &w.ExternalID, &body, &at)
	if err != nil {
		return w, err
	}
	w.Session, w.AcceptedAt = parseKey(key), fromMillis(at)
	if err := json.Unmarshal([]byte(body), &w.Content); err != nil {
		return w, fmt.Errorf("reading the content of message %d of %s: %w", w.Seq, key, err)
	}
	return w, nil
}

// runColumns are what scanRun reads, of a table named r.
const runColumns = `r.id, r.session_key, r.seq_from, r.seq_to, r.lane, r.owner, r.epoch, r.attempt, r.crashes, r.state, r.cause,
	r.error, r.detail, r.stop_by, r.queued_at, r.started_at, COALESCE(r.ended_at, 0), r.input_tokens, r.output_tokens, r.model, r.provider`

func scanRun(row pgx.CollectableRow) (store.Run, error) {
	var (
		r                      store.Run
		key                    string
		queued, started, ended int64
	)
	err := row.Scan(&r.ID, &key, &r.SeqFrom, &r.SeqTo, &r.Lane, &r.Owner, &r.Epoch, &r.Attempt, &r.Crashes, &r.State, &r.Cause,
		&r.Error, &r.Detail, &r.StopBy, &queued, &started, &ended, &r.Usage.InputTokens, &r.Usage.OutputTokens, &r.Usage.Model, &r.Usage.Provider)
	r.Session = parseKey(key)
	r.QueuedAt, r.StartedAt, r.EndedAt = fromMillis(queued), fromMillis(started), fromMillis(ended)
	return r, err
}

// encode makes the JSON text of a small value.
func encode(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encoding %T: %w", v, err)
	}
	return string(text), nil
}

// ms is an instant where the table has no NULL; the zero time is 0.
func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// moment is the inverse of millis.
func moment(v pgtype.Int8) time.Time { return fromMillis(v.Int64) }

func duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// millis is how an instant is stored; the zero time is NULL.
func millis(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

// flag is a boolean as a number: pgx encodes arrays of numbers without reflection.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// joined makes one JSON array of several.
func joined[T any](list []T, of func(T) string) string {
	if len(list) == 1 {
		return of(list[0])
	}
	var b strings.Builder
	b.WriteByte('[')
	for _, v := range list {
		text := strings.TrimSuffix(strings.TrimPrefix(of(v), "["), "]")
		if text == "" {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(text)
	}
	b.WriteByte(']')
	return b.String()
}
