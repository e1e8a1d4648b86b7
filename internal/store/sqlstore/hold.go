package sqlstore

import (
	"context"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// Holds reads and sets the hold of the gateway.
type Holds struct {
	db   Engine
	jobs Cron
}

var _ store.Holds = Holds{}

// Hold reads the hold; see store.Holds.
func (s Holds) Hold(ctx context.Context) (held *store.Hold, err error) {
	err = s.db.View(ctx, "read the hold", func(ctx context.Context, tx Tx) error {
		var h store.Hold
		found, err := one(ctx, tx, store.HoldSQL, into(instant{&h.Since}, &h.Who, &h.Reason))
		if found {
			held = &h
		}
		return err
	})
	return held, err
}

// SetHold holds or releases the gateway; see store.Holds.
func (s Holds) SetHold(ctx context.Context, h *store.Hold, by store.ChangedBy) error {
	return s.db.Update(ctx, "hold or release the gateway", func(ctx context.Context, tx Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		text, verb, args := store.ReleaseHoldSQL, store.VerbRelease, []any(nil)
		if h != nil {
			text, verb, args = store.SetHoldSQL, store.VerbHold, []any{now, h.Who, h.Reason}
		}
		n, err := tx.Exec(ctx, text, args...)
		if err != nil || n == 0 {
			return err
		}
		return logChange(ctx, tx, by, Change{Verb: verb})
	})
}

// Held counts the work that waits for the release; see store.Holds.
func (s Holds) Held(ctx context.Context) (w store.HeldWork, err error) {
	err = s.db.View(ctx, "read what is held", func(ctx context.Context, tx Tx) error {
		w = store.HeldWork{}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		w.Now = fromMillis(now)
		if _, err := one(ctx, tx, store.HeldWorkSQL, into(&w.Outgoing, &w.Unfinished)); err != nil {
			return err
		}
		scan := s.jobs.scanner()
		w.Due, err = all(ctx, tx, readJob+jobPlanned+` AND next_run_at <= {now} ORDER BY next_run_at, id`, func(r Row) (cron.Job, error) {
			j, err := scan(r)
			return j.Job, err
		})
		return err
	})
	return w, err
}
