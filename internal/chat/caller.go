package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Caller is the origin of a call, as established by the transport. No field has a value that the
// client stated.
type Caller struct {
	Principal string
	// Scopes that the caller was granted. A chat command requires the scope of the corresponding
	// method.
	Scopes []string
	// Own restricts the caller to sessions that it made.
	Own bool
	// Peer is the address of the caller, and RequestID the id of the request. Both are for the
	// audit log.
	Peer, RequestID string
}

// ChangedBy describes the origin of a change, for the audit log. It grants no permission.
type ChangedBy struct {
	// Who is a principal, or `cli` for a command with access to the database. Peer is its address
	// and RequestID the id of its request; both may be "".
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

// The scopes. Each includes the one before it.
const (
	ScopeRead  = "operator.read"
	ScopeWrite = "operator.write"
	ScopeAdmin = "operator.admin"
)

// ScopeLevel orders the scopes: 1 to 3; 0 = not a scope.
func ScopeLevel(scope string) int {
	return max(0, slices.Index([]string{"", ScopeRead, ScopeWrite, ScopeAdmin}, scope))
}

// Need is what a method of the gateway requires of a caller. Chat commands that correspond to the
// method require the same.
type Need struct {
	// Scope of the method.
	Scope string
	// Owner: [ScopeWrite] suffices for a session that the caller owns. The code that knows the
	// owner decides with [Caller.MayChange].
	Owner bool
}

// Least is the lowest scope that may pass before the owner is known.
func (n Need) Least() string {
	if n.Owner && ScopeLevel(n.Scope) > ScopeLevel(ScopeWrite) {
		return ScopeWrite
	}
	return n.Scope
}

// Passes reports whether the highest scope of a caller is at least [Need.Least]. A method with an
// unknown scope refuses every caller.
func (n Need) Passes(scope string) bool {
	least := ScopeLevel(n.Least())
	return least > 0 && ScopeLevel(scope) >= least
}

// MayChange is the rule for changes of a whole session, by method and by command: admin, or write
// for a session that the caller owns. owner is its owner, and exists reports whether it exists; a
// session that does not exist would belong to the caller. A person in a chat owns only their
// private chat, not a group in which they were the first to write.
func (c Caller) MayChange(key SessionKey, owner string, exists bool) bool {
	level := 0
	for _, s := range c.Scopes {
		level = max(level, ScopeLevel(s))
	}
	switch {
	case level >= ScopeLevel(ScopeAdmin):
		return true
	case level < ScopeLevel(ScopeWrite), exists && owner != c.Principal:
		return false
	default:
		return !c.InChat() || (key.Kind() == KindDirect && key.RightOf(c.Principal) == RightMine)
	}
}

// InChat reports whether the caller is a person in a chat or a hook, which have no credential of
// the gateway. Their names begin with the channel.
func (c Caller) InChat() bool { return strings.Contains(c.Principal, ":") }

// Bounded reports whether the limits for chat users and agents apply to what the caller creates: it
// lacks [ScopeAdmin]. Agents lack it for every owner of their turns.
func (c Caller) Bounded() bool { return c.InChat() || !slices.Contains(c.Scopes, ScopeAdmin) }

// MissingScope returns the error for a caller that lacks a scope.
func MissingScope(scope string) error {
	return Errorf(CodeForbidden, "missing scope: %s", scope).With("missingScope", scope).With("requiredScopes", []string{scope})
}

// IdempotencyKey identifies a call that takes effect once, however often the caller sends it. The
// store writes the result in the transaction of the effect and returns it to every later call with
// the same key. A refused call has no effect, and its refusal is not stored.
type IdempotencyKey struct {
	// Owner is the principal, Method the name of the method, Key the string that the caller chose.
	// The three together are the key.
	Owner, Method, Key string
	// Hash of the params distinguishes a repetition from a different call that reuses the key, see
	// [ErrKeyReused].
	Hash string
}

// Audit is one row of the audit log, written in the transaction of the change. It grants no
// permission and contains no secret.
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

// Between returns the row with the hashes of two states; "" = the object did not exist. For a nil
// row it returns nil.
func (a *Audit) Between(before, after string) *Audit {
	if a == nil {
		return nil
	}
	row := *a
	row.Before, row.After = StateHash(before), StateHash(after)
	return &row
}

// StateHash is the form of a state in the audit log: it changes with the state and does not reveal
// it. The hash of "" is "".
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

// gatewayPrincipal is the principal of the owner's token. Its keys are used as run ids without a
// prefix.
const gatewayPrincipal = "gateway"

// Owner is the principal of the session that the message makes. The main session of an agent has
// its name from the configuration, so it is the operator's and not that of a credential without
// administration that writes first.
func (m *Message) Owner() string {
	by := Caller{Principal: m.Principal}
	if m.Session.Rest == "main" && !by.InChat() && ScopeLevel(m.Scope) < ScopeLevel(ScopeAdmin) {
		return gatewayPrincipal
	}
	return m.Principal
}

// RunIDOf returns the id of the run that a caller names by an idempotency key, in the store and
// inside the gateway. It contains the principal, so that one key of two principals names two runs:
// `<principal>:<key>`, or the key alone for the owner's token. Keys and principals contain no ':';
// ids of cron runs contain two.
func RunIDOf(principal, key string) string {
	if key == "" || principal == gatewayPrincipal {
		return key
	}
	return principal + ":" + key
}

// ShownRunID returns the form of a run id for callers: the key of a run that was named by a key,
// and any other id unchanged.
func ShownRunID(id string) string {
	if _, key, ok := strings.Cut(id, ":"); ok && !strings.Contains(key, ":") {
		return key
	}
	return id
}
