package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

const (
	// mergePages is how many pages of the search index one transaction merges, which occupies the
	// writer for some milliseconds.
	mergePages = 64
	// compactTime bounds a compaction.
	compactTime = 10 * time.Minute
)

var errCompactTime = errors.New("the compaction took too long")

// Compact merges the search index into one part and returns every free page of the file to the
// disk; the daily [Store.Upkeep] keeps some for reuse. Each step is a transaction of some
// milliseconds, so that no turn waits long. It checks ctx between the steps; completed steps stay.
// It stops after ten minutes, and the next compaction continues.
func (s *Store) Compact(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, compactTime, errCompactTime)
	defer cancel()
	merged, _, err := s.steps(ctx, "merge the search index", func(ctx context.Context, t *tx, n int) (int, error) {
		return 0, t.merge(ctx, n == 0)
	})
	if err != nil && !errors.Is(err, errCompactTime) {
		return "", err
	}
	given, pages, err := s.steps(ctx, "give free pages back", func(ctx context.Context, t *tx, _ int) (int, error) { return t.returnPages(ctx) })
	if err != nil && !errors.Is(err, errCompactTime) {
		return "", err
	}
	var size int64
	err = s.view(context.WithoutCancel(ctx), "read the size", func(_ context.Context, t *tx) (err error) {
		size, err = t.number(`PRAGMA page_size`)
		return err
	})
	return fmt.Sprintf("%.1f MiB given back to the disk in %d steps, the search index merged in %d", float64(pages)*float64(size)/(1<<20), given, merged), err
}

// errNothingLeft ends a series of steps.
var errNothingLeft = errors.New("nothing left")

// steps runs operations of the writer one after the other until one has nothing left to do. It
// returns their number and the sum of their results.
func (s *Store) steps(ctx context.Context, doing string, step func(ctx context.Context, t *tx, n int) (int, error)) (n, sum int, err error) {
	for ; ; n++ {
		if ctx.Err() != nil {
			return n, sum, context.Cause(ctx)
		}
		done, err := result(ctx, s.write, ordinary(doing), func(ctx context.Context, t *tx) (int, error) { return step(ctx, t, n) })
		if errors.Is(err, errNothingLeft) {
			return n, sum, nil
		}
		if err != nil {
			return n, sum, err
		}
		sum += done
	}
}

// merge merges a part of the search index. begin also includes parts that the index would not merge
// by itself.
func (t *tx) merge(ctx context.Context, begin bool) error {
	pages := mergePages
	if begin {
		pages = -pages
	}
	before, err := t.number(`SELECT total_changes()`)
	if err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `INSERT INTO transcript_words (transcript_words, rank) VALUES ('merge', ?)`, pages); err != nil {
		return err
	}
	after, err := t.number(`SELECT total_changes()`)
	if err != nil {
		return err
	}
	if after-before < 2 { // the documented sign that nothing was left to merge
		return errNothingLeft
	}
	return nil
}

// returnPages returns up to shrinkPages free pages to the disk, and reports how many.
func (t *tx) returnPages(ctx context.Context) (int, error) {
	before, err := t.number(freePages)
	if err != nil {
		return 0, err
	}
	if before == 0 {
		return 0, errNothingLeft
	}
	if err := t.vacuum(ctx); err != nil {
		return 0, err
	}
	after, err := t.number(freePages)
	if err != nil {
		return 0, err
	}
	if after == before { // a file that was created without incremental vacuum
		return 0, errNothingLeft
	}
	return int(before - after), nil
}

// slackPages stay in the file for reuse: 4 MiB. Returning every free page would only make the file
// grow again.
const slackPages = 1024

// shrinkPages are returned at once: 1 MiB.
const shrinkPages = 256

// freePages counts the unused pages.
const freePages = `PRAGMA freelist_count`

// shrink returns the pages of deleted rows to the disk, some at each sweep: a millisecond of work.
// It reports whether more may remain.
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

// Upkeep maintains the file: it returns free pages to the disk, 1 MiB at a time so that no turn
// waits for it, and copies the log into the database. It checks ctx between the steps; completed
// steps stay.
//
// It gathers no statistics (ANALYZE, `PRAGMA optimize`). The statements are written for their
// indexes, most of which contain only unfinished work; statistics from an idle moment would make
// the planner read whole tables instead. A test checks the plans after an upkeep.
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

// checkpoint copies as much of the log as possible into the database, on a connection of its own
// and in the mode that blocks no other connection.
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

// Backup writes a consistent snapshot of the database at path into the new file dest, marks the
// copy as held ([store.Holds]), and checks it. A gateway may use the database meanwhile. dest is
// durable on the disk when Backup returns. Backup and writers do not wait for each other; the log
// of the database grows meanwhile.
func Backup(ctx context.Context, path, dest string) (err error) {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("there is no database at %s: %w", path, err)
	}
	if err := inspectFile(path); err != nil {
		return err
	}
	if err := touch(dest); err != nil { // created with private permissions; SQLite accepts an empty file as a new database
		return err
	}
	if err := vacuumInto(ctx, path, dest); err != nil {
		return err
	}
	h := store.Hold{Who: "laneway backup", Reason: "this is a backup: what it has not sent and not run may have been sent and run since"}
	if err := holdCopy(ctx, dest, time.Now().UnixMilli(), h); err != nil { //nolint:forbidigo // when the backup was made
		return err
	}
	if err := checkBackup(ctx, dest); err != nil {
		return err
	}
	file, err := os.OpenFile(dest, os.O_RDWR, 0) // the operator's own choice
	if err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return nil
}

func vacuumInto(ctx context.Context, path, dest string) error {
	c, err := openCopying(path)
	if err != nil {
		return explain("open the database", err)
	}
	err = c.until(ctx, "write the backup", func() error {
		if err := c.inspect(); err != nil {
			return err
		}
		return c.exec(`VACUUM INTO ?`, dest)
	})
	return errors.Join(err, c.close())
}

// checkBackup reads every page of the copy.
func checkBackup(ctx context.Context, dest string) (err error) {
	c, err := openReading(dest)
	if err != nil {
		return explain("open the backup", err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	var found string
	err = c.until(ctx, "check the backup", func() error {
		return c.query(`PRAGMA quick_check(1)`, func(r sqlstore.Row) error { return r.Scan(&found) })
	})
	if err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("the backup is damaged (%s): check the disk of the target and make it again", found)
	}
	return nil
}
