package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/dispatch"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// dying is a store that can be disconnected from one process, as by a kill: after that, the process has no effect.
type dying struct {
	cronStore

	off  *atomic.Bool
	wake *modelWake
}

// modelWake passes the hints between processes, as the database does.
type modelWake struct {
	mu    sync.Mutex
	nodes map[string]chan struct{}
}

// The dispatcher finds this interface by a type assertion. If one of its methods were missing, it would work without hints.
var _ store.Waker = dying{}

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
func (s dying) Notify(node string, h store.Hint) {
	if s.gone() {
		return
	}
	select {
	case s.wake.of(node + string(h)) <- struct{}{}:
	default:
	}
}

// Wakeups implements store.Waker.
func (s dying) Wakeups(node string, h store.Hint) <-chan struct{} { return s.wake.of(node + string(h)) }

func (s dying) gone() bool { return s.off.Load() }

func (s dying) Heartbeat(ctx context.Context, id string, draining bool) (store.Beat, error) {
	if s.gone() {
		return store.Beat{}, chat.ErrStoreUnavailable
	}
	return s.cronStore.Heartbeat(ctx, id, draining)
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

func (s dying) Sweep(ctx context.Context, sp store.SweepParams) ([]store.Taken, error) {
	if s.gone() {
		return nil, chat.ErrStoreUnavailable
	}
	return s.cronStore.Sweep(ctx, sp)
}

// The second run of a buffer_one job is started through the process that does not run the first one. The owner of the session receives the
// hint and starts the second run at the end of the first, before its next sweep.
func TestAWaitingRunBeginsWhenTheRunOfAnotherProcessEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, wake, off := sqlitetest.Open(t, sqlite.Config{}), &modelWake{}, &atomic.Bool{}
		rare := func(c *dispatch.Config) { c.Sweep = time.Minute }
		a, b := openCron(t, dying{st, off, wake}, rare), openCron(t, dying{st, off, wake}, rare)
		job := a.put(everySecond("twice", "sleep 1s"), func(j *cron.Job) { j.Schedule.EveryMs, j.Overlap = 3_600_000, cron.OverlapBufferOne })
		var ids []string
		for _, h := range []*jobHarness{a, b} {
			id, reason, err := h.d.CronRun(t.Context(), job.ID, cron.RunForce, operator(), nil)
			if err != nil || reason != "" {
				t.Fatalf("the run did not start: %q, %v", reason, err)
			}
			ids = append(ids, id)
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		starts := map[string]time.Time{}
		for _, h := range []*jobHarness{a, b} {
			h.runner.mu.Lock()
			for i, c := range h.runner.calls {
				starts[c.RunID] = h.runner.starts[i]
			}
			h.runner.mu.Unlock()
		}
		want(t, "time between the starts", fmt.Sprint(starts[ids[1]].Sub(starts[ids[0]])), "1s")
		b.close()
		a.close()
	})
}
