package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// What one transaction adds to the index.
const (
	indexSessions = 100
	indexRows     = 500
	indexBytes    = 1 << 20
)

const (
	// behindSQL finds sessions whose index is not complete, in the order of their keys. $1 the key before, $2 the principal of the gateway's own jobs, $3
	// how many.
	behindSQL = `SELECT s.key, s.session_id, s.transcript_seq, COALESCE(p.upto, 0)
		FROM sessions s LEFT JOIN search_progress p ON p.session_key = s.key
		WHERE s.key > $1 AND s.transcript_seq > COALESCE(p.upto, 0) AND s.principal <> $2 ORDER BY s.key LIMIT $3`

	// notIndexedSQL reads their next entries but summaries, in the order of $1, the sessions; $2 is up to where each is indexed, $3 how many.
	notIndexedSQL = `SELECT p.i, t.session_id, t.seq, t.at, t.content, octet_length(t.content) AS page_size
		FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS p(key, upto, i) JOIN transcript t ON t.session_key = p.key AND t.seq > p.upto
		WHERE t.to_seq = 0 AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = t.session_key AND k.session_id = t.session_id)
		ORDER BY p.i, t.seq LIMIT $3`

	// lockProgressSQL locks the rows of progress of sessions, $1: a deletion of a session waits for a transaction that indexes it, and the other way
	// round. Whatever comes behind this statement sees what the other one has done. A session that is gone may get a row, which means nothing.
	lockProgressSQL = `INSERT INTO search_progress AS p (session_key, upto) SELECT key, 0 FROM unnest($1::text[]) AS u(key) ORDER BY key
		ON CONFLICT (session_key) DO UPDATE SET upto = p.upto`

	// progressSQL notes up to where sessions are indexed: $1 keys, $2 their current transcripts as they were read, by which a later session of the key is
	// another one, $3 the number.
	progressSQL = `UPDATE search_progress p SET upto = u.upto
		FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u(key, id, upto) JOIN sessions s ON s.key = u.key AND s.session_id = u.id
		WHERE p.session_key = u.key AND p.upto < u.upto`

	// numberSQL gives transcripts a number. $1 keys, $2 ids.
	numberSQL = `INSERT INTO search_transcripts (session_key, session_id)
		SELECT DISTINCT u.key, u.id FROM unnest($1::text[], $2::text[]) AS u(key, id) ORDER BY 1, 2 ON CONFLICT DO NOTHING`

	// addSQL adds entries that still exist and that no deletion has kept. $1 keys, $2 ids, $3 numbers, $4 the words of each.
	addSQL = `INSERT INTO search_entries (transcript, seq, at, words)
		SELECT x.id, u.seq, t.at, array_to_tsvector(string_to_array(u.words, ' '))
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) AS u(key, id, seq, words)
		JOIN search_transcripts x ON x.session_key = u.key AND x.session_id = u.id
		JOIN transcript t ON t.session_key = u.key AND t.session_id = u.id AND t.seq = u.seq
		WHERE NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = u.key AND k.session_id = u.id)
		ON CONFLICT DO NOTHING`

	unindexEntriesSQL     = `DELETE FROM search_entries e USING search_transcripts x WHERE x.session_key = $1 AND e.transcript = x.id`
	unindexTranscriptsSQL = `DELETE FROM search_transcripts WHERE session_key = $1`
	unindexProgressSQL    = `DELETE FROM search_progress WHERE session_key = $1`
)

// behind is a session whose index is not complete.
type behind struct {
	key, id    string // id of the current transcript
	last, upto int64
}

// toIndex is an entry that is not in the index.
type toIndex struct {
	session int // in the list of sessions, from 1
	id      string
	seq, at int64
	content string
}

// manyIndexed is after how many new entries the statistics of the index are renewed, by which the server decides how to search.
const manyIndexed = 10_000

// IndexTranscripts adds entries to the index, see store.Search.
func (s *Store) IndexTranscripts(ctx context.Context) (total int, err error) {
	total, err = s.indexAll(ctx)
	if err != nil || total < manyIndexed {
		return total, err
	}
	return total, s.do(ctx, "renewing the statistics of the index", func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, `ANALYZE search_entries`)
		return err
	})
}

