package storetest

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/store"
)

// Harness is one new store and direct access to its tables. It closes everything that it opens in a cleanup of the test.
type Harness struct {
	// Open returns a further handle to the same database: another connection pool where the engine has one, else the same handle again. The suite does not
	// close it.
	Open func() store.Store
	// Reopen closes every handle and returns a newly opened one, as after a restart of the process. An engine that does not persist returns the old one.
	Reopen func() store.Store
	// Query runs a SELECT and returns its rows; nil when the engine has no SQL. Placeholders are those of the engine.
	Query func(tb testing.TB, sql string, args ...any) [][]any
	// Exec runs a statement that changes rows; nil exactly when Query is nil.
	Exec func(tb testing.TB, sql string)
}

// Opener opens a new and empty store whose clock is now, to the millisecond; nil = the engine's own clock.
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
