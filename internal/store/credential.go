package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
)

// Credential is one named token. The secret is known to its holder only; here is its digest.
type Credential struct {
	// Name is the principal that the token stands for. It is unique among the tokens.
	Name string
	// Digest is the SHA-256 of the secret.
	Digest [sha256.Size]byte
	// Scopes that it can give.
	Scopes []string
	// Visible is all or own.
	Visible string
	// CreatedAt is set by the store. ExpiresAt ends it; zero = never.
	CreatedAt, ExpiresAt time.Time
}

// ParseDigest reads 64 hexadecimal digits. Text that is damaged gives no digest at all, which nothing matches: one bad row must neither open
// the gateway nor keep the other tokens from being read.
func ParseDigest(text string) (digest [sha256.Size]byte) {
	raw, err := hex.DecodeString(text)
	if err == nil && len(raw) == len(digest) {
		copy(digest[:], raw)
	}
	return digest
}

// Hash is what the log of changes keeps of a credential: it changes with everything but the time of creation, and tells nothing.
func (c Credential) Hash() string {
	parts := []string{c.Name, hex.EncodeToString(c.Digest[:]), strings.Join(c.Scopes, " "), c.Visible, ""}
	if !c.ExpiresAt.IsZero() {
		parts[4] = strconv.FormatInt(c.ExpiresAt.UnixMilli(), 10)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// ChangedBy is who changes something, for the log of changes.
type ChangedBy = chat.ChangedBy

// Verbs of the log of changes about credentials.
const (
	VerbTokenCreate = "token.create"
	VerbTokenRevoke = "token.revoke"
	VerbTokenRotate = "token.rotate" // a secret of the configuration, by its file
)

// Credentials is the optional part of a store that keeps named tokens. Every change leaves one row in the log of changes, in the same
// transaction.
type Credentials interface {
	// Credentials lists all tokens by name, expired ones too.
	Credentials(ctx context.Context) ([]Credential, error)
	// CreateCredential adds a token. chat.ErrConflict: the name or the secret is taken.
	CreateCredential(ctx context.Context, c Credential, by ChangedBy) error
	// RevokeCredential removes a token. chat.ErrNotFound: there is none of that name.
	RevokeCredential(ctx context.Context, name string, by ChangedBy) error
}