func (s *Store) indexAll(ctx context.Context) (total int, err error) {
	for after := ""; ; {
		if ctx.Err() != nil {
			return total, context.Cause(ctx)
		}
		list, err := s.behindIndex(ctx, after)
		if err != nil || len(list) == 0 {
			return total, err
		}
		n, complete, err := s.indexSome(ctx, list)
		if total += n; err != nil {
			return total, err
		}
		if complete > 0 {
			after = list[complete-1].key
		}
	}
}

func (s *Store) behindIndex(ctx context.Context, after string) (list []behind, err error) {
	err = s.do(ctx, "looking for what is not indexed", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, behindSQL, after, cron.SystemOwner, indexSessions)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (b behind, err error) {
			return b, row.Scan(&b.key, &b.id, &b.last, &b.upto)
		})
		return err
	})
	return list, err
}

// indexSome indexes the next entries of sessions, and returns how many of the first ones are complete.
func (s *Store) indexSome(ctx context.Context, list []behind) (n, complete int, err error) {
	rows, err := s.notIndexed(ctx, list)
	if err != nil {
		return 0, 0, err
	}
	complete = len(list)
	if len(rows) > 0 {
		// The page may have been cut within the session of its last row.
		last := rows[len(rows)-1]
		if list[last.session-1].last > last.seq {
			complete = last.session - 1
			list[complete].last = last.seq
			list = list[:complete+1]
		} else {
			complete = last.session
			list = list[:complete]
		}
	}
	err = s.do(ctx, "indexing transcripts", func(ctx context.Context) error { return send(ctx, s.pool, addToIndex(list, rows, &n)) })
	return n, complete, err
}

func (s *Store) notIndexed(ctx context.Context, list []behind) (rows []toIndex, err error) {
	keys, uptos := column(list, func(b behind) string { return b.key }), column(list, func(b behind) int64 { return b.upto })
	err = s.do(ctx, "reading what is not indexed", func(ctx context.Context) error {
		found, err := s.pool.Query(ctx, `SELECT t.i, t.session_id, t.seq, t.at, t.content FROM `+within(notIndexedSQL, "$4::bigint")+` t ORDER BY page_n`, keys, uptos, indexRows, indexBytes)
		if err != nil {
			return err
		}
		rows, err = pgx.CollectRows(found, func(row pgx.CollectableRow) (e toIndex, err error) {
			return e, row.Scan(&e.session, &e.id, &e.seq, &e.at, &e.content)
		})
		return err
	})
	return rows, err
}

// addToIndex is one transaction; n becomes how many entries it adds.
func addToIndex(list []behind, rows []toIndex, n *int) *pgx.Batch {
	key := func(e toIndex) string { return list[e.session-1].key }
	keys, ids := column(rows, key), column(rows, func(e toIndex) string { return e.id })
	b := &pgx.Batch{}
	sessions := column(list, func(b behind) string { return b.key })
	b.Queue(lockProgressSQL, sessions)
	b.Queue(progressSQL, sessions, column(list, func(b behind) string { return b.id }), column(list, func(b behind) int64 { return b.last }))
	if len(rows) == 0 {
		return b
	}
	b.Queue(numberSQL, keys, ids)
	b.Queue(addSQL, keys, ids, column(rows, func(e toIndex) int64 { return e.seq }),
		column(rows, func(e toIndex) string { return store.IndexWords(key(e), e.content) })).Exec(func(tag pgconn.CommandTag) error {
		*n = int(tag.RowsAffected())
		return nil
	})
	return b
}

// unindex queues the removal of a session from the index.
func unindex(b *pgx.Batch, key string) {
	b.Queue(lockProgressSQL, []string{key})
	for _, sql := range []string{unindexEntriesSQL, unindexTranscriptsSQL, unindexProgressSQL} {
		b.Queue(sql, key)
	}
}
