package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Source lists credentials that change while the gateway runs. It is read every two seconds while clients are connected, and when a client
// sends an unknown secret or the last reading is older than [listAge], never concurrently. When a credential is missing, changed or
// expired, its connections are closed with 1008. When a source fails, its last list stays valid, so that clients are not locked out while
// the database is unavailable; other sources are not affected.
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

// find returns the credential of a secret, even when it has expired. Every entry is compared, by digest and in constant time, so that the
// time depends neither on the secret nor on its position in the list.
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
