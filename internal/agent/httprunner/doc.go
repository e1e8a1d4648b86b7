// Package httprunner is the runner for an agent behind HTTP: a webhook that is called for each turn and whose response is the answer.
//
// # The request
//
// One turn is one POST of a JSON document to the configured address: session, run id, deadline, prompt, messages with their senders, history (package
// jsonline has the members; a program with `input: json` receives the same). The headers:
//
//	X-Laneway-Signature   t=<unix seconds>,v1=<hex> over "t.body", see package signature; a new signature for each attempt
//	Idempotency-Key       the run id: the same for a repeated attempt and for a turn that runs again after a crash
//
// # The answer
//
// The media type of a response with status 200 determines how it is read:
//
//	application/json       one object with the members of a line: the answer at once
//	application/x-ndjson   lines, streamed as they arrive
//	text/event-stream      the same lines as the data of events
//	text/plain             the answer itself, streamed as it arrives
//
// A line with final or done completes a stream of lines. A stream without one was cut off, so that a partial answer of a server whose program ended
// is not taken for a complete one. A line that is not a JSON object of the protocol is an error, not text. Blank lines and comments keep the turn
// alive: it fails when nothing arrives for the time of Silence.
//
// # Promises
//
// Those of package agent; package modelhttp defines deadlines, retries, error classes and bounds. A failed attempt is repeated only before any text
// was shown. The agent may have acted before the connection broke, and recognizes the repetition by its key. Redirects are not followed. A response
// has at most 128 MiB, in addition to the bound of the answer. A stop closes the connection.
//
// # Not supported
//
// No files from the agent, since it has no directory on this host; no tools; no answer after the response.
//
//	runner, err := httprunner.New(httprunner.Config{URL: "http://127.0.0.1:9100/agent", Secret: secret.New(text)}, nil, log)
//
// The runner holds idle connections until [Runner.Close].
package httprunner
