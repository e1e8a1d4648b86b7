// Package hook turns calls of `POST /hooks/{name}` into durable messages.
//
// # Ideas
//
// A call is authenticated by a signature of its body, under one of two schemes; see [Laneway] and [GitHub]. An unknown hook and a wrong
// signature have the same answer after the same work, so that hooks cannot be enumerated. Allowances are taken after the authentication: a
// caller without the secret cannot use up the allowances of others.
//
// A recorded call that is sent again makes no second message. Under the scheme laneway, the id of the message is derived from the
// signature; for GitHub, from the id of the delivery. Headers that the signature does not cover cannot change it.
//
// A hook writes into its own session. A caller may name another one only if the configuration allows it, and only the main session, a free
// name, or a session that the hook has created; see [Hook.AllowSessionKey].
//
// # Crash points
//
// The answer is sent after the message is durable. A caller that receives no answer repeats the call, which finds the same message. A
// client that disconnects does not interrupt the acceptance.
//
// # What it does not do
//
// It does not wait for the turn, and it starts no goroutine. Its handler ends with the request.
package hook
