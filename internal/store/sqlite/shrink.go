package sqlite

import "context"

// slackPages stay in the file for reuse: 4 MiB. Giving every freed page back would only make the file grow again.
const slackPages = 1024

// shrink gives pages that deleted rows have left back to the disk, 256 at each sweep: a millisecond of work, so that nobody notices.
func (t *tx) shrink(ctx context.Context) error {
	var free int
	if err := t.one(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil || free <= slackPages {
		return err
	}
	_, err := t.exec(ctx, `PRAGMA incremental_vacuum(256)`)
	return err
}
