// Package openai serves the part of the HTTP API of OpenAI that existing clients need: chat completions and responses, whole or streamed, the list of models, and files.
//
// # Ideas
//
// A request is a message like any other: it becomes durable, waits in the queue of its session and runs in a lane. The request waits for the end of the run.
// Completions and responses are two forms of one request: a form reads a body into a prompt, and writes an answer, whole or as events.
//
// A response goes on behind another one: in its session while it is the newest there, else in a new session with a copy of the conversation. The store decides between two
// requests that continue the same one, because the id of the message follows from the response that it continues.
//
// A file is on the disk before a message names it. Files inside of a request are stored before the message is offered, and removed when it is refused or was accepted before.
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
// The message is durable before the first byte of the answer. A file whose message was not accepted stays until retention removes it. With an Idempotency-Key, a repeated request meets the same run and gets its answer.
//
// # What it does not do
//
// It offers no tools and one choice per request, fetches nothing from other addresses, and keeps no list of responses. It identifies no client: credentials and sessions are decided by the server around it.
package openai
