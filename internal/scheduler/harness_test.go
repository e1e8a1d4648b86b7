package scheduler_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/scheduler"
	"laneway/internal/testrun"
)

// TestMain sets the number of histories of the property tests in a long run.
func TestMain(m *testing.M) {
	if testrun.Long() {
		if err := flag.Set("rapid.checks", "10000"); err != nil {
			os.Exit(2)
		}
	}
	goleak.VerifyTestMain(m)
}

// The tests use this scheduler: payloads are strings.
type (
	sched   = scheduler.Scheduler[string]
	turn    = scheduler.Turn[string]
	item    = scheduler.Item[string]
	config  = scheduler.Config[string]
	runFunc = func(ctx context.Context, t *turn) error
)

// lanes are lanes with these limits, ordered by name.
func lanes(limits map[string]int) []scheduler.Lane {
	var all []scheduler.Lane
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		all = append(all, scheduler.Lane{Name: name, Limit: limits[name]})
	}
	return all
}

// newScheduler makes a scheduler that is drained when the test ends.
func newScheduler(t *testing.T, cfg config) *sched {
	t.Helper()
	s, err := scheduler.New(t.Context(), cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return s
}

// drain ends the scheduler and checks that it left nothing.
func drain(t *testing.T, s *sched) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Drain(ctx); err != nil {
		t.Fatalf("Drain: %v, left %+v", err, s.TurnsLeft())
	}
	checkSums(t, s)
	if stats := s.Stats(); stats.Sessions.Tracked != 0 || stats.Sessions.Running != 0 || stats.Sessions.Waiting != 0 {
		t.Fatalf("after Drain: %+v", stats.Sessions)
	}
}

// failer is a test or a property test.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkSums checks the invariants of the counters.
func checkSums(t failer, s *sched) {
	t.Helper()
	stats := s.Stats()
	sum := uint64(stats.Sessions.Waiting + stats.Sessions.Undecided)
	for _, n := range stats.Outcomes {
		sum += n
	}
	if sum != stats.Accepted {
		t.Fatalf("outcomes %v + waiting %d + undecided %d = %d, accepted %d",
			stats.Outcomes, stats.Sessions.Waiting, stats.Sessions.Undecided, sum, stats.Accepted)
	}
	if p := s.Progress(); p != 0 {
		t.Fatalf("no progress for %v", p)
	}
	active := 0
	for _, l := range stats.Lanes {
		active += l.Active + l.Yielded
		if l.Active < 0 || l.Stopping < 0 || l.Waiting < 0 || l.Yielded < 0 || l.Stopping > l.Active {
			t.Fatalf("lane %+v", l)
		}
		if l.Ready > 0 && l.Active < l.Capacity && !stats.Draining {
			t.Fatalf("lane has work and a free slot: %+v", l)
		}
	}
	if active > stats.Sessions.Running {
		t.Fatalf("%d active or yielded, %d running", active, stats.Sessions.Running)
	}
}

// rows are a store in memory, which chooses the messages of turns by Next, and what they displace
// by Admit.
type rows struct {
	base scheduler.Settings

	mu sync.Mutex
	of map[string]*sessionRows
}

// sessionRows are those of one session.
type sessionRows struct {
	set     scheduler.Settings
	waiting []scheduler.Row
	items   map[int64]item
	last    int64
	running int
}

// stores are the rows of schedulers that withRows has made.
var stores sync.Map

// withRows makes a scheduler whose turns begin from rows.
func withRows(t *testing.T, cfg config) *sched {
	t.Helper()
	r := &rows{base: cfg.Queue.Over(scheduler.DefaultSettings()), of: map[string]*sessionRows{}}
	run := cfg.Run
	cfg.Begins = true
	cfg.Run = func(ctx context.Context, t *turn) error {
		x := r.session(t.Session())
		if !r.begin(x, t) {
			return nil
		}
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			x.running--
		}()
		return run(ctx, t)
	}
	s := newScheduler(t, cfg)
	stores.Store(s, r)
	return s
}

func (r *rows) session(key string) *sessionRows {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[key] == nil {
		r.of[key] = &sessionRows{set: r.base, items: map[int64]item{}}
	}
	return r.of[key]
}

// begin begins the turn that the rows want, and reports whether they want one.
func (r *rows) begin(x *sessionRows, t *turn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, inputs := t.RunsOfSession()
	d := scheduler.Next(x.waiting, x.set, scheduler.SessionState{Last: x.last, Running: x.running, Inputs: inputs}, time.Now())
	take := slices.Clone(d.Take)
	x.remove(seqsOf(take))
	var first int64
	if len(x.waiting) > 0 {
		first = x.waiting[0].Seq
	}
	if len(take) == 0 {
		none := scheduler.Nothing{First: first, Last: x.last}
		if !d.Until.IsZero() {
			none.Wait, none.Window = time.Until(d.Until), true
		}
		t.BeganNothing(none)
		return false
	}
	x.running++
	var items []item
	for _, row := range take {
		items = append(items, x.items[row.Seq])
	}
	t.Began("", items...)
	t.Gone(first, x.last)
	return true
}

