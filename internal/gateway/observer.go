package gateway

import (
	"time"

	"laneway/internal/gateway/socket"
)

// Observer counts events of the gateway. All labels come from closed sets; implementations must not block.
type Observer interface {
	// ConnOpened and ConnClosed are called for every WebSocket connection.
	ConnOpened()
	ConnClosed(reason socket.CloseReason)
	// Request ends; method is a method of the table or "unknown", result is ok or the code of the error.
	Request(method, result string, took time.Duration)
	// HTTPRequest ends: route is the pattern of a route or "none", status the status that was sent. It is not called for sockets.
	HTTPRequest(route string, status int, took time.Duration)
	// AuthFailed: reason is missing, mismatch, locked or hook.
	AuthFailed(reason string)
}

// NoObserver counts nothing.
type NoObserver struct{}

// ConnOpened does nothing.
func (NoObserver) ConnOpened() {}

// ConnClosed does nothing.
func (NoObserver) ConnClosed(socket.CloseReason) {}

// Request does nothing.
func (NoObserver) Request(string, string, time.Duration) {}

// HTTPRequest does nothing.
func (NoObserver) HTTPRequest(string, int, time.Duration) {}

// AuthFailed does nothing.
func (NoObserver) AuthFailed(string) {}
