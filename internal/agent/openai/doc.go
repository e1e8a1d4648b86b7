// Package openai is the runner for every endpoint that speaks the chat completions API: OpenAI, Ollama, vLLM, llama.cpp,
// OpenRouter and many others.
//
// One turn is a streaming POST to <base_url>/chat/completions, and one more for each round of tool calls (the loop is in package toolloop). The
// conversation is made by [agent.Conversation]: a system prompt, alternating lines, history cut to the context window. Text is emitted as it arrives;
// the thoughts of reasoning models are not shown.
//
// # Endpoints differ
//
// The runner adapts two parameters to an endpoint that refuses them, for all later requests: it omits stream_options (usage
// within the stream), and it replaces max_tokens by max_completion_tokens. An endpoint may answer with one JSON document
// instead of a stream. A stream is complete with `[DONE]` or when it closes after a finish_reason. Any other end is an error,
// so that a partial answer is never taken for a complete one.
//
// Tool calls may arrive in pieces with an index, or whole, with or without ids. Thoughts that arrive as reasoning_content are sent
// back within the turn, because some models need them to continue after a call, and are dropped at its end.
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
