package sqlstore

import (
	"context"
	"time"

	"laneway/internal/cron"
	"laneway/internal/retry"
	"laneway/internal/store"
)

// Statements about sessions, $1, in the index of PostgreSQL.
const (
	unindexEntriesSQL     = `DELETE FROM search_entries WHERE transcript IN (SELECT id FROM search_transcripts WHERE session_key {in $1})`
	unindexTranscriptsSQL = `DELETE FROM search_transcripts WHERE session_key {in $1}`
	unindexProgressSQL    = `DELETE FROM search_progress WHERE session_key {in $1}`

	// lockProgressSQL locks the progress rows of sessions, $1: a deletion of a session waits for a
	// transaction that indexes it, and vice versa. Statements after this one see what the other
	// transaction has done. A deleted session may get a row, which has no effect.
	lockProgressSQL = `INSERT INTO search_progress AS p (session_key, upto) SELECT key, 0 FROM unnest($1::text[]) AS u(key) ORDER BY key
		ON CONFLICT (session_key) DO UPDATE SET upto = p.upto`
)

// unindex removes the entries of a session from the index; its transcripts stay.
func unindex(ctx context.Context, tx Tx, key string) error {
	if onSQLite(tx) {
		return later(ctx, tx, with(`DELETE FROM transcript_words WHERE rowid IN (SELECT rowid FROM transcript WHERE session_key = $1)`, key),
			with(`UPDATE search_state SET removals = removals + 1`))
	}
	keys := []string{key}
	return later(ctx, tx, with(lockProgressSQL, keys), with(unindexEntriesSQL, keys), with(unindexTranscriptsSQL, keys), with(unindexProgressSQL, keys))
}

// indexAgain makes the entries of a session be indexed again, because it received entries that are
// older than the indexed ones. On SQLite they are new rows.
func indexAgain(ctx context.Context, tx Tx, key string) error {
	if onSQLite(tx) {
		return nil
	}
	return later(ctx, tx, with(lockProgressSQL, []string{key}), with(`UPDATE search_progress SET upto = 0 WHERE session_key = $1`, key))
}

// dropTranscripts deletes the transcripts of sessions, their agent sessions, and their index
// entries, which SQLite removes by a trigger.
func dropTranscripts(ctx context.Context, tx Tx, keys []string) error {
	if !onSQLite(tx) {
		if err := later(ctx, tx, with(unindexEntriesSQL, keys), with(unindexTranscriptsSQL, keys), with(unindexProgressSQL, keys)); err != nil {
			return err
		}
	}
	return later(ctx, tx, with(`DELETE FROM agent_sessions WHERE session_key {in $1}`, keys), with(`DELETE FROM transcript WHERE session_key {in $1}`, keys))
}

// indexing is one IndexTranscripts in progress.
type indexing struct {
	db    Engine
	total int
	next  func(ctx context.Context) (more bool, err error) // one step

	end   int64  // SQLite: the last entry at the start; without it the run might not end while messages arrive
	after string // PostgreSQL: the session up to which the index is complete
}

// IndexTranscripts adds entries to the index; see store.Store.
func (s Search) IndexTranscripts(ctx context.Context) (int, error) {
	x := &indexing{db: s.db}
	x.next = x.onPostgres
	err := s.db.View(ctx, "find entries that are not indexed", func(ctx context.Context, tx Tx) error {
		if !onSQLite(tx) {
			return nil
		}
		x.next = x.onSQLite
		_, err := one(ctx, tx, `SELECT COALESCE(max(rowid), 0) FROM transcript`, into(&x.end))
		return err
	})
	for more := true; more && err == nil; {
		if ctx.Err() != nil {
			return x.total, context.Cause(ctx)
		}
		more, err = x.next(ctx)
	}
	if err == nil && x.total >= manyIndexed {
		err = s.db.Update(ctx, "renew the statistics of the index", func(ctx context.Context, tx Tx) error {
			if onSQLite(tx) {
				return nil
			}
			return tx.Later(ctx, `ANALYZE search_entries`, nil)
		})
	}
	return x.total, err
}

// How much one transaction adds to the index of PostgreSQL, and after how many new entries its
// statistics are updated, from which the server plans searches.
const (
	indexSessions = 100
	indexRows     = 500
	indexBytes    = 1 << 20
	manyIndexed   = 10_000
)

