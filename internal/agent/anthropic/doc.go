// Package anthropic is the runner for the Messages API.
//
// It is the sister of the runner for OpenAI-compatible endpoints and keeps the same promises, with the same deadlines, retries and
// classes of errors, over the same stream reader. One turn is a streaming POST to <base_url>/v1/messages, and one more
// for each round of calls of tools (package toolloop has the loop). The differences are those
// of the API: the system prompt stands beside the messages, max_tokens is always sent, usage comes in two halves, and
// a stream is complete with message_stop only.
//
// A level of thinking (low, medium, high) becomes a budget of tokens on top of max_tokens; temperature and
// top_p are left out then, because the API refuses them together. Thoughts are not shown; those of a round with calls are given
// back with their signatures, because the API demands them, and are dropped at the end of the turn.
//
// Pictures of the new input stand before its text; see [agent.Images] for the bounds. A request that is refused because of them is sent again without.
//
// Not here: prompt caching, batches.
//
//	runner, err := anthropic.New(anthropic.Config{
//		APIKey: secret.New(key),
//		Model:  "some-model",
//	}, nil, log)
//
// The runner holds idle connections until [Runner.Close].
package anthropic
