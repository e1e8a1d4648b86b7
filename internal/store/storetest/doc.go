// Package storetest is the suite that every engine of package store passes: the contracts in the port's comments, as tests.
//
// # Central ideas
//
// The suite knows the port alone. An engine gives one function, an [Opener], that opens a fresh and empty store; each test
// opens its own, so all of them run in parallel. The suite owns the clock: an engine asks it for the time wherever it
// would ask its database, and a test moves it by hours without waiting.
//
// A run of cron is a message, so the tests of cron drive it as they drive every message. What becomes of a due job they
// leave to the policies of package cron, and check that the store writes that and nothing else.
//
// After every test the world comes to rest: all nodes are dead, a new one sweeps whatever is left and runs it. Then
// no message may be without an outcome, and every query of store.Invariants must return no row. A defect that a test does
// not look for itself is found there.
//
// # What it promises
//
// Where the port leaves a choice (an error or no effect; in which state a message lies between takeover and start), the suite
// accepts all of them. It never sleeps, and nothing depends on the speed of the machine.
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
