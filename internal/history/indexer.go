package history

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// IndexLease is the named lease of the replica that indexes.
const IndexLease = "search-index"

// The schedule of the index.
const (
	IndexEvery  = 5 * time.Minute
	IndexJitter = time.Minute
)

// Store is the part of the store that the indexer needs, see store.Search.
type Store interface {
	IndexTranscripts(ctx context.Context) (int, error)
}

// IndexerConfig of an [Indexer]. All members without a default are required.
type IndexerConfig struct {
	Store Store
	// Lease takes or confirms a named lease for this process; ok is false while another replica holds it.
	Lease func(ctx context.Context, name string) (ok bool, err error)
	// Jitter returns a random part of d, to spread replicas; nil means a random source.
	Jitter func(d time.Duration) time.Duration
	// Log receives failures; nil discards.
	Log *slog.Logger
}

// Indexer keeps the search index up to date.
type Indexer struct{ cfg IndexerConfig }

// NewIndexer makes an indexer; [Indexer.Run] is its loop.
func NewIndexer(cfg IndexerConfig) *Indexer {
	if cfg.Jitter == nil {
		cfg.Jitter = func(d time.Duration) time.Duration { return rand.N(d) } //nolint:gosec // spread, not secrecy
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Indexer{cfg: cfg}
}

// Run indexes until ctx is done: first within [IndexJitter], then every [IndexEvery] and up to [IndexJitter] more.
func (x *Indexer) Run(ctx context.Context) {
	timer := time.NewTimer(x.cfg.Jitter(IndexJitter))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		x.commit(ctx)
		timer.Reset(IndexEvery + x.cfg.Jitter(IndexJitter))
	}
}

// commit indexes new entries if this process holds the lease.
func (x *Indexer) commit(ctx context.Context) {
	mine, err := x.cfg.Lease(ctx, IndexLease)
	if err == nil && !mine {
		return
	}
	began, n := time.Now(), 0
	if err == nil {
		n, err = x.cfg.Store.IndexTranscripts(ctx)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		x.cfg.Log.WarnContext(ctx, "the search index was not brought up to date; trying again later, searches read the transcripts meanwhile", "indexed", n, "err", err)
	case n > 0:
		x.cfg.Log.DebugContext(ctx, "search index", "indexed", n, "took", time.Since(began).String())
	}
}
