// Package openai is the runner for every endpoint that speaks the chat completions API: OpenAI, Ollama, vLLM, llama.cpp,
// OpenRouter and many others.
//
// One turn is a streaming POST to <base_url>/chat/completions, and one more for each round of calls of tools (package toolloop has the loop). The conversation is made by [agent.Conversation]: a system
// prompt, alternating lines, history cut to the context window. Text is emitted as it arrives; the thoughts of reasoning models
// are not shown.
//
// # Endpoints differ
//
// Two things are asked for in the newest way first, and in the old way from then on when an endpoint refuses: usage
// within the stream (stream_options), and max_completion_tokens where max_tokens is refused. An endpoint that answers with one
// JSON document instead of a stream is understood too. A stream is complete with `[DONE]` or when it closes after a
// finish_reason; anything else broke off and is an error, so that half an answer is never taken for a whole one.
//
// Calls of tools arrive in pieces with a number, or whole, with or without ids; all of it is understood. Thoughts that come as
// reasoning_content are given back within the turn, because some models need them to go on behind a call, and are dropped at its end.
//
// # Pictures
//
// Pictures of the new input go as data URLs beside its text; see [agent.Images] for the bounds. An endpoint that refuses a request because of them gets the same one without them.
//
// # Promises
//
// Those of package agent. Deadlines for the first line and between lines free the slot when a model hangs; the
// total is the deadline of the turn. 429, 5xx and broken connections are tried again, at most three times, only before any text
// was shown. No error carries the URL or the key.
//
// # Not here
//
// No images in answers, no choice among several models, no health checks.
//
//	runner, err := openai.New(openai.Config{
//		BaseURL: "http://127.0.0.1:11434/v1",
//		Model:   "some-model",
//	}, nil, log)
//
// The runner holds idle connections until [Runner.Close].
package openai
