package channel

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
)

// Bounds of pairing.
const (
	// PairingLife is how long a code can be approved.
	PairingLife = time.Hour
	// MaxPairingsPerChat and MaxPairingsPerBot are how many codes may be open at once.
	MaxPairingsPerChat = 3
	MaxPairingsPerBot  = 100
)

// Errors of [Pairings].
var (
	// ErrPairingChatFull means that the chat has the largest number of open codes.
	ErrPairingChatFull = errors.New("too many open pairing codes in this chat")
	// ErrPairingBotFull means that the bot has the largest number of open codes.
	ErrPairingBotFull = errors.New("too many open pairing codes for this bot")
	// ErrPairingUnknown means that no such code is open. The error does not distinguish a code that never existed from one that was used or has
	// expired.
	ErrPairingUnknown = errors.New("no open pairing code like this")
)

// Peer is a person in a chat, as the channel's provider identifies them. It is the whole identity; names are not a part of it.
type Peer struct {
	// Channel is the account's name, `telegram:<bot id>`.
	Channel string
	// UserID and ChatID are the provider's numbers.
	UserID, ChatID int64
}

// String returns `<channel>/<chat>/<person>`, the object in the log of changes.
func (p Peer) String() string {
	return p.Channel + "/" + strconv.FormatInt(p.ChatID, 10) + "/" + strconv.FormatInt(p.UserID, 10)
}

// Pairing is the request of a person to talk to the bot in one chat.
type Pairing struct {
	Peer
	// ID names the request for operators; Code was shown to the person. Neither can be derived from the other.
	ID, Code string
	// Name is for display only, without control characters and of at most 64 characters.
	Name                 string
	CreatedAt, ExpiresAt time.Time
}

// State returns the request in the form of the log of changes.
func (p Pairing) State() string { return "asked " + p.Name }

// PairingRef names an open request by its ID or, if that is "", by its code, which is compared after [CleanPairingCode].
type PairingRef struct{ ID, Code string }

// Grant is a right that a pairing gave.
type Grant struct {
	Peer
	// Name is the name of the person at the time of the request.
	Name, ApprovedBy string
	ApprovedAt       time.Time
}

// State returns the right in the form of the log of changes; "" means no right.
func (g Grant) State() string {
	if g.ApprovedBy == "" {
		return ""
	}
	return "approved by " + g.ApprovedBy + " " + g.Name
}

// Verbs of the log of changes about pairings.
const (
	VerbPairApprove = "pair.approve"
	VerbPairDismiss = "pair.dismiss"
	VerbPairRevoke  = "pair.revoke"
)

// Pairings stores which peers may talk and which have asked to. All times are the store's. Every method is atomic and safe for concurrent use by several
// nodes. Each change of a right writes one row of the log of changes in the same transaction, with hashes of the state of the peer before and after.
type Pairings interface {
	// Paired reports whether exactly this peer (same channel, person and chat) was approved and not revoked. With an error it reports false.
	Paired(ctx context.Context, p Peer) (bool, error)
	// CreatePairing opens a request under a new code of [NewPairingCode] for [PairingLife]. It first removes expired requests, which count towards no
	// bound. ErrPairingChatFull and ErrPairingBotFull change nothing else.
	CreatePairing(ctx context.Context, p Peer, name string) (Pairing, error)
	// OpenPairings lists the open requests of a channel, oldest first; "" means all channels.
	OpenPairings(ctx context.Context, channel string) ([]Pairing, error)
	// ApprovePairing uses up a request: its peer is allowed from now on, and every other open request of the same peer ends. A second use, an
	// expired request and an unknown one are ErrPairingUnknown.
	ApprovePairing(ctx context.Context, ref PairingRef, by chat.ChangedBy) (Pairing, error)
	// DismissPairing ends an open request without a right. It returns the same errors as ApprovePairing.
	DismissPairing(ctx context.Context, ref PairingRef, by chat.ChangedBy) (Pairing, error)
	// Grants lists the approved peers of a channel, oldest first; "" means all channels.
	Grants(ctx context.Context, channel string) ([]Grant, error)
	// RevokePairing removes a right. It reports whether the right existed; only then does it write a row of the log.
	RevokePairing(ctx context.Context, p Peer, by chat.ChangedBy) (bool, error)
}

// NewPairingCode makes a code of 8 characters (A-Z, 2-7; 40 random bits).
func NewPairingCode() string {
	var raw [5]byte
	_, _ = rand.Read(raw[:])
	return base32.StdEncoding.EncodeToString(raw[:])
}

// CleanPairingCode undoes the changes that people make to a code when they copy it: lower case, blanks and dashes.
func CleanPairingCode(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return -1
		}
		return r
	}, strings.ToUpper(strings.TrimSpace(s)))
}
