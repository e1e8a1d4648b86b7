package gateway

import "time"

// Observer counts what happens at the border. All labels come from closed sets; implementations must not block.
type Observer interface {
	// ConnOpened and ConnClosed frame every WebSocket connection.
	ConnOpened()
	ConnClosed(reason CloseReason)
	// Request ends; method is one of the table or "unknown", result is ok or the code of the error.
	Request(method, result string, took time.Duration)
	// AuthFailed: reason is missing, mismatch, locked or hook.
	AuthFailed(reason string)
}

// CloseReason is why a connection ended: a closed set, also the metric label.
type CloseReason string

// The reasons.
const (
	ClosedByPeer    CloseReason = "peer"     // the client closed or vanished
	ClosedHandshake CloseReason = "refused"  // no hello-ok
	ClosedProtocol  CloseReason = "protocol" // it broke the rules of frames
	ClosedSlow      CloseReason = "slow"     // it did not read
	ClosedSilent    CloseReason = "silent"   // no pong, or a message that never ended
	ClosedRevoked   CloseReason = "revoked"  // its credential is gone
	ClosedStopping  CloseReason = "stopping" // the gateway stops
	ClosedInternal  CloseReason = "internal" // a defect
)

// NoObserver counts nothing.
type NoObserver struct{}

// ConnOpened does nothing.
func (NoObserver) ConnOpened() {}

// ConnClosed does nothing.
func (NoObserver) ConnClosed(CloseReason) {}

// Request does nothing.
func (NoObserver) Request(string, string, time.Duration) {}

// AuthFailed does nothing.
func (NoObserver) AuthFailed(string) {}
