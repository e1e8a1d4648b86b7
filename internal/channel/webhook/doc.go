// Package webhook is a channel that only sends: each reply is one POST to a URL that a person or an agent has chosen.
//
// Such a URL is an order from outside about where this host connects to, so there is one way out and it is guarded ([Channel.Check] and
// the dialer): http and https only, no user name in the URL, no proxy of the environment, no redirects. The name is resolved once, every
// address that it has must be a public one, and the connection goes to an address that was checked, never to the name again: a name that
// answers differently the second time gains nothing. The socket is checked once more before it connects. Hosts on the operator's list may
// have any address. What is refused is in [Public].
//
// A POST says who made it: `X-Laneway-Signature: t=<unix seconds>,v1=<hex>`, HMAC-SHA256 of the time, a dot and the body, when a secret is
// configured. It carries `Idempotency-Key`, the same for every attempt, so that a receiver can do once what arrives twice; this is why an
// attempt whose answer was lost may be repeated. 2xx is delivered; 408, 425, 429, 5xx and silence are tried again by the outbox; everything
// else is final. At most a mebibyte of an answer is read, and dropped.
package webhook
