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

// Credential is one named token. The store has only the digest of its secret.
type Credential struct {
	// Name is the principal that the token authenticates. It is unique among the tokens.
	Name string
	// Digest is the SHA-256 of the secret.
	Digest [sha256.Size]byte
	// Scopes are the scopes that the token grants.
	Scopes []string
	// Visible is all or own.
	Visible string
	// CreatedAt is set by the store. The token is valid until ExpiresAt; zero = forever.
	CreatedAt, ExpiresAt time.Time
}

// ParseDigest reads 64 hexadecimal digits. A damaged string gives the zero digest, which no secret matches: one damaged row must neither grant access nor
// prevent the other tokens from being read.
func ParseDigest(text string) (digest [sha256.Size]byte) {
	raw, err := hex.DecodeString(text)
	if err == nil && len(raw) == len(digest) {
		copy(digest[:], raw)
	}
	return digest
}

// Hash identifies the state of a credential in the audit log. It changes with any field except the creation time, and does not reveal them.
func (c Credential) Hash() string {
	parts := []string{c.Name, hex.EncodeToString(c.Digest[:]), strings.Join(c.Scopes, " "), c.Visible, ""}
	if !c.ExpiresAt.IsZero() {
		parts[4] = strconv.FormatInt(c.ExpiresAt.UnixMilli(), 10)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// ChangedBy names the principal that makes a change, for the audit log.
type ChangedBy = chat.ChangedBy

// Verbs of the audit log about credentials.
const (
	VerbTokenCreate = "token.create"
	VerbTokenRevoke = "token.revoke"
	VerbRollback    = "database.rollback" // the database was found to have lost commits; before and after are its histories, see [Beat]
	VerbTokenRotate = "token.rotate"      // a secret of the configuration, by its file
)

// Credentials is an optional ability of a store: it keeps named tokens. Every change writes one row of the audit log in the same transaction.
type Credentials interface {
	// Credentials lists all tokens by name, expired ones included.
	Credentials(ctx context.Context) ([]Credential, error)
	// CreateCredential adds a token. chat.ErrConflict: the name or the secret is taken.
	CreateCredential(ctx context.Context, c Credential, by ChangedBy) error
	// RevokeCredential removes a token. chat.ErrNotFound: no token has this name.
	RevokeCredential(ctx context.Context, name string, by ChangedBy) error
}
