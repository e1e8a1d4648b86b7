package sqlstore

import "context"

// What PostgreSQL's index has of sessions, $1. SQLite's leaves with the transcripts, by a trigger.
const (
	unindexEntriesSQL     = `DELETE FROM search_entries WHERE transcript IN (SELECT id FROM search_transcripts WHERE session_key {in $1})`
	unindexTranscriptsSQL = `DELETE FROM search_transcripts WHERE session_key {in $1}`
	unindexProgressSQL    = `DELETE FROM search_progress WHERE session_key {in $1}`
)

// dropTranscripts deletes the transcripts of sessions, and their entries of the index.
func dropTranscripts(ctx context.Context, tx Tx, keys []string) error {
	if tx.PerEngine("index", "") != "" {
		if err := later(ctx, tx, with(unindexEntriesSQL, keys), with(unindexTranscriptsSQL, keys), with(unindexProgressSQL, keys)); err != nil {
			return err
		}
	}
	return tx.Later(ctx, `DELETE FROM transcript WHERE session_key {in $1}`, nil, keys)
}
