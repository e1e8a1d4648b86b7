package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
)

// slackPages stay in the file for reuse: 4 MiB. Giving every freed page back would only make the file grow again.
const slackPages = 1024

// shrinkPages go at once: 1 MiB.
const shrinkPages = 256

// shrink returns pages that deleted rows have left to the disk, some at each sweep: a millisecond of work. It reports whether there may be more.
func (t *tx) shrink(ctx context.Context) (more bool, err error) {
	var free int
	if err := t.one(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil || free <= slackPages {
		return false, err
	}
	return true, t.vacuum(ctx)
}

// vacuum returns shrinkPages free pages, or all there are.
func (t *tx) vacuum(ctx context.Context) error {
	_, err := t.exec(ctx, `PRAGMA incremental_vacuum(`+strconv.Itoa(shrinkPages)+`)`)
	return err
}

// Upkeep maintains the file: it returns free pages to the disk, 1 MiB at a time so that no turn waits for it, and copies the log into the
// database. It checks ctx between the steps; steps that are done stay done.
//
// It gathers no statistics (ANALYZE, `PRAGMA optimize`). The statements are written for their indexes, most of which have unfinished work
// only; statistics of a quiet moment make the planner read whole tables instead. A test checks the plans after an upkeep.
func (s *Store) Upkeep(ctx context.Context) (string, error) {
	var err error
	pages := 0
	for err == nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		var left bool
		left, err = result(ctx, s.write, ordinary("give free pages back"), func(ctx context.Context, t *tx) (bool, error) {
			var free int
			if err := t.one(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil || free <= slackPages {
				return false, err
			}
			pages += min(free, shrinkPages)
			return true, t.vacuum(ctx)
		})
		if !left {
			break
		}
	}
	if err != nil {
		return "", err
	}
	logged, copied, err := s.checkpoint(ctx)
	return fmt.Sprintf("%d free pages given back, %d of %d pages of the log copied", pages, copied, logged), err
}

// checkpoint copies what it can of the log into the database, on a connection of its own and in the mode that blocks no other connection.
func (s *Store) checkpoint(ctx context.Context) (logged, copied int, err error) {
	db, err := sql.Open("sqlite", dsn(s.path, false))
	if err != nil {
		return 0, 0, fmt.Errorf("open the database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var busy int
	if err = db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &logged, &copied); err != nil {
		return 0, 0, fmt.Errorf("copy the log: %w", err)
	}
	return logged, copied, nil
}
