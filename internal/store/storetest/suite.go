// Package storetest is the suite that every engine of package store passes: the contracts in the
// port's comments, as tests.
//
// # Central ideas
//
// The suite uses only the port. An engine provides one function, an [Opener], that opens a new and
// empty store; each test opens its own, so all of them run in parallel. The suite owns the clock:
// an engine reads it wherever it would use the clock of its database, and a test advances it by
// hours without waiting.
//
// A run of cron is a message, so the tests of cron drive it like every message. The policies of
// package cron decide about due jobs, and the tests check that the store writes exactly that
// decision.
//
// After every test all nodes die, and a new one sweeps and runs the remaining work. Then every
// message must have an outcome, and no query of store.Invariants may return a row. This also finds
// defects that a test does not check itself.
//
// # What it promises
//
// Where the port allows several results (an error or no effect; the state of a message between
// takeover and start), the suite accepts all of them. It never sleeps, and nothing depends on the
// speed of the machine.
//
// # What it does not do
//
// It tests no migration, no driver and no crash of a process: those belong to the engine.
//
// # How it ends
//
// [Run] returns when all tests have ended; goroutines of a test end before the test. An engine
// calls it so:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB, now func() time.Time) storetest.Harness {
//			path := filepath.Join(tb.TempDir(), "test.db")
//			...
//			return storetest.Harness{Open: open, Reopen: reopen, Query: query, Exec: exec}
//		})
//	}
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// Harness is one new store and direct access to its tables. It closes everything that it opens in a
// cleanup of the test.
type Harness struct {
	// Open returns a further handle to the same database: another connection pool where the engine
	// has one, else the same handle again. The suite does not close it.
	Open func() store.Store
	// Reopen closes every handle and returns a newly opened one, as after a restart of the process.
	// An engine that does not persist returns the old one.
	Reopen func() store.Store
	// Query runs a SELECT and returns its rows; nil when the engine has no SQL. Placeholders are
	// those of the engine.
	Query func(tb testing.TB, sql string, args ...any) [][]any
	// Exec runs a statement that changes rows; nil exactly when Query is nil.
	Exec func(tb testing.TB, sql string)
}

// Opener opens a new and empty store whose clock is now, to the millisecond; nil = the engine's own
// clock.
type Opener func(tb testing.TB, now func() time.Time) Harness

// clock is the time of one test. It changes only when it is advanced. Safe for concurrent use.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()).UTC() }

func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// area is a group of tests about one part of the port.
type area struct {
	name  string
	tests []test
}

// test checks one sentence about the port. It has a world of its own.
type test struct {
	name string
	run  func(w *world)
}

func areas() []area {
	return []area{
		{"Accept", acceptTests()},
		{"BigReads", bigReadTests()},
		{"KeptTranscripts", keptTests()},
		{"Queue", queueTests()},
		{"Waiting", waitingTests()},
		{"Begin", beginTests()},
		{"Turn", turnTests()},
		{"Together", togetherTests()},
		{"Join", joinTests()},
		{"Journal", journalTests()},
		{"Usage", usageTests()},
		{"Questions", questionTests()},
		{"Summaries", summaryTests()},
		{"Toc", tocTests()},
		{"Tasks", taskTests()},
		{"Turns", turnListTests()},
		{"Fence", fenceTests()},
		{"Repeat", repeatTests()},
		{"Nodes", nodeTests()},
		{"Takeover", takeoverTests()},
		{"Stop", stopTests()},
		{"Outbox", outboxTests()},
		{"Notice", noticeTests()},
		{"Lease", leaseTests()},
		{"Transcript", transcriptTests()},
		{"Sessions", sessionTests()},
		{"Deletion", deletionTests()},
		{"Branches", branchTests()},
		{"Answers", idempotencyTests()},
		{"Retention", retentionTests()},
		{"Search", searchTests()},
		{"Zones", zoneTests()},
		{"TokenRatios", ratioTests()},
		{"AgentSessions", agentSessionTests()},
		{"Outages", outageTests()},
		{"Hold", holdTests()},
		{"Values", valueTests()},
		{"Cancel", cancelTests()},
		{"Race", raceTests()},
		{"CronJobs", cronJobTests()},
		{"CronNames", cronNameTests()},
		{"CronLists", cronListTests()},
		{"CronClaim", cronClaimTests()},
		{"CronWaiting", cronWaitingTests()},
		{"CronHand", cronHandTests()},
		{"CronAnswers", cronAnswerTests()},
		{"CronDecisions", cronDecisionTests()},
		{"CronRuns", cronRunTests()},
		{"CronRetry", cronRetryTests()},
		{"CronCancel", cronCancelTests()},
		{"CronEnds", cronEndTests()},
		{"CronRace", cronRaceTests()},
		{"CronLedger", cronLedgerTests()},
		{"CronIsolated", cronIsolatedTests()},
	}
}

