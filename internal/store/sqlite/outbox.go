package sqlite

import (
	"cmp"
	"context"

	"laneway/internal/store"
)

// send adds an outgoing row unless it exists, and returns its id.
func (t *tx) send(ctx context.Context, o *store.Outgoing) (string, error) {
	id := cmp.Or(o.ID, newID())
	choice, err := encodePart(o.Choice)
	if err != nil {
		return "", err
	}
	file, err := encodePart(o.File)
	if err != nil {
		return "", err
	}
	n, err := t.exec(ctx, `
		INSERT INTO outbox (id, run_id, n, session_key, channel, chat_id, thread, kind, payload, text_many, count, coalesce,
			epoch, next_at, expires_at, created_at, choice, file, principal)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		id, null(o.RunID), o.N, o.Session.String(), o.Target.Channel, o.Target.ChatID, o.Target.Thread, o.Kind, o.Text, o.TextMany,
		max(o.Count, 1), o.Coalesce, o.Epoch, t.now+wait(max(o.Delay, 0)), zero(millis(o.ExpiresAt)), t.now, choice, file, o.Principal)
	if err != nil || n == 1 || o.RunID == "" {
		return id, err
	}
	err = t.one(ctx, `SELECT id FROM outbox WHERE run_id = ? AND n = ?`, o.RunID, o.N).Scan(&id)
	if none(err) { // the id exists, not the (run, n)
		return id, nil
	}
	return id, err
}

// encodePart is the column of a part that a row may have, "" = none.
func encodePart[T any](part *T) (string, error) {
	if part == nil {
		return "", nil
	}
	return encode(part)
}

// notify adds count messages to a notice: a new row, or a higher count on a row that no attempt was made to send. It returns the row's id,
// "" when there is no notice.
func (t *tx) notify(ctx context.Context, key string, notice *store.Outgoing, count int) (id string, err error) {
	if notice == nil {
		return "", nil
	}
	if notice.Coalesce != "" {
		err = t.change(ctx, `
			UPDATE outbox SET count = count + ? WHERE place = (
				SELECT place FROM outbox WHERE state IN ('pending', 'sending') AND state = 'pending' AND attempt = 0
				AND channel = ? AND chat_id = ? AND coalesce = ? AND session_key IN (?, ?) ORDER BY place LIMIT 1)
			RETURNING id`, count, notice.Target.Channel, notice.Target.ChatID, notice.Coalesce, notice.Session.String(), key).Scan(&id)
		if !none(err) {
			return id, err
		}
	}
	o := *notice
	o.Count = count
	return t.send(ctx, &o)
}
