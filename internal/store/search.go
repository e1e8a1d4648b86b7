package store

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/words"
)

// Search finds entries of transcripts by their words.
//
// It covers the current and the archived transcripts of existing sessions, except those of the gateway's own jobs. Transcripts that a deletion kept are not
// covered. A search reads the index and, for entries that are not indexed yet, the transcripts themselves. So its result does not depend on when
// IndexTranscripts ran. The entries of deleted transcripts leave the index in the transaction that deletes them.
type Search interface {
	// SearchTranscripts finds entries, see [SearchQuery].
	SearchTranscripts(ctx context.Context, q SearchQuery) (SearchResult, error)
	// IndexTranscripts adds all missing entries to the index in batches, each in a transaction of its own. It checks ctx between them; committed batches stay.
	// It returns how many entries it has added. Several processes may call it at once.
	IndexTranscripts(ctx context.Context) (int, error)
}

// The bounds of a search.
const (
	DefaultHits = 20
	MaxHits     = 100
	// DefaultExcerpt and MaxExcerpt are characters.
	DefaultExcerpt = 240
	MaxExcerpt     = 1000
	// SearchBytes bounds the text that one search reads, in bytes: of the hits, and of the entries that are not in the index.
	SearchBytes = 4 * ReadBytes
	// SearchRows bounds the entries that one search reads outside of the index.
	SearchRows = 50_000
)

// SearchQuery selects the newest entries that contain its words.
type SearchQuery struct {
	Words words.Query
	// Visible restricts to sessions of that principal; "" = all. Session restricts to one session, Agent to the sessions of one agent.
	Visible string
	Session chat.SessionKey
	Agent   string
	// Since and Until restrict the time of an entry, both inclusive, in whole milliseconds; zero = unrestricted.
	Since, Until time.Time
	// Limit bounds the returned entries; 0 = [DefaultHits], at most [MaxHits]. Excerpt is the number of characters to which text is cut; 0 = [DefaultExcerpt],
	// at most [MaxExcerpt].
	Limit, Excerpt int
}

// Most is Limit within its bounds.
func (q SearchQuery) Most() int { return within(q.Limit, DefaultHits, MaxHits) }

// Chars is Excerpt within its bounds.
func (q SearchQuery) Chars() int { return within(q.Excerpt, DefaultExcerpt, MaxExcerpt) }

func within(n, none, most int) int {
	if n <= 0 {
		return none
	}
	return min(n, most)
}

// Hit makes a hit of an entry; ok is false when the query does not match it.
func (q SearchQuery) Hit(h Hit) (_ Hit, ok bool) {
	if !q.Words.Finds(h.Entry.Text) {
		return h, false
	}
	h.Entry.Text = q.Words.Excerpt(h.Entry.Text, q.Chars())
	return h, true
}

// Hit is an entry that a search has found.
type Hit struct {
	Session chat.SessionKey
	// SessionID is the transcript, Principal the owner of the session.
	SessionID, Principal string
	// Entry has the part of its text around the first matched word.
	Entry chat.TranscriptEntry
}

// SearchResult is the result of a search.
type SearchResult struct {
	// Hits are the newest matches, newest first.
	Hits []Hit
	// More: older matches may exist. A search with Until = Back finds them; it repeats the entries of that millisecond.
	More bool
	// Back is the time back to which the search is complete; set when More is.
	Back time.Time
}

// Cut sorts hits, newest first, and cuts them to the limit of the query.
func (q SearchQuery) Cut(hits []Hit) SearchResult {
	slices.SortStableFunc(hits, func(a, b Hit) int {
		return cmp.Or(b.Entry.At.Compare(a.Entry.At), cmp.Compare(a.Session.String(), b.Session.String()), cmp.Compare(b.Entry.Seq, a.Entry.Seq))
	})
	if len(hits) <= q.Most() {
		return SearchResult{Hits: hits}
	}
	hits = hits[:q.Most()]
	return SearchResult{Hits: hits, More: true, Back: hits[len(hits)-1].Entry.At}
}

// commonShare defines common words: more than one in commonShare entries has the word.
const commonShare = 20

// Uncommon removes the common words of a query, or with butRarest all of them except the rarest one. found[i] of the of entries have terms[i].
func Uncommon(terms []words.Term, found []int, of int, butRarest bool) (rest []words.Term) {
	rarest := slices.Index(found, slices.Min(found))
	for i, t := range terms {
		if found[i]*commonShare <= of || butRarest && i == rarest {
			rest = append(rest, t)
		}
	}
	return rest
}

// TokenOf is the word of the index that every entry of a session has. It begins with a character that cannot occur in an ordinary word.
func TokenOf(session string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(session)) // never fails
	return "=" + strconv.FormatUint(h.Sum64(), 36)
}

// IndexWords is the content of the index for an entry, separated by spaces: its words, and the token of its session.
func IndexWords(session, text string) string {
	return strings.Join(append(words.Index(text), TokenOf(session)), " ")
}
