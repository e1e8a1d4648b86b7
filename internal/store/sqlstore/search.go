package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/words"
)

// Search finds entries of transcripts by their words. The engines index words in different ways, so
// each has its own search.
//
// Both indexes merge all entries of all words that begin with a word of the query before they
// return the first one, which takes longer the more entries there are. So common words are not
// looked up in the index. They are matched against the newest entries, or against the text of the
// entries that have the other words.
type Search struct {
	db Engine
	// Recent and Loose bound the parts of a search; 0 = the default. Tests set them so low that a
	// few entries reach each step. Recent is how many of the newest entries are read without the
	// word index. Loose is used by SQLite only: how many entries that may lack the common words are
	// read before the index is queried for these words as well.
	Recent, Loose int
}

// SearchTranscripts finds entries of transcripts; see store.Store. Index and transcripts are read
// in one state of the database, because an entry can enter the index meanwhile. Entries that are
// not indexed yet are newer than all indexed ones, so they are read first.
func (s Search) SearchTranscripts(ctx context.Context, q store.SearchQuery) (out store.SearchResult, err error) {
	err = s.db.Snapshot(ctx, "search the transcripts", func(ctx context.Context, tx Tx) error {
		f := search{tx: tx, q: q}
		if onSQLite(tx) {
			out, err = f.onSQLite(ctx, s.Recent, s.Loose)
		} else {
			out, err = f.onPostgres(ctx, s.Recent)
		}
		return err
	})
	return out, err
}

func onSQLite(tx Tx) bool { return tx.PerEngine("", "SQLite") != "" }

// search is one search in progress.
type search struct {
	tx   Tx
	q    store.SearchQuery
	hits []store.Hit
	// back is the time back to which everything was read; zero when the search is complete.
	back time.Time
}

// hitColumns are the columns that scanHit reads, of an entry t and its session s.
const hitColumns = `t.session_key, t.session_id, COALESCE(s.principal, ''), t.seq, t.run_id, t.role, t.content, t.sender, t.tokens, t.stop_reason, t.command,
	t.from_seq, t.to_seq, t.outside, t.origin, t.at`

func scanHit(r Row) (h store.Hit, err error) {
	h.Entry, err = scanEntry(prefixed{r, []any{keyColumn{&h.Session}, &h.SessionID, &h.Principal}})
	return h, err
}

// keep adds an entry to the hits if the query matches it.
func (f *search) keep(h store.Hit) bool {
	hit, ok := f.q.Hit(h)
	if ok {
		f.hits = append(f.hits, hit)
	}
	return ok
}

// result is the result for the time back to which everything was read.
func (f *search) result() store.SearchResult {
	if f.back.IsZero() {
		return f.q.Cut(f.hits)
	}
	out := f.q.Cut(slices.DeleteFunc(f.hits, func(h store.Hit) bool { return h.Entry.At.Before(f.back) }))
	if !out.More {
		out.More, out.Back = true, f.back
	}
	return out
}

// filter are the arguments of every search: principal, session, agent, two times and the principal
// of the gateway's own jobs.
func (f *search) filter() []any {
	session := ""
	if !f.q.Session.IsZero() {
		session = f.q.Session.String()
	}
	return []any{f.q.Visible, session, f.q.Agent, millis(f.q.Since), millis(f.q.Until), cron.SystemOwner}
}

// mostTokens is the maximum number of sessions that an index query names. For a principal with more
// sessions, the search reads the matches of all sessions, and skips the entries of other
// principals.
const mostTokens = 100

// tokens are the index tokens of the sessions that may be searched; empty when all may be, or there
// are too many.
func (f *search) tokens(ctx context.Context) ([]string, error) {
	if !f.q.Session.IsZero() {
		return []string{store.TokenOf(f.q.Session.String())}, nil
	}
	if f.q.Visible == "" {
		return nil, nil
	}
	keys, err := all(ctx, f.tx, `SELECT key FROM sessions WHERE principal = $1 {limit $2}`, scanText, f.q.Visible, mostTokens+1)
	if len(keys) > mostTokens {
		return nil, err
	}
	for i, key := range keys {
		keys[i] = store.TokenOf(key)
	}
	return keys, err
}