func (x *sessionRows) remove(seqs []int64) {
	x.waiting = slices.DeleteFunc(x.waiting, func(r scheduler.Row) bool { return slices.Contains(seqs, r.Seq) })
}

// accept adds the row of a message, and returns the messages that it displaces.
func (r *rows) accept(x *sessionRows, it *item) []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if it.Settings != nil {
		x.set = it.Settings.Over(r.base)
	}
	x.last = max(x.last+1, it.Seq)
	it.Seq = x.last
	row := scheduler.Row{
		Seq: it.Seq, RunID: it.RunID, Sender: it.Sender, Thread: it.Thread, Lane: it.Lane, Accepted: time.Now(), Size: it.Size,
		Typed: it.Typed, Alone: it.NoMerge, Gathers: it.Gathers,
	}
	a := scheduler.Admit(x.waiting, &row, x.set, scheduler.SessionState{Last: x.last, Running: x.running})
	x.remove(a.Ended)
	x.waiting, x.items[it.Seq] = append(x.waiting, row), *it
	return a.Ended
}

// stop stops the oldest turn, or the first messages that wait, as the store does. all ends the
// waiting messages.
func stop(s *sched, key string, all bool) {
	v, _ := stores.Load(s)
	r, _ := v.(*rows)
	x := r.session(key)
	if !all && !s.Stop(key, "ann").Nothing() {
		return
	}
	if all {
		s.StopAll(key, "ann", 0)
	}
	r.mu.Lock()
	list := scheduler.Units(x.waiting, x.set, scheduler.SessionState{Last: x.last, Running: x.running})
	var ended []int64
	for i, u := range list {
		if i == 0 || all {
			ended = append(ended, seqsOf(u.Rows)...)
		}
	}
	x.remove(ended)
	r.mu.Unlock()
	for _, seq := range ended {
		s.Drop(key, seq)
	}
}

// submit submits and fails the test on an error.
func submit(t *testing.T, s *sched, it item) scheduler.Submitted[string] {
	t.Helper()
	if it.Session == "" {
		it.Session = "s"
	}
	if v, ok := stores.Load(s); ok {
		r, _ := v.(*rows)
		for _, seq := range r.accept(r.session(it.Session), &it) {
			s.Drop(it.Session, seq)
		}
	}
	sub, err := s.Submit(it)
	if err != nil {
		t.Fatalf("Submit(%+v): %v", it, err)
	}
	return sub
}

// outcome waits for a ticket.
func outcome(t *testing.T, ticket *scheduler.Ticket) (scheduler.Outcome, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o, err := ticket.Wait(ctx)
	if o == "" {
		t.Fatalf("no outcome: %v", err)
	}
	return o, err
}

// wantOutcome waits for a ticket and checks it.
func wantOutcome(t *testing.T, ticket *scheduler.Ticket, want scheduler.Outcome) error {
	t.Helper()
	got, err := outcome(t, ticket)
	if got != want {
		t.Fatalf("outcome = %q (%v), want %q", got, err, want)
	}
	return err
}

// journal records what turns did, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// texts joins the payloads of a turn.
func texts(items []item) string {
	var parts []string
	for _, it := range items {
		parts = append(parts, it.Payload)
	}
	return strings.Join(parts, "+")
}

// takes returns a Run with this duration that records the start and the messages of each turn.
func takes(j *journal, d time.Duration) runFunc {
	base := time.Now()
	return func(ctx context.Context, t *turn) error {
		j.add("%v %s", time.Since(base), texts(t.Items()))
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// testLogger writes to w, which needs no lock if only one goroutine logs at a time.
func testLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// pass advances virtual time and waits until its effects are complete. It only works inside a
// bubble.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}

// instant returns a Run that takes no time and records the start, in milliseconds, and the messages
// of each turn.
func instant(j *journal) runFunc {
	base := time.Now()
	return func(_ context.Context, t *turn) error {
		j.add("%d:%s", time.Since(base).Milliseconds(), texts(t.Items()))
		return nil
	}
}

// recordTurn returns a Run that stores its turn.
func recordTurn(into **turn) runFunc {
	return func(_ context.Context, t *turn) error {
		*into = t
		return nil
	}
}

// asMerged reports whether err is a MergedError, and stores it.
func asMerged(err error, into **scheduler.MergedError) bool { return errors.As(err, into) }

// linger keeps a turn busy whatever happens to its context.
func linger(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
