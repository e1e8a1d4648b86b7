package sqlite

import (
	"cmp"
	"context"

	"laneway/internal/chat"
	"laneway/internal/cron"
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

// Enqueue adds outgoing messages outside of a run; rows that exist are left alone.
func (s *Store) Enqueue(ctx context.Context, rows []store.Outgoing) error {
	return s.write.do(ctx, ordinary("enqueue outgoing messages"), func(ctx context.Context, t *tx) error {
		for i := range rows {
			o := &rows[i]
			if o.Coalesce != "" {
				if _, err := t.notify(ctx, o.Session.String(), o, max(o.Count, 1)); err != nil {
					return err
				}
				continue
			}
			if _, err := t.send(ctx, o); err != nil {
				return err
			}
		}
		return nil
	})
}

// Delivered stores the provider's id, which must not be empty.
func (s *Store) Delivered(ctx context.Context, nodeID, id, providerID string) error {
	if providerID == "" {
		return chat.Errorf(chat.CodeInvalid, "a delivered message needs the provider's id")
	}
	return s.write.do(ctx, ordinary("note a delivery"), func(ctx context.Context, t *tx) error {
		var runID, kind string
		err := t.change(ctx, `
			UPDATE outbox SET state = 'delivered', provider_id = ?, done_at = ? WHERE id = ? AND state = 'sending' AND node = ?
			RETURNING coalesce(run_id, ''), kind`, providerID, t.now, id, nodeID).Scan(&runID, &kind)
		if err != nil {
			return leased(err)
		}
		return t.delivered(ctx, runID, kind, sent{status: cron.DeliveryDone, providerID: providerID})
	})
}

// RecordProgress stores what of a row has arrived.
func (s *Store) RecordProgress(ctx context.Context, nodeID, id, progress string) error {
	return s.write.do(ctx, ordinary("note the progress of a delivery"), func(ctx context.Context, t *tx) error {
		n, err := t.exec(ctx, `UPDATE outbox SET progress = ? WHERE id = ? AND state = 'sending' AND node = ?`, progress, id, nodeID)
		if err == nil && n == 0 {
			return chat.ErrFenced
		}
		return err
	})
}

// Undelivered gives the row back for a later attempt, or ends it.
func (s *Store) Undelivered(ctx context.Context, p store.UndeliveredParams) error {
	return s.write.do(ctx, ordinary("note a failed delivery"), func(ctx context.Context, t *tx) error {
		_, err := t.undelivered(ctx, &p)
		return err
	})
}

// undelivered writes a failed attempt and returns the address of the row.
func (t *tx) undelivered(ctx context.Context, p *store.UndeliveredParams) (to chat.Target, err error) {
	doneAt := int64(0)
	if p.Permanent {
		doneAt = t.now
	}
	var runID, kind string
	var maybeSent bool
	err = t.change(ctx, `
		UPDATE outbox SET state = ?, node = NULL, last_error = ?, next_at = ?, done_at = ?, maybe_sent = max(maybe_sent, ?),
			attempt = max(attempt - ?, 1), progress = CASE WHEN ? <> '' THEN ? ELSE progress END WHERE id = ? AND state = 'sending' AND node = ?
		RETURNING coalesce(run_id, ''), kind, maybe_sent, channel, chat_id`,
		p.State(), p.Error, t.now+wait(max(p.RetryIn, 0)), zero(doneAt), bit(p.MaybeSent), bit(p.Uncounted), p.Progress, p.Progress, p.ID, p.Node).Scan(&runID, &kind, &maybeSent, &to.Channel, &to.ChatID)
	if err != nil {
		return to, leased(err)
	}
	return to, t.delivered(ctx, runID, kind, sent{status: statusOf(p.Permanent, maybeSent), reason: p.Error})
}

// AddressGone ends a row for good and pauses the delivery of its job, see store.Outbox.
func (s *Store) AddressGone(ctx context.Context, p store.GoneParams) (store.Gone, error) {
	return result(ctx, s.write, ordinary("note that an address is gone"), func(ctx context.Context, t *tx) (out store.Gone, err error) {
		to, err := t.undelivered(ctx, &store.UndeliveredParams{Node: p.Node, ID: p.ID, Error: p.Error, Permanent: true})
		if err != nil {
			return out, err
		}
		old, err := scanJob(t.one(ctx, selectJob+`WHERE id = ?`, p.JobID))
		switch {
		case none(err):
			return out, nil
		case err != nil:
			return out, err
		case old.Revision != p.Revision || old.State.DeliveryPause.Holds(to):
			return out, nil
		}
		job := old.Job.Clone()
		job.State.DeliveryPause = cron.DeliveryPause{Since: instant(t.now), Reason: p.Error, Channel: to.Channel, ChatID: to.ChatID}
		if _, err := t.storeJob(ctx, old, &job); err != nil {
			return out, err
		}
		out.Job = &job
		for i := range p.Outgoing {
			if _, err := t.send(ctx, &p.Outgoing[i]); err != nil {
				return out, err
			}
		}
		return out, nil
	})
}

// statusOf is the delivery state of a run's answer after a failed attempt to send; "" = not yet decided.
func statusOf(permanent, maybeSent bool) cron.DeliveryStatus {
	switch {
	case !permanent:
		return ""
	case maybeSent:
		return cron.DeliveryUnknown
	default:
		return cron.DeliveryNot
	}
}

// leased returns chat.ErrFenced when no row was changed: the row is not leased to the node any more.
func leased(err error) error {
	if none(err) {
		return chat.ErrFenced
	}
	return err
}

// OutboxCounts counts what is not yet delivered, what failed for good and what may have arrived, by channel.
func (s *Store) OutboxCounts(ctx context.Context) (map[string]store.OutboxCount, error) {
	counts := map[string]store.OutboxCount{}
	err := s.view(ctx, "count outgoing messages", func(ctx context.Context, q querier) error {
		for _, part := range []struct {
			text string
			add  func(c *store.OutboxCount, n int)
		}{
			{`SELECT channel, count(*) FROM outbox WHERE state IN ('pending', 'sending') GROUP BY channel`, func(c *store.OutboxCount, n int) { c.Waiting = n }},
			{`SELECT channel, count(*) FROM outbox WHERE state = 'failed' GROUP BY channel`, func(c *store.OutboxCount, n int) { c.Failed = n }},
			{`SELECT channel, count(*) FROM outbox WHERE state = 'maybe_sent' GROUP BY channel`, func(c *store.OutboxCount, n int) { c.MaybeSent = n }},
		} {
			rows, err := q.query(ctx, part.text)
			_, err = collect(rows, err, func(row scanner) (none struct{}, err error) {
				var channel string
				var n int
				err = row.Scan(&channel, &n)
				c := counts[channel]
				part.add(&c, n)
				counts[channel] = c
				return none, err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return counts, err
}
