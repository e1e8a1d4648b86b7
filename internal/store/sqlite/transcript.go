package sqlite

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store/sqlstore"
)

// append adds entries to the named transcript of a session, the current one or an archived one. The caller saves r.
func (t *tx) append(ctx context.Context, r *row, id string, entries []chat.TranscriptEntry) ([]chat.TranscriptEntry, error) {
	added, err := sqlstore.InsertEntries(ctx, t.shared(), sqlstore.Addition{Session: r.key, Transcript: id, After: r.transcriptSeq, At: t.now}, entries)
	r.transcriptSeq += int64(len(added))
	return added, err
}
