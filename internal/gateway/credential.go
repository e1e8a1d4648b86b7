package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
)

// The scopes. Admin includes write, which includes read, when a method is checked.
const (
	ScopeRead  = chat.ScopeRead
	ScopeWrite = chat.ScopeWrite
	ScopeAdmin = chat.ScopeAdmin
)

// Visibilities of a credential.
const (
	VisibleAll = "all" // every session and job
	VisibleOwn = "own" // what this principal made
)

// Credential is one secret that opens the gateway. The secret itself is never held, only its digest.
type Credential struct {
	// Name is the principal: `gateway`, `password`, `write`, `read`, or the name of a named token.
	Name string
	// Digest is the SHA-256 of the secret.
	Digest [sha256.Size]byte
	// Scopes that it can give.
	Scopes []string
	// Visible is [VisibleAll] (also when empty) or [VisibleOwn].
	Visible string
	// ExpiresAt ends it; zero = never.
	ExpiresAt time.Time
}

// CredentialSource lists credentials that come and go while the gateway runs. It is asked every two seconds, never twice at once: a
// credential that is missing, changed or expired closes its connections with 1008. When it errs, its last list stays in force, so that a
// database that is down locks nobody out; other sources are not touched by that.
type CredentialSource interface {
	Credentials(ctx context.Context) ([]Credential, error)
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
		if scopeLevel(s) == 0 {
			return fmt.Errorf("credential %s: scope %q is not one of %s, %s, %s", c.Name, s, ScopeRead, ScopeWrite, ScopeAdmin)
		}
	}
	return nil
}

func (c Credential) own() bool { return c.Visible == VisibleOwn }

func (c Credential) valid(now time.Time) bool { return c.ExpiresAt.IsZero() || now.Before(c.ExpiresAt) }

func (c Credential) same(o Credential) bool {
	return c.Name == o.Name && c.Digest == o.Digest && c.own() == o.own() && slices.Equal(c.Scopes, o.Scopes)
}

// grant is what a connection may use: asked for and given, in the order asked, each once.
func (c Credential) grant(asked []string) []string {
	granted := []string{}
	for _, s := range asked {
		if slices.Contains(c.Scopes, s) && !slices.Contains(granted, s) {
			granted = append(granted, s)
		}
	}
	return granted
}

// scopeLevel orders the scopes; 0 = not a scope.
func scopeLevel(s string) int { return chat.ScopeLevel(s) }

// levelOf is the highest level among scopes.
func levelOf(scopes []string) int {
	level := 0
	for _, s := range scopes {
		level = max(level, scopeLevel(s))
	}
	return level
}

// keyring holds the credentials in force.
type keyring struct {
	fixed   []Credential
	sources []CredentialSource
	last    [][]Credential // what each source said last; of refresh alone
	now     atomic.Pointer[[]Credential]
}

func newKeyring(fixed []Credential, sources []CredentialSource) *keyring {
	k := &keyring{fixed: slices.Clone(fixed), sources: sources, last: make([][]Credential, len(sources))}
	k.now.Store(&k.fixed)
	return k
}

// refresh asks the sources again. It must not run twice at once.
func (k *keyring) refresh(ctx context.Context) error {
	var faults []error
	all := slices.Clone(k.fixed)
	for i, source := range k.sources {
		list, err := source.Credentials(ctx)
		if err != nil {
			faults = append(faults, fmt.Errorf("reading the credentials: %w", err))
		} else {
			var bad error
			k.last[i], bad = sound(list)
			faults = append(faults, bad)
		}
		all = append(all, k.last[i]...)
	}
	k.now.Store(&all)
	return errors.Join(faults...)
}

// sound is the list without what is no credential, and what was wrong with that.
func sound(list []Credential) ([]Credential, error) {
	var faults []error
	good := make([]Credential, 0, len(list))
	for _, c := range list {
		if fault := c.check(); fault != nil {
			faults = append(faults, fault)
			continue
		}
		good = append(good, c)
	}
	return good, errors.Join(faults...)
}

// verify finds the credential of a secret. Every entry is compared, by digest and in constant time, so that the time tells
// nothing about the secret or its place in the list.
func (k *keyring) verify(secret string, now time.Time) (Credential, bool) {
	digest := sha256.Sum256([]byte(secret))
	all := *k.now.Load()
	found := -1
	for i := range all {
		if subtle.ConstantTimeCompare(digest[:], all[i].Digest[:]) == 1 && found < 0 {
			found = i
		}
	}
	if found < 0 || secret == "" || !all[found].valid(now) {
		return Credential{}, false
	}
	return all[found], true
}

// holds reports whether a credential that somebody uses is still in force, unchanged.
func (k *keyring) holds(c Credential, now time.Time) bool {
	return c.valid(now) && slices.ContainsFunc(*k.now.Load(), func(o Credential) bool { return o.same(c) && o.valid(now) })
}

// passwordOnly reports whether a password is the only credential.
func (k *keyring) passwordOnly() bool {
	return !slices.ContainsFunc(*k.now.Load(), func(c Credential) bool { return c.Name != "password" })
}
