// Package openai serves the part of the HTTP API of OpenAI that existing clients need: chat completions and responses, whole or streamed, the list of models, and files.
//
// # Ideas
//
// A request is a message like any other: it becomes durable, waits in the queue of its session and runs in a lane. The request waits for
// the end of the run. Completions and responses are two forms of one request: a form parses a body to a prompt, and writes an answer, whole
// or as events.
//
// A response continues another one: in its session while it is the newest there, otherwise in a new session with a copy of the
// conversation. The store decides between two requests that continue the same response, because the id of the message is derived from the
// response that it continues.
//
// A file is on the disk before a message names it. Files in a request are stored before the message is accepted, and removed when the
// message is refused or was accepted before. The end comes from [Runs.Wait] and not from events, because another process may take over the
// run, and its events do not reach this one. Events only fill the stream.
//
// A client that disconnects stops its run, unless it set X-Laneway-Detach. A gateway that stops does not: another process continues the run.
//
// A stream cannot revoke text. When a run starts again after an interruption and its text differs from what was sent, the stream ends with
// an error.
//
// # Goroutines
//
// A streamed answer starts one goroutine, which waits for the end of the run; the handler waits for it before it returns. A stream needs
// memory for one copy of the answer so far, however slowly the client reads.
//
// # Crash points
//
// The message is durable before the first byte of the answer. A file whose message was not accepted stays until retention removes it. With
// an Idempotency-Key, a repeated request finds the same run and receives its answer.
//
// # What it does not do
//
// It offers no tools and one choice per request, fetches nothing from other addresses, and keeps no list of responses. It identifies no
// client: the server decides about credentials and sessions.
package openai
