// Package testtelegram is a strict Bot API server for tests: it behaves like Telegram where Telegram is strict, fails where a test
// requests a fault, and records every call.
//
// # What it is for
//
// A channel that talks to it uses the real protocol: form bodies, one answer envelope, long polling with offsets, updates that are
// deleted only when a higher offset confirms them, one poller at a time, files, webhooks. It refuses what Telegram would refuse, with
// the same status and description: text over 4096 UTF-16 units after parsing, entities that do not parse, edits that change nothing,
// unknown threads, blocked chats, groups that became supergroups.
//
// # Being stricter than Telegram
//
// Telegram accepts some calls that no correct client makes: unknown methods and parameters, tags nested against the rules, a call
// within a retry_after window. The server records them as [Server.Violations]; a test fails on any.
//
// # Faults
//
// [Server.Break] queues faults for a method: refusals, 429 with a window, HTML from a proxy, garbage, cut and endless bodies, hanging,
// reset connections, and a failure after the call was executed. A fault is used once.
//
// # Time
//
// [Server.Transport] calls the server in the caller's goroutine without sockets, so that everything works in a synctest bubble. The
// same server is an [http.Handler] for tests with real sockets.
//
//	srv := testtelegram.New(testtelegram.Config{})
//	srv.AddPrivate(7, "Anna")
//	srv.Say(7, 7, "hello")
//	// make the channel with srv.Transport() and srv.Token(), run it, then
//	srv.Messages(7) // the answers of the bot
//
// It starts no goroutine and has no Close.
package testtelegram
