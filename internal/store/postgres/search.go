package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
	"laneway/internal/store"
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
	tailSQL = `SELECT ` + placeColumns + ` FROM sessions s LEFT JOIN search_progress p ON p.session_key = s.key
		JOIN transcript t ON t.session_key = s.key AND t.seq > COALESCE(p.upto, 0)
		WHERE s.transcript_seq > COALESCE(p.upto, 0) AND ` + searchWhere + ` AND t.to_seq = 0 AND t.at >= $4 AND ($5::bigint = 0 OR t.at <= $5)
		AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = t.session_key AND k.session_id = t.session_id)
		ORDER BY t.at DESC, t.session_key, t.seq DESC LIMIT $7`

	// indexSQL finds entries by the index, the newest first. $7 rows, $8 the query of the words.
	indexSQL = `SELECT ` + placeColumns + ` FROM search_entries e JOIN search_transcripts x ON x.id = e.transcript
		JOIN sessions s ON s.key = x.session_key
		JOIN transcript t ON t.session_key = x.session_key AND t.session_id = x.session_id AND t.seq = e.seq
		WHERE e.words @@ $8::tsquery AND ` + searchWhere + ` AND e.at >= $4 AND ($5::bigint = 0 OR e.at <= $5)
		ORDER BY e.at DESC LIMIT $7`

	// hitsSQL reads entries by their places.
	hitsSQL = `SELECT t.session_key, t.session_id, s.principal, ` + entryReadColumns + `
		FROM unnest($1::text[], $2::text[], $3::bigint[]) AS e(session_key, session_id, seq)
		JOIN transcript t ON t.session_key = e.session_key AND t.session_id = e.session_id AND t.seq = e.seq
		JOIN sessions s ON s.key = t.session_key ORDER BY t.at DESC, t.session_key, t.seq DESC`

	// runsSQL reads the newest runs that are one row of the ledger. $7 how many, $8 bytes.
	runsSQL = `SELECT t.session_key, t.session_id, s.principal, ` + entryReadColumns + ` FROM (
			SELECT id, principal, sum(octet_length(transcript)) OVER (ORDER BY scheduled_for DESC, id DESC ROWS UNBOUNDED PRECEDING) AS upto FROM (
				SELECT l.* FROM ` + ledgerOwners + ` o CROSS JOIN LATERAL (
					SELECT id, principal, scheduled_for, transcript FROM cron_run_logs l
					WHERE l.owner = o.owner AND finished_at IS NOT NULL AND finished_at >= $4 AND compact = 1 AND ($1 = '' OR principal = $1)
					AND ($2 = '' OR session_key = $2) AND ($3 = '' OR agent = $3) AND principal <> $6 ORDER BY scheduled_for DESC, id DESC LIMIT $7
				) l ORDER BY scheduled_for DESC, id DESC LIMIT $7
			) newest
		) s JOIN compact_transcript t ON t.of = s.id WHERE s.upto <= $8 AND t.at >= $4 AND ($5::bigint = 0 OR t.at <= $5)`

	byKeySQL = `SELECT set_config(name, 'off', true) FROM unnest('{enable_hashjoin,enable_mergejoin,enable_seqscan,enable_material}'::text[]) AS u(name)`

	searchedSessionsSQL = `SELECT key FROM sessions WHERE principal = $1 LIMIT $2`
)

// textsAtOnce is how many texts a search reads before it looks whether it has enough.
const textsAtOnce = 200

// SearchTranscripts finds entries of transcripts, see store.Search. Index and transcripts are read in one snapshot, because an entry can enter the index
// meanwhile.
func (s *Store) SearchTranscripts(ctx context.Context, q store.SearchQuery) (out store.SearchResult, err error) {
	err = s.do(ctx, "searching the transcripts", func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			f := search{tx: tx, q: q}
			// How to read depends on how many entries have the words, so each search is planned for its own.
			if _, err := tx.Exec(ctx, `SET LOCAL plan_cache_mode = force_custom_plan`); err != nil {
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
	back time.Time // down to it both sources are read; zero = they are read to their end
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
	tokens, err := f.tokens(ctx)
	if err != nil {
		return err
	}
	// From the entries that the index finds on, each row is looked up by its key, whatever the statistics of tables that grow say.
	if _, err := f.tx.Exec(ctx, byKeySQL); err != nil {
		return err
	}
	if err := f.source(ctx, indexSQL, f.q.Most()+1, queryOf(f.q, tokens)); err != nil {
		return err
	}
	return f.runs(ctx)
}

// runs reads the runs that are one row of the ledger, with bounds of their own.
func (f *search) runs(ctx context.Context) error {
	rows, err := f.tx.Query(ctx, runsSQL, f.args(store.SearchRuns, store.SearchBytes)...)
	if err != nil {
		return err
	}
	_, err = f.read(rows)
	return err
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
func queryOf(q store.SearchQuery, tokens []string) string {
	var terms []string
	for _, t := range q.Words.Terms() {
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
