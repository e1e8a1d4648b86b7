package history_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// index is a store that counts commits.
type index struct {
	commits atomic.Int64
	err     error
}

func (x *index) IndexTranscripts(context.Context) (int, error) {
	x.commits.Add(1)
	return 1, x.err
}

// leases gives the lease to one holder at a time.
type leases struct{ holder atomic.Pointer[string] }

func (l *leases) of(name string) func(context.Context, string) (bool, error) {
	return func(_ context.Context, lease string) (bool, error) {
		if lease != history.IndexLease {
			return false, errors.New("another lease: " + lease)
		}
		l.holder.CompareAndSwap(nil, &name)
		return *l.holder.Load() == name, nil
	}
}

func TestOneReplicaIndexesEveryFiveMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			stores [2]index
			held   leases
		)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		for i, name := range []string{"one", "two"} {
			go func() {
				history.NewIndexer(history.IndexerConfig{Store: &stores[i], Lease: held.of(name)}).Run(ctx)
				ended <- struct{}{}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := stores[0].commits.Load() + stores[1].commits.Load(); n != 1 {
			t.Errorf("%d commits in the first minute, want 1", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		one, two := stores[0].commits.Load(), stores[1].commits.Load()
		if one != 0 && two != 0 || one+two < 11 || one+two > 13 {
			t.Errorf("%d and %d commits in an hour and a minute, want some 12 of one replica", one, two)
		}
		// The holder ends without a release: the other process continues.
		held.holder.Store(nil)
		stop()
		<-ended
		<-ended
	})
}

func TestAFailureIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := index{err: errors.New("away")}
		var held leases
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			history.NewIndexer(history.IndexerConfig{Store: &broken, Lease: held.of("one")}).Run(ctx)
		}()
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if n := broken.commits.Load(); n < 3 {
			t.Errorf("%d commits in 15 minutes, want at least 3", n)
		}
		stop()
		<-ended
	})
}
