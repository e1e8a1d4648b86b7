package store

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/words"
)

// The bounds of a search.
const (
	DefaultHits = 20
	MaxHits     = 100
	// DefaultExcerpt and MaxExcerpt are characters.
	DefaultExcerpt = 240
	MaxExcerpt     = 1000
	// SearchBytes bounds the text that one search reads, in bytes: of the hits, and of the entries
	// that are not in the index.
	SearchBytes = 4 * ReadBytes
	// SearchRows bounds the entries that one search reads outside of the index.
	SearchRows = 50_000
)

// SearchQuery selects the newest entries that contain its words.
type SearchQuery struct {
	Words words.Query
	// Visible restricts to sessions of that principal; "" = all. Session restricts to one session,
	// Agent to the sessions of one agent.
	Visible string
	Session chat.SessionKey
	Agent   string
	// Since and Until restrict the time of an entry, both inclusive, in whole milliseconds; zero =
	// unrestricted.
	Since, Until time.Time
	// Limit bounds the returned entries; 0 = [DefaultHits], at most [MaxHits]. Excerpt is the
	// number of characters to which text is cut; 0 = [DefaultExcerpt], at most [MaxExcerpt].
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
	// More: older matches may exist. A search with Until = Back finds them; it repeats the entries
	// of that millisecond.
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

// Uncommon removes the common words of a query, or with butRarest all of them except the rarest
// one. found[i] of the of entries have terms[i].
func Uncommon(terms []words.Term, found []int, of int, butRarest bool) (rest []words.Term) {
	rarest := slices.Index(found, slices.Min(found))
	for i, t := range terms {
		if found[i]*commonShare <= of || butRarest && i == rarest {
			rest = append(rest, t)
		}
	}
	return rest
}

// TokenOf is the word of the index that every entry of a session has. It begins with a character
// that cannot occur in an ordinary word.
func TokenOf(session string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(session)) // never fails
	return "=" + strconv.FormatUint(h.Sum64(), 36)
}

// IndexWords is the content of the index for an entry, separated by spaces: its words, and the
// token of its session.
func IndexWords(session, text string) string {
	return strings.Join(append(words.Index(text), TokenOf(session)), " ")
}

// TocLevel is the length of the period that a summary covers.
type TocLevel string

// The levels. A day has a part for each session; a week is made of the parts of its days, a month
// of its weeks.
const (
	TocDay   TocLevel = "day"
	TocWeek  TocLevel = "week"
	TocMonth TocLevel = "month"
)

// The bounds of a page of the table of contents.
const (
	DefaultTocNodes = 20
	MaxTocNodes     = 100
)

// TocClaimTime is how long the process that began the summary of a week or a month may exclusively
// work on it.
const TocClaimTime = 5 * time.Minute

// TocBehind is a session with entries that no part covers.
type TocBehind struct {
	Session chat.SessionKey
	Owner   string
	// After is the highest number that a part covers; At is the time of the first entry after it.
	After int64
	At    time.Time
}

// TocEntry is an entry and the transcript that contains it.
type TocEntry struct {
	SessionID string
	chat.TranscriptEntry
}

// TocPart is the summary of a session for one day, as PutTocPart stores it.
type TocPart struct {
	Session chat.SessionKey
	Owner   string
	// Day as in 2026-03-14, Week as in 2026-W11, Month as in 2026-03.
	Day, Week, Month string
	// After is the number up to which parts existed before. From and To are the first and the last
	// entry that this call adds, LastID is the transcript of the last one, Entries is their number.
	After, From, To int64
	LastID          string
	Entries         int
	// Text summarizes these entries and those that the part covered before; "" when they need no
	// summary: the part then keeps its text.
	Text string
}

// TocRef identifies a week or a month of an owner.
type TocRef struct {
	Owner  string
	Level  TocLevel
	Period string
}

// TocQuery selects summaries.
type TocQuery struct {
	Level TocLevel
	// Visible restricts to one owner; "" = all. Session restricts to one session; only days have
	// sessions.
	Visible string
	Session chat.SessionKey
	// From and To restrict the period, both inclusive; "" = unrestricted.
	From, To string
	// Limit bounds the result; 0 = [DefaultTocNodes], at most [MaxTocNodes]. Offset is the number
	// of nodes to skip.
	Limit, Offset int
}

