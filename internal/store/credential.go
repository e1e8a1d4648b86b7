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

// Credential is one named token. Only its holder knows the secret; the store has its digest.
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

// ParseDigest reads 64 hexadecimal digits. A damaged text gives the zero digest, which no secret matches: one damaged row must neither open
// the gateway nor stop the other tokens from being read.
func ParseDigest(text string) (digest [sha256.Size]byte) {
	raw, err := hex.DecodeString(text)
	if err == nil && len(raw) == len(digest) {
		copy(digest[:], raw)
	}
	return digest
}

// Hash is what the log of changes keeps of a credential. It differs whenever any member but the time of creation differs, and it does not
// reveal them.
func (c Credential) Hash() string {
	parts := []string{c.Name, hex.EncodeToString(c.Digest[:]), strings.Join(c.Scopes, " "), c.Visible, ""}
	if !c.ExpiresAt.IsZero() {
		parts[4] = strconv.FormatInt(c.ExpiresAt.UnixMilli(), 10)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// ChangedBy names the principal that makes a change, for the log of changes.
type ChangedBy = chat.ChangedBy

// Verbs of the log of changes about credentials.
const (
	VerbTokenCreate = "token.create"
	VerbTokenRevoke = "token.revoke"
	VerbRollback    = "database.rollback" // the database was found to have lost commits; before and after are its histories, see [Beat]
	VerbTokenRotate = "token.rotate"      // a secret of the configuration, by its file
)

// Credentials is an optional ability of a store: it keeps named tokens. Every change writes one row of the log of changes in the same
// transaction.
type Credentials interface {
	// Credentials lists all tokens by name, expired ones too.
	Credentials(ctx context.Context) ([]Credential, error)
	// CreateCredential adds a token. chat.ErrConflict: the name or the secret is taken.
	CreateCredential(ctx context.Context, c Credential, by ChangedBy) error
	// RevokeCredential removes a token. chat.ErrNotFound: there is none of that name.
	RevokeCredential(ctx context.Context, name string, by ChangedBy) error
}
