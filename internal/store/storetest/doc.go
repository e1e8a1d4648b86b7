// Package storetest is the suite that every engine of package store passes: the contracts in the port's comments, as tests.
//
// # Central ideas
//
// The suite uses only the port. An engine provides one function, an [Opener], that opens a new and empty store; each test opens its own, so all of them run in
// parallel. The suite owns the clock: an engine reads it wherever it would use the clock of its database, and a test advances it by hours without waiting.
//
// A run of cron is a message, so the tests of cron drive it like every message. The policies of package cron decide about due jobs, and the tests check that
// the store writes exactly that decision.
//
// After every test all nodes die, and a new one sweeps and runs the remaining work. Then every message must have an outcome, and no query of store.Invariants
// may return a row. This also finds defects that a test does not check itself.
//
// # What it promises
//
// Where the port allows several results (an error or no effect; the state of a message between takeover and start), the suite accepts all of them. It never
// sleeps, and nothing depends on the speed of the machine.
//
// # What it does not do
//
// It tests no migration, no driver and no crash of a process: those belong to the engine.
//
// # How it ends
//
// [Run] returns when all tests have ended; goroutines of a test end before the test. An engine calls it so:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(tb testing.TB, now func() time.Time) storetest.Harness {
//			path := filepath.Join(tb.TempDir(), "test.db")
//			...
//			return storetest.Harness{Open: open, Reopen: reopen, Query: query, Exec: exec}
//		})
//	}
package storetest
