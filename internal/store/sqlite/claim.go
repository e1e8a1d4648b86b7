package sqlite

import (
	"context"

	"laneway/internal/cron"
	"laneway/internal/store"
)

const outgoingColumns = `id, coalesce(run_id, ''), n, session_key, channel, chat_id, thread, kind, payload, text_many, count, coalesce,
	attempt, epoch, expires_at, maybe_sent, created_at, choice, file, principal, progress`

func scanOutgoing(row scanner) (o store.Outgoing, err error) {
	err = row.Scan(&o.ID, &o.RunID, &o.N, keyColumn{&o.Session}, &o.Target.Channel, &o.Target.ChatID, &o.Target.Thread, &o.Kind,
		&o.Text, &o.TextMany, &o.Count, &o.Coalesce, &o.Attempt, &o.Epoch, timeColumn{&o.ExpiresAt}, &o.MaybeSent, timeColumn{&o.CreatedAt}, jsonColumn{&o.Choice}, jsonColumn{&o.File},
		&o.Principal, &o.Progress)
	return o, err
}

// ClaimOutgoing takes what is due; see the port. A dead node gets chat.ErrFenced.
func (s *Store) ClaimOutgoing(ctx context.Context, nodeID string, channels []string, limit int) ([]store.Outgoing, error) {
	names, err := encode(append([]string{}, channels...))
	if err != nil {
		return nil, err
	}
	// Each list of channels is a poll of its own.
	return poll(ctx, s, store.Poll{Kind: pollOutgoing, Node: nodeID, Of: names}, func(ctx context.Context, t *tx) (f found[[]store.Outgoing], err error) {
		if err := t.proveAlive(ctx, nodeID); err != nil {
			return f, err
		}
		if held, err := t.held(ctx); err != nil || held {
			return f, err
		}
		if err := t.giveBack(ctx); err != nil {
			return f, err
		}
		if f.out, err = t.due(ctx, names, max(limit, 0)); err != nil {
			return f, err
		}
		if len(f.out) == 0 && limit > 0 {
			f.idle = true
			f.next, err = t.nextOutgoing(ctx, nodeID)
			return f, err
		}
		for i := range f.out {
			if err := t.claim(ctx, nodeID, &f.out[i]); err != nil {
				return f, err
			}
		}
		return f, nil
	})
}

// nextOutgoing is when time alone makes an outgoing row of any channel due: its next attempt, its expiry, or the end of the lease of another node that
// sends it; 0 = never.
func (t *tx) nextOutgoing(ctx context.Context, nodeID string) (at int64, err error) {
	ends, err := leaseEnds(ctx, t, nodeID, t.now)
	if err != nil {
		return 0, err
	}
	var expires int64
	err = t.one(ctx, `
		SELECT coalesce(min(CASE WHEN next_at > ?1 THEN next_at END), 0), coalesce(min(CASE WHEN expires_at > ?1 THEN expires_at END), 0)
		FROM outbox WHERE state IN ('pending', 'sending')`, t.now).Scan(&at, &expires)
	return earlier(earlier(at, expires), ends), err
}

// giveBack makes the rows that dead nodes were sending due again. Whether they arrived is unknown.
func (t *tx) giveBack(ctx context.Context) error {
	_, err := t.exec(ctx, `
		UPDATE outbox SET state = 'pending', node = NULL, next_at = ?, maybe_sent = 1 WHERE state IN ('pending', 'sending') AND state = 'sending'
		AND NOT EXISTS (SELECT 1 FROM nodes WHERE id = outbox.node AND lease_until > ?)`, t.now, t.now)
	return err
}

// due finds expired rows, and for every chat that has no row under way its first row, if it is due. A row that waits for another attempt
// holds back the later rows of its chat; a row without an attempt does not. The order is that of their arrival. It reads the index of open
// rows only.
func (t *tx) due(ctx context.Context, channels string, limit int) ([]store.Outgoing, error) {
	rows, err := t.query(ctx, `
		WITH open AS (
			SELECT place, channel, chat_id, state, attempt, next_at, coalesce(expires_at <= ?, 0) AS late FROM outbox
			WHERE state IN ('pending', 'sending') AND channel IN (SELECT value FROM json_each(?))
		), chosen AS (
			SELECT place FROM open WHERE state = 'pending' AND late
			UNION ALL
			SELECT place FROM (
				SELECT place, channel, chat_id, next_at, row_number() OVER (PARTITION BY channel, chat_id ORDER BY place) AS nth
				FROM open WHERE state = 'pending' AND NOT late AND (attempt > 0 OR next_at <= ?)
			) head WHERE nth = 1 AND next_at <= ?
			AND NOT EXISTS (SELECT 1 FROM outbox b WHERE b.state IN ('pending', 'sending') AND b.state = 'sending'
				AND b.channel = head.channel AND b.chat_id = head.chat_id)
		)
		SELECT `+outgoingColumns+` FROM outbox WHERE place IN (SELECT place FROM chosen) ORDER BY place LIMIT +?`,
		t.now, channels, t.now, t.now, limit)
	return collect(rows, err, scanOutgoing)
}

// claim leases a row to the node, or ends it when it is too late.
func (t *tx) claim(ctx context.Context, nodeID string, o *store.Outgoing) error {
	if !o.ExpiresAt.IsZero() && millis(o.ExpiresAt) <= t.now {
		o.Expired = true
		if _, err := t.exec(ctx, `UPDATE outbox SET state = 'expired', done_at = ? WHERE id = ?`, t.now, o.ID); err != nil {
			return err
		}
		return t.delivered(ctx, o.RunID, o.Kind, sent{status: cron.DeliveryNot, reason: "it was not sent in time"})
	}
	o.Attempt++
	_, err := t.exec(ctx, `UPDATE outbox SET state = 'sending', node = ?, attempt = attempt + 1 WHERE id = ?`, nodeID, o.ID)
	return err
}
