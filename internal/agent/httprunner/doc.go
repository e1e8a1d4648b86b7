// Package httprunner is the runner for an agent behind HTTP: a webhook that is called for each turn and whose response is the answer.
//
// # The request
//
// One turn is one POST of a JSON document to the configured address: session, run id, deadline, prompt, messages with their senders, history (package
// jsonline has the members; a program with `input: json` gets the same). The headers:
//
//	X-Laneway-Signature   t=<unix seconds>,v1=<hex> over "t.body", see package signature; a signature of its own for each attempt
//	Idempotency-Key       the run id: the same for a repeated attempt and for a turn that runs again after a crash
//
// # The answer
//
// The media type of a response with status 200 decides how it is read:
//
//	application/json       one object with the members of a line: the answer at once
//	application/x-ndjson   lines, streamed as they arrive
//	text/event-stream      the same lines as the data of events
//	text/plain             the answer itself, streamed as it arrives
//
// Streams of lines are complete with a line that has final or done. Without one they broke off, so that half an answer of a server whose program ended is not
// taken for a whole one. A line that is no JSON object of the protocol is an error, not text. Blank lines and comments are signs of life: while nothing arrives for
// the time of silence, the turn fails.
//
// # Promises
//
// Those of package agent; deadlines, retries, sorting of errors and bounds are those of package modelhttp. A failed attempt is repeated only before any text was
// shown. The agent may have acted before the connection broke, and recognizes the repetition by its key. Redirects are not followed, a bound on the
// response of 128 MiB holds besides that of the answer. A stop closes the connection.
//
// # Not here
//
// No files of the agent, since it has no place on this machine; no tools; no answer at a later time than in the response.
//
//	runner, err := httprunner.New(httprunner.Config{URL: "http://127.0.0.1:9100/agent", Secret: secret.New(text)}, nil, log)
//
// The runner holds idle connections until [Runner.Close].
package httprunner
