// Package anthropic is the runner for the Messages API.
//
// This package is the dialect; what a turn does, and what is learned about an endpoint, is in package model. One turn is a streaming POST to
// <base_url>/v1/messages, and one more for each round of tool calls. The system prompt is separate from the messages, max_tokens is always sent, and usage
// comes in two halves. A stream is complete with message_stop or after a stop reason.
//
// A level of thinking (low, medium, high) becomes a budget of tokens on top of max_tokens, or adaptive thinking with an effort where the model refuses a
// budget; temperature and top_p are left out then, because the API refuses the combination. Thoughts are not shown. The blocks of a round with calls go
// back as they came, because the API requires thoughts with their signatures, and are dropped at the end of the turn.
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
