package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/words"
)

// mostTokens is up to how many sessions of a principal a search names to the index. With more it reads what the words find in all sessions, and passes over
// the entries of other principals.
const mostTokens = 100

// SearchTranscripts finds entries of transcripts; see the port. What is not indexed yet is newer than everything that is, so it is read first.
func (s *Store) SearchTranscripts(ctx context.Context, q store.SearchQuery) (out store.SearchResult, err error) {
	err = s.view(ctx, "search the transcripts", func(ctx context.Context, r querier) error {
		var upto int64
		if err := r.one(ctx, `SELECT upto FROM search_state`).Scan(&upto); err != nil {
			return err
		}
		find := search{q: q, bounds: s.search, budget: store.NewBudget(store.SearchBytes)}
		if err := find.tail(ctx, r, upto); err != nil {
			return err
		}
		if !find.full {
			if err := find.indexed(ctx, r, upto); err != nil {
				return err
			}
		}
		out = find.result()
		return nil
	})
	return out, err
}

// search is one search under way.
type search struct {
	q      store.SearchQuery
	bounds searchBounds
	budget *store.Budget
	hits   []store.Hit
	// full: enough was found or read. short: the bounds of the search were reached at the entry of that time.
	full, short bool
	back        time.Time
	below       int64 // the rowid down to which entries of the index were read
}

func (f *search) result() store.SearchResult {
	if f.short { // only down to where everything was read
		f.hits = slices.DeleteFunc(f.hits, func(h store.Hit) bool { return h.Entry.At.Before(f.back) })
	}
	out := f.q.Cut(f.hits)
	if f.short && !out.More {
		out.More, out.Back = true, f.back
	}
	return out
}

const (
	hitColumns = `t.session_key, t.session_id, coalesce(s.principal, ''), t.seq, t.run_id, t.role, t.content, t.sender, t.tokens, t.stop_reason, t.command, t.at`

	// searchFilter has the parameters ?2 principal, ?3 session, ?4 agent, ?5 and ?6 times, ?7 the principal of the gateway's own jobs. Summaries are not
	// found: the rows that they stand for are.
	searchFilter = ` AND (?2 = '' OR s.principal = ?2) AND (?3 = '' OR t.session_key = ?3) AND (?4 = '' OR s.agent = ?4)
		AND t.at >= ?5 AND (?6 = 0 OR t.at <= ?6) AND s.principal <> ?7 AND t.to_seq = 0`

	tailSQL = `SELECT ` + hitColumns + ` FROM transcript t JOIN sessions s ON s.key = t.session_key
		WHERE t.rowid > ?1` + searchFilter + `
		AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = t.session_key AND k.session_id = t.session_id)
		ORDER BY t.rowid DESC LIMIT +?8`

	// recentSQL reads the newest entries that are in the index, with whether they may be found. ?1 the newest of them, ?8 how many.
	recentSQL = `SELECT ` + hitColumns + `, t.rowid, coalesce(1` + searchFilter + `, 0)
		AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = t.session_key AND k.session_id = t.session_id)
		FROM (SELECT rowid, * FROM transcript WHERE rowid <= ?1 ORDER BY rowid DESC LIMIT +?8) t LEFT JOIN sessions s ON s.key = t.session_key ORDER BY t.rowid DESC`

	// The index is read from its newest entry before ?8 on, in the order of its rowids, until the search has enough, or ?9 entries.
	indexSQL = `SELECT ` + hitColumns + `, t.rowid, 1 FROM transcript_words w CROSS JOIN transcript t ON t.rowid = w.rowid CROSS JOIN sessions s ON s.key = t.session_key
		WHERE transcript_words MATCH ?1 AND w.rowid < ?8` + searchFilter + ` ORDER BY w.rowid DESC LIMIT +?9`
)

// The index merges all entries of all words that begin with a word of the query before it returns the first one, which takes longer the more there are. So it
// is not asked for words that many entries have: those are found among the newest entries, or by the texts of the entries that have the other words.
//
// recentBytes bounds the texts of the newest entries.
const recentBytes = 1 << 20

// searchBounds are those of a search in entries that are in the index.
type searchBounds struct {
	recent int // of the newest entries are read without the index
	loose  int // entries are read that may not have the common words, before the index is asked for them as well
}

func (f *search) args(first any) []any {
	session := ""
	if !f.q.Session.IsZero() {
		session = f.q.Session.String()
	}
	return []any{first, f.q.Visible, session, f.q.Agent, millis(f.q.Since), millis(f.q.Until), cron.SystemOwner}
}

// tail reads the entries behind the index.
func (f *search) tail(ctx context.Context, r querier, upto int64) error {
	rows, err := r.query(ctx, tailSQL, append(f.args(upto), store.SearchRows)...)
	n, err := f.read(rows, err)
	if err == nil && n == store.SearchRows {
		f.full, f.short = true, true
	}
	return err
}

