package auth

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
	"laneway/internal/retry"
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
	// Scopes that its connections may request. Admin includes write, which includes read, when a
	// method is checked.
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

// Administers reports whether a connection of the principal with these scopes belongs to an
// administrator, who sees and may change everything.
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

// Grant returns the scopes of a connection: those that are requested and allowed, in the order of
// the request, without duplicates. The result may be the slice of the credential; it does not keep
// memory of the request alive.
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

// Source lists credentials that change while the gateway runs. It is read every two seconds while
// clients are connected, and when a client sends an unknown secret or the last reading is older
// than [listAge], never concurrently. When a credential is missing, changed or expired, its
// connections are closed with 1008. When a source fails, its last list stays valid, so that clients
// are not locked out while the database is unavailable; other sources are not affected.
type Source interface {
	Credentials(ctx context.Context) ([]Credential, error)
}

// keyring holds the current credentials.
type keyring struct {
	fixed   []Credential
	sources []Source
	last    [][]Credential // the last list of each source; used only by refresh
	now     atomic.Pointer[[]Credential]
}

func newKeyring(fixed []Credential, sources []Source) *keyring {
	k := &keyring{fixed: slices.Clone(fixed), sources: sources, last: make([][]Credential, len(sources))}
	k.now.Store(&k.fixed)
	return k
}

// changes reports whether the current list can change.
func (k *keyring) changes() bool { return len(k.sources) > 0 }

// refresh reads the sources again. It must not run concurrently.
func (k *keyring) refresh(ctx context.Context) error {
	var faults []error
	all := slices.Clone(k.fixed)
	for i, source := range k.sources {
		list, err := source.Credentials(ctx)
		if err != nil {
			faults = append(faults, fmt.Errorf("reading the credentials: %w", err))
		} else {
			var bad error
			k.last[i], bad = validOnly(list)
			faults = append(faults, bad)
		}
		all = append(all, k.last[i]...)
	}
	k.now.Store(&all)
	return errors.Join(faults...)
}

// validOnly returns the list without malformed credentials, and the errors of these.
func validOnly(list []Credential) ([]Credential, error) {
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

// find returns the credential of a secret, even when it has expired. Every entry is compared, by
// digest and in constant time, so that the time depends neither on the secret nor on its position
// in the list.
func (k *keyring) find(secret string) (Credential, bool) {
	digest := sha256.Sum256([]byte(secret))
	all := *k.now.Load()
	found := -1
	for i := range all {
		if subtle.ConstantTimeCompare(digest[:], all[i].Digest[:]) == 1 && found < 0 {
			found = i
		}
	}
	if found < 0 || secret == "" {
		return Credential{}, false
	}
	return all[found], true
}

// verify returns the credential of a secret if it is valid now.
func (k *keyring) verify(secret string, now time.Time) (Credential, bool) {
	c, known := k.find(secret)
	if !known || c.Expired(now) {
		return Credential{}, false
	}
	return c, true
}

// inForce reports whether a credential is still valid and unchanged.
func (k *keyring) inForce(c Credential, now time.Time) bool {
	return !c.Expired(now) && slices.ContainsFunc(*k.now.Load(), func(o Credential) bool { return o.same(c) && !o.Expired(now) })
}

// passwordOnly reports whether a password is the only credential.
func (k *keyring) passwordOnly() bool {
	return !slices.ContainsFunc(*k.now.Load(), func(c Credential) bool { return c.Name != "password" })
}

const (
	// readPause is the minimum time between two readings that unknown secrets cause. It limits the
	// load from an attacker who guesses secrets to ten readings a second, from any number of
	// addresses.
	readPause = 100 * time.Millisecond
	// readTimeout limits one reading that a secret causes.
	readTimeout = 2 * time.Second
	// listAge is the maximum age of a list that decides about a known secret. While clients are
	// connected, the gateway reads it more often.
	listAge = 3 * time.Second
)

// readings serializes the readings of the sources of credentials. Those that unknown secrets cause
// are at least [readPause] apart. Waiting callers share the next reading. It has no goroutine: a
// reading runs on the goroutine of a caller.
type readings struct {
	turn  chan struct{} // capacity 1; held by the caller that reads, or waits for the time to read
	begun atomic.Uint64 // readings that were started
	last  atomic.Int64  // when the last one started, in nanoseconds since 1970
	ended time.Time     // when the last one ended; used by the holder of turn
}

// now reads, after a reading that is in progress.
func (r *readings) now(ctx context.Context, read func(context.Context)) {
	if !r.enter(ctx) {
		return
	}
	defer r.leave()
	r.run(ctx, read)
}

// since returns when a reading that started after the call has ended, or when ctx is done. The
// reading continues when the caller that runs it has returned, because others wait for it.
func (r *readings) since(ctx context.Context, read func(context.Context)) {
	want := r.begun.Load() + 1
	if !r.enter(ctx) {
		return
	}
	defer r.leave()
	if r.begun.Load() >= want || retry.Sleep(ctx, time.Until(r.ended.Add(readPause))) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	r.run(ctx, read)
}

// old reports whether the last reading started longer than [listAge] ago.
func (r *readings) old(now time.Time) bool { return now.Sub(time.Unix(0, r.last.Load())) > listAge }

func (r *readings) run(ctx context.Context, read func(context.Context)) {
	r.begun.Add(1)
	r.last.Store(time.Now().UnixNano())
	read(ctx)
	r.ended = time.Now()
}

func (r *readings) enter(ctx context.Context) bool {
	select {
	case r.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *readings) leave() { <-r.turn }
