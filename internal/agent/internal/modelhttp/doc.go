// Package modelhttp is the common part of the clients of model APIs: one streaming POST with deadlines, retries and
// errors classified by the closed set of [chat.FailReason].
//
// A [Client] sends a body and passes the answer to a [Reader], event by event, in the goroutine of the caller. It is
// independent of the provider: the Reader interprets events. A [PieceReader] receives bodies of other media types as they
// arrive.
//
// # Deadlines
//
// The first line of the answer has to arrive within FirstByte, each further line within Silence of the one before. Lines are
// counted, not bytes, so that a server that sends only a byte at a time is detected. Comments count, because providers send
// them while a model thinks. The deadline of the context bounds the whole call.
//
// # Retries
//
// 429, 5xx and broken connections are retried, with growing pauses and never before the Retry-After of the server, as long as
// [Reader.Begun] is false. A call that exceeded one of these deadlines is not retried: its slot has waited long enough and is freed
// instead. When the pause would be longer than MaxPause or than what is left of the context, the error is returned at once; it is marked
// as retryable, and the caller that scheduled the turn decides. With [Call.Once] every failure is returned at once.
//
// # Secrets
//
// Errors of net/http quote the URL, which may carry a password, so they are rebuilt without it; messages of the provider
// may quote the key, so the key is removed. Redirects are not followed: they would carry the key to another host.
//
// # How it ends
//
// [Client.Do] starts no goroutine and has closed the answer when it returns. Idle connections stay in the pool
// of the transport until [Client.Close]. The proxy environment is honoured as net/http does, so never for loopback.
package modelhttp
