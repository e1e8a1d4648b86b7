package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"laneway/internal/cron"
	"laneway/internal/store"
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
		find := search{q: q, budget: store.NewBudget(store.SearchBytes)}
		if err := find.tail(ctx, r, upto); err != nil {
			return err
		}
		if !find.full {
			if err := find.index(ctx, r); err != nil {
				return err
			}
		}
		if err := find.runs(ctx, r); err != nil {
			return err
		}
		out = find.result()
		return nil
	})
	return out, err
}

// search is one search under way.
type search struct {
	q      store.SearchQuery
	budget *store.Budget
	hits   []store.Hit
	// full: enough was found or read. short: the bounds of the search were reached at the entry of that time.
	full, short bool
	back        time.Time
	every       bool // what is read comes in no order: enough is not a reason to end
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
	hitColumns = `t.session_key, t.session_id, s.principal, t.seq, t.run_id, t.role, t.content, t.sender, t.tokens, t.stop_reason, t.command, t.at`

	// searchFilter has the parameters ?2 principal, ?3 session, ?4 agent, ?5 and ?6 times, ?7 the principal of the gateway's own jobs. Summaries are not
	// found: the rows that they stand for are.
	searchFilter = ` AND (?2 = '' OR s.principal = ?2) AND (?3 = '' OR t.session_key = ?3) AND (?4 = '' OR s.agent = ?4)
		AND t.at >= ?5 AND (?6 = 0 OR t.at <= ?6) AND s.principal <> ?7 AND t.to_seq = 0`

	tailSQL = `SELECT ` + hitColumns + ` FROM transcript t JOIN sessions s ON s.key = t.session_key
		WHERE t.rowid > ?1` + searchFilter + `
		AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = t.session_key AND k.session_id = t.session_id)
		ORDER BY t.rowid DESC LIMIT ?8`

	// The index is read from its newest entry on, in the order of its rowids, until the search has enough.
	indexSQL = `SELECT ` + hitColumns + ` FROM transcript_words w CROSS JOIN transcript t ON t.rowid = w.rowid CROSS JOIN sessions s ON s.key = t.session_key
		WHERE transcript_words MATCH ?1` + searchFilter + ` ORDER BY w.rowid DESC`
)

// runsSQL reads the newest runs that are one row of the ledger. ?1 how many.
const runsSQL = `SELECT t.session_key, t.session_id, s.principal, t.seq, t.run_id, t.role, t.content, t.sender, t.tokens, t.stop_reason, t.command, t.at
	FROM (SELECT id, principal FROM cron_run_logs WHERE finished_at IS NOT NULL AND finished_at >= ?5 AND compact = 1 AND (?2 = '' OR principal = ?2)
		AND (?3 = '' OR session_key = ?3) AND (?4 = '' OR agent = ?4) AND principal <> ?7 ORDER BY finished_at DESC LIMIT ?1) s
	CROSS JOIN compact_transcript t ON t.of = s.id WHERE t.at >= ?5 AND (?6 = 0 OR t.at <= ?6)`

// runs reads the runs that are one row of the ledger, with bounds of their own.
func (f *search) runs(ctx context.Context, r querier) error {
	of := search{q: f.q, budget: store.NewBudget(store.SearchBytes), every: true}
	rows, err := r.query(ctx, runsSQL, of.args(store.SearchRuns)...)
	if _, err = of.read(rows, err); err != nil {
		return err
	}
	f.hits = append(f.hits, of.hits...)
	return nil
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

// index reads what the index finds.
func (f *search) index(ctx context.Context, r querier) error {
	tokens, err := f.tokens(ctx, r)
	if err != nil {
		return err
	}
	rows, err := r.query(ctx, indexSQL, f.args(matchOf(f.q, tokens))...)
	_, err = f.read(rows, err)
	return err
}

// tokens name the sessions that may be searched; none = all, or too many.
func (f *search) tokens(ctx context.Context, r querier) ([]string, error) {
	if !f.q.Session.IsZero() {
		return []string{store.TokenOf(f.q.Session.String())}, nil
	}
	if f.q.Visible == "" {
		return nil, nil
	}
	rows, err := r.query(ctx, `SELECT key FROM sessions WHERE principal = ? LIMIT ?`, f.q.Visible, mostTokens+1)
	keys, err := collect(rows, err, text)
	if len(keys) > mostTokens {
		return nil, err
	}
	for i, key := range keys {
		keys[i] = store.TokenOf(key)
	}
	return keys, err
}

// matchOf is the query in the language of the index. Words have no quotes.
func matchOf(q store.SearchQuery, tokens []string) string {
	var terms []string
	for _, t := range q.Words.Terms() {
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
	for rows.Next() {
		h, err := scanHit(rows)
		if err != nil {
			return n, err
		}
		n++
		if !f.budget.Take(len(h.Entry.Text)) {
			f.full, f.short = true, true
			break
		}
		f.back = h.Entry.At
		if hit, ok := f.q.Hit(h); ok {
			f.hits = append(f.hits, hit)
		}
		if len(f.hits) > f.q.Most() && !f.every {
			f.full = true
			break
		}
	}
	return n, rows.Err()
}

func scanHit(row scanner) (h store.Hit, err error) {
	e := &h.Entry
	err = row.Scan(keyColumn{&h.Session}, &h.SessionID, &h.Principal, &e.Seq, &e.RunID, &e.Role, &e.Text, jsonColumn{&e.Sender}, &e.Tokens, &e.StopReason,
		&e.Command, timeColumn{&e.At})
	return h, err
}
