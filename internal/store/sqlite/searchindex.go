package sqlite

import (
	"context"

	"laneway/internal/cron"
	"laneway/internal/retry"
	"laneway/internal/store"
)

// What one transaction adds to the index. The writer runs no other operation meanwhile, so each is followed by a pause that is indexPause times as long as
// it took: turns find the writer free most of the time, also while a large database is indexed for the first time.
const (
	indexRows  = 50
	indexBytes = 64 << 10
	indexPause = 3
)

// indexState is the row of search_state.
type indexState struct {
	upto       int64
	key, id    string
	seq        int64
	removals   int64
	renumbered bool // the row with the number upto is another one
}

// toIndex is a row of transcript that is not in the index.
type toIndex struct {
	place   int64
	key, id string
	seq     int64
	words   string // '' = it does not belong into the index
	bytes   int
}

// IndexTranscripts adds entries to the index; see the port. The words are made outside of the writer. It ends at the entry that was the last one when it
// began, or there would be no end while messages come.
func (s *Store) IndexTranscripts(ctx context.Context) (total int, err error) {
	var end int64
	err = s.view(ctx, "look for what is not indexed", func(ctx context.Context, q querier) error {
		return q.one(ctx, `SELECT coalesce(max(rowid), 0) FROM transcript`).Scan(&end)
	})
	if err != nil {
		return 0, err
	}
	for {
		if ctx.Err() != nil {
			return total, context.Cause(ctx)
		}
		var (
			state indexState
			rows  []toIndex
		)
		err := s.view(ctx, "look for what is not indexed", func(ctx context.Context, q querier) (err error) {
			if state, err = readIndexState(ctx, q); err == nil {
				rows, err = notIndexed(ctx, q, &state, end)
			}
			return err
		})
		if err != nil || len(rows) == 0 && !state.renumbered {
			return total, err
		}
		began := s.write.elapsed()
		n, err := result(ctx, s.write, ordinary("index transcripts"), func(ctx context.Context, t *tx) (int, error) {
			return t.index(ctx, &state, rows)
		})
		if total += n; err != nil {
			return total, err
		}
		if err := retry.Sleep(ctx, indexPause*(s.write.elapsed()-began)); err != nil {
			return total, err
		}
	}
}

func readIndexState(ctx context.Context, q querier) (st indexState, err error) {
	err = q.one(ctx, `SELECT upto, session_key, session_id, seq, removals FROM search_state`).Scan(&st.upto, &st.key, &st.id, &st.seq, &st.removals)
	if err != nil || st.key == "" {
		return st, err
	}
	var same bool
	err = q.one(ctx, `SELECT EXISTS (SELECT 1 FROM transcript WHERE rowid = ? AND session_key = ? AND session_id = ? AND seq = ?)`,
		st.upto, st.key, st.id, st.seq).Scan(&same)
	st.renumbered = !same
	return st, err
}

// notIndexed reads the next rows, with the words of those that belong into the index.
func notIndexed(ctx context.Context, q querier, st *indexState, end int64) ([]toIndex, error) {
	from := st.upto
	if st.renumbered {
		from = 0
	}
	rows, err := q.query(ctx, `
		SELECT t.rowid, t.session_key, t.session_id, t.seq, t.content, s.key IS NULL OR s.principal = ?2 OR t.to_seq > 0
			OR EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = t.session_key AND k.session_id = t.session_id)
		FROM transcript t LEFT JOIN sessions s ON s.key = t.session_key WHERE t.rowid > ?1 AND t.rowid <= ?4 ORDER BY t.rowid LIMIT +?3`,
		from, cron.SystemOwner, indexRows, end)
	read := func(row scanner) (r toIndex, err error) {
		var (
			content string
			left    bool
		)
		if err = row.Scan(&r.place, &r.key, &r.id, &r.seq, &content, &left); err != nil || left {
			return r, err
		}
		r.words, r.bytes = store.IndexWords(r.key, content), len(content)
		return r, nil
	}
	return collectWithin(rows, err, read, store.NewBudget(indexBytes), func(r toIndex) int { return r.bytes })
}

// index adds rows to the index, unless it or the transcripts have changed since the rows were read.
func (t *tx) index(ctx context.Context, st *indexState, rows []toIndex) (n int, err error) {
	var same bool
	err = t.one(ctx, `SELECT upto = ? AND session_key = ? AND removals = ? FROM search_state`, st.upto, st.key, st.removals).Scan(&same)
	if err != nil || !same {
		return 0, err
	}
	if st.renumbered {
		if _, err = t.exec(ctx, `INSERT INTO transcript_words (transcript_words) VALUES ('delete-all')`); err != nil {
			return 0, err
		}
		if len(rows) == 0 {
			_, err = t.exec(ctx, `UPDATE search_state SET upto = 0, session_key = ''`)
			return 0, err
		}
	}
	for i := range rows {
		if rows[i].words == "" {
			continue
		}
		if _, err = t.exec(ctx, `REPLACE INTO transcript_words (rowid, words) VALUES (?, ?)`, rows[i].place, rows[i].words); err != nil {
			return 0, err
		}
		n++
	}
	last := &rows[len(rows)-1]
	_, err = t.exec(ctx, `UPDATE search_state SET upto = ?, session_key = ?, session_id = ?, seq = ?`, last.place, last.key, last.id, last.seq)
	return n, err
}

// unindex removes the entries of a session from the index; its transcripts stay.
func (t *tx) unindex(ctx context.Context, key string) error {
	if _, err := t.exec(ctx, `DELETE FROM transcript_words WHERE rowid IN (SELECT rowid FROM transcript WHERE session_key = ?)`, key); err != nil {
		return err
	}
	_, err := t.exec(ctx, `UPDATE search_state SET removals = removals + 1`)
	return err
}
