package sqlite

import (
	"context"
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
