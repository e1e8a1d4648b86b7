// Package modelhttp is the part that the clients of model APIs have in common: one streaming POST with deadlines, retries
// and errors sorted into the closed set of [chat.FailReason].
//
// A [Client] sends a body and passes the answer to a [Reader], event by event, in the goroutine of the caller. It knows no
// provider: what an event means is the Reader's business. A [PieceReader] gets bodies of other media types as they arrive.
//
// # Deadlines
//
// The first line of the answer has to arrive within FirstByte, each further line within Silence of the one before. Lines are
// counted, not bytes, so that a server that sends one byte now and then does not pass for a living one; comments count,
// since providers send them while a model thinks. The total is the deadline of the context.
//
// # Retries
//
// 429, 5xx and broken connections are tried again, with growing pauses and never before the Retry-After of the server,
// as long as [Reader.Begun] is false. Nothing is tried again after a deadline of ours: a slot that waited a minute for a hanging model is
// given back instead. When the pause would be longer than MaxPause or than what is left of the context, the error is returned
// at once; it is marked as retryable, and the caller that scheduled the turn decides. With [Call.Once] every failure is returned at once.
//
// # Secrets
//
// Errors of net/http quote the URL, which may carry a password, so they are rebuilt without it; messages of the provider
// may quote the key, so the key is taken out. Redirects are not followed: they would carry the key to another host.
//
// # How it ends
//
// [Client.Do] starts no goroutine of its own and has closed the answer when it returns. Idle connections stay in the pool
// of the transport until [Client.Close]. The proxy environment is honoured as net/http does, so never for loopback.
package modelhttp
