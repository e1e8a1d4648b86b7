package auth

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"time"

	"laneway/internal/chat"
)

// Visibilities of a credential.
const (
	VisibleAll = "all" // every session and job
	VisibleOwn = "own" // what this principal made
)

// Credential is one secret that identifies a principal. Only its digest is stored.
type Credential struct {
	// Name is the principal: `gateway`, `password`, `write`, `read`, or the name of a named token.
	Name string
	// Digest is the SHA-256 of the secret.
	Digest [sha256.Size]byte
	// Scopes that its connections may request. Admin includes write, which includes read, when a method is checked.
	Scopes []string
	// Visible is [VisibleAll] (also when empty) or [VisibleOwn].
	Visible string
	// ExpiresAt is when it becomes invalid; zero = never.
	ExpiresAt time.Time
}

var principalName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (c Credential) check() error {
	switch {
	case !principalName.MatchString(c.Name):
		return fmt.Errorf("credential name %q must match %s", c.Name, principalName)
	case c.Digest == sha256.Sum256(nil) || c.Digest == [sha256.Size]byte{}:
		return fmt.Errorf("credential %s has an empty secret", c.Name)
	case c.Visible != "" && c.Visible != VisibleAll && c.Visible != VisibleOwn:
		return fmt.Errorf("credential %s: visibility %q is not all or own", c.Name, c.Visible)
	}
	for _, s := range c.Scopes {
		if chat.ScopeLevel(s) == 0 {
			return fmt.Errorf("credential %s: scope %q is not one of %s, %s, %s", c.Name, s, chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin)
		}
	}
	return nil
}

// Own reports whether the principal sees only what it made.
func (c Credential) Own() bool { return c.Visible == VisibleOwn }

// Administers reports whether a connection of the principal with these scopes belongs to an administrator, who sees and may change
// everything.
func (c Credential) Administers(scopes []string) bool {
	return !c.Own() && Level(scopes) >= chat.ScopeLevel(chat.ScopeAdmin)
}

// Expired reports whether the lifetime of the credential has ended.
func (c Credential) Expired(now time.Time) bool {
	return !c.ExpiresAt.IsZero() && !now.Before(c.ExpiresAt)
}

func (c Credential) same(o Credential) bool {
	return c.Name == o.Name && c.Digest == o.Digest && c.Own() == o.Own() && slices.Equal(c.Scopes, o.Scopes)
}

// Grant returns the scopes of a connection: those that are requested and allowed, in the order of the request, without duplicates. The
// result may be the slice of the credential; it does not keep memory of the request alive.
func (c Credential) Grant(asked []string) []string {
	granted := []string{}
	for _, s := range asked {
		if i := slices.Index(c.Scopes, s); i >= 0 && !slices.Contains(granted, s) {
			granted = append(granted, c.Scopes[i])
		}
	}
	if len(granted) > 0 && slices.Equal(granted, c.Scopes) {
		return c.Scopes
	}
	return granted
}

// Level returns the highest level among scopes; see [chat.ScopeLevel].
func Level(scopes []string) int {
	level := 0
	for _, s := range scopes {
		level = max(level, chat.ScopeLevel(s))
	}
	return level
}
