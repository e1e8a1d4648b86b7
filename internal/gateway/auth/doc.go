// Package auth decides which clients may use the gateway, as which principal, and how much each principal may spend.
//
// # Ideas
//
// One function identifies clients: [Authenticator.Identify], for sockets and for HTTP alike. The address of a client is checked before its secret, so that a
// locked address learns nothing about secrets. Secrets are compared by digest, with every credential and in constant time.
//
// Credentials come from the configuration and from sources that change. [Authenticator.Refresh] reads the sources; [Authenticator.InForce] then decides for an open
// connection whether its credential still has the same secret, scopes and visibility. A source that fails keeps its last list. An unknown secret may be newer than the
// list: the sources are read once more before it is refused, so that a new token works at once. All unknown secrets that wait share one reading, and two such
// readings have 100 ms between them.
//
// Allowances are counted by principal and class. [NewLimiter] counts in this process, [NewSharedLimiter] over all replicas, in parts that it takes from the store.
// When the store does not answer, each replica counts by itself.
//
// [RequestPolicy] judges what a browser sends before any credential: the host name (DNS rebinding), the origin of the page, and the address behind proxies.
//
// # Bounds
//
// The table of locked addresses and the rows about refused secrets are bounded. Buckets exist by principal, and principals are credentials. Nothing here waits
// for the network, except [NewSharedLimiter]'s limiter, which waits for the store for at most 50 ms, and a client with an unknown secret, which waits for the reading.
//
// # Goroutines and crash points
//
// New starts no goroutine. The owner calls [Authenticator.Run] in one of its own; it writes rows about refused secrets to the log of changes until its context
// ends. A crash loses the rows that are not written yet; the metric has counted them.
//
// # What it does not do
//
// It knows no method and no session: which scope a method needs is in the table of methods, which session a principal may use is the rule of package chat.
package auth
