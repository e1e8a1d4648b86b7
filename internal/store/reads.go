package store

import (
	"context"
	"sync"
	"unicode/utf8"
)

// ReadBytes bounds every read of the port (and of cron.JobStore) that returns rows with text: the stored text columns of the rows of one call have at most this
// many bytes together. A single larger row is returned alone, so a caller that continues after the last row it received always reaches the end. A read may
// therefore return fewer rows than its limit although more exist.
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

// Take reports whether a row with n bytes of text still belongs to the read. The first row always does. After the first row that does not, no further row does.
func (b *Budget) Take(n int) bool {
	b.used += n
	fits := b.used <= b.bytes || !b.any
	b.any = true
	return fits
}

// FirstChars is what a read with MaxChars n returns of a string: all of it when it has at most n characters, else its first n+1 characters. n 0 = all of it.
func FirstChars(text string, n int) string {
	if n <= 0 || len(text) <= n {
		return text
	}
	rest := text
	for range n + 1 {
		if rest == "" {
			return text
		}
		_, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
	}
	return text[:len(text)-len(rest)]
}

// keptReaders is how many readers lists and searches never take.
const keptReaders = 2

// principalKey is the context key of the principal of a read.
type principalKey struct{}

// OnBehalfOf marks the reads with this context as those of a principal, see [Lists]; "" = of the gateway itself.
func OnBehalfOf(ctx context.Context, principal string) context.Context {
	return context.WithValue(ctx, principalKey{}, principal)
}

// Lists admits lists and searches of principals to the readers of a store. Each takes as long as its rows are many, so a principal runs one at a time, and all
// principals together leave two readers to control and start: claims, credentials, accepts and the first reads of a turn. Lists that the gateway reads for
// itself are of that class, too. A nil *Lists admits everything. It is safe for concurrent use.
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

// NewLists returns the lists of a store with this many readers. A store with fewer than four has room for one.
func NewLists(readers int) *Lists {
	return &Lists{room: make(chan struct{}, max(readers-keptReaders, 1)), of: map[string]*lister{}}
}

// Enter waits until a list may take a reader. Call leave when it has ended. The error is that of ctx.
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
