package chat

import (
	"slices"
	"strings"
)

// The scopes, each including the one before it.
const (
	ScopeRead  = "operator.read"
	ScopeWrite = "operator.write"
	ScopeAdmin = "operator.admin"
)

// ScopeLevel orders the scopes: 1 to 3, 0 = no scope.
func ScopeLevel(scope string) int {
	return max(0, slices.Index([]string{"", ScopeRead, ScopeWrite, ScopeAdmin}, scope))
}

// Need is what a caller needs for a method of the gateway, and for every chat command that stands for it.
type Need struct {
	// Scope of the method.
	Scope string
	// Owner: [ScopeWrite] suffices on a session that the caller owns. The code that knows the owner decides with [Caller.MayChange].
	Owner bool
}

// Least is the least scope that is let through to where the owner is known.
func (n Need) Least() string {
	if n.Owner && ScopeLevel(n.Scope) > ScopeLevel(ScopeWrite) {
		return ScopeWrite
	}
	return n.Scope
}

// Passes reports whether a caller whose highest scope is this one has at least [Need.Least]. A method with an unknown scope passes no caller.
func (n Need) Passes(scope string) bool {
	least := ScopeLevel(n.Least())
	return least > 0 && ScopeLevel(scope) >= least
}

// MayChange is the rule for changes of a whole session, by method and by command: admin, or write on a session that the caller owns. owner is
// whose it is, exists whether it is there; a session that is not there would be the caller's. A person in a chat owns the own private chat only,
// not a group in which they wrote first.
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

// InChat reports whether the caller is a person in a chat or a hook, who hold no credential of the gateway. Their names have the channel in front.
func (c Caller) InChat() bool { return strings.Contains(c.Principal, ":") }

// Bounded reports whether what the caller makes is within the limits for chat users and agents: it lacks [ScopeAdmin], as agents do for every owner of their
// turns.
func (c Caller) Bounded() bool { return c.InChat() || !slices.Contains(c.Scopes, ScopeAdmin) }

// MissingScope is the refusal of a caller that lacks a scope.
func MissingScope(scope string) error {
	return Errorf(CodeForbidden, "missing scope: %s", scope).With("missingScope", scope).With("requiredScopes", []string{scope})
}