// Run runs every test of the suite as a parallel subtest of t, except those of the areas in except.
func Run(t *testing.T, open Opener, except ...string) {
	t.Helper()
	for _, a := range areas() {
		if slices.Contains(except, a.name) {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			for _, tt := range a.tests {
				t.Run(tt.name, func(t *testing.T) {
					t.Parallel()
					tt.run(newWorld(t, open))
				})
			}
		})
	}
	t.Run("Invariants", func(t *testing.T) {
		t.Parallel()
		runInvariants(t, open)
	})
	t.Run("StateMachine", func(t *testing.T) {
		t.Parallel()
		runModel(t, open)
	})
}

// lease is how long a node of the suite lives without a heartbeat.
const lease = 15 * time.Second

// many is a limit that no test reaches.
const many = 1000

// reporter receives the failures: a test, or one attempt of a property.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// world is one test: its store, its clock, and short methods for frequent steps. Unexpected errors
// end the test.
type world struct {
	reporter

	tb testing.TB
	//nolint:containedctx // the context of a test lives exactly as long as its world
	ctx   context.Context
	clock *clock
	h     Harness
	st    store.Store
	// cap is the parameter of the queue invariant at the end.
	cap int
	// sending are the ids of the outgoing messages that each node has claimed.
	sending map[string][]string
	// broken: a test violated the invariants intentionally, so they are not checked afterwards.
	broken bool
	ids    *atomic.Int64
}

func newWorld(t *testing.T, open Opener) *world {
	t.Helper()
	w := &world{reporter: t, tb: t, ctx: t.Context(), clock: newClock(), cap: 1 << 20, ids: &atomic.Int64{}}
	w.h = open(t, w.clock.now)
	w.st = w.h.Open()
	t.Cleanup(func() {
		if !t.Failed() && !w.broken {
			w.ctx = context.WithoutCancel(t.Context())
			w.rest()
		}
	})
	return w
}

// id makes an id that is unique in this world.
func (w *world) id(prefix string) string { return fmt.Sprintf("%s-%d", prefix, w.ids.Add(1)) }

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("unexpected error: %v", err)
	}
}

// result is the result of an operation.
type result[V any] struct {
	value V
	err   error
}

// try is for operations that return a value: try(w.st.Session(w.ctx, key, "")).ok(w).
func try[V any](value V, err error) result[V] { return result[V]{value, err} }

// checker is a world, or a type that embeds one.
type checker interface {
	Helper()
	ok(err error)
	fails(err, want error)
}

// ok is the value; an error ends the test.
func (r result[V]) ok(w checker) V {
	w.Helper()
	w.ok(r.err)
	return r.value
}

// fails expects an error.
func (r result[V]) fails(w checker, want error) {
	w.Helper()
	w.fails(r.err, want)
}

func (w *world) fails(err, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Fatalf("got error %v, want %v", err, want)
	}
}

// equal compares by value; no rows and nil are the same.
func equal[V any](w *world, what string, got, want V) {
	w.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		w.Fatalf("%s differs (- want, + got):\n%s", what, diff)
	}
}

// node registers a node and returns its id.
func (w *world) node() string {
	w.Helper()
	return w.nodeOf()
}

// nodeOf is a node with the given agents; without arguments it has all agents.
func (w *world) nodeOf(agents ...string) string {
	w.Helper()
	id := w.id("node")
	w.ok(w.st.Register(w.ctx, store.Node{ID: id, Addr: "127.0.0.1:1", Version: "test", Lease: lease, Agents: agents}))
	return id
}

