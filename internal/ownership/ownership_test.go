package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/chat"
	"laneway/internal/ownership"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handler counts the calls of ownership.
type handler struct {
	mu      sync.Mutex
	taken   []store.Front
	stopped []store.StopRequest
	lost    int
	running map[string]bool
}

func (h *handler) Running() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.running)
}

func (h *handler) Wake(fronts []store.Front) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken = append(h.taken, fronts...)
}

func (h *handler) Stop(r store.StopRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = append(h.stopped, r)
}

func (h *handler) LeaseLost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost++
}

func (h *handler) counts() (taken, lost int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.taken), h.lost
}

// cut is a store whose calls fail while off is set.
type cut struct {
	*sqlite.Store

	off atomic.Bool
}

func (c *cut) Heartbeat(ctx context.Context, id string, draining bool) (store.Beat, error) {
	if c.off.Load() {
		return store.Beat{}, chat.ErrStoreUnavailable
	}
	return c.Store.Heartbeat(ctx, id, draining)
}

func (c *cut) Register(ctx context.Context, n store.Node) error {
	if c.off.Load() {
		return chat.ErrStoreUnavailable
	}
	return c.Store.Register(ctx, n)
}

// process is a node whose loops run.
type process struct {
	*ownership.Node

	h   *handler
	end func()
}

func start(t *testing.T, cfg ownership.Config, st store.Store) *process {
	t.Helper()
	p := &process{h: &handler{}}
	p.Node = ownership.New(cfg, st, p.h, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	p.end = func() { cancel(); <-done }
	synctest.Wait()
	return p
}

func TestALeaseThatCannotBeExtendedIsGivenUpBeforeItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &cut{Store: sqlitetest.Open(t, sqlite.Config{})}
		p := start(t, ownership.Config{}, st)
		defer p.end()
		first, err := p.Alive()
		if err != nil {
			t.Fatal(err)
		}
		st.off.Store(true)
		time.Sleep(ownership.DefaultLease - 500*time.Millisecond)
		if _, err := p.Alive(); !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Errorf("half a second before the lease ends Alive says %v", err)
		}
		if _, lost := p.h.counts(); lost != 1 {
			t.Errorf("the lease was lost %d times, want once", lost)
		}
		st.off.Store(false)
		time.Sleep(2 * time.Second)
		if next, err := p.Alive(); err != nil || next == first {
			t.Errorf("the next incarnation is %q (%v), the first was %q", next, err, first)
		}
	})
}

func TestAnIncarnationThatTheStoreDeclaresDeadIsReplacedAtTheNextHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := sqlitetest.Open(t, sqlite.Config{})
		p := start(t, ownership.Config{}, st)
		defer p.end()
		first := p.ID()
		if err := st.Unregister(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ownership.DefaultLease / 4)
		if _, lost := p.h.counts(); lost != 1 || p.ID() == first || p.ID() == "" {
			t.Errorf("lost %d times, now %q, before %q", lost, p.ID(), first)
		}
	})
}

func TestASweepTakesOverWhatADeadProcessOwned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := sqlitetest.Open(t, sqlite.Config{})
		dead := store.Node{ID: "dead", Lease: 10 * time.Second}
		if err := st.Register(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		m := chat.Message{ID: "m1", Session: chat.MainKey("main"), Principal: "p", Channel: "web", Lane: "main", Content: chat.Content{Text: "hello"}}
		if _, err := st.Accept(t.Context(), store.AcceptParams{Node: dead.ID, Take: true, Message: m}); err != nil {
			t.Fatal(err)
		}
		p := start(t, ownership.Config{}, st)
		defer p.end()
		time.Sleep(9 * time.Second)
		if taken, _ := p.h.counts(); taken != 0 {
			t.Errorf("%d sessions were taken over while their owner lived", taken)
		}
		time.Sleep(3 * time.Second)
		p.h.mu.Lock()
		defer p.h.mu.Unlock()
		if len(p.h.taken) == 0 || p.h.taken[0].ID != "m1" { // again at each sweep, because it does not start
			t.Errorf("taken over: %+v", p.h.taken)
		}
	})
}