const (
	// unindexedSQL finds sessions whose index is incomplete, ordered by key. $1 the previous key,
	// $2 the principal of the gateway's own jobs, $3 how many.
	unindexedSQL = `SELECT s.key, s.session_id, s.transcript_seq, COALESCE(p.upto, 0)
		FROM sessions s LEFT JOIN search_progress p ON p.session_key = s.key
		WHERE s.key > $1 AND s.transcript_seq > COALESCE(p.upto, 0) AND s.principal <> $2 ORDER BY s.key LIMIT $3`

	// notIndexedSQL reads their next entries except summaries, in the order of $1, the sessions; $2
	// is the number up to which each is indexed, $3 how many.
	notIndexedSQL = `SELECT p.i, t.session_id, t.seq, t.content, octet_length(t.content) AS page_size
		FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS p(key, upto, i) JOIN transcript t ON t.session_key = p.key AND t.seq > p.upto
		WHERE t.to_seq = 0` + notKept + ` ORDER BY p.i, t.seq LIMIT $3`

	// progressSQL records the numbers up to which sessions are indexed: $1 keys, $2 their current
	// transcripts as read, which distinguish a later session of the same key, $3 the numbers.
	progressSQL = `UPDATE search_progress p SET upto = u.upto
		FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u(key, id, upto) JOIN sessions s ON s.key = u.key AND s.session_id = u.id
		WHERE p.session_key = u.key AND p.upto < u.upto`

	// numberSQL gives transcripts a number. $1 keys, $2 ids.
	numberSQL = `INSERT INTO search_transcripts (session_key, session_id)
		SELECT DISTINCT u.key, u.id FROM unnest($1::text[], $2::text[]) AS u(key, id) ORDER BY 1, 2 ON CONFLICT DO NOTHING`

	// addSQL adds entries that still exist and that no deletion has kept. $1 keys, $2 ids, $3
	// numbers, $4 the words of each.
	addSQL = `INSERT INTO search_entries (transcript, seq, at, words)
		SELECT x.id, u.seq, t.at, array_to_tsvector(string_to_array(u.words, ' '))
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) AS u(key, id, seq, words)
		JOIN search_transcripts x ON x.session_key = u.key AND x.session_id = u.id
		JOIN transcript t ON t.session_key = u.key AND t.session_id = u.id AND t.seq = u.seq
		WHERE true` + notKept + ` ON CONFLICT DO NOTHING`
)

// unindexed are sessions whose index is incomplete, column by column: keys, current transcripts,
// newest numbers, and the numbers up to which each is indexed.
type unindexed struct {
	keys, ids   []string
	last, uptos []int64
}

// cut removes the first n sessions.
func (u *unindexed) cut(n int) {
	u.keys, u.ids, u.last, u.uptos = u.keys[:n], u.ids[:n], u.last[:n], u.uptos[:n]
}

// newEntries are entries that are not in the index, column by column; session counts from 1.
type newEntries struct {
	session          []int
	keys, ids, words []string
	seqs             []int64
}

// onPostgres indexes the next entries of some sessions.
func (x *indexing) onPostgres(ctx context.Context) (more bool, err error) {
	var (
		of      unindexed
		entries newEntries
	)
	err = x.db.View(ctx, "find entries that are not indexed", func(ctx context.Context, tx Tx) (err error) {
		if of, err = readUnindexed(ctx, tx, x.after); err == nil && len(of.keys) > 0 {
			entries, err = readNewEntries(ctx, tx, &of)
		}
		return err
	})
	if err != nil || len(of.keys) == 0 {
		return false, err
	}
	complete := len(of.keys)
	if n := len(entries.seqs); n > 0 { // the page may end within the session of its last row
		of.cut(entries.session[n-1])
		complete = len(of.keys)
		if last := entries.seqs[n-1]; of.last[complete-1] > last {
			of.last[complete-1] = last
			complete--
		}
	}
	n, err := result(ctx, x.db.Update, "index transcripts", func(ctx context.Context, tx Tx) (int64, error) {
		if err := later(ctx, tx, with(lockProgressSQL, of.keys), with(progressSQL, of.keys, of.ids, of.last)); err != nil || len(entries.seqs) == 0 {
			return 0, err
		}
		if err := tx.Later(ctx, numberSQL, nil, entries.keys, entries.ids); err != nil {
			return 0, err
		}
		return tx.Exec(ctx, addSQL, entries.keys, entries.ids, entries.seqs, entries.words)
	})
	if x.total += int(n); complete > 0 {
		x.after = of.keys[complete-1]
	}
	return true, err
}

func readUnindexed(ctx context.Context, tx Tx, after string) (of unindexed, err error) {
	return of, tx.Query(ctx, unindexedSQL, func(r Row) error {
		var (
			key, id    string
			last, upto int64
		)
		err := r.Scan(&key, &id, &last, &upto)
		of.keys, of.ids, of.last, of.uptos = append(of.keys, key), append(of.ids, id), append(of.last, last), append(of.uptos, upto)
		return err
	}, after, cron.SystemOwner, indexSessions)
}

func readNewEntries(ctx context.Context, tx Tx, of *unindexed) (e newEntries, err error) {
	_, err = readPage(ctx, tx, page{
		columns: `i, session_id, seq, content`, rows: notIndexedSQL, bytes: indexBytes, args: []any{of.keys, of.uptos, indexRows},
	}, func(r Row) (none struct{}, err error) {
		var (
			session     int
			id, content string
			seq         int64
		)
		if err = r.Scan(&session, &id, &seq, &content); err == nil {
			key := of.keys[session-1]
			e.session, e.keys, e.ids, e.seqs = append(e.session, session), append(e.keys, key), append(e.ids, id), append(e.seqs, seq)
			e.words = append(e.words, store.IndexWords(key, content))
		}
		return none, err
	})
	return e, err
}

