// Package testmodel is a model server for tests: it speaks the chat completions API of OpenAI and the Messages API of
// Anthropic, for foreign programs also the Responses API of OpenAI and that of Gemini, records what it was asked, and fails in every way in which real ones do.
//
// A [Server] asks one function, set with [Server.Answer], what to reply to each [Call]; a [Reply] is an answer in pieces,
// a fault, or both. Without a function it repeats the last message of the user. Everything is counted: calls, calls that are being answered, and
// the most that were answered at once per user (the field `user`, or metadata.user_id), so that a test can hold that no session
// ever had two turns at a time.
//
// [Start] listens on loopback. [StartInMemory] listens on nothing: its connections are pipes, reached through
// [Server.Transport], and may stand in a testing/synctest bubble, where a minute without data costs no time.
//
// A server ends with its test; handlers that hang are released then.
//
//	model := testmodel.Start(t)
//	model.Answer(func(call testmodel.Call) testmodel.Reply {
//		return testmodel.Reply{Pieces: []string{"Hel", "lo"}, Cut: true}
//	})
//	runner, err := openai.New(openai.Config{BaseURL: model.URL() + "/v1", Model: "m"}, nil, nil)
package testmodel
