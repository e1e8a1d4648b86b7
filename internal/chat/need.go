package chat

import (
	"slices"
	"strings"
)

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

// Need is what a method of the gateway requires of a caller. Chat commands that correspond to the method require the same.
type Need struct {
	// Scope of the method.
	Scope string
	// Owner: [ScopeWrite] suffices for a session that the caller owns. The code that knows the owner decides with [Caller.MayChange].
	Owner bool
}

// Least is the lowest scope that may pass before the owner is known.
func (n Need) Least() string {
	if n.Owner && ScopeLevel(n.Scope) > ScopeLevel(ScopeWrite) {
		return ScopeWrite
	}
	return n.Scope
}

// Passes reports whether the highest scope of a caller is at least [Need.Least]. A method with an unknown scope refuses every caller.
func (n Need) Passes(scope string) bool {
	least := ScopeLevel(n.Least())
	return least > 0 && ScopeLevel(scope) >= least
}

// MayChange is the rule for changes of a whole session, by method and by command: admin, or write for a session that the caller owns. owner
// is its owner, and exists reports whether it exists; a session that does not exist would belong to the caller. A person in a chat owns
// only their private chat, not a group in which they were the first to write.
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

// InChat reports whether the caller is a person in a chat or a hook, which have no credential of the gateway. Their names begin with the
// channel.
func (c Caller) InChat() bool { return strings.Contains(c.Principal, ":") }

// Bounded reports whether the limits for chat users and agents apply to what the caller creates: it lacks [ScopeAdmin]. Agents lack it for
// every owner of their turns.
func (c Caller) Bounded() bool { return c.InChat() || !slices.Contains(c.Scopes, ScopeAdmin) }

// MissingScope returns the error for a caller that lacks a scope.
func MissingScope(scope string) error {
	return Errorf(CodeForbidden, "missing scope: %s", scope).With("missingScope", scope).With("requiredScopes", []string{scope})
}
