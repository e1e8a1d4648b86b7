package gateway

import (
	"time"

	"laneway/internal/gateway/socket"
)

// Observer counts what happens at the border. All labels come from closed sets; implementations must not block.
type Observer interface {
	// ConnOpened and ConnClosed frame every WebSocket connection.
	ConnOpened()
	ConnClosed(reason socket.CloseReason)
	// Request ends; method is one of the table or "unknown", result is ok or the code of the error.
	Request(method, result string, took time.Duration)
	// HTTPRequest ends: route is the pattern of a route or "none", status the number that the client got. A socket is none.
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
