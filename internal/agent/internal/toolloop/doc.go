// Package toolloop is the loop of runners whose model calls tools: request an answer, run its tool calls, request the next answer with
// the results, until an answer has no calls.
//
// A runner passes a [Model], which posts one request of its provider and reads one answer; everything else is here, for all
// providers. Text of all rounds is streamed into one answer, with an empty line between rounds; usage is summed.
//
// # Journal
//
// A round is recorded before the first of its calls runs, and each result when it arrives (agent.Journal). A turn that runs again receives the
// recorded rounds: their text is the first delta, their results are used unchanged, and only then is a request made. A call without a recorded
// result is repeated when its tool is idempotent, under its key `<session>/<run>/<round>/<call>`; otherwise its result states that it may or may
// not have happened. So a recorded round is never requested twice, and a result never belongs to another call. Crash points: before the round is
// recorded nothing has happened; after it, and after a call whose result was not recorded, the call is repeated under the same key; after the
// result is recorded, the next step is the next request.
//
// # Bounds
//
// A turn makes at most [MaxRounds] requests. The last one forbids calls; a model that calls tools nevertheless receives one more request without any
// tools. The first [MaxCalls] calls of a round are run, [parallel] of them at once, each for at most [Options.CallTime]. Calls of tools that wait for
// another turn count to neither: they may take as long as the turn. Arguments and results have at most [MaxArgs] and [MaxResult] bytes, all rounds of
// a turn together [MaxJournal]. Instead of what exceeds a bound, the model receives one sentence, and the turn continues.
//
// # Goroutines
//
// One for each call that runs; it ends with its call, and [Run] waits for all of them. The turn stops waiting for a tool that ignores the end of its
// context after a second, but Run does not return before the tool has returned. Events and records are made on the goroutine of Run.
package toolloop
