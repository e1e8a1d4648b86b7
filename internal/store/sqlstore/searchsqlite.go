package sqlstore

import (
	"cmp"
	"context"
	"time"

	"laneway/internal/store"
)

// On SQLite an index entry has the rowid of its row of transcript, so the index is read backwards from its newest entry until the search has enough hits.

const (
	// searchFilter has the parameters $2 principal, $3 session, $4 agent, $5 and $6 times, $7 the principal of the gateway's own jobs. Summaries are excluded,
	// because the summarized rows are found.
	searchFilter = ` AND ($2 = '' OR s.principal = $2) AND ($3 = '' OR t.session_key = $3) AND ($4 = '' OR s.agent = $4)
		AND t.at >= $5 AND ($6 = 0 OR t.at <= $6) AND s.principal <> $7 AND t.to_seq = 0`

	// tailOnSQLite reads the entries that are not in the index. $1 is the newest indexed one, $8 the number of rows.
	tailOnSQLite = `SELECT t.rowid, 1, ` + hitColumns + ` FROM transcript t JOIN sessions s ON s.key = t.session_key
		WHERE t.rowid > $1` + searchFilter + notKept + ` ORDER BY t.rowid DESC {limit $8}`

	// recentOnSQLite reads the newest indexed entries, and whether each passes the filter. $1 is the newest of them, $8 the number of rows.
	recentOnSQLite = `SELECT t.rowid, COALESCE(1` + searchFilter + `, 0)` + notKept + `, ` + hitColumns + `
		FROM (SELECT rowid, * FROM transcript WHERE rowid <= $1 ORDER BY rowid DESC {limit $8}) t LEFT JOIN sessions s ON s.key = t.session_key ORDER BY t.rowid DESC`

	// matchOnSQLite reads $9 index entries backwards from the newest one before $8. $1 is the query.
	matchOnSQLite = `SELECT t.rowid, 1, ` + hitColumns + ` FROM transcript_words w CROSS JOIN transcript t ON t.rowid = w.rowid CROSS JOIN sessions s ON s.key = t.session_key
		WHERE transcript_words MATCH $1 AND w.rowid < $8` + searchFilter + ` ORDER BY w.rowid DESC {limit $9}`
)

// recentBytes bounds the text of the newest entries that are read.
const recentBytes = 1 << 20

// sqliteSearch is a search on SQLite.
type sqliteSearch struct {
	*search

	budget *store.Budget
	full   bool      // the search has enough hits, or has read its byte bound
	last   time.Time // of the last entry that was read
	below  int64     // the rowid down to which index entries were read
}

func (f *search) onSQLite(ctx context.Context, recent, loose int) (store.SearchResult, error) {
	l := &sqliteSearch{search: f, budget: store.NewBudget(store.SearchBytes)}
	var upto int64
	_, err := one(ctx, f.tx, `SELECT upto FROM search_state`, into(&upto))
	if err == nil {
		err = l.tail(ctx, upto)
	}
	if err == nil && !l.full {
		err = l.indexed(ctx, upto, cmp.Or(recent, 500), cmp.Or(loose, 2000))
	}
	return f.result(), err
}

// tail reads the entries that are newer than the index.
func (f *sqliteSearch) tail(ctx context.Context, upto int64) error {
	n, err := f.read(ctx, tailOnSQLite, upto, store.SearchRows)
	if err == nil && n == store.SearchRows {
		f.full, f.back = true, f.last
	}
	return err
}

// indexed finds indexed entries, up to the one with the number upto.
func (f *sqliteSearch) indexed(ctx context.Context, upto int64, recent, most int) error {
	f.below = upto + 1
	found, of, err := f.recent(ctx, upto, recent)
	if err != nil || f.full || f.below <= 1 {
		return err
	}
	tokens, err := f.tokens(ctx)
	if err != nil {
		return err
	}
	fts := language{quote: `"`, begins: "*", and: " AND ", or: " OR "}
	strict := f.q.Words.Terms()
	if loose := store.Uncommon(strict, found, of, len(tokens) == 0); len(loose) < len(strict) {
		n, err := f.read(ctx, matchOnSQLite, fts.query(loose, tokens), f.below, most)
		if err != nil || f.full || n < most {
			return err
		}
	}
	_, err = f.read(ctx, matchOnSQLite, fts.query(strict, tokens), f.below, -1)
	return err
}

// recent reads the newest indexed entries directly. It returns for each word of the query in how many of them it occurs.
func (f *sqliteSearch) recent(ctx context.Context, upto int64, most int) (found []int, of int, err error) {
	found = make([]int, len(f.q.Words.Terms()))
	budget := store.NewBudget(recentBytes)
	err = f.each(ctx, recentOnSQLite, func(h store.Hit, place int64, visible bool) bool {
		if !budget.Take(len(h.Entry.Text)) {
			return false
		}
		of, f.below = of+1, place
		if f.q.Words.Count(h.Entry.Text, found); visible {
			f.take(h)
		}
		return true
	}, upto, most)
	return found, of, err
}

// read reads candidate entries and returns their number.
func (f *sqliteSearch) read(ctx context.Context, text string, first any, more ...any) (n int, err error) {
	return n, f.each(ctx, text, func(h store.Hit, place int64, _ bool) bool {
		n, f.below = n+1, place
		f.take(h)
		return true
	}, first, more...)
}

// each reads entries until the search has enough hits, or take returns false.
func (f *sqliteSearch) each(ctx context.Context, text string, take func(h store.Hit, place int64, visible bool) bool, first any, more ...any) error {
	return f.tx.Query(ctx, text, func(r Row) error {
		var (
			place   int64
			visible bool
		)
		h, err := scanHit(prefixed{r, []any{&place, &visible}})
		if err == nil && (!take(h, place, visible) || f.full) {
			return ErrEnough
		}
		return err
	}, append(append([]any{first}, f.filter()...), more...)...)
}

// take keeps an entry that the query matches, until the search has enough hits or has read its byte bound.
func (f *sqliteSearch) take(h store.Hit) {
	if !f.budget.Take(len(h.Entry.Text)) {
		f.full, f.back = true, f.last
		return
	}
	f.last = h.Entry.At
	f.keep(h)
	f.full = f.full || len(f.hits) > f.q.Most()
}
