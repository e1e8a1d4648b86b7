package chat

import "fmt"

// Caller is who makes a call, as the border found out. Nothing of it was stated by the client.
type Caller struct {
	Principal string
	// Scopes that the caller was granted. A chat command needs the scope of the method that it stands for.
	Scopes []string
	// Own restricts the caller to sessions that it made.
	Own bool
	// Peer is the address that the call came from and RequestID the id that it had there, for the log of changes.
	Peer, RequestID string
}

// ChangedBy is who changes something, for the log of changes. Nothing of it gives a right.
type ChangedBy struct {
	// Who is a principal, or `cli` for a command with access to the database. Peer is where from, RequestID which request; both may be "".
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

// Error is the check with its cause.
func (e *NotReadyError) Error() string { return fmt.Sprintf("not ready: %s: %v", e.Check, e.Cause) }

// Unwrap is the cause.
func (e *NotReadyError) Unwrap() error { return e.Cause }
