package postgres

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

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

// clean makes text storable: PostgreSQL accepts neither NUL nor invalid UTF-8. Input of people is checked at the border; this is for texts
// of programs and models.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
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
