package socket

// Closing is the end of a connection: the close frame and why.
type Closing struct { //nolint:errname // the end of a connection; few readers take it for an error
	Code   int
	Text   string
	Reason CloseReason
}

// Error makes the end of a connection usable as an error in logs.
func (e *Closing) Error() string { return e.Text }

// CloseReason is why a connection ended. The set is closed, and is also the metric label.
type CloseReason string

// The reasons.
const (
	ClosedByPeer    CloseReason = "peer"     // the client closed or disappeared
	ClosedHandshake CloseReason = "refused"  // no hello-ok
	ClosedProtocol  CloseReason = "protocol" // it violated the framing
	ClosedSlow      CloseReason = "slow"     // it did not read
	ClosedSilent    CloseReason = "silent"   // no pong, or a message that never ended
	ClosedRevoked   CloseReason = "revoked"  // its credential is no longer valid
	ClosedStopping  CloseReason = "stopping" // the gateway stops
	ClosedInternal  CloseReason = "internal" // a defect

	ClosedUnauthenticated CloseReason = "unauthenticated" // closed for a newer connection before it had authenticated
)

// CloseReasons returns all reasons.
func CloseReasons() []CloseReason {
	return []CloseReason{ClosedByPeer, ClosedHandshake, ClosedProtocol, ClosedSlow, ClosedSilent, ClosedRevoked, ClosedStopping, ClosedInternal, ClosedUnauthenticated}
}
