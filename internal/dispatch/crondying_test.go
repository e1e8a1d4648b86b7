package dispatch_test

import (
	"context"
	"sync"
	"sync/atomic"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// dying is a store that can be cut off from one process, as a kill does: nothing that the process does from then on has an effect.
type dying struct {
	cronStore

	off  *atomic.Bool
	wake *modelWake
}

// modelWake carries the hints from process to process, as the database does.
type modelWake struct {
	mu    sync.Mutex
	nodes map[string]chan struct{}
}

func (w *modelWake) of(node string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes == nil {
		w.nodes = map[string]chan struct{}{}
	}
	if w.nodes[node] == nil {
		w.nodes[node] = make(chan struct{}, 1)
	}
	return w.nodes[node]
}

// Notify implements store.Waker.
func (s dying) Notify(node string) {
	if s.gone() {
		return
	}
	select {
	case s.wake.of(node) <- struct{}{}:
	default:
	}
}

// Wakeups implements store.Waker.
func (s dying) Wakeups(node string) <-chan struct{} { return s.wake.of(node) }

func (s dying) gone() bool { return s.off.Load() }

func (s dying) Heartbeat(ctx context.Context, id string) (store.Beat, error) {
	if s.gone() {
		return store.Beat{}, chat.ErrStoreUnavailable
	}
	return s.cronStore.Heartbeat(ctx, id)
}

func (s dying) Register(ctx context.Context, n store.Node) error {
	if s.gone() {
		return chat.ErrStoreUnavailable
	}
	return s.cronStore.Register(ctx, n)
}

func (s dying) Unregister(ctx context.Context, n string) error {
	if s.gone() {
		return nil
	}
	return s.cronStore.Unregister(ctx, n)
}

func (s dying) Start(ctx context.Context, p store.StartParams) (store.Started, error) {
	if s.gone() {
		return store.Started{}, chat.ErrFenced
	}
	return s.cronStore.Start(ctx, p)
}

func (s dying) Finish(ctx context.Context, p store.FinishParams) (store.Finished, error) {
	if s.gone() {
		return store.Finished{}, chat.ErrFenced
	}
	return s.cronStore.Finish(ctx, p)
}

func (s dying) Claim(ctx context.Context, p cron.ClaimParams) (cron.Claimed, error) {
	if s.gone() {
		return cron.Claimed{}, chat.ErrStoreUnavailable
	}
	return s.cronStore.Claim(ctx, p)
}

func (s dying) Sweep(ctx context.Context, n string, limit int) ([]store.Taken, error) {
	if s.gone() {
		return nil, chat.ErrStoreUnavailable
	}
	return s.cronStore.Sweep(ctx, n, limit)
}
