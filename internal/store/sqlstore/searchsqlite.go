package sqlstore

import (
	"cmp"
	"context"
	"time"

	"laneway/internal/store"
)

// On SQLite an entry of the index has the rowid of its row of transcript, so the index is read from its newest entry on until the search has enough.

const (
	// searchFilter has the parameters $2 principal, $3 session, $4 agent, $5 and $6 times, $7 the principal of the gateway's own jobs. Summaries are not
	// found: the rows that they stand for are.
	searchFilter = ` AND ($2 = '' OR s.principal = $2) AND ($3 = '' OR t.session_key = $3) AND ($4 = '' OR s.agent = $4)
		AND t.at >= $5 AND ($6 = 0 OR t.at <= $6) AND s.principal <> $7 AND t.to_seq = 0`

	// tailOnSQLite reads the entries that are not in the index. $1 the newest one that is, $8 how many.
	tailOnSQLite = `SELECT t.rowid, 1, ` + hitColumns + ` FROM transcript t JOIN sessions s ON s.key = t.session_key
		WHERE t.rowid > $1` + searchFilter + notKept + ` ORDER BY t.rowid DESC {limit $8}`

	// recentOnSQLite reads the newest entries that are in the index, with whether they may be found. $1 the newest of them, $8 how many.
	recentOnSQLite = `SELECT t.rowid, COALESCE(1` + searchFilter + `, 0)` + notKept + `, ` + hitColumns + `
		FROM (SELECT rowid, * FROM transcript WHERE rowid <= $1 ORDER BY rowid DESC {limit $8}) t LEFT JOIN sessions s ON s.key = t.session_key ORDER BY t.rowid DESC`

	// matchOnSQLite reads the index from its newest entry before $8 on, $9 entries. $1 the query.
	matchOnSQLite = `SELECT t.rowid, 1, ` + hitColumns + ` FROM transcript_words w CROSS JOIN transcript t ON t.rowid = w.rowid CROSS JOIN sessions s ON s.key = t.session_key
		WHERE transcript_words MATCH $1 AND w.rowid < $8` + searchFilter + ` ORDER BY w.rowid DESC {limit $9}`
)

// recentBytes bounds the texts of the newest entries that are read.
const recentBytes = 1 << 20

// sqliteSearch is a search on SQLite.
type sqliteSearch struct {
	*search

	budget *store.Budget
	full   bool      // enough was found or read
	last   time.Time // of the entry that was read last
	below  int64     // the rowid down to which entries of the index were read
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

// tail reads the entries after the index.
func (f *sqliteSearch) tail(ctx context.Context, upto int64) error {
	n, err := f.read(ctx, tailOnSQLite, upto, store.SearchRows)
	if err == nil && n == store.SearchRows {
		f.full, f.back = true, f.last
	}
	return err
}

// indexed finds entries that are in the index, up to the one with the number upto.
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

// recent reads the newest entries of the index themselves, and returns for each word of the query how many of so many have it.
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

// read reads entries that may be found, and returns how many.
func (f *sqliteSearch) read(ctx context.Context, text string, first any, more ...any) (n int, err error) {
	return n, f.each(ctx, text, func(h store.Hit, place int64, _ bool) bool {
		n, f.below = n+1, place
		f.take(h)
		return true
	}, first, more...)
}

// each reads entries until the search has enough, or the function returns false.
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

// take keeps an entry that was read when the query finds it, until the search has enough or has read enough.
func (f *sqliteSearch) take(h store.Hit) {
	if !f.budget.Take(len(h.Entry.Text)) {
		f.full, f.back = true, f.last
		return
	}
	f.last = h.Entry.At
	f.keep(h)
	f.full = f.full || len(f.hits) > f.q.Most()
}
