package sqlstore

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

const (
	deliveredSQL = `UPDATE outbox SET state = 'delivered', provider_id = $3, done_at = {now} WHERE id = $1 AND state = 'sending' AND node = $2
		RETURNING COALESCE(run_id, ''), kind`

	undeliveredSQL = `UPDATE outbox SET last_error = $3, node = '', next_at = {now} + $4, state = $5, done_at = CASE WHEN $6 THEN {now} END,
			maybe_sent = (maybe_sent OR $7), attempt = CASE WHEN $8 THEN {greatest}(attempt - 1, 1) ELSE attempt END,
			progress = CASE WHEN $9 <> '' THEN $9 ELSE progress END
		WHERE id = $1 AND state = 'sending' AND node = $2 RETURNING COALESCE(run_id, ''), kind, channel, chat_id, maybe_sent`

	// partFailed: another part of the answer did not arrive, or may not have arrived.
	partFailed = `EXISTS (SELECT 1 FROM outbox f WHERE f.run_id = l.run_id AND f.kind <> 'notice' AND f.state IN ('failed', 'expired', 'maybe_sent'))`

	answerArrivedSQL = `UPDATE cron_run_logs AS l SET provider_message_id = $3,
			delivery = CASE WHEN ` + partFailed + ` THEN delivery ELSE 'delivered' END,
			delivery_error = CASE WHEN ` + partFailed + ` THEN delivery_error ELSE '' END
		WHERE id = $1 AND run_id = $2` + answerReturns
	answerLostSQL = `UPDATE cron_run_logs SET delivery = $3, delivery_error = $4 WHERE id = $1 AND run_id = $2` + answerReturns
	answerReturns = ` RETURNING job_id, COALESCE(started_at, 0), delivery, delivery_error`

	lastDeliverySQL = `UPDATE cron_jobs SET last_delivery = $3, last_delivery_error = $4 WHERE id = $1 AND last_run_at = $2`

	pauseDeliverySQL = `UPDATE cron_jobs SET delivery_paused_at = {now}, delivery_paused_why = $3, delivery_paused_channel = $4, delivery_paused_chat = $5
		WHERE id = $1 AND revision = $2 AND NOT (delivery_paused_at IS NOT NULL AND delivery_paused_channel = $4 AND delivery_paused_chat = $5)`
)

// delivery is the state of an answer.
type delivery struct {
	status             cron.DeliveryStatus // "" = not yet decided
	providerID, reason string
}

// noteDelivery records the delivery of a row of a run in the ledger, and in the job when the run was its last one. Only replies and webhooks count: a notice is
// not an answer. One failed part makes the whole answer not delivered.
func noteDelivery(ctx context.Context, tx Tx, message, kind string, d delivery) error {
	id := cron.RunOfMessage(message)
	if id == "" || d.status == "" || kind == store.KindNotice {
		return nil
	}
	text, args := answerLostSQL, []any{id, message, string(d.status), d.reason}
	if d.status == cron.DeliveryDone {
		text, args = answerArrivedSQL, []any{id, message, d.providerID}
	}
	var (
		job, became, reason string
		startedAt           int64
	)
	found, err := one(ctx, tx, text, into(&job, &startedAt, &became, &reason), args...)
	if err != nil || !found {
		return err
	}
	return tx.Later(ctx, lastDeliverySQL, nil, job, startedAt, became, reason)
}

// Delivered stores the provider's id, which must not be empty.
func (s Outbox) Delivered(ctx context.Context, nodeID, id, providerID string) error {
	if providerID == "" {
		return chat.Errorf(chat.CodeInvalid, "a delivered message needs the provider's id")
	}
	return s.db.Update(ctx, "note a delivery", func(ctx context.Context, tx Tx) error {
		var run, kind string
		leased, err := one(ctx, tx, deliveredSQL, into(&run, &kind), id, nodeID, providerID)
		if err == nil && !leased {
			err = chat.ErrFenced
		}
		if err != nil {
			return err
		}
		return noteDelivery(ctx, tx, run, kind, delivery{status: cron.DeliveryDone, providerID: providerID})
	})
}

// RecordProgress stores what part of a row has arrived; see store.Outbox.
func (s Outbox) RecordProgress(ctx context.Context, nodeID, id, progress string) error {
	return s.db.Update(ctx, "note the progress of a delivery", func(ctx context.Context, tx Tx) error {
		n, err := tx.Exec(ctx, `UPDATE outbox SET progress = $3 WHERE id = $1 AND state = 'sending' AND node = $2`, id, nodeID, progress)
		if err == nil && n == 0 {
			err = chat.ErrFenced
		}
		return err
	})
}

// Undelivered returns the row for a later attempt, or ends it; see store.Outbox.
func (s Outbox) Undelivered(ctx context.Context, p store.UndeliveredParams) (store.Gone, error) {
	return result(ctx, s.db.Update, "note a failed delivery", func(ctx context.Context, tx Tx) (out store.Gone, err error) {
		if p.Gone == nil {
			_, err = undelivered(ctx, tx, p)
			return out, err
		}
		// Jobs are locked first, as everywhere.
		if err := tx.Later(ctx, `SELECT 1 FROM cron_jobs WHERE id = $1 {lock}`, nil, p.Gone.JobID); err != nil {
			return out, err
		}
		to, err := undelivered(ctx, tx, p)
		if err != nil {
			return out, err
		}
		paused, err := tx.Exec(ctx, pauseDeliverySQL, p.Gone.JobID, p.Gone.Revision, p.Error, to.Channel, to.ChatID)
		if err != nil || paused == 0 {
			return out, err
		}
		if err := addOutgoing(ctx, tx, p.Gone.Outgoing); err != nil {
			return out, err
		}
		job, err := s.jobs.findJob(ctx, tx, p.Gone.JobID, "")
		out.Job = &job.Job
		return out, err
	})
}

// undelivered writes a failed attempt and returns the address of the row.
func undelivered(ctx context.Context, tx Tx, p store.UndeliveredParams) (to chat.Target, err error) {
	var (
		run, kind string
		maybe     bool
	)
	leased, err := one(ctx, tx, undeliveredSQL, into(&run, &kind, &to.Channel, &to.ChatID, &maybe),
		p.ID, p.Node, p.Error, span(p.RetryIn), p.State(), p.Permanent, p.MaybeSent, p.Uncounted, p.Progress)
	if err == nil && !leased {
		err = chat.ErrFenced
	}
	if err != nil || !p.Permanent {
		return to, err
	}
	d := delivery{status: cron.DeliveryNot, reason: p.Error}
	if maybe {
		d.status = cron.DeliveryUnknown
	}
	return to, noteDelivery(ctx, tx, run, kind, d)
}
