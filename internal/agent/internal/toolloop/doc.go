// Package toolloop is the loop of runners whose model calls tools: ask the model, run what it asks for, ask again with the results, until
// it answers without calls.
//
// A runner passes a [Model], which posts one request of its provider and reads one answer; everything else is here, once for all
// providers. Text of all rounds is streamed into one answer, with an empty line between rounds; usage is summed.
//
// # Journal
//
// A round is recorded before the first of its calls runs, and each result when it is there (agent.Journal). A turn that runs again gets
// the recorded rounds: their text is the first delta, their results are used as they are, and only then is the model asked. A
// call without a recorded result is repeated when its tool is idempotent, under its key `<session>/<run>/<round>/<call>`; otherwise its result
// states that it may or may not have happened. So the model is never asked twice for the same round once it is recorded, and a
// result never belongs to another call. Crash points: before the round is recorded nothing has happened; after it, and after a call that was not
// recorded, the call is repeated under the same key; after the result is recorded, the next thing is the next request.
//
// # Bounds
//
// At most [MaxRounds] requests; the last one forbids calls, and a model that calls tools nevertheless is asked once more without any. The first [MaxCalls] calls of a
// round are run, [parallel] of them at once, each for at most
// [Options.CallTime]. Calls of tools that wait for another turn count to neither: they may take as long as the turn. Arguments and results have at most [MaxArgs] and [MaxResult] bytes, all rounds of a turn together [MaxJournal]. What goes beyond is
// one sentence to the model instead of a result, and the turn goes on.
//
// # Endpoints without tools
//
// An endpoint that refuses a first request with 400 and takes the same one without tools is asked without them for an hour, see [Support].
//
// # Goroutines
//
// One for each call that runs; they end with their call and [Run] waits for all of them. A tool that ignores the end of its context is given up after a second
// in favour of the turn, but Run does not return before it has returned. Events and records are made on the goroutine of Run.
package toolloop
