// Package anthropic is the runner for the Messages API.
//
// It has the guarantees, deadlines, retries and error classes of the runner for OpenAI-compatible endpoints, and uses the same
// stream reader. One turn is a streaming POST to <base_url>/v1/messages, and one more for each round of tool calls (the loop is in
// package toolloop). It differs where the API does: the system prompt is separate from the messages, max_tokens is always sent,
// usage comes in two halves, and only message_stop completes a stream.
//
// A level of thinking (low, medium, high) becomes a budget of tokens on top of max_tokens; temperature and top_p are left out
// then, because the API refuses the combination. Thoughts are not shown. Those of a round with calls are sent back with their
// signatures, because the API requires them, and are dropped at the end of the turn.
//
// Pictures of the new input come before its text; see [agent.Images] for the bounds. A request that is refused because of pictures is sent again
// without them.
//
// Not supported: prompt caching, batches.
//
//	runner, err := anthropic.New(anthropic.Config{
//		APIKey: secret.New(key),
//		Model:  "some-model",
//	}, nil, log)
//
// The runner holds idle connections until [Runner.Close].
package anthropic
