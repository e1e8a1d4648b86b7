package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/words"
)

// mostTokens is up to how many sessions of a principal a search names to the index. With more it reads what the words find in all sessions, and passes over
// the entries of other principals.
const mostTokens = 100

const (
	// searchWhere has the parameters $1 principal, $2 session, $3 agent, $4 and $5 times, $6 the principal of the gateway's own jobs.
	searchWhere = `($1 = '' OR s.principal = $1) AND ($2 = '' OR s.key = $2) AND ($3 = '' OR s.agent = $3) AND s.principal <> $6`

	// placeColumns are an entry without its text.
	placeColumns = `t.session_key, t.session_id, t.seq, t.at, octet_length(t.content)`

	// tailSQL finds the entries that are not in the index, the newest first, but for summaries. A session whose index is complete is recognised by its row alone. $7 rows.
	// Their transcripts are read by the key, whatever the statistics of tables that grow say.
	tailSQL = `SELECT ` + placeColumns + ` FROM (
			SELECT s.key, COALESCE(p.upto, 0) AS upto FROM sessions s LEFT JOIN search_progress p ON p.session_key = s.key
			WHERE s.transcript_seq > COALESCE(p.upto, 0) AND ` + searchWhere + ` OFFSET 0
		) s CROSS JOIN LATERAL (
			SELECT t.session_key, t.session_id, t.seq, t.at, t.content FROM transcript t
			WHERE t.session_key = s.key AND t.seq > s.upto AND t.to_seq = 0 AND t.at >= $4 AND ($5::bigint = 0 OR t.at <= $5) OFFSET 0
		) t WHERE NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = t.session_key AND k.session_id = t.session_id)
		ORDER BY t.at DESC, t.session_key, t.seq DESC LIMIT $7`

	// placesSQL reads the entries e, the newest first, each row of the other tables by its whole key, whatever the statistics of tables that grow say. $7 rows.
	placesSQL = ` e
		CROSS JOIN LATERAL (SELECT x.session_key, x.session_id FROM search_transcripts x WHERE x.id = e.transcript OFFSET 0) x
		CROSS JOIN LATERAL (SELECT s.key, s.principal, s.agent FROM sessions s WHERE s.key = x.session_key OFFSET 0) s
		CROSS JOIN LATERAL (SELECT t.session_key, t.session_id, t.seq, t.at, t.content FROM transcript t
			WHERE t.session_key = x.session_key AND t.session_id = x.session_id AND t.seq = e.seq OFFSET 0) t
		WHERE ` + searchWhere + ` ORDER BY e.at DESC LIMIT $7`

	searchedEntries = `FROM search_entries WHERE at >= $4 AND ($5::bigint = 0 OR at <= $5)`

	// recentSQL finds entries among the newest ones of the index, $9 of them, by the query $8.
	recentSQL = `SELECT ` + placeColumns + ` FROM (
			SELECT * FROM (SELECT transcript, seq, at, words ` + searchedEntries + ` ORDER BY at DESC LIMIT $9) newest WHERE words @@ $8::tsquery ORDER BY at DESC OFFSET 0
		)` + placesSQL

	// indexSQL finds entries by the query $9 of the index, and of those the ones that the query $8 finds.
	indexSQL = `WITH found AS MATERIALIZED (
			SELECT transcript, seq, at ` + searchedEntries + ` AND words @@ $9::tsquery AND (words @@ $8::tsquery) IS TRUE
		) SELECT ` + placeColumns + ` FROM (SELECT * FROM found ORDER BY at DESC OFFSET 0)` + placesSQL

	// countWordsSQL counts which of the newest entries each of the queries $3 finds. $1 and $2 times as above, $4 how many entries.
	countWordsSQL = `WITH newest AS MATERIALIZED (SELECT words FROM search_entries WHERE at >= $1 AND ($2::bigint = 0 OR at <= $2) ORDER BY at DESC LIMIT $4)
		SELECT (SELECT count(*) FROM newest), ARRAY (
			SELECT (SELECT count(*) FROM newest WHERE words @@ q.query::tsquery) FROM unnest($3::text[]) WITH ORDINALITY AS q(query, i) ORDER BY q.i)`

	// hitsSQL reads entries by their places.
	hitsSQL = `SELECT t.session_key, t.session_id, s.principal, ` + entryReadColumns + `
		FROM unnest($1::text[], $2::text[], $3::bigint[]) AS e(session_key, session_id, seq)
		CROSS JOIN LATERAL (SELECT * FROM transcript t WHERE t.session_key = e.session_key AND t.session_id = e.session_id AND t.seq = e.seq OFFSET 0) t
		JOIN sessions s ON s.key = t.session_key ORDER BY t.at DESC, t.session_key, t.seq DESC`

	// searchSettingsSQL has each search planned for its own, because how to read depends on how many entries have the words, and without what costs more
	// than most searches take.
	searchSettingsSQL = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true)`
	byKeySQL          = `SELECT set_config('enable_seqscan', 'off', true)`

	searchedSessionsSQL = `SELECT key FROM sessions WHERE principal = $1 LIMIT $2`
)

// recentEntries is how many of the newest entries a search reads before it asks the index of words, and countedEntries of how many of them it counts the words.
const (
	recentEntries  = 5000
	countedEntries = 500
)

// textsAtOnce is how many texts a search reads before it looks whether it has enough.
const textsAtOnce = 200

// SearchTranscripts finds entries of transcripts, see store.Search. Index and transcripts are read in one snapshot, because an entry can enter the index
// meanwhile.
func (s *Store) SearchTranscripts(ctx context.Context, q store.SearchQuery) (out store.SearchResult, err error) {
	err = s.do(ctx, "searching the transcripts", func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			f := search{tx: tx, q: q, recent: s.recentEntries}
			if _, err := tx.Exec(ctx, searchSettingsSQL); err != nil {
				return err
			}
			if err := f.run(ctx); err != nil {
				return err
			}
			out = f.result()
			return nil
		})
	})
	return out, err
}

// search is one search under way.
type search struct {
	tx   pgx.Tx
	q    store.SearchQuery
	hits []store.Hit

	recent int       // how many of the newest entries are read without the index of words
	back   time.Time // down to it both sources are read; zero = they are read to their end
}

// place is an entry without its text.
type place struct {
	key, id string
	seq     int64
	at      time.Time
	size    int
}

func scanPlace(row pgx.CollectableRow) (p place, err error) {
	var at int64
	err = row.Scan(&p.key, &p.id, &p.seq, &at, &p.size)
	p.at = fromMillis(at)
	return p, err
}

// run reads what is not indexed yet, and what the index finds.
func (f *search) run(ctx context.Context) error {
	if err := f.source(ctx, tailSQL, store.SearchRows); err != nil {
		return err
	}
	return f.indexed(ctx)
}

// indexed reads entries that are in the index. A word of a query finds the words that begin with it, so the index merges all entries of all of them before it
// returns the first one, which takes longer the more there are. What most entries have is found among the newest ones; of other queries the index is
// not asked for the words that many entries have, when there is anything else that it can be asked for.
func (f *search) indexed(ctx context.Context) error {
	tokens, err := f.tokens(ctx)
	if err != nil {
		return err
	}
	if _, err := f.tx.Exec(ctx, byKeySQL); err != nil {
		return err
	}
	strict := f.q.Words.Terms()
	before, back, enough := len(f.hits), f.back, f.q.Most()+1
	if err := f.source(ctx, recentSQL, enough, queryOf(strict, tokens), f.recent); err != nil || len(f.hits)-before >= enough {
		return err
	}
	f.hits, f.back = f.hits[:before], back
	loose, err := f.loose(ctx, strict, len(tokens) == 0)
	if err != nil {
		return err
	}
	return f.source(ctx, indexSQL, enough, queryOf(strict, tokens), queryOf(loose, tokens))
}

// loose leaves out the words that are common among the newest entries: all of them, or all but the rarest one.
func (f *search) loose(ctx context.Context, terms []words.Term, butRarest bool) ([]words.Term, error) {
	if butRarest && len(terms) == 1 {
		return terms, nil
	}
	var (
		of    int
		found []int
	)
	each := column(terms, func(t words.Term) string { return queryOf([]words.Term{t}, nil) })
	err := f.tx.QueryRow(ctx, countWordsSQL, ms(f.q.Since), ms(f.q.Until), each, min(f.recent, countedEntries)).Scan(&of, &found)
	if err != nil {
		return nil, err
	}
	return store.Uncommon(terms, found, of, butRarest), nil
}

// args are those of searchWhere and more.
func (f *search) args(more ...any) []any {
	session := ""
	if !f.q.Session.IsZero() {
		session = f.q.Session.String()
	}
	return append([]any{f.q.Visible, session, f.q.Agent, ms(f.q.Since), ms(f.q.Until), cron.SystemOwner}, more...)
}

// source reads from one of the two sources until the search has enough.
func (f *search) source(ctx context.Context, sql string, limit int, more ...any) error {
	var places []place
	rows, err := f.tx.Query(ctx, sql, f.args(append([]any{limit}, more...)...)...)
	if err == nil {
		places, err = pgx.CollectRows(rows, scanPlace)
	}
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

// texts reads entries and keeps those that the query finds; it returns how many.
func (f *search) texts(ctx context.Context, places []place) (int, error) {
	keys, ids, seqs := make([]string, 0, len(places)), make([]string, 0, len(places)), make([]int64, 0, len(places))
	for _, p := range places {
		keys, ids, seqs = append(keys, p.key), append(ids, p.id), append(seqs, p.seq)
	}
	rows, err := f.tx.Query(ctx, hitsSQL, keys, ids, seqs)
	if err != nil {
		return 0, err
	}
	return f.read(rows)
}

// read keeps the entries that the query finds; it returns how many.
func (f *search) read(rows pgx.Rows) (int, error) {
	defer rows.Close()
	before := len(f.hits)
	for rows.Next() {
		h, err := scanHit(rows)
		if err != nil {
			return 0, err
		}
		if hit, ok := f.q.Hit(h); ok {
			f.hits = append(f.hits, hit)
		}
	}
	return len(f.hits) - before, rows.Err()
}

func scanHit(row pgx.CollectableRow) (h store.Hit, err error) {
	var key string
	h.Entry, err = scanEntry(behindColumns{row, []any{&key, &h.SessionID, &h.Principal}})
	h.Session = parseKey(key)
	return h, err
}

// behindColumns is a row whose first columns go elsewhere.
type behindColumns struct {
	pgx.CollectableRow

	first []any
}

func (a behindColumns) Scan(dest ...any) error {
	return a.CollectableRow.Scan(append(a.first, dest...)...)
}

// result is what was found down to the moment at which the first source was cut.
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

// tokens name the sessions that may be searched; none = all, or too many.
func (f *search) tokens(ctx context.Context) ([]string, error) {
	if !f.q.Session.IsZero() {
		return []string{store.TokenOf(f.q.Session.String())}, nil
	}
	if f.q.Visible == "" {
		return nil, nil
	}
	rows, err := f.tx.Query(ctx, searchedSessionsSQL, f.q.Visible, mostTokens+1)
	if err != nil {
		return nil, err
	}
	keys, err := pgx.CollectRows(rows, scanText)
	if len(keys) > mostTokens {
		return nil, err
	}
	for i, key := range keys {
		keys[i] = store.TokenOf(key)
	}
	return keys, err
}

// queryOf is the query as a tsquery. Words have no quotes and no backslashes.
func queryOf(of []words.Term, tokens []string) string {
	var terms []string
	for _, t := range of {
		term := "'" + t.Word + "'"
		if t.Begins {
			term += ":*"
		}
		terms = append(terms, term)
	}
	if len(tokens) > 0 {
		terms = append(terms, "('"+strings.Join(tokens, "' | '")+"')")
	}
	return strings.Join(terms, " & ")
}
