package scheduler_test

import (
	"cmp"
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

// item is a message of a test.
type item struct {
	Session, Lane, ID, Sender, Thread, Principal string
	Seq                                          int64 // 0 = the next one
	Bounded, Typed, NoMerge, Gathers             bool
	Size                                         int
	Payload, RunID                               string
	Settings                                     *scheduler.Settings // nil = those of the scheduler
}

// config is that of a scheduler with its store.
type config struct {
	Lanes          []scheduler.Lane
	Queue          scheduler.Settings
	PrincipalTurns int
	Run            runFunc
	TokenEstimate  func(ctx context.Context, session string) (tokens, contextWindow int)
	ThrottleAt     float64
	StopGrace      time.Duration
	OnStuck        func(t *turn)
	Observer       scheduler.Observer
	Logger         *slog.Logger
}

type runFunc = func(ctx context.Context, t *turn) error

// turn is a turn with its messages.
type turn struct {
	*scheduler.Turn

	s     *sched
	items []item
}

func (t *turn) Items() []item { return t.items }

// TakeInput takes the messages that wait for the turn.
func (t *turn) TakeInput() (items []item) {
	if !t.TakesInput() {
		return nil
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	x := t.s.session(t.Session())
	var ids []string
	take := slices.Clone(scheduler.SteeredInto(x.waiting, t.items[0].Thread, x.set, ""))
	x.remove(seqsOf(take))
	for _, r := range take {
		items, ids = append(items, x.items[r.Seq]), append(ids, x.items[r.Seq].ID)
		x.tickets[r.Seq].end(merged, errMerged)
	}
	t.Took(ids, x.last, x.left())
	return items
}

// outcome is how a message ended.
type outcome string

const (
	answered    outcome = "answered"
	merged      outcome = "merged"
	dropped     outcome = "dropped"
	superseded  outcome = "superseded"
	stopped     outcome = "stopped"
	failed      outcome = "failed"
	interrupted outcome = "interrupted"
)

var errMerged = errors.New("merged")

// ticket is the promise of an outcome.
type ticket struct {
	done    chan struct{}
	outcome outcome
	err     error
}

func (t *ticket) Wait(ctx context.Context) (outcome, error) {
	select {
	case <-t.done:
		return t.outcome, t.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (t *ticket) Result() (outcome, error) {
	select {
	case <-t.done:
		return t.outcome, t.err
	default:
		return "", nil
	}
}

func (t *ticket) end(o outcome, err error) {
	if got, _ := t.Result(); got == "" {
		t.outcome, t.err = o, err
		close(t.done)
	}
}

// submitted is what became of a message.
type submitted struct {
	Ticket   *ticket
	Seq      int64
	Running  bool
	Position int
	Ended    []string // ids of those that it displaced
}

// sched is a scheduler with a store in memory, which chooses the messages of turns by Next, and
// what they displace by Admit. Every message gets one outcome.
type sched struct {
	*scheduler.Scheduler

	base scheduler.Settings

	mu      sync.Mutex
	of      map[string]*sessionRows
	turns   map[*scheduler.Turn]*turn
	tickets []*ticket
}

// sessionRows are the rows of one session.
type sessionRows struct {
	set     scheduler.Settings
	waiting []scheduler.Row
	items   map[int64]item
	tickets map[int64]*ticket
	last    int64
	running int
}

// lanes are lanes with these limits, ordered by name.
func lanes(limits map[string]int) []scheduler.Lane {
	var all []scheduler.Lane
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		all = append(all, scheduler.Lane{Name: name, Limit: limits[name]})
	}
	return all
}

// newScheduler makes a scheduler that the test drains.
func newScheduler(t *testing.T, cfg config) *sched {
	t.Helper()
	s, err := makeScheduler(t.Context(), cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return s
}

func makeScheduler(ctx context.Context, cfg config) (*sched, error) {
	s := &sched{base: cfg.Queue.Over(scheduler.DefaultSettings()), of: map[string]*sessionRows{}, turns: map[*scheduler.Turn]*turn{}}
	c := scheduler.Config{
		Lanes: cfg.Lanes, PrincipalTurns: cfg.PrincipalTurns, TokenEstimate: cfg.TokenEstimate, ThrottleAt: cfg.ThrottleAt,
		StopGrace: cfg.StopGrace, Observer: cfg.Observer, Logger: cfg.Logger,
		OnStuck: func(st *scheduler.Turn) {
			t := s.turnOf(st)
			defer s.end(t, st.Cause())
			if cfg.OnStuck != nil {
				cfg.OnStuck(t)
			}
		},
	}
	if cfg.Run != nil {
		c.Run = func(ctx context.Context, st *scheduler.Turn) (err error) { return s.run(ctx, st, cfg.Run) }
	}
	var err error
	s.Scheduler, err = scheduler.New(ctx, c)
	return s, err
}

// run begins a turn and runs it.
func (s *sched) run(ctx context.Context, st *scheduler.Turn, run runFunc) error {
	t := s.begin(st)
	if t == nil {
		return nil
	}
	err := scheduler.ErrGoexit // remains if run panics
	defer func() { s.end(t, err) }()
	err = run(ctx, t)
	return err
}

// begin begins the turn that the rows want; nil = they want none.
func (s *sched) begin(st *scheduler.Turn) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, front := s.session(st.Session()), st.Front()
	_, inputs := st.RunsOfSession()
	d := scheduler.Next(x.waiting, x.set, scheduler.SessionState{Last: x.last, Running: x.running, Inputs: inputs}, time.Now())
	take := slices.Clone(d.Take)
	if len(take) > 0 && (take[0].Lane != front.Row.Lane || x.items[take[0].Seq].Principal != front.Principal) {
		take = nil
	}
	x.remove(seqsOf(take))
	left := x.left()
	if len(take) == 0 {
		none := scheduler.Nothing{Left: left, Seen: x.last}
		if !d.Until.IsZero() {
			none.Wait = max(time.Until(d.Until), 1)
		}
		st.BeganNothing(none)
		return nil
	}
	x.running++
	t := &turn{Turn: st, s: s}
	s.turns[st] = t
	b := scheduler.Batch{Left: left, Seen: x.last}
	for _, row := range take {
		it := x.items[row.Seq]
		t.items, b.Messages = append(t.items, it), append(b.Messages, it.ID)
		b.RunID, b.Last, b.Thread = cmp.Or(it.RunID, it.ID), row.Seq, row.Thread
	}
	st.Began(b)
	return t
}

// end ends the messages of a turn.
func (s *sched) end(t *turn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := answered
	cause := t.Cause()
	switch {
	case cause != nil && cause.Reason == scheduler.ReasonStopped:
		o, err = stopped, cause
	case cause != nil && cause.Reason == scheduler.ReasonSuperseded:
		o, err = superseded, cause
	case cause != nil:
		o, err = interrupted, cause
	case err != nil:
		o = failed
	}
	x := s.session(t.Session())
	if s.turns[t.Turn] != nil {
		x.running--
		delete(s.turns, t.Turn)
	}
	for i, it := range t.items {
		if i < len(t.items)-1 {
			x.tickets[it.Seq].end(merged, errMerged)
		} else {
			x.tickets[it.Seq].end(o, err)
		}
	}
}

func (s *sched) turnOf(st *scheduler.Turn) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turns[st]
}

// session is called with the mutex held.
func (s *sched) session(key string) *sessionRows {
	if s.of[key] == nil {
		s.of[key] = &sessionRows{set: s.base, items: map[int64]item{}, tickets: map[int64]*ticket{}}
	}
	return s.of[key]
}

func (x *sessionRows) remove(seqs []int64) {
	x.waiting = slices.DeleteFunc(x.waiting, func(r scheduler.Row) bool {
		_, found := slices.BinarySearch(seqs, r.Seq)
		return found
	})
}

// left is what waits first.
func (x *sessionRows) left() *scheduler.Wake {
	if len(x.waiting) == 0 {
		return nil
	}
	w := x.wake(&x.waiting[0])
	w.Waiting = len(x.waiting)
	return &w
}

func (x *sessionRows) wake(r *scheduler.Row) scheduler.Wake {
	it := x.items[r.Seq]
	return scheduler.Wake{Session: it.Session, ID: it.ID, Row: *r, Settings: x.set, Principal: it.Principal, Bounded: it.Bounded}
}

// endWaiting ends messages that wait, and returns their ids. It is called with the mutex held.
func (x *sessionRows) endWaiting(s *sched, seqs []int64, o outcome) (ids []string) {
	x.remove(seqs)
	for _, seq := range seqs {
		x.tickets[seq].end(o, nil)
		ids = append(ids, x.items[seq].ID)
	}
	if len(ids) > 0 {
		s.Front(x.items[seqs[0]].Session, x.last, x.left())
	}
	return ids
}

// add makes a message a row, and returns it with the ids of those that it displaces.
func (s *sched) add(it item) (w scheduler.Wake, sub submitted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.session(it.Session)
	x.set = s.base
	if it.Settings != nil {
		x.set = it.Settings.Over(s.base)
	}
	x.last = max(x.last+1, it.Seq)
	it.Seq = x.last
	row := scheduler.Row{
		Seq: it.Seq, RunID: it.RunID, Sender: it.Sender, Thread: it.Thread, Lane: it.Lane, Accepted: time.Now(), Size: it.Size,
		Typed: it.Typed, Alone: it.NoMerge, Gathers: it.Gathers,
	}
	var a scheduler.Admission
	if x.set.MayDisplace(&row, "", int64(len(x.waiting))) {
		a = scheduler.Admit(x.waiting, &row, x.set, scheduler.SessionState{Last: x.last, Running: x.running})
	}
	o := dropped
	if a.Superseded {
		o = superseded
	}
	sub = submitted{Seq: it.Seq, Ticket: &ticket{done: make(chan struct{})}, Ended: x.endWaiting(s, a.Ended, o)}
	x.waiting, x.items[it.Seq], x.tickets[it.Seq] = append(x.waiting, row), it, sub.Ticket
	s.tickets = append(s.tickets, sub.Ticket)
	return x.wake(&row), sub
}

// Submit accepts a message and wakes its session.
func (s *sched) Submit(it item) submitted {
	w, sub := s.add(it)
	sub.Running, sub.Position = s.Wake(w)
	return sub
}

// StopRun stops a run, or the waiting message with this id.
func (s *sched) StopRun(key, id, who string) (running, ended []string) {
	if running = s.Scheduler.StopRun(key, id, who); len(running) > 0 {
		return running, nil
	}
	return nil, s.endIf(key, stopped, func(it *item) bool { return it.ID == id || it.RunID == id })
}

// Drop drops a waiting message.
func (s *sched) Drop(key string, seq int64) bool {
	return len(s.endIf(key, dropped, func(it *item) bool { return it.Seq == seq })) > 0
}

// StopAll stops everything of a session.
func (s *sched) StopAll(key, who string) (running, ended []string) {
	running = s.Scheduler.StopAll(key, who, 0)
	return running, s.endIf(key, stopped, func(*item) bool { return true })
}

// endIf ends waiting messages.
func (s *sched) endIf(key string, o outcome, match func(*item) bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.session(key)
	var seqs []int64
	for _, r := range x.waiting {
		if it := x.items[r.Seq]; match(&it) {
			seqs = append(seqs, r.Seq)
		}
	}
	return x.endWaiting(s, seqs, o)
}

// waitingIn is how many rows of a session wait.
func (s *sched) waitingIn(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.session(key).waiting)
}

// wakeAll wakes the sessions again in which messages wait, as after a takeover.
func (s *sched) wakeAll() {
	s.mu.Lock()
	var all []scheduler.Wake
	for _, key := range slices.Sorted(maps.Keys(s.of)) {
		for i := range s.of[key].waiting {
			all = append(all, s.of[key].wake(&s.of[key].waiting[i]))
		}
	}
	s.mu.Unlock()
	for _, w := range all {
		s.Wake(w)
	}
}

// outcomes counts the messages by their outcome; "" = they have none.
func (s *sched) outcomes() map[outcome]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[outcome]int{}
	for _, t := range s.tickets {
		o, _ := t.Result()
		all[o]++
	}
	return all
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
	if p := s.Progress(); p != 0 {
		t.Fatalf("no progress for %v", p)
	}
	active := 0
	for _, l := range stats.Lanes {
		active += l.Active + l.Yielded
		if l.Active < 0 || l.Stopping < 0 || l.Yielded < 0 || l.Stopping > l.Active {
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

// stop stops the oldest turn, or the first messages that wait, as the store does. all ends the
// waiting messages.
func stop(s *sched, key string, all bool) {
	if all {
		s.StopAll(key, "ann")
		return
	}
	if len(s.Stop(key, "ann")) > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.session(key)
	if list := scheduler.Units(x.waiting, x.set, scheduler.SessionState{Last: x.last, Running: x.running}); len(list) > 0 {
		x.endWaiting(s, seqsOf(list[0].Rows), stopped)
	}
}

// submit submits a message of the session s, unless it names another.
func submit(_ failer, s *sched, it item) submitted {
	it.Session = cmp.Or(it.Session, "s")
	return s.Submit(it)
}

// wantOutcome waits for a ticket and checks it.
func wantOutcome(t *testing.T, ticket *ticket, want outcome) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := ticket.Wait(ctx)
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

// linger keeps a turn busy whatever happens to its context.
func linger(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
