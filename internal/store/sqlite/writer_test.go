package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// gate is an operation that keeps the writer busy: it signals that it runs, and ends when the test
// releases it.
type gate struct{ entered, leave chan struct{} }

// block occupies the writer; operations that are queued meanwhile become one batch.
func block(t *testing.T, s *Store) *gate {
	t.Helper()
	g := &gate{entered: make(chan struct{}), leave: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.write.do(context.WithoutCancel(t.Context()), ordinary("block"), func(context.Context, *tx) error {
			close(g.entered)
			<-g.leave
			return nil
		})
		if err != nil {
			t.Errorf("block: %v", err)
		}
	})
	t.Cleanup(wg.Wait)
	<-g.entered
	return g
}

// queueLength waits until the queue has want operations.
func queueLength(t *testing.T, s *Store, want int) {
	t.Helper()
	for {
		s.write.mu.Lock()
		n := len(s.write.first) + len(s.write.then)
		s.write.mu.Unlock()
		if n >= want {
			return
		}
		if t.Context().Err() != nil {
			t.Fatalf("%d operations queued, want %d", n, want)
		}
		yield()
	}
}

func TestAFailedOperationDoesNotPoisonItsBatch(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, "node")
	g := block(t, s)
	errBad := errors.New("refused")
	half := func(ctx context.Context, t *tx) error { // leaves a row before it fails
		_, err := t.Exec(ctx, `INSERT INTO leases (name, owner) VALUES ('half', 'node')`)
		return errors.Join(err, errBad)
	}
	broken := func(ctx context.Context, t *tx) error {
		_, err := t.Exec(ctx, `INSERT INTO nowhere VALUES (1)`)
		return err
	}
	panics := func(context.Context, *tx) error { panic("a defect") }
	bad := []work{half, broken, panics}
	failed := make([]error, len(bad))
	good := make([]error, 20)
	var wg sync.WaitGroup
	for i := range good {
		wg.Go(func() { good[i] = turn(t.Context(), s, "node", fmt.Sprint("room-", i), fmt.Sprint("m-", i)) })
		if i < len(bad) {
			wg.Go(func() { failed[i] = s.write.do(t.Context(), ordinary("fail"), bad[i]) })
		}
	}
	queueLength(t, s, len(good)+len(bad))
	close(g.leave)
	wg.Wait()
	for i, err := range good {
		if err != nil {
			t.Errorf("operation %d in a batch with failing ones: %v", i, err)
		}
	}
	if !errors.Is(failed[0], errBad) || failed[1] == nil || failed[2] == nil || !strings.Contains(failed[2].Error(), "a defect") {
		t.Errorf("the failing operations got %v", failed)
	}
	var n int
	if err := outside(t, s.path).QueryRow(`SELECT (SELECT count(*) FROM leases) * 1000 + (SELECT count(*) FROM runs WHERE state = 'ok')`).Scan(&n); err != nil || n != len(good) {
		t.Errorf("the tables count %d (%v), want no lease and %d runs", n, err, len(good))
	}
}

func TestNothingIsAcknowledgedWhenTheCommitFails(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, "node")
	g := block(t, s)
	const n = 10
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { _, errs[i] = s.Accept(t.Context(), message("node", "room", fmt.Sprint("m-", i))) })
	}
	queueLength(t, s, n)
	// An operation that ends the transaction without the writer: the commit has nothing to commit.
	var own error
	wg.Go(func() {
		own = s.write.do(t.Context(), ordinary("sabotage"), func(ctx context.Context, t *tx) error {
			return t.exec("ROLLBACK")
		})
	})
	queueLength(t, s, n+1)
	close(g.leave)
	wg.Wait()
	for i, err := range slices.Concat(errs, []error{own}) {
		if !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Errorf("operation %d got %v, want ErrStoreUnavailable", i, err)
		}
	}
	if held, err := s.Held(t.Context()); err != nil || held.Unfinished != 0 {
		t.Errorf("%d messages stored (%v), want none", held.Unfinished, err)
	}
	if err := turn(t.Context(), s, "node", "room", "later"); err != nil {
		t.Errorf("after a lost batch: %v", err)
	}
}