// A sweep wakes as many sessions as a page has, and the next one goes on from there.
func TestSweepsGoFromSessionToSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := sqlitetest.Open(t, sqlite.Config{})
		p := start(t, ownership.Config{}, st)
		defer p.end()
		const sessions = 450
		for i := range sessions {
			m := chat.Message{ID: fmt.Sprint("m", i), Session: chat.SessionKey{Agent: "main", Rest: fmt.Sprint("s", i)}, Principal: "p", Channel: "web", Lane: "main"}
			if _, err := st.Accept(t.Context(), store.AcceptParams{Node: p.ID(), Take: true, Message: m}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		p.h.mu.Lock()
		defer p.h.mu.Unlock()
		woken := map[chat.SessionKey]bool{}
		for _, f := range p.h.taken {
			woken[f.Session] = true
		}
		if len(woken) != sessions {
			t.Errorf("%d of %d sessions were woken", len(woken), sessions)
		}
	})
}

func TestAFinalWriteIsRepeatedUntilTheStoreAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t, ownership.Config{}, sqlitetest.Open(t, sqlite.Config{}))
		defer p.end()
		gone, cancel := context.WithCancel(t.Context())
		cancel() // the caller has gone away
		tries := 0
		err := p.Final(gone, "a write", func(ctx context.Context) error {
			if ctx.Err() != nil {
				t.Error("a try has the context of the caller")
			}
			if tries++; tries < 5 {
				return chat.ErrStoreUnavailable
			}
			return nil
		})
		if err != nil || tries != 5 {
			t.Errorf("%d tries, %v", tries, err)
		}
		tries = 0
		if err := p.Final(gone, "a write", func(context.Context) error { tries++; return chat.ErrFenced }); !errors.Is(err, chat.ErrFenced) || tries != 1 {
			t.Errorf("a refused write: %d tries, %v", tries, err)
		}
	})
}

func TestTheEndOfTheLoopsEndsTheWaitsOfAFinalWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t, ownership.Config{}, sqlitetest.Open(t, sqlite.Config{}))
		result := make(chan error)
		go func() {
			result <- p.Final(t.Context(), "a write", func(context.Context) error { return chat.ErrStoreUnavailable })
		}()
		time.Sleep(10*time.Second + 500*time.Millisecond) // between two tries
		p.end()
		synctest.Wait()
		select {
		case err := <-result:
			if !errors.Is(err, chat.ErrStoreUnavailable) {
				t.Errorf("the write ended with %v", err)
			}
		default:
			t.Error("the write continues after the loops have ended")
			<-result
		}
	})
}

func TestAFinalWriteOfALostIncarnationIsNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &cut{Store: sqlitetest.Open(t, sqlite.Config{})}
		p := start(t, ownership.Config{}, st)
		defer p.end()
		st.off.Store(true)
		began := time.Now()
		err := p.Final(t.Context(), "a write", func(context.Context) error { return chat.ErrStoreUnavailable })
		if took := time.Since(began); !errors.Is(err, chat.ErrStoreUnavailable) || took > ownership.DefaultLease+time.Second {
			t.Errorf("it ended after %s with %v", took, err)
		}
	})
}

func TestWhileAliveEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t, ownership.Config{}, sqlitetest.Open(t, sqlite.Config{}))
		defer p.end()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("stopped"))
		defer cancel()
		err := p.WhileAlive(ctx, func(context.Context) error { return chat.ErrStoreUnavailable })
		if !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestARestartRefusesWorkUntilTheNextIncarnationIsRegistered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t, ownership.Config{}, sqlitetest.Open(t, sqlite.Config{}))
		defer p.end()
		first := p.ID()
		err := p.Restart(t.Context(), func(context.Context) error {
			if _, err := p.Alive(); !errors.Is(err, chat.ErrDraining) {
				t.Errorf("while it restarts Alive says %v", err)
			}
			return nil
		})
		if next, alive := p.Alive(); err != nil || alive != nil || next == first {
			t.Errorf("restart: %v; now %q (%v), before %q", err, next, alive, first)
		}
		failed := errors.New("turns do not end")
		if err := p.Restart(t.Context(), func(context.Context) error { return failed }); !errors.Is(err, failed) {
			t.Errorf("a restart whose release failed: %v", err)
		}
		if _, err := p.Alive(); err != nil {
			t.Errorf("after a restart that failed Alive says %v", err)
		}
	})
}

