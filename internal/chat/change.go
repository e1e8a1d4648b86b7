package chat

import (
	"crypto/sha256"
	"encoding/hex"
)

// IdempotencyKey identifies a call that takes effect once, however often the caller sends it. The store writes the result in the
// transaction of the effect and returns it to every later call with the same key. A refused call has no effect, and its refusal is not stored.
type IdempotencyKey struct {
	// Owner is the principal, Method the name of the method, Key the string that the caller chose. The three together are the key.
	Owner, Method, Key string
	// Hash of the params distinguishes a repetition from a different call that reuses the key, see [ErrKeyReused].
	Hash string
}

// Audit is one row of the audit log, written in the transaction of the change. It grants no permission and contains no secret.
type Audit struct {
	// Who is a principal or a person of a channel, `cli` for a command with access to the database.
	Who string
	// Verb is the operation, Object what it was applied to.
	Verb, Object string
	// Before and After are hashes of the object's state; "" = the object did not exist.
	Before, After string
	// Peer is the address of the caller, RequestID the id of the call; both may be "".
	Peer, RequestID string
}

// Between returns the row with the hashes of two states; "" = the object did not exist. For a nil row it returns nil.
func (a *Audit) Between(before, after string) *Audit {
	if a == nil {
		return nil
	}
	row := *a
	row.Before, row.After = StateHash(before), StateHash(after)
	return &row
}

// StateHash is the form of a state in the audit log: it changes with the state and does not reveal it. The hash of "" is "".
func StateHash(state string) string {
	if state == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:])
}

// Audit returns the audit row of a change by this caller.
func (c Caller) Audit(verb, object string) *Audit {
	return &Audit{Who: c.Principal, Verb: verb, Object: object, Peer: c.Peer, RequestID: c.RequestID}
}
