package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"laneway/internal/store/sqlstore"
)

// slackPages stay in the file for reuse: 4 MiB. Returning every free page would only make the file grow again.
const slackPages = 1024

// shrinkPages are returned at once: 1 MiB.
const shrinkPages = 256

// freePages counts the unused pages.
const freePages = `PRAGMA freelist_count`

// shrink returns the pages of deleted rows to the disk, some at each sweep: a millisecond of work. It reports whether more may remain.
func (t *tx) shrink(ctx context.Context) (more bool, err error) {
	free, err := t.number(freePages)
	if err != nil || free <= slackPages {
		return false, err
	}
	return true, t.vacuum(ctx)
}

// vacuum returns up to shrinkPages free pages.
func (t *tx) vacuum(ctx context.Context) error {
	_, err := t.Exec(ctx, `PRAGMA incremental_vacuum(`+strconv.Itoa(shrinkPages)+`)`)
	return err
}

// Upkeep maintains the file: it returns free pages to the disk, 1 MiB at a time so that no turn waits for it, and copies the log into the database. It checks
// ctx between the steps; completed steps stay.
//
// It gathers no statistics (ANALYZE, `PRAGMA optimize`). The statements are written for their indexes, most of which contain only unfinished work; statistics
// from an idle moment would make the planner read whole tables instead. A test checks the plans after an upkeep.
func (s *Store) Upkeep(ctx context.Context) (string, error) {
	_, pages, err := s.steps(ctx, "give free pages back", func(ctx context.Context, t *tx, _ int) (int, error) {
		free, err := t.number(freePages)
		if err == nil && free <= slackPages {
			err = errNothingLeft
		}
		if err != nil {
			return 0, err
		}
		return min(int(free), shrinkPages), t.vacuum(ctx)
	})
	if err != nil {
		return "", err
	}
	logged, copied, err := s.checkpoint(ctx)
	return fmt.Sprintf("%d free pages given back, %d of %d pages of the log copied", pages, copied, logged), err
}

// checkpoint copies as much of the log as possible into the database, on a connection of its own and in the mode that blocks no other connection.
func (s *Store) checkpoint(ctx context.Context) (logged, copied int, err error) {
	c, err := openWriting(s.path, false)
	if err != nil {
		return 0, 0, explain("open the database", err)
	}
	err = c.until(ctx, "copy the log", func() error {
		return c.query(`PRAGMA wal_checkpoint(PASSIVE)`, func(r sqlstore.Row) error { return r.Scan(new(int), &logged, &copied) })
	})
	return logged, copied, errors.Join(err, c.close())
}