// Most is Limit within its bounds.
func (q TocQuery) Most() int { return within(q.Limit, DefaultTocNodes, MaxTocNodes) }

// TocNode is one summary.
type TocNode struct {
	Owner  string
	Level  TocLevel
	Period string
	Text   string
	// MadeAt is when the summary was last made, Made how many times it was. Stale: it is due again,
	// because entries were added since.
	MadeAt time.Time
	Made   int
	Stale  bool
	// Only of a day: the session, the first and the last entry, and their number.
	Session  chat.SessionKey
	From, To int64
	Entries  int
}

// ReadBytes bounds every read of the port (and of cron.JobStore) that returns rows with text: the
// stored text columns of the rows of one call have at most this many bytes together. A single
// larger row is returned alone, so a caller that continues after the last row it received always
// reaches the end. A read may therefore return fewer rows than its limit although more exist.
const ReadBytes = 4 << 20

// Budget counts the bytes of the rows of one read.
type Budget struct {
	bytes, used int
	any         bool
}

// NewBudget makes a budget of this many bytes; 0 = [ReadBytes].
func NewBudget(bytes int) *Budget {
	if bytes <= 0 {
		bytes = ReadBytes
	}
	return &Budget{bytes: bytes}
}

// Bytes is how many bytes the budget has.
func (b *Budget) Bytes() int { return b.bytes }

// Take reports whether a row with n bytes of text still belongs to the read. The first row always
// does. After the first row that does not, no further row does.
func (b *Budget) Take(n int) bool {
	b.used += n
	fits := b.used <= b.bytes || !b.any
	b.any = true
	return fits
}

// keptReaders is how many readers lists and searches never take.
const keptReaders = 2

// principalKey is the context key of the principal of a read.
type principalKey struct{}

// OnBehalfOf marks the reads with this context as those of a principal, see [Lists]; "" = of the
// gateway itself.
func OnBehalfOf(ctx context.Context, principal string) context.Context {
	return context.WithValue(ctx, principalKey{}, principal)
}

// Lists admits lists and searches of principals to the readers of a store. Each takes as long as
// its rows are many, so a principal runs one at a time, and all principals together leave two
// readers to control and start: claims, credentials, accepts and the first reads of a turn. Lists
// that the gateway reads for itself are of that class, too. A nil *Lists admits everything. It is
// safe for concurrent use.
type Lists struct {
	room chan struct{}

	mu sync.Mutex
	of map[string]*lister
}

// lister is a principal with lists; turn is full while one runs. It is removed with its last list.
type lister struct {
	turn  chan struct{}
	lists int
}

// NewLists returns the lists of a store with this many readers. A store with fewer than four has
// room for one.
func NewLists(readers int) *Lists {
	return &Lists{room: make(chan struct{}, max(readers-keptReaders, 1)), of: map[string]*lister{}}
}

// Enter waits until a list may take a reader. Call leave when it has ended. The error is that of
// ctx.
func (l *Lists) Enter(ctx context.Context) (leave func(), err error) {
	name, named := ctx.Value(principalKey{}).(string)
	if l == nil || !named || name == "" {
		return func() {}, nil
	}
	own := l.join(name)
	select {
	case own.turn <- struct{}{}:
	case <-ctx.Done():
		l.part(name, own)
		return nil, ctx.Err()
	}
	select {
	case l.room <- struct{}{}:
	case <-ctx.Done():
		<-own.turn
		l.part(name, own)
		return nil, ctx.Err()
	}
	return func() {
		<-l.room
		<-own.turn
		l.part(name, own)
	}, nil
}

func (l *Lists) join(name string) *lister {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.of[name]
	if own == nil {
		own = &lister{turn: make(chan struct{}, 1)}
		l.of[name] = own
	}
	own.lists++
	return own
}

func (l *Lists) part(name string, own *lister) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.lists--; own.lists == 0 {
		delete(l.of, name)
	}
}
