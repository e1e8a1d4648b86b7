package ownership_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/chat"
	"laneway/internal/ownership"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/testrun"
)

// forgetful is a store whose heartbeats return the values that a test sets.
type forgetful struct {
	*sqlite.Store

	node *ownership.Node // that uses it

	mu      sync.Mutex
	history string
	runs    []string
	noted   []chat.Audit
	slow    int // so many look-ups of a message get no answer
}

func (f *forgetful) set(history string, runs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history, f.runs = history, runs
}

func (f *forgetful) Heartbeat(ctx context.Context, id string, draining bool) (store.Beat, error) {
	b, err := f.Store.Heartbeat(ctx, id, draining)
	f.mu.Lock()
	defer f.mu.Unlock()
	b.History, b.Runs = f.history, slices.Clone(f.runs)
	return b, err
}

func (f *forgetful) Audit(ctx context.Context, a chat.Audit) error {
	f.mu.Lock()
	f.noted = append(f.noted, a)
	f.mu.Unlock()
	return f.Store.Audit(ctx, a)
}

func (f *forgetful) MessageByID(ctx context.Context, id string) (store.Waiting, error) {
	f.mu.Lock()
	f.slow--
	slow := f.slow >= 0
	f.mu.Unlock()
	if slow {
		<-ctx.Done()
		return store.Waiting{}, ctx.Err()
	}
	return f.Store.MessageByID(ctx, id)
}

// accept stores a message and returns its id.
func (f *forgetful) accept(t *testing.T, node string) string {
	t.Helper()
	m := chat.Message{ID: "m-kept", Session: chat.MainKey("main"), Lane: "main", Principal: "anna"}
	if _, err := f.Accept(context.WithoutCancel(t.Context()), store.AcceptParams{Node: node, Message: m}); err != nil {
		t.Error(err)
	}
	return m.ID
}

// rollbackTest runs a node on a forgetful store and compares the lost leases and the signs after
// the last step.
func rollbackTest(t *testing.T, steps func(st *forgetful, h *handler), lost int, signs map[ownership.RollbackSign]int, noted []chat.Audit) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st, counted, h := &forgetful{Store: sqlitetest.Open(t, sqlite.Config{}), history: "one"}, prometheus.NewRegistry(), &handler{}
		n := ownership.New(ownership.Config{Metrics: counted}, st, h, slog.New(slog.DiscardHandler))
		st.node = n
		ctx, cancel := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() { n.Run(ctx) })
		defer loop.Wait()
		defer cancel()
		synctest.Wait() // for the first heartbeat: even a failover just after the start is noticed
		first := n.ID()
		steps(st, h)
		synctest.Wait()
		if _, got := h.counts(); got != lost {
			t.Errorf("the work was given up %d times, want %d", got, lost)
		}
		if got := testrun.Counted(t, counted, "laneway_database_rollbacks_total"); fmt.Sprint(got) != fmt.Sprint(signs) {
			t.Errorf("the signs are %v, want %v", got, signs)
		}
		if !slices.Equal(st.noted, noted) {
			t.Errorf("the log of changes has %+v, want %+v", st.noted, noted)
		}
		if next, err := n.Alive(); err != nil || (next == first) != (lost == 0) {
			t.Errorf("the incarnation is %q (%v), before it was %q, with %d losses", next, err, first, lost)
		}
		cluster, err := st.Cluster(ctx)
		if err != nil || len(cluster.Nodes) != 1 {
			t.Errorf("%d nodes live (%v), want the one incarnation: what another owned would wait for its lease", len(cluster.Nodes), err)
		}
	})
}

func note(sign, before, after string) chat.Audit {
	return chat.Audit{Who: "gateway", Verb: store.VerbRollback, Object: sign, Before: before, After: after}
}

// What this process has acknowledged is in the database after the failover, so nothing is lost.
func TestFailoverWithoutLossIsNoLoss(t *testing.T) {
	t.Parallel()
	rollbackTest(t, func(st *forgetful, _ *handler) {
		st.node.Acknowledged(st.accept(t, st.node.ID()), time.Time{})
		st.set("two")
		time.Sleep(ownership.DefaultLease)
	}, 1, nil, nil)
}

// A server that has just taken over answers late, which says nothing about what it has.
func TestLateAnswerAfterFailoverIsNoLoss(t *testing.T) {
	t.Parallel()
	rollbackTest(t, func(st *forgetful, _ *handler) {
		st.node.Acknowledged(st.accept(t, st.node.ID()), time.Time{})
		st.slow = 1
		st.set("two")
		time.Sleep(3 * ownership.DefaultLease)
	}, 1, nil, nil)
}

func TestAnotherHistoryWithoutWhatWasAcknowledgedIsALoss(t *testing.T) {
	t.Parallel()
	missing := "two; missing: message m-lost, the end of run r-lost"
	rollbackTest(t, func(st *forgetful, _ *handler) {
		st.node.Acknowledged("m-lost", time.Time{})
		st.node.Acknowledged("r-lost", time.Now())
		st.node.Acknowledged(st.accept(t, st.node.ID()), time.Time{})
		st.set("two")
		time.Sleep(ownership.DefaultLease)
		st.set("three") // reported once
		time.Sleep(ownership.DefaultLease)
	}, 2, map[ownership.RollbackSign]int{ownership.SignHistory: 1}, []chat.Audit{note("history", "one", missing)})
}

func TestADatabaseThatDoesNotNameItsHistoryForAWhileIsTheSame(t *testing.T) {
	t.Parallel()
	rollbackTest(t, func(st *forgetful, _ *handler) {
		st.set("")
		time.Sleep(ownership.DefaultLease)
		st.set("one")
		time.Sleep(ownership.DefaultLease)
	}, 0, nil, nil)
}

func TestARunThatIsNotExecutedForALeaseMakesANewIncarnation(t *testing.T) {
	t.Parallel()
	rollbackTest(t, func(st *forgetful, h *handler) {
		h.mu.Lock()
		h.running = map[string]bool{"runs": true}
		h.mu.Unlock()
		st.set("one", "runs", "ended")
		time.Sleep(ownership.DefaultLease - time.Second)
		if _, lost := h.counts(); lost != 0 {
			t.Error("the work was given up before the run was missing for a lease")
		}
		time.Sleep(ownership.DefaultLease / 2)
		st.set("one", "runs")
		time.Sleep(ownership.DefaultLease)
	}, 1, map[ownership.RollbackSign]int{ownership.SignRuns: 1}, []chat.Audit{note("runs", "one", "one")})
}

func TestRunsThatStartOrEndDuringAHeartbeatChangeNothing(t *testing.T) {
	t.Parallel()
	rollbackTest(t, func(st *forgetful, _ *handler) {
		for _, run := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} { // each is missing in one or two heartbeats
			st.set("one", run)
			time.Sleep(ownership.DefaultLease / 3)
		}
	}, 0, nil, nil)
}
