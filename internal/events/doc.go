// Package events publishes events about runs and sessions: to the subscribers of this process, and to the other replicas that share the store.
//
// # One sequence for each run
//
// Every event of a run goes through its [RunLog]. The log assigns the numbers in order, publishes one event at a time, and publishes nothing after the end of
// the run. It outlives the attempts of a run, so that the numbers continue when the run is repeated in this process.
//
// # Live runs
//
// A [Run] is a turn that runs in this process, with its text so far. Text and number belong together, so the mutex of the log guards both. After a lost lease
// two turns may have the same run id for a moment: only the newer one publishes.
//
// # Cluster events
//
// [Publisher.Publish] is for events about durable changes: an end of a run, a change of a session. Other replicas receive them through the [store.Broadcaster]
// of the store. Long text is not sent: a replica that has a subscriber for the event reads it from the transcript. A cluster event may be lost; correctness
// does not depend on one. At the start of a process the order is [Publisher.Listen], the registration with the store, [Publisher.Announce], the first client.
//
// # Locks
//
// The mutex of a RunLog is held while subscribers are called, which must not block and must not publish. A [Hub] calls subscribers outside of its own mutex.
// The live runs, the logs and the waiters have a mutex each, and no function is called while one is held.
//
// # Goroutines and the end
//
// [Publisher.Run] reads cluster events until its context ends. No other function starts a goroutine. [Publisher.Wait] blocks in the goroutine of the caller.
//
// # What it does not do
//
// It writes nothing, decides no outcome, and does not drop slow subscribers: the gateway buffers for its connections.
package events
