// Package openai is the runner for every endpoint that speaks the chat completions API: OpenAI, Ollama, vLLM, llama.cpp,
// OpenRouter and many others.
//
// One turn is a streaming POST to <base_url>/chat/completions, and one more for each round of tool calls (the loop is in package toolloop). The
// conversation is made by [agent.Conversation]: a system prompt, alternating lines, history cut to the context window. Text is emitted as it arrives;
// the thoughts of reasoning models are not shown.
//
// This package is the dialect; what a turn does, and what is learned about an endpoint, is in package model.
//
// # Endpoints differ
//
// An endpoint may answer with one JSON document instead of a stream. A stream is complete with a finish reason, or with `[DONE]` after text or a call. Any
// other end is an error, so that a partial answer is never taken for a complete one. An error is recognised anywhere: as the status, in a body with status
// 200, in the middle of a stream, in a list.
//
// Content is a string, a list of parts, or both in turn; parts that are not text are not shown. Tool calls arrive in pieces or whole, with or without index
// and id, with their arguments as a string or as JSON. What else comes with a message or a call goes back with it within the turn, to the same endpoint and
// model.
//
// # Pictures
//
// Pictures of the new input are sent as data URLs with its text; see [agent.Images] for the bounds. If an endpoint refuses a request because of them,
// the request is repeated without them.
//
// # Promises
//
// Those of package agent. Deadlines for the first line and between lines free the slot when a model hangs; the
// total is the deadline of the turn. 429, 5xx and broken connections are retried, at most three times, only before any text
// was shown. No error carries the URL or the key.
//
// # Not supported
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
