package gateway

import (
	"net/http"
	"time"
)

// readUntil bounds what is read of a request from now on; 0 lifts the bound.
func (s *Server) readUntil(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetReadDeadline(deadlineIn(d)) //nolint:errcheck // a writer without deadlines is a test's
}

func deadlineIn(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}
