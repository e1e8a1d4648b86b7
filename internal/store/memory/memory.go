package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// defaultLease is how long a node lives without a heartbeat when [store.Node] does not set it.
const defaultLease = 15 * time.Second

// keepDeadNode is how long the row of a dead node is kept. The row distinguishes a crash from a clean stop, which deletes it.
const keepDeadNode = 10 * time.Minute

// Config of a [Store]. The zero value works.
type Config struct {
	// Now is the store's clock; nil = time.Now. It is called under the store's mutex and must not call the store.
	Now func() time.Time
	// Before is called at the begin of every operation with the method's name, outside of the mutex; nil = never. An error
	// of it is returned as the operation's, and nothing is done. Tests force interleavings and outages with it.
	Before func(ctx context.Context, op string) error
}

// Store is the fake. It is safe for concurrent use.
type Store struct {
	now    func() time.Time
	before func(ctx context.Context, op string) error

	mu     sync.Mutex
	closed bool
	nodes  map[string]*node
	leases map[string]*store.Lease

	sessions   map[chat.SessionKey]*session
	tombstones map[chat.SessionKey]tombstone // of deleted sessions
	busy       map[chat.SessionKey]*session  // those with unfinished messages
	archive    map[chat.SessionKey][]archive // transcripts that were reset

	messages map[string]*message
	dedupe   map[string]*message
	runs     map[string]*run
	active   map[string]*run // running and stopping ones

	outbox map[string]*outRow
	// replies are the entries that deliveries made.
	replies map[replyOf]chat.TranscriptEntry
	byRun   map[runPart]*outRow
	open    []*outRow // pending and sending, oldest first

	answers map[call]answer
	// questions by id.
	questions map[string]*question
	zones     map[string]string // by principal

	crons   crons
	records records
	used    counted
	toc     toc
}

var _ store.Store = (*Store)(nil)

// New makes an empty store.
func New(cfg Config) *Store {
	s := &Store{
		now: cfg.Now, before: cfg.Before,
		nodes: map[string]*node{}, leases: map[string]*store.Lease{},
		sessions: map[chat.SessionKey]*session{}, tombstones: map[chat.SessionKey]tombstone{},
		busy: map[chat.SessionKey]*session{}, archive: map[chat.SessionKey][]archive{},
		messages: map[string]*message{}, dedupe: map[string]*message{},
		runs: map[string]*run{}, active: map[string]*run{},
		outbox: map[string]*outRow{}, replies: map[replyOf]chat.TranscriptEntry{}, byRun: map[runPart]*outRow{},
		answers: map[call]answer{}, zones: map[string]string{}, questions: map[string]*question{}, crons: newCrons(), records: newRecords(), used: newCounted(),
		toc: newToc(),
	}
	if s.now == nil {
		s.now = time.Now //nolint:forbidigo // the default of the injected clock
	}
	return s
}

// do runs one operation: fn has the mutex and the time of the whole operation, to the millisecond as the tables keep it.
func (s *Store) do(ctx context.Context, op string, fn func(now time.Time) error) error {
	if s.before != nil {
		if err := s.before(ctx, op); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: %w", op, chat.ErrStoreUnavailable)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := fn(s.now().UTC().Truncate(time.Millisecond)); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// Kind is "memory".
func (s *Store) Kind() string { return "memory" }

// Ping reports whether the store is open.
func (s *Store) Ping(ctx context.Context) error {
	return s.do(ctx, "Ping", func(time.Time) error { return nil })
}

// Now is the injected clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var at time.Time
	err := s.do(ctx, "Now", func(now time.Time) error {
		at = now
		return nil
	})
	return at, err
}

// Close ends the store and drops its contents. Idempotent.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
