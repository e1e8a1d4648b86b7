package sqlstore

import (
	"cmp"
	"context"
	"time"

	"laneway/internal/store"
	"laneway/internal/words"
)

// On PostgreSQL an index entry contains its words, so the server finds the matches, and only their text is read.

const (
	// searchWhere has the parameters $1 principal, $2 session, $3 agent, $4 and $5 times, $6 the principal of the gateway's own jobs.
	searchWhere = `($1 = '' OR s.principal = $1) AND ($2 = '' OR s.key = $2) AND ($3 = '' OR s.agent = $3) AND s.principal <> $6`

	// placeColumns are an entry without its text.
	placeColumns = `t.session_key, t.session_id, t.seq, t.at, octet_length(t.content)`

	// tailSQL finds the entries that are not in the index, newest first, except summaries. A session with a complete index is recognized by its row alone. $7
	// is the number of rows. The transcripts are read by key, independent of outdated statistics of growing tables.
	tailSQL = `SELECT ` + placeColumns + ` FROM (
			SELECT s.key, COALESCE(p.upto, 0) AS upto FROM sessions s LEFT JOIN search_progress p ON p.session_key = s.key
			WHERE s.transcript_seq > COALESCE(p.upto, 0) AND ` + searchWhere + ` OFFSET 0
		) s CROSS JOIN LATERAL (
			SELECT t.session_key, t.session_id, t.seq, t.at, t.content FROM transcript t
			WHERE t.session_key = s.key AND t.seq > s.upto AND t.to_seq = 0 AND t.at >= $4 AND ($5::bigint = 0 OR t.at <= $5) OFFSET 0
		) t WHERE true` + notKept + ` ORDER BY t.at DESC, t.session_key, t.seq DESC LIMIT $7`

	// placesSQL reads the entries e, newest first, and each row of the other tables by its whole key, independent of outdated statistics of growing tables. $7
	// is the number of rows.
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

	// matchSQL finds entries that match the query $9 of the index, and selects those that match the query $8.
	matchSQL = `WITH found AS MATERIALIZED (
			SELECT transcript, seq, at ` + searchedEntries + ` AND words @@ $9::tsquery AND (words @@ $8::tsquery) IS TRUE
		) SELECT ` + placeColumns + ` FROM (SELECT * FROM found ORDER BY at DESC OFFSET 0)` + placesSQL

	// countWordsSQL counts how many of the newest entries each query of $3 matches. $1 and $2 are times as above, $4 is the number of entries.
	countWordsSQL = `WITH newest AS MATERIALIZED (SELECT words FROM search_entries WHERE at >= $1 AND ($2::bigint = 0 OR at <= $2) ORDER BY at DESC LIMIT $4)
		SELECT (SELECT count(*) FROM newest), ARRAY (
			SELECT (SELECT count(*) FROM newest WHERE words @@ q.query::tsquery) FROM unnest($3::text[]) WITH ORDINALITY AS q(query, i) ORDER BY q.i)`

	// hitsSQL reads entries by their places.
	hitsSQL = `SELECT ` + hitColumns + ` FROM unnest($1::text[], $2::text[], $3::bigint[]) AS e(session_key, session_id, seq)
		CROSS JOIN LATERAL (SELECT * FROM transcript t WHERE t.session_key = e.session_key AND t.session_id = e.session_id AND t.seq = e.seq OFFSET 0) t
		JOIN sessions s ON s.key = t.session_key ORDER BY t.at DESC, t.session_key, t.seq DESC`

	// searchSettingsSQL makes the server plan each search separately, because the best plan depends on how common the words are. It also disables what costs
	// more than most searches take.
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

// indexed reads indexed entries. Common words are found among the newest entries. For other queries, common words are left out of the index query if any other
// condition remains.
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

// loose removes the words that are common among the newest entries: all of them, or all but the rarest one.
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
