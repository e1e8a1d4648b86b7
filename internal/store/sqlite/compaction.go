package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// mergePages is how many pages of the search index one transaction merges, which occupies the writer for some milliseconds.
	mergePages = 64
	// compactTime bounds a compaction.
	compactTime = 10 * time.Minute
)

var errCompactTime = errors.New("the compaction took too long")

// Compact merges the search index into one part and returns every free page of the file to the disk; the daily [Store.Upkeep] keeps some for reuse. Each step
// is a transaction of some milliseconds, so that no turn waits long. It checks ctx between the steps; completed steps stay. It stops after ten minutes, and the
// next compaction continues.
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

// steps runs operations of the writer one after the other until one has nothing left to do. It returns their number and the sum of their results.
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

// merge merges a part of the search index. begin also includes parts that the index would not merge by itself.
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
