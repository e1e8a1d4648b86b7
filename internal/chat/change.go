package chat

import (
	"crypto/sha256"
	"encoding/hex"
)

// IdempotencyKey identifies a call that takes effect once, however often the caller sends it. The store writes the result in the
// transaction of the effect and returns it to every later call with the same key. A refused call has no effect, and its refusal is not stored.
type IdempotencyKey struct {
	// Owner is the principal, Method the name of the method, Key the text that the caller chose. The three together are the key.
	Owner, Method, Key string
	// Hash of the params distinguishes a repetition from a different call that reuses the key, see [ErrKeyReused].
	Hash string
}

// Audit is one row of the log of changes, written in the transaction of the change. Nothing of it gives a right, and nothing of it is a secret.
type Audit struct {
	// Who is a principal or a person of a channel, `cli` for a command with access to the database.
	Who string
	// Verb is what was done, Object to what.
	Verb, Object string
	// Before and After are hashes of the object's state; "" = it was not there.
	Before, After string
	// Peer is where the call came from, RequestID which call it was; both may be "".
	Peer, RequestID string
}

// Between is the row with the hashes of two states; "" = the object was not there. A nil row stays nil.
func (a *Audit) Between(before, after string) *Audit {
	if a == nil {
		return nil
	}
	row := *a
	row.Before, row.After = StateHash(before), StateHash(after)
	return &row
}

// StateHash is what the log of changes keeps of a state: it changes with the state and does not reveal it. The hash of "" is "".
func StateHash(state string) string {
	if state == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:])
}

// Audit is the row that a change by this caller leaves.
func (c Caller) Audit(verb, object string) *Audit {
	return &Audit{Who: c.Principal, Verb: verb, Object: object, Peer: c.Peer, RequestID: c.RequestID}
}
