// Package webhook is a channel that only sends: each reply is one POST to a URL that a person or an agent has chosen.
//
// # The guard
//
// Such a URL makes this host connect to an address that another person has chosen. So every connection passes one guard ([Channel.Check] and the
// dialer): http and https only, no user name in the URL, no proxy of the environment, no redirects. The name is resolved once, all of its addresses
// must be public, and the connection is made to a checked address, without another lookup. DNS rebinding therefore has no effect. The socket is
// checked once more before it connects. Hosts on the operator's list may have any address. [Public] defines which addresses are refused.
//
// # The request
//
// A POST proves its sender when a secret is configured: the header of package signature, made for each attempt. It carries `Idempotency-Key`, the same for every attempt, so that a receiver can recognize a second one; this is why an attempt without
// an answer may be repeated. 2xx is delivered. The outbox repeats an attempt after 408, 425, 429, 5xx or no answer; every other answer is final. At most
// a mebibyte of an answer is read and dropped.
//
// The package starts no goroutine and keeps no state between two attempts.
package webhook