func (w *world) key() chat.SessionKey {
	return chat.SessionKey{Agent: "main", Rest: w.id("room")}
}

// message is a message that the node accepts for the session: typed text that takes an idle
// session.
func (w *world) message(node string, key chat.SessionKey) store.AcceptParams {
	id := w.id("msg")
	return store.AcceptParams{
		Node: node, Take: true,
		Message: chat.Message{
			Session: key, ID: id, Lane: "main", Principal: "ann", Channel: "web", Dedupe: "key:" + id, ParamsHash: "hash:" + id,
			Content: chat.Content{Text: "text of " + id, Sender: chat.Sender{ID: "7", Name: "Ann"}},
		},
	}
}

// typed makes the message one that a person typed, in a session with this window.
func typed(p *store.AcceptParams, window time.Duration) {
	p.Message.Content.Options.Typed, p.Queue.Debounce = true, window
}

func (w *world) accept(p store.AcceptParams) store.Accepted {
	w.Helper()
	return try(w.st.Accept(w.ctx, p)).ok(w)
}

// acceptText accepts one message and returns its id with the result.
func (w *world) acceptText(node string, key chat.SessionKey) (string, store.Accepted) {
	w.Helper()
	p := w.message(node, key)
	return p.Message.ID, w.accept(p)
}

func (w *world) start(c store.Claim, runID string, seqs ...int64) store.Started {
	w.Helper()
	p := store.StartParams{Claim: c, RunID: runID, Lane: "main", Seqs: seqs, Cron: w.attempt(runID, c.Node)}
	if p.Cron != nil {
		p.Lane = "cron"
	}
	return try(w.st.Start(w.ctx, p)).ok(w)
}

func answered(c store.Claim, runID string) store.FinishParams {
	return store.FinishParams{Claim: c, RunID: runID, State: store.RunOK, Outcome: chat.OutcomeAnswered}
}

func stopped(c store.Claim, runID string) store.FinishParams {
	return store.FinishParams{Claim: c, RunID: runID, State: store.RunStopped, Outcome: chat.OutcomeStopped, Cause: "stop"}
}

func requeued(c store.Claim, runID string) store.FinishParams {
	return store.FinishParams{Claim: c, RunID: runID, State: store.RunInterrupted, Cause: "draining", Requeue: true}
}

func (w *world) finish(p store.FinishParams) store.Finished {
	w.Helper()
	return try(w.st.Finish(w.ctx, p)).ok(w)
}

// turn accepts and starts one message: a run in progress.
func (w *world) turn(node string, key chat.SessionKey) (store.Claim, string, int64) {
	w.Helper()
	id, a := w.acceptText(node, key)
	c := claimOf(key, a)
	s := w.start(c, id, a.Seq)
	equal(w, "started", s.Seqs, []int64{a.Seq})
	return c, id, a.Seq
}

func claimOf(key chat.SessionKey, a store.Accepted) store.Claim {
	return store.Claim{Session: key, Node: a.Owner, Epoch: a.Epoch}
}

func (w *world) session(key chat.SessionKey) store.Session {
	w.Helper()
	return try(w.st.Session(w.ctx, key, "")).ok(w)
}

func (w *world) row(id string) store.Waiting {
	w.Helper()
	return try(w.st.MessageByID(w.ctx, id)).ok(w)
}

func (w *world) run(id string) store.Run {
	w.Helper()
	return try(w.st.RunByID(w.ctx, id)).ok(w)
}

// taken is a session after a takeover, with its messages, all of which wait, and the runs that they
// had.
type taken struct {
	store.Claim

	LastSeq  int64
	Messages []store.Waiting
	Runs     map[string]store.Run
}

// sweep takes sessions over, and checks what it returns of each.
func (w *world) sweep(node string) (list []taken) {
	w.Helper()
	for _, f := range try(w.st.Sweep(w.ctx, store.SweepParams{Node: node, Limit: many})).ok(w) {
		list = append(list, w.takenOf(f))
	}
	return list
}