func TestAFullDiskRefusesWritesServesReadsAndHeals(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, "node")
	if err := turn(t.Context(), s, "node", "room", "before"); err != nil {
		t.Fatal(err)
	}
	pages := func(n int) {
		t.Helper()
		err := s.write.do(t.Context(), ordinary("bound the file"), func(ctx context.Context, x *tx) error {
			return x.exec(fmt.Sprintf("PRAGMA max_page_count = %d", n))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pages(1) // SQLite raises that to the current size of the file
	big := message("node", "big", "big")
	big.Message.Content.Text = strings.Repeat("x", 1<<20)
	_, err := s.Accept(t.Context(), big)
	if !errors.Is(err, chat.ErrStoreUnavailable) || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("a full disk: got %v, want ErrStoreUnavailable with a sentence", err)
	}
	if _, err := s.MessageByID(t.Context(), "before"); err != nil {
		t.Errorf("reading while the disk is full: %v", err)
	}
	if _, err := s.MessageByID(t.Context(), "big"); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("the refused message: got %v, want ErrNotFound", err)
	}
	if _, err := s.Heartbeat(t.Context(), "node", false); err != nil {
		t.Errorf("a heartbeat needs no new page: %v", err)
	}
	pages(1 << 30)
	if _, err := s.Accept(t.Context(), big); err != nil {
		t.Errorf("with space again: %v", err)
	}
}

func TestAnErrorOfTheFileSystemHealsWithoutARestart(t *testing.T) {
	t.Parallel()
	out, err := process(t, "limit", migrated(t)).Output()
	want := "unavailable=true reading=<nil> after=<nil> lost=true\n"
	if err != nil || string(out) != want {
		t.Fatalf("the child says %q (%v), want %q", out, err, want)
	}
}

func TestControlOperationsPassTheQueue(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, "node")
	g := block(t, s)
	var mu sync.Mutex
	var order []string
	note := func(name string) work {
		return func(context.Context, *tx) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
			return nil
		}
	}
	var wg sync.WaitGroup
	const n = 2 * maxBatch
	for range n {
		wg.Go(func() { _ = s.write.do(t.Context(), ordinary("message"), note("message")) })
	}
	queueLength(t, s, n)
	wg.Go(func() { _ = s.write.do(t.Context(), urgent("stop"), note("stop")) })
	queueLength(t, s, n+1)
	close(g.leave)
	wg.Wait()
	if i := slices.Index(order, "stop"); i != 0 || len(order) != n+1 {
		t.Errorf("the control operation ran as number %d of %d, want first of %d", i, len(order), n+1)
	}
}

func TestAnOperationWhoseContextEndedBeforeItsTurnIsNotExecuted(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, "node")
	g := block(t, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client went away")
	result := make(chan error, 1)
	go func() {
		_, err := s.Accept(ctx, message("node", "room", "m"))
		result <- err
	}()
	queueLength(t, s, 1)
	cancel(gone)
	if err := <-result; !errors.Is(err, context.Canceled) || !errors.Is(err, gone) {
		t.Errorf("got %v, want the cancellation and its cause", err)
	}
	close(g.leave)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held, err := s.Held(t.Context()); err != nil || held.Unfinished != 0 {
		t.Errorf("%d messages stored (%v), want none", held.Unfinished, err)
	}
}

func TestTheAgeOfTheWriterGrowsWhileAnOperationHangs(t *testing.T) {
	t.Parallel()
	s := open(t)
	if age := s.WriterAge(); age != 0 {
		t.Errorf("an idle writer has age %v, want 0", age)
	}
	g := block(t, s)
	first := s.WriterAge()
	for s.WriterAge() <= first {
		yield()
	}
	close(g.leave)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for s.WriterAge() != 0 {
		yield()
	}
}

func TestCloseFinishesWhatIsQueuedAndRefusesTheRest(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	s := openAt(t, path, nil)
	register(t, s, "node")
	g := block(t, s)
	accepted := make(chan error, 1)
	go func() {
		_, err := s.Accept(t.Context(), message("node", "room", "m"))
		accepted <- err
	}()
	queueLength(t, s, 1)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	for !s.write.isClosed() {
		yield()
	}
	if _, err := s.Accept(t.Context(), message("node", "room", "late")); !errors.Is(err, chat.ErrStoreUnavailable) {
		t.Errorf("a message after Close: got %v, want ErrStoreUnavailable", err)
	}
	close(g.leave)
	if err := errors.Join(<-accepted, <-closed, s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Held(t.Context()); !errors.Is(err, chat.ErrStoreUnavailable) {
		t.Errorf("a read after Close: got %v, want ErrStoreUnavailable", err)
	}
	again := openAt(t, path, nil)
	if m, err := again.MessageByID(t.Context(), "m"); err != nil || m.State != store.StateWaiting {
		t.Errorf("the queued message is %+v (%v), want waiting", m, err)
	}
}

func TestReadersDoNotWaitForTheWriter(t *testing.T) {
	t.Parallel()
	s := open(t)
	g := block(t, s)
	defer close(g.leave)
	for range 3 * defaultReaders {
		if _, err := s.Held(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, err := s.Held(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
}

func (w *writer) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}
