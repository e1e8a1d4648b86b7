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

	// enterSQL creates the session of a delivered message unless it exists, and allocates the number of its entry. The session is locked before the row.
	enterSQL = `INSERT INTO sessions AS s (key, agent, principal, session_id, epoch, last_seq, taken_seq, done_seq, transcript_seq, created_at, updated_at)
		SELECT $1, $2, $3, $4, COALESCE(g.epoch, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), 1, c.now, c.now
		FROM (SELECT {now} AS now) c LEFT JOIN tombstones g ON g.key = $1 WHERE true
		ON CONFLICT (key) DO UPDATE SET transcript_seq = s.transcript_seq + 1, updated_at = {now}
		RETURNING session_id, transcript_seq, updated_at, principal`

	lockJobSQL = `SELECT 1 FROM cron_jobs WHERE id = $1 {lock}`

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

// entering is what a person has seen, on its way into the conversation at the address.
type entering struct {
	*store.Shown

	to        addition
	principal string
}

// enter locks the session of what a person has seen, and allocates the number of its entry. It runs before the row is changed, because jobs are locked first,
// then sessions, then the outbox. nil = nothing was seen.
func enter(ctx context.Context, tx Tx, id string, shown *store.Shown) (*entering, error) {
	if shown == nil {
		return nil, nil //nolint:nilnil // no entry is not an error
	}
	if o := shown.Entry.Origin; o != nil && o.Job != "" {
		if err := tx.Later(ctx, lockJobSQL, nil, o.Job); err != nil {
			return nil, err
		}
	}
	first, err := newID()
	if err != nil {
		return nil, err
	}
	e := &entering{Shown: shown, to: addition{Session: shown.Session.String(), Reply: id}}
	_, err = one(ctx, tx, enterSQL, into(&e.to.Transcript, &e.to.After, &e.to.At, &e.principal), e.to.Session, shown.Session.Agent, shown.Principal, first)
	e.to.After--
	return e, err
}

// add adds the entry after the row was changed: a row that belongs to another process has its entry already, or will get it.
func (e *entering) add(ctx context.Context, tx Tx) (*store.ShownEntry, error) {
	if e == nil {
		return nil, nil //nolint:nilnil // no entry is not an error
	}
	entries, err := insertEntries(ctx, tx, e.to, []chat.TranscriptEntry{e.Entry})
	if err != nil {
		return nil, err
	}
	return &store.ShownEntry{TranscriptEntry: entries[0], Session: e.Session, Principal: e.principal}, nil
}

// Delivered records that a message has arrived; see store.Outbox.
func (s Outbox) Delivered(ctx context.Context, p store.DeliveredParams) (*store.ShownEntry, error) {
	if p.ProviderID == "" {
		return nil, chat.Errorf(chat.CodeInvalid, "a delivered message needs the provider's id")
	}
	return result(ctx, s.db.Update, "note a delivery", func(ctx context.Context, tx Tx) (*store.ShownEntry, error) {
		entry, err := enter(ctx, tx, p.ID, p.Shown)
		if err != nil {
			return nil, err
		}
		var run, kind string
		leased, err := one(ctx, tx, deliveredSQL, into(&run, &kind), p.ID, p.Node, p.ProviderID)
		if err == nil && !leased {
			err = chat.ErrFenced
		}
		if err == nil {
			err = noteDelivery(ctx, tx, run, kind, delivery{status: cron.DeliveryDone, providerID: p.ProviderID})
		}
		if err != nil {
			return nil, err
		}
		return entry.add(ctx, tx)
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
		if p.Gone != nil { // jobs are locked first, as everywhere
			if err := tx.Later(ctx, lockJobSQL, nil, p.Gone.JobID); err != nil {
				return out, err
			}
		}
		entry, err := enter(ctx, tx, p.ID, p.Shown)
		if err != nil {
			return out, err
		}
		to, err := undelivered(ctx, tx, p)
		if err != nil {
			return out, err
		}
		if out.Entry, err = entry.add(ctx, tx); err != nil || p.Gone == nil {
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
