// Package testmodel is a model server for tests: it speaks the chat completions API of OpenAI and the Messages API of Anthropic, for foreign programs
// also the Responses API of OpenAI and that of Gemini, records its requests, and fails in every way in which real ones do.
//
// A [Server] calls one function, set with [Server.Answer], for the reply to each [Call]; a [Reply] is an answer in pieces, a fault, or both.
// Without a function it repeats the last message of the user. Everything is counted: calls, calls that are being answered, and the most that
// were answered at once per user (the field `user`, or metadata.user_id), so that a test can check that no session ever had two turns at a time.
//
// [Start] listens on loopback. [StartInMemory] does not listen: its connections are pipes, made by [Server.Transport],
// and may be used in a testing/synctest bubble, where a minute without data costs no time.
//
// A server ends with its test; handlers that hang are released then.
//
//	model := testmodel.Start(t)
//	model.Answer(func(call testmodel.Call) testmodel.Reply {
//		return testmodel.Reply{Pieces: []string{"Hel", "lo"}, Cut: true}
//	})
//	runner, err := openai.New(openai.Config{BaseURL: model.URL() + "/v1", Model: "m"}, nil, nil)
package testmodel