// takenOf reads the session of a front.
func (w *world) takenOf(f store.Front) taken {
	w.Helper()
	s := w.session(f.Session)
	var messages []store.Waiting
	for last := int64(0); len(messages) == 0 || len(messages) < f.Waiting; last = messages[len(messages)-1].Seq {
		page, _, err := w.st.PendingInputs(w.ctx, f.Session, last, many)
		w.ok(err)
		if len(page) == 0 {
			w.Fatalf("%d messages wait in %s: %+v", len(messages), f.Session, f)
		}
		messages = append(messages, page...)
	}
	equal(w, "front", &f, messages[0].Front(s.Mode, len(messages), s.LastSeq))
	t := taken{Claim: store.Claim{Session: f.Session, Node: s.Owner, Epoch: s.Epoch}, LastSeq: s.LastSeq, Messages: messages, Runs: map[string]store.Run{}}
	for _, m := range messages {
		if m.RunID != "" {
			t.Runs[m.RunID] = w.run(m.RunID)
		}
	}
	return t
}

// fronts are those of a node, of the named sessions or of all.
func (w *world) fronts(node string, keys ...chat.SessionKey) (list []taken) {
	w.Helper()
	for _, f := range try(w.st.Fronts(w.ctx, store.FrontsParams{Node: node, Sessions: keys, Limit: many})).ok(w) {
		list = append(list, w.takenOf(f))
	}
	return list
}

// sweepOne expects exactly one session.
func (w *world) sweepOne(node string, key chat.SessionKey) taken {
	w.Helper()
	list := w.sweep(node)
	if len(list) != 1 || list[0].Session != key {
		w.Fatalf("sweep took %d sessions (%+v), want exactly %s", len(list), list, key)
	}
	return list[0]
}

func (w *world) beat(node string) store.Beat {
	w.Helper()
	return try(w.st.Heartbeat(w.ctx, node, false)).ok(w)
}

func (w *world) unfinished() int {
	w.Helper()
	held := try(w.st.Held(w.ctx)).ok(w)
	return held.Unfinished
}

// ended checks the outcome of a message.
func (w *world) ended(id string, want chat.Outcome) store.Waiting {
	w.Helper()
	m := w.row(id)
	if m.State != store.StateDone || m.Outcome != want {
		w.Fatalf("message %s is %q with outcome %q, want done with %q", id, m.State, m.Outcome, want)
	}
	return m
}

func seqsOf(list []store.Waiting) []int64 {
	var seqs []int64
	for _, m := range list {
		seqs = append(seqs, m.Seq)
	}
	return seqs
}

func idsOf(list []store.Waiting) []string {
	var ids []string
	for _, m := range list {
		ids = append(ids, m.MessageID)
	}
	return ids
}

// rest lets every node die, has a new one take over the remaining work, and checks that all of it
// ends and that every invariant holds.
func (w *world) rest() {
	w.Helper()
	w.clock.advance(time.Minute)
	node := w.node()
	w.claimAll(node)
	for {
		list := w.sweep(node)
		if len(list) == 0 {
			break
		}
		w.checkInvariants("after the sweep")
		for _, taken := range list {
			w.runTaken(taken)
		}
	}
	if n := w.unfinished(); n != 0 {
		w.Fatalf("%d messages have no outcome after everything was swept and run", n)
	}
	w.checkInvariants("at rest")
}

// runTaken runs all work of a session that was taken over, each run separately.
func (w *world) runTaken(taken taken) {
	w.Helper()
	var order []string
	groups := map[string][]int64{}
	for _, m := range taken.Messages {
		id := m.MessageID
		if m.RunID != "" {
			id = m.RunID
		}
		if !slices.Contains(order, id) {
			order = append(order, id)
		}
		groups[id] = append(groups[id], m.Seq)
	}
	for _, id := range order {
		s := w.start(taken.Claim, id, groups[id]...)
		equal(w, "started after a takeover", s.Seqs, groups[id])
		if s.StopBy != "" {
			p := stopped(taken.Claim, id)
			p.Cron = w.cronEnd(id, cron.RunCancelled)
			w.finish(p)
		} else {
			p := answered(taken.Claim, id)
			p.Cron = w.cronEnd(id, cron.RunOK)
			w.finish(p)
		}
		w.clock.advance(time.Millisecond)
	}
}