// indexed finds entries that are in the index, up to the one with the number upto.
func (f *search) indexed(ctx context.Context, r querier, upto int64) error {
	f.below = upto + 1
	found, of, err := f.recent(ctx, r, upto)
	if err != nil || f.full || f.below <= 1 {
		return err
	}
	tokens, err := f.tokens(ctx, r)
	if err != nil {
		return err
	}
	strict := f.q.Words.Terms()
	if loose := store.Uncommon(strict, found, of, len(tokens) == 0); len(loose) < len(strict) {
		n, err := f.match(ctx, r, matchOf(loose, tokens), f.bounds.loose)
		if err != nil || f.full || n < f.bounds.loose {
			return err
		}
	}
	_, err = f.match(ctx, r, matchOf(strict, tokens), unlimited)
	return err
}

// recent reads the newest entries of the index themselves, and returns for each word of the query how many of so many have it.
func (f *search) recent(ctx context.Context, r querier, upto int64) (found []int, of int, err error) {
	found = make([]int, len(f.q.Words.Terms()))
	rows, err := r.query(ctx, recentSQL, append(f.args(upto), f.bounds.recent)...)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	budget := store.NewBudget(recentBytes)
	for !f.full && rows.Next() {
		h, place, visible, err := scanPlaced(rows)
		if err != nil {
			return nil, 0, err
		}
		if !budget.Take(len(h.Entry.Text)) {
			break
		}
		of, f.below = of+1, place
		if f.q.Words.Count(h.Entry.Text, found); visible {
			f.take(h)
		}
	}
	return found, of, rows.Err()
}

// match reads what the index finds, from the newest entry before those that were read, at most so many, and returns how many it has read.
func (f *search) match(ctx context.Context, r querier, query string, most int) (n int, err error) {
	rows, err := r.query(ctx, indexSQL, append(f.args(query), f.below, most)...)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for !f.full && rows.Next() {
		h, place, _, err := scanPlaced(rows)
		if err != nil {
			return n, err
		}
		n, f.below = n+1, place
		f.take(h)
	}
	return n, rows.Err()
}

// tokens name the sessions that may be searched; none = all, or too many.
func (f *search) tokens(ctx context.Context, r querier) ([]string, error) {
	if !f.q.Session.IsZero() {
		return []string{store.TokenOf(f.q.Session.String())}, nil
	}
	if f.q.Visible == "" {
		return nil, nil
	}
	rows, err := r.query(ctx, `SELECT key FROM sessions WHERE principal = ? LIMIT +?`, f.q.Visible, mostTokens+1)
	keys, err := collect(rows, err, text)
	if len(keys) > mostTokens {
		return nil, err
	}
	for i, key := range keys {
		keys[i] = store.TokenOf(key)
	}
	return keys, err
}

// matchOf is a query in the language of the index. Words have no quotes.
func matchOf(of []words.Term, tokens []string) string {
	var terms []string
	for _, t := range of {
		term := `"` + t.Word + `"`
		if t.Begins {
			term += "*"
		}
		terms = append(terms, term)
	}
	if len(tokens) > 0 {
		terms = append(terms, `("`+strings.Join(tokens, `" OR "`)+`")`)
	}
	return strings.Join(terms, " AND ")
}

// read reads rows until the search has enough, and returns how many it has read.
func (f *search) read(rows *sql.Rows, err error) (n int, _ error) {
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for !f.full && rows.Next() {
		h, err := scanHit(rows)
		if err != nil {
			return n, err
		}
		n++
		f.take(h)
	}
	return n, rows.Err()
}

// take keeps an entry that was read when the query finds it, until the search has enough or has read enough.
func (f *search) take(h store.Hit) {
	if !f.budget.Take(len(h.Entry.Text)) {
		f.full, f.short = true, true
		return
	}
	f.back = h.Entry.At
	if hit, ok := f.q.Hit(h); ok {
		f.hits = append(f.hits, hit)
	}
	if len(f.hits) > f.q.Most() {
		f.full = true
	}
}

func scanHit(row scanner) (h store.Hit, err error) {
	return h, row.Scan(hitPlaces(&h)...)
}

// scanPlaced reads an entry with its rowid, and whether it may be found. An entry without a session has no principal.
func scanPlaced(row scanner) (h store.Hit, place int64, visible bool, err error) {
	err = row.Scan(append(hitPlaces(&h), &place, &visible)...)
	return h, place, visible, err
}

func hitPlaces(h *store.Hit) []any {
	e := &h.Entry
	return []any{
		keyColumn{&h.Session},
		&h.SessionID, &h.Principal, &e.Seq, &e.RunID, &e.Role, &e.Text,
		jsonColumn{&e.Sender},
		&e.Tokens, &e.StopReason,
		&e.Command,
		timeColumn{&e.At},
	}
}
