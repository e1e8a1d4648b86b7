package chat

import "fmt"

// Caller is the origin of a call, as established by the transport. No field has a value that the client stated.
type Caller struct {
	Principal string
	// Scopes that the caller was granted. A chat command requires the scope of the corresponding method.
	Scopes []string
	// Own restricts the caller to sessions that it made.
	Own bool
	// Peer is the address of the caller, and RequestID the id of the request. Both are for the audit log.
	Peer, RequestID string
}

// ChangedBy describes the origin of a change, for the audit log. It grants no permission.
type ChangedBy struct {
	// Who is a principal, or `cli` for a command with access to the database. Peer is its address and RequestID the id of its request; both
	// may be "".
	Who, Peer, RequestID string
}

// Check is one condition of readiness.
type Check string

// The checks.
const (
	CheckDatabase   Check = "database"
	CheckMigrations Check = "migrations"
	CheckDraining   Check = "draining"
	CheckDisk       Check = "disk"
	CheckHold       Check = "hold"
)

// NotReadyError names the check that fails. The cause is logged and never sent.
type NotReadyError struct {
	Check Check
	Cause error
}

// Error returns the check with its cause.
func (e *NotReadyError) Error() string { return fmt.Sprintf("not ready: %s: %v", e.Check, e.Cause) }

// Unwrap returns the cause.
func (e *NotReadyError) Unwrap() error { return e.Cause }
