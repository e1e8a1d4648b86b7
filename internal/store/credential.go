package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
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

// ParseDigest reads 64 hexadecimal digits. A damaged string gives the zero digest, which no secret
// matches: one damaged row must neither grant access nor prevent the other tokens from being read.
func ParseDigest(text string) (digest [sha256.Size]byte) {
	raw, err := hex.DecodeString(text)
	if err == nil && len(raw) == len(digest) {
		copy(digest[:], raw)
	}
	return digest
}

// Hash identifies the state of a credential in the audit log. It changes with any field except the
// creation time, and does not reveal them.
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

// Hold is the state in which a gateway can be inspected but starts nothing on its own. It is one
// row for all replicas. While the row exists [Store].ClaimOutgoing, cron.JobStore.Claim and
// [Store].Sweep return nothing, and [Store].Heartbeat returns it, so that each replica stops
// receiving from its channels.
type Hold struct {
	Since time.Time
	// Who is the principal that set the hold. Who and Reason are shown to operators.
	Who, Reason string
}

// Sentence describes the hold for operators.
func (h *Hold) Sentence() string {
	s := "held since " + h.Since.UTC().Format(time.DateTime) + " UTC by " + h.Who
	if h.Reason != "" {
		s += " (" + h.Reason + ")"
	}
	return s + ": nothing is sent, received from channels or started by the clock; release it with: laneway release"
}

// HeldWork is the work that starts when the hold is released.
type HeldWork struct {
	Now time.Time
	// Outgoing messages that wait to be sent, and Unfinished messages whose turns run.
	Outgoing, Unfinished int
	// Due are the jobs with a slot at or before Now.
	Due []cron.Job
}

// Verbs of the audit log about the hold.
const (
	VerbHold    = "gateway.hold"
	VerbRelease = "gateway.release"
)

// Statements for both engines. $1 is the time in milliseconds, $2 who, $3 the reason.
const (
	HoldSQL        = `SELECT since, who, reason FROM hold`
	SetHoldSQL     = `INSERT INTO hold (id, since, who, reason) VALUES (1, $1, $2, $3) ON CONFLICT (id) DO NOTHING`
	ReleaseHoldSQL = `DELETE FROM hold`
	HeldWorkSQL    = `SELECT (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')), (SELECT count(*) FROM inbox WHERE state <> 'done')`
	// NotHeld is the SQL condition that the gateway is not held.
	NotHeld = `NOT EXISTS (SELECT 1 FROM hold)`
)

// Allowances is an optional ability of a store that several processes share. It counts calls for
// all of them.
type Allowances interface {
	// TakeAllowance takes up to n calls from the named allowance. The allowance holds at most
	// perMinute calls and refills by perMinute calls in a minute. It returns the number of calls
	// taken and, when that is 0, how long it takes until one call is available.
	TakeAllowance(ctx context.Context, name string, n, perMinute int) (got int, wait time.Duration, err error)
}

// TokenRatio relates the token count of an endpoint for a model to the estimate of the gateway.
type TokenRatio struct {
	Endpoint, Model string
	// Permille is the number of tokens counted per thousand estimated.
	Permille int
}