// How much one transaction adds to the index of SQLite. The writer runs no other operation
// meanwhile. So each is followed by a pause sqlitePause times as long as the transaction: turns
// find the writer free most of the time, even while a large database is indexed for the first time.
const (
	sqliteRows  = 50
	sqliteBytes = 64 << 10
	sqlitePause = 3
)

const (
	indexStateSQL = `SELECT upto, session_key, session_id, seq, removals, session_key <> '' AND NOT EXISTS (SELECT 1 FROM transcript t
		WHERE t.rowid = s.upto AND t.session_key = s.session_key AND t.session_id = s.session_id AND t.seq = s.seq) FROM search_state s`

	// nextRowsSQL reads the next $3 rows and whether each is excluded. $1 is the previous number
	// and $4 the last, $2 the principal of the gateway's own jobs.
	nextRowsSQL = `SELECT t.rowid, t.session_key, t.session_id, t.seq, t.content, s.key IS NULL OR s.principal = $2 OR t.to_seq > 0
			OR EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = t.session_key AND k.session_id = t.session_id)
		FROM transcript t LEFT JOIN sessions s ON s.key = t.session_key WHERE t.rowid > $1 AND t.rowid <= $4 ORDER BY t.rowid {limit $3}`
)

// indexState is the row of search_state.
type indexState struct {
	upto       int64
	key, id    string
	seq        int64
	removals   int64
	renumbered bool // the row with the number upto is a different one
}

// nextRow is a row of transcript that is not in the index.
type nextRow struct {
	place   int64
	key, id string
	seq     int64
	words   string // '' when it is excluded from the index
}

// onSQLite indexes the next rows. Their words are computed outside of the writer.
func (x *indexing) onSQLite(ctx context.Context) (more bool, err error) {
	var (
		state indexState
		rows  []nextRow
	)
	err = x.db.View(ctx, "find entries that are not indexed", func(ctx context.Context, tx Tx) error {
		_, err := one(ctx, tx, indexStateSQL, into(&state.upto, &state.key, &state.id, &state.seq, &state.removals, &state.renumbered))
		if err == nil {
			rows, err = readNextRows(ctx, tx, &state, x.end)
		}
		return err
	})
	if err != nil || len(rows) == 0 && !state.renumbered {
		return false, err
	}
	began := time.Now() //nolint:forbidigo // monotonic, never stored
	n, err := result(ctx, x.db.Update, "index transcripts", func(ctx context.Context, tx Tx) (int, error) { return addRows(ctx, tx, &state, rows) })
	if x.total += n; err != nil {
		return false, err
	}
	return true, retry.Sleep(ctx, sqlitePause*time.Since(began)) //nolint:forbidigo // as above
}

func readNextRows(ctx context.Context, tx Tx, st *indexState, end int64) (rows []nextRow, err error) {
	from := st.upto
	if st.renumbered {
		from = 0
	}
	budget := store.NewBudget(sqliteBytes)
	err = tx.Query(ctx, nextRowsSQL, func(r Row) error {
		var (
			v       nextRow
			content string
			left    bool
		)
		if err := r.Scan(&v.place, &v.key, &v.id, &v.seq, &content, &left); err != nil {
			return err
		}
		if !left {
			if v.words = store.IndexWords(v.key, content); !budget.Take(len(content)) {
				return ErrEnough
			}
		}
		rows = append(rows, v)
		return nil
	}, from, cron.SystemOwner, sqliteRows, end)
	return rows, err
}

// addRows adds rows to the index, unless the index or the transcripts have changed since the rows
// were read.
func addRows(ctx context.Context, tx Tx, st *indexState, rows []nextRow) (n int, err error) {
	same := false
	_, err = one(ctx, tx, `SELECT upto = $1 AND session_key = $2 AND removals = $3 FROM search_state`, into(&same), st.upto, st.key, st.removals)
	if err != nil || !same {
		return 0, err
	}
	if st.renumbered {
		if err := tx.Later(ctx, `INSERT INTO transcript_words (transcript_words) VALUES ('delete-all')`, nil); err != nil {
			return 0, err
		}
		if len(rows) == 0 {
			return 0, tx.Later(ctx, `UPDATE search_state SET upto = 0, session_key = ''`, nil)
		}
	}
	var set Set
	for _, r := range rows {
		if r.words != "" {
			set = append(set, []any{r.place, r.words})
		}
	}
	last := rows[len(rows)-1]
	return len(set), later(ctx, tx, with(`{set place int, words text} REPLACE INTO transcript_words (rowid, words) SELECT v.place, v.words`, set),
		with(`UPDATE search_state SET upto = $1, session_key = $2, session_id = $3, seq = $4`, last.place, last.key, last.id, last.seq))
}
