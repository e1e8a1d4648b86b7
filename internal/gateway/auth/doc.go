// Package auth decides which clients may use the gateway, as which principal, and how many calls each principal may make.
//
// # Ideas
//
// One function identifies clients: [Authenticator.Identify], for sockets and for HTTP. It checks the address of a client before its secret,
// so that a locked address learns nothing about secrets. Secrets are compared by digest, with every credential and in constant time.
//
// Credentials come from the configuration and from sources that change. [Authenticator.Refresh] reads the sources. [Authenticator.InForce]
// then decides for an open connection whether its credential still has the same secret, scopes and visibility. A source that fails keeps
// its last list. An unknown secret may be newer than the list: the sources are read once more before it is refused, so that a new token
// works at once. All waiting unknown secrets share one reading, and two such readings are at least 100 ms apart.
//
// Allowances are counted by principal and class. [NewLimiter] counts in this process. [NewSharedLimiter] counts over all replicas, in parts
// that it takes from the store. When the store is unavailable, each replica counts by itself.
//
// [RequestPolicy] checks the headers of a browser before any credential: the host name (DNS rebinding), the origin of the page, and the
// client address from proxies.
//
// # Limits
//
// The table of locked addresses and the rows about refused secrets are limited. Buckets exist by principal, and principals are credentials.
// Two operations wait for the network: [NewSharedLimiter]'s limiter waits for the store for at most 50 ms, and a client with an unknown
// secret waits for the reading.
//
// # Goroutines and crash points
//
// New starts no goroutine. The owner runs [Authenticator.Run] on its own goroutine. It writes rows about refused secrets to the audit log
// until its context is done. A crash loses the rows that are not yet written; the metric has counted them.
//
// # What it does not do
//
// It has no methods and no sessions: the scope of a method is in the table of methods, and package chat decides which session a principal
// may use.
package auth
