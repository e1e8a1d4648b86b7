package sqlstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/words"
)

// Search finds entries of transcripts by their words. The engines index words in different ways, so each has its own search.
//
// Both indexes merge all entries of all words that begin with a word of the query before they return the first one, which takes longer the more entries there
// are. So common words are not looked up in the index. They are matched against the newest entries, or against the text of the entries that have the other
// words.
type Search struct {
	db Engine
	// Recent and Loose bound the parts of a search; 0 = the default. Tests set them so low that a few entries reach each step. Recent is how many of the newest
	// entries are read without the word index. Loose is used by SQLite only: how many entries that may lack the common words are read before the index is
	// queried for these words as well.
	Recent, Loose int
}

var _ store.Search = Search{}

// SearchTranscripts finds entries of transcripts; see store.Search. Index and transcripts are read in one state of the database, because an entry can enter the
// index meanwhile. Entries that are not indexed yet are newer than all indexed ones, so they are read first.
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

// filter are the arguments of every search: principal, session, agent, two times and the principal of the gateway's own jobs.
func (f *search) filter() []any {
	session := ""
	if !f.q.Session.IsZero() {
		session = f.q.Session.String()
	}
	return []any{f.q.Visible, session, f.q.Agent, millis(f.q.Since), millis(f.q.Until), cron.SystemOwner}
}

// mostTokens is the maximum number of sessions that an index query names. For a principal with more sessions, the search reads the matches of all sessions, and
// skips the entries of other principals.
const mostTokens = 100

// tokens are the index tokens of the sessions that may be searched; empty when all may be, or there are too many.
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