func TestADrainReleasesNamedLeasesForOtherReplicasOnly(t *testing.T) {
	t.Parallel()
	for name, exclusive := range map[string]bool{"shared store": false, "exclusive store": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := start(t, ownership.Config{Exclusive: exclusive}, sqlitetest.Open(t, sqlite.Config{}))
				defer p.end()
				if ok, err := p.Acquire(t.Context(), "box"); !ok || err != nil {
					t.Fatalf("acquire: %v, %v", ok, err)
				}
				p.Drain(t.Context())
				if _, held := p.Held("box"); held != exclusive {
					t.Errorf("held after the drain: %v", held)
				}
				if ok, err := p.Acquire(t.Context(), "box"); ok != exclusive || err != nil {
					t.Errorf("acquired after the drain: %v, %v", ok, err)
				}
			})
		})
	}
}

// hinting is a store with hints. Each heartbeat returns a stop.
type hinting struct {
	*cut

	mu    sync.Mutex
	hints map[string]chan struct{}
}

// Notify is lost when no listener exists for the node, like a notification of a database.
func (h *hinting) Notify(node string, hint store.Hint, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case h.hints[node+string(hint)] <- struct{}{}:
	default:
	}
}

func (h *hinting) Hinted(string, store.Hint) store.HintedSessions {
	return store.HintedSessions{All: true}
}

func (h *hinting) Wakeups(node string, hint store.Hint) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hints == nil {
		h.hints = map[string]chan struct{}{}
	}
	name := node + string(hint)
	if h.hints[name] == nil {
		h.hints[name] = make(chan struct{}, 1)
	}
	return h.hints[name]
}

func (h *hinting) Heartbeat(ctx context.Context, node string, draining bool) (store.Beat, error) {
	b, err := h.cut.Heartbeat(ctx, node, draining)
	b.Stops = []store.StopRequest{{RunID: "r"}}
	return b, err
}

func TestAStopReachesAnIncarnationThatWasJustRegistered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &hinting{cut: &cut{Store: sqlitetest.Open(t, sqlite.Config{})}}
		st.off.Store(true)
		p := start(t, ownership.Config{Sweep: time.Minute, Heartbeat: 3 * time.Second}, st)
		defer p.end()
		st.off.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if p.ID() == "" {
			t.Fatal("the process is not registered")
		}
		before := p.h.stops()
		st.Notify(p.ID(), store.HintStop, "")
		synctest.Wait()
		if n := p.h.stops() - before; n != 1 {
			t.Errorf("%d stops arrived with the hint, want 1", n)
		}
	})
}

func (h *handler) stops() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.stopped)
}

// slow is a store whose count of other replicas is outdated when it arrives.
type slow struct {
	*sqlite.Store

	late time.Duration
}

func (s *slow) Heartbeat(ctx context.Context, id string, draining bool) (store.Beat, error) {
	beat, err := s.Store.Heartbeat(ctx, id, draining)
	time.Sleep(s.late)
	return beat, err
}

// TestAHeartbeatDoesNotOverrideANewerSignOfAReplica records a sign of a replica while a heartbeat,
// which counted before, is in progress.
func TestAHeartbeatDoesNotOverrideANewerSignOfAReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &slow{Store: sqlitetest.Open(t, sqlite.Config{}), late: time.Second}
		p := start(t, ownership.Config{Heartbeat: 3 * time.Second}, st)
		defer p.end()
		time.Sleep(3*time.Second + 500*time.Millisecond)
		p.SawPeer()
		time.Sleep(time.Second)
		if !p.HasPeers() {
			t.Error("a heartbeat that began before the sign has overridden it")
		}
		time.Sleep(4 * time.Second)
		if p.HasPeers() {
			t.Error("the next heartbeat counted no other replica, and the sign is still believed")
		}
	})
}