// language is the query syntax of an index. Words contain no quotes and no backslashes.
type language struct{ quote, begins, and, or string }

// query is an index query for entries that have all of the words, in one of the sessions.
func (l language) query(of []words.Term, tokens []string) string {
	terms := make([]string, 0, len(of)+1)
	for _, t := range of {
		term := l.quote + t.Word + l.quote
		if t.Begins {
			term += l.begins
		}
		terms = append(terms, term)
	}
	if len(tokens) > 0 {
		terms = append(terms, "("+l.quote+strings.Join(tokens, l.quote+l.or+l.quote)+l.quote+")")
	}
	return strings.Join(terms, l.and)
}

// On PostgreSQL an index entry contains its words, so the server finds the matches, and only their
// text is read.

const (
	// searchWhere has the parameters $1 principal, $2 session, $3 agent, $4 and $5 times, $6 the
	// principal of the gateway's own jobs.
	searchWhere = `($1 = '' OR s.principal = $1) AND ($2 = '' OR s.key = $2) AND ($3 = '' OR s.agent = $3) AND s.principal <> $6`

	// placeColumns are an entry without its text.
	placeColumns = `t.session_key, t.session_id, t.seq, t.at, octet_length(t.content)`

	// tailSQL finds the entries that are not in the index, newest first, except summaries. A
	// session with a complete index is recognized by its row alone. $7 is the number of rows. The
	// transcripts are read by key, independent of outdated statistics of growing tables.
	tailSQL = `SELECT ` + placeColumns + ` FROM (
			SELECT s.key, COALESCE(p.upto, 0) AS upto FROM sessions s LEFT JOIN search_progress p ON p.session_key = s.key
			WHERE s.transcript_seq > COALESCE(p.upto, 0) AND ` + searchWhere + ` OFFSET 0
		) s CROSS JOIN LATERAL (
			SELECT t.session_key, t.session_id, t.seq, t.at, t.content FROM transcript t
			WHERE t.session_key = s.key AND t.seq > s.upto AND t.to_seq = 0 AND t.at >= $4 AND ($5::bigint = 0 OR t.at <= $5) OFFSET 0
		) t WHERE true` + notKept + ` ORDER BY t.at DESC, t.session_key, t.seq DESC LIMIT $7`

	// placesSQL reads the entries e, newest first, and each row of the other tables by its whole
	// key, independent of outdated statistics of growing tables. $7 is the number of rows.
	placesSQL = ` e
		CROSS JOIN LATERAL (SELECT x.session_key, x.session_id FROM search_transcripts x WHERE x.id = e.transcript OFFSET 0) x
		CROSS JOIN LATERAL (SELECT s.key, s.principal, s.agent FROM sessions s WHERE s.key = x.session_key OFFSET 0) s
		CROSS JOIN LATERAL (SELECT t.session_key, t.session_id, t.seq, t.at, t.content FROM transcript t
			WHERE t.session_key = x.session_key AND t.session_id = x.session_id AND t.seq = e.seq OFFSET 0) t
		WHERE ` + searchWhere + ` ORDER BY e.at DESC LIMIT $7`

	searchedEntries = `FROM search_entries WHERE at >= $4 AND ($5::bigint = 0 OR at <= $5)`

	// recentSQL finds matches of the query $8 among the newest $9 entries of the index.
	recentSQL = `SELECT ` + placeColumns + ` FROM (
			SELECT * FROM (SELECT transcript, seq, at, words ` + searchedEntries + ` ORDER BY at DESC LIMIT $9) newest WHERE words @@ $8::tsquery ORDER BY at DESC OFFSET 0
		)` + placesSQL

	// matchSQL finds entries that match the query $9 of the index, and selects those that match the
	// query $8.
	matchSQL = `WITH found AS MATERIALIZED (
			SELECT transcript, seq, at ` + searchedEntries + ` AND words @@ $9::tsquery AND (words @@ $8::tsquery) IS TRUE
		) SELECT ` + placeColumns + ` FROM (SELECT * FROM found ORDER BY at DESC OFFSET 0)` + placesSQL

	// countWordsSQL counts how many of the newest entries each query of $3 matches. $1 and $2 are
	// times as above, $4 is the number of entries.
	countWordsSQL = `WITH newest AS MATERIALIZED (SELECT words FROM search_entries WHERE at >= $1 AND ($2::bigint = 0 OR at <= $2) ORDER BY at DESC LIMIT $4)
		SELECT (SELECT count(*) FROM newest), ARRAY (
			SELECT (SELECT count(*) FROM newest WHERE words @@ q.query::tsquery) FROM unnest($3::text[]) WITH ORDINALITY AS q(query, i) ORDER BY q.i)`

	// hitsSQL reads entries by their places.
	hitsSQL = `SELECT ` + hitColumns + ` FROM unnest($1::text[], $2::text[], $3::bigint[]) AS e(session_key, session_id, seq)
		CROSS JOIN LATERAL (SELECT * FROM transcript t WHERE t.session_key = e.session_key AND t.session_id = e.session_id AND t.seq = e.seq OFFSET 0) t
		JOIN sessions s ON s.key = t.session_key ORDER BY t.at DESC, t.session_key, t.seq DESC`

	// searchSettingsSQL makes the server plan each search separately, because the best plan depends
	// on how common the words are. It also disables what costs more than most searches take.
	searchSettingsSQL = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true)`
	byKeySQL          = `SELECT set_config('enable_seqscan', 'off', true)`
)

const (
	// countedEntries is the number of newest entries in which a search counts the words.
	countedEntries = 500
	// textsAtOnce is how many entries a search reads before it checks whether it has enough hits.
	textsAtOnce = 200
)

// tsquery is the query syntax of PostgreSQL's index.
func tsquery() language { return language{quote: "'", begins: ":*", and: " & ", or: " | "} }

// place is an entry without its text.
type place struct {
	key, id string
	seq     int64
	at      time.Time
	size    int
}

func scanPlace(r Row) (p place, err error) {
	err = r.Scan(&p.key, &p.id, &p.seq, instant{&p.at}, &p.size)
	return p, err
}

func (f *search) onPostgres(ctx context.Context, recent int) (store.SearchResult, error) {
	_, err := f.tx.Exec(ctx, searchSettingsSQL)
	if err == nil {
		err = f.source(ctx, tailSQL, store.SearchRows)
	}
	if err == nil {
		err = f.indexed(ctx, cmp.Or(recent, 5000))
	}
	return f.result(), err
}

// indexed reads indexed entries. Common words are found among the newest entries. For other
// queries, common words are left out of the index query if any other condition remains.
func (f *search) indexed(ctx context.Context, recent int) error {
	tokens, err := f.tokens(ctx)
	if err != nil {
		return err
	}
	if _, err := f.tx.Exec(ctx, byKeySQL); err != nil {
		return err
	}
	strict := f.q.Words.Terms()
	before, back, enough := len(f.hits), f.back, f.q.Most()+1
	if err := f.source(ctx, recentSQL, enough, tsquery().query(strict, tokens), recent); err != nil || len(f.hits)-before >= enough {
		return err
	}
	f.hits, f.back = f.hits[:before], back
	loose, err := f.loose(ctx, strict, len(tokens) == 0, recent)
	if err != nil {
		return err
	}
	return f.source(ctx, matchSQL, enough, tsquery().query(strict, tokens), tsquery().query(loose, tokens))
}

// loose removes the words that are common among the newest entries: all of them, or all but the
// rarest one.
func (f *search) loose(ctx context.Context, terms []words.Term, butRarest bool, recent int) ([]words.Term, error) {
	if butRarest && len(terms) == 1 {
		return terms, nil
	}
	var (
		of    int
		found []int
		each  = make([]string, len(terms))
	)
	for i := range terms {
		each[i] = tsquery().query(terms[i:i+1], nil)
	}
	_, err := one(ctx, f.tx, countWordsSQL, into(&of, &found), millis(f.q.Since), millis(f.q.Until), each, min(recent, countedEntries))
	if err != nil {
		return nil, err
	}
	return store.Uncommon(terms, found, of, butRarest), nil
}

// source reads from one of the two sources until the search has enough hits.
func (f *search) source(ctx context.Context, text string, limit int, more ...any) error {
	places, err := all(ctx, f.tx, text, scanPlace, append(append(f.filter(), limit), more...)...)
	if err != nil {
		return err
	}
	cut, found := len(places) == limit, 0
	budget, last := store.NewBudget(store.SearchBytes), time.Time{}
	for len(places) > 0 && found <= f.q.Most() {
		n := 0
		for n < min(len(places), textsAtOnce) && budget.Take(places[n].size) {
			n++
		}
		if n == 0 {
			break
		}
		hits, err := f.texts(ctx, places[:n])
		if err != nil {
			return err
		}
		found, last, places = found+hits, places[n-1].at, places[n:]
	}
	if (cut || len(places) > 0) && last.After(f.back) {
		f.back = last
	}
	return nil
}

// texts reads entries and keeps those that match the query; it returns their number.
func (f *search) texts(ctx context.Context, places []place) (n int, err error) {
	keys, ids, seqs := make([]string, 0, len(places)), make([]string, 0, len(places)), make([]int64, 0, len(places))
	for _, p := range places {
		keys, ids, seqs = append(keys, p.key), append(ids, p.id), append(seqs, p.seq)
	}
	return n, f.tx.Query(ctx, hitsSQL, func(r Row) error {
		h, err := scanHit(r)
		if err == nil && f.keep(h) {
			n++
		}
		return err
	}, keys, ids, seqs)
}

// On SQLite an index entry has the rowid of its row of transcript, so the index is read backwards
// from its newest entry until the search has enough hits.

const (
	// searchFilter has the parameters $2 principal, $3 session, $4 agent, $5 and $6 times, $7 the
	// principal of the gateway's own jobs. Summaries are excluded, because the summarized rows are
	// found.
	searchFilter = ` AND ($2 = '' OR s.principal = $2) AND ($3 = '' OR t.session_key = $3) AND ($4 = '' OR s.agent = $4)
		AND t.at >= $5 AND ($6 = 0 OR t.at <= $6) AND s.principal <> $7 AND t.to_seq = 0`

	// tailOnSQLite reads the entries that are not in the index. $1 is the newest indexed one, $8
	// the number of rows.
	tailOnSQLite = `SELECT t.rowid, 1, ` + hitColumns + ` FROM transcript t JOIN sessions s ON s.key = t.session_key
		WHERE t.rowid > $1` + searchFilter + notKept + ` ORDER BY t.rowid DESC {limit $8}`

	// recentOnSQLite reads the newest indexed entries, and whether each passes the filter. $1 is
	// the newest of them, $8 the number of rows.
	recentOnSQLite = `SELECT t.rowid, COALESCE(1` + searchFilter + `, 0)` + notKept + `, ` + hitColumns + `
		FROM (SELECT rowid, * FROM transcript WHERE rowid <= $1 ORDER BY rowid DESC {limit $8}) t LEFT JOIN sessions s ON s.key = t.session_key ORDER BY t.rowid DESC`

	// matchOnSQLite reads $9 index entries backwards from the newest one before $8. $1 is the
	// query.
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

// recent reads the newest indexed entries directly. It returns for each word of the query in how
// many of them it occurs.
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

// take keeps an entry that the query matches, until the search has enough hits or has read its byte
// bound.
func (f *sqliteSearch) take(h store.Hit) {
	if !f.budget.Take(len(h.Entry.Text)) {
		f.full, f.back = true, f.last
		return
	}
	f.last = h.Entry.At
	f.keep(h)
	f.full = f.full || len(f.hits) > f.q.Most()
}
