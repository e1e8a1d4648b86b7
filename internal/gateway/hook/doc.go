// Package hook turns calls of `POST /hooks/{name}` into durable messages.
//
// # Ideas
//
// A call is proven by a signature over its body, under one of two schemes; see [Laneway] and [GitHub]. An unknown hook and a wrong signature get the same answer
// after the same work, so that hooks cannot be enumerated. Allowances are taken after the proof: a caller without the secret cannot use up those of the
// callers that have it.
//
// A recorded call that is sent again is no second message. Under the scheme laneway, the id of the message follows from the signature; from GitHub, it follows
// from the id of the delivery. Headers that the signature does not cover cannot change it.
//
// A hook writes into its own session. A caller may name another one only where the configuration allows it, and then only the main session, a free name, or a
// session that the hook has made; see [Hook.AllowSessionKey].
//
// # Crash points
//
// The answer is sent after the message is durable. A caller that gets no answer sends the call again and meets the same message. A client that disconnects does
// not interrupt the acceptance.
//
// # What it does not do
//
// It does not wait for the turn, and it starts no goroutine. Its handler ends with the request.
package hook
