package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

const (
	// addressGoneSQL ends a row that is leased to the caller. $2 row, $3 node, $4 reason.
	addressGoneSQL = `
UPDATE outbox SET state = 'failed', node = '', last_error = $4, next_at = ` + nowSQL + `, done_at = ` + nowSQL + `
WHERE id = $2 AND state = 'sending' AND node = $3 RETURNING channel, chat_id`

	// pauseDeliverySQL pauses the delivery of a job to one address. $2 job, $3 reason, $4 channel, $5 chat.
	pauseDeliverySQL = `
UPDATE cron_jobs SET delivery_paused_at = ` + nowSQL + `, delivery_paused_why = $3, delivery_paused_channel = $4, delivery_paused_chat = $5
WHERE id = $2`
)

// AddressGone ends a row for good and pauses the delivery of its job, see store.Outbox.
func (s *Store) AddressGone(ctx context.Context, p store.GoneParams) (store.Gone, error) {
	var out store.Gone
	err := s.within(ctx, "noting that an address is gone", func(ctx context.Context, tx pgx.Tx) error {
		out = store.Gone{}
		jobs, _, err := s.lockJob(ctx, tx, jobByIDSQL, p.JobID, "") // jobs are locked first, as everywhere
		if err != nil {
			return err
		}
		var to chat.Target
		err = tx.QueryRow(ctx, addressGoneSQL, s.clock(), p.ID, p.Node, clean(p.Error)).Scan(&to.Channel, &to.ChatID)
		if errors.Is(err, pgx.ErrNoRows) {
			return chat.ErrFenced
		}
		if err == nil {
			_, err = tx.Exec(ctx, failedSQL, p.ID)
		}
		if err != nil || len(jobs) == 0 || jobs[0].Revision != p.Revision || jobs[0].State.DeliveryPause.Holds(to) {
			return err
		}
		return s.pauseDelivery(ctx, tx, p, to, &out)
	})
	if err != nil {
		return store.Gone{}, err
	}
	return out, nil
}

// pauseDelivery pauses the delivery of a job and adds the notices.
func (s *Store) pauseDelivery(ctx context.Context, tx pgx.Tx, p store.GoneParams, to chat.Target, out *store.Gone) error {
	notices, err := encodeOutgoing(p.Outgoing)
	if err != nil {
		return err
	}
	var jobs []storedJob
	b := &pgx.Batch{}
	b.Queue(pauseDeliverySQL, s.clock(), p.JobID, clean(p.Error), to.Channel, to.ChatID)
	b.Queue(jobByIDSQL, p.JobID, "").Query(collect(&jobs, scanJob))
	b.Queue(enqueueSQL, s.clock(), notices)
	if err := send(ctx, tx, b); err != nil {
		return err
	}
	out.Job = &cron.Job{}
	*out.Job = jobs[0].Job
	return nil
}
