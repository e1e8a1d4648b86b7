// Package openai serves the part of the HTTP API of OpenAI that existing clients need: chat completions, whole or streamed, and the list of models.
//
// # Ideas
//
// A completion is a message like any other: it becomes durable, waits in the queue of its session and runs in a lane. The request waits for the end of the run.
// The end comes from [Runs.Wait] and not from events, because another process may take the run over, whose events do not come here. Events only fill the stream.
//
// A client that disconnects stops its run, unless it set X-Laneway-Detach. A gateway that stops does not: another process continues the run.
//
// A stream cannot take text back. When a run begins again after an interruption and its text differs from what the client has, the stream ends with an error.
//
// # Goroutines
//
// A streamed answer starts one goroutine, which waits for the end of the run; the handler waits for it before it returns. Memory for a stream is one copy of the
// answer so far, however slow the client reads.
//
// # Crash points
//
// The message is durable before the first byte of the answer. With an Idempotency-Key, a repeated request meets the same run and gets its answer.
//
// # What it does not do
//
// It offers no tools and one choice per request. It identifies no client: credentials and sessions are decided by the server around it.
package openai
