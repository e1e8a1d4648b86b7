package channel

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"strings"
	"time"
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
	// ErrPairingChatFull: the chat has as many open codes as it may have.
	ErrPairingChatFull = errors.New("too many open pairing codes in this chat")
	// ErrPairingBotFull: the bot has as many open codes as it may have.
	ErrPairingBotFull = errors.New("too many open pairing codes for this bot")
	// ErrPairingUnknown: no open code like this. It does not say whether it never was, is used or is over.
	ErrPairingUnknown = errors.New("no open pairing code like this")
)

// Peer is a person in a chat, as a channel proves it. It is the whole identity: names are no part of it.
type Peer struct {
	// Channel is the account's name, `telegram:<bot id>`.
	Channel string
	// UserID and ChatID are the provider's numbers.
	UserID, ChatID int64
}

// Pairing is a request of a person to talk to the bot in one chat.
type Pairing struct {
	Peer
	Code string
	// Name is decoration, cleaned of control characters and cut to 64 characters.
	Name                 string
	CreatedAt, ExpiresAt time.Time
}

// Pairings remembers who may talk and who asked to. All times are the store's. Every method is atomic and safe for concurrent use by several nodes.
type Pairings interface {
	// Allowed reports whether exactly this peer (same channel, person and chat) was approved and not revoked. An error means no.
	Allowed(ctx context.Context, p Peer) (bool, error)
	// Create opens a request under a fresh code of [NewPairingCode] for [PairingLife]. Requests that are over are removed first and count
	// towards no bound. ErrPairingChatFull and ErrPairingBotFull leave everything as it was.
	Create(ctx context.Context, p Peer, name string) (Pairing, error)
	// List gives the open requests of a channel, oldest first; "" = of all channels.
	List(ctx context.Context, channel string) ([]Pairing, error)
	// Approve uses up a code: its peer is allowed from now on, and every other open request of the same peer ends. The code is compared
	// after [CleanPairingCode]. A second use, a code that is over and a wrong one are ErrPairingUnknown. by is the approving principal, for the audit log,
	// which is written in the same transaction.
	Approve(ctx context.Context, code, by string) (Pairing, error)
	// Dismiss ends an open request without allowing anybody. The same errors as Approve.
	Dismiss(ctx context.Context, code, by string) error
	// Revoke takes a right away. It reports whether there was one.
	Revoke(ctx context.Context, p Peer, by string) (bool, error)
}

// NewPairingCode makes a code of 8 characters (A-Z, 2-7; 40 random bits).
func NewPairingCode() string {
	var raw [5]byte
	_, _ = rand.Read(raw[:])
	return base32.StdEncoding.EncodeToString(raw[:])
}

// CleanPairingCode forgives what people do to a code when they copy it: lower case, blanks and dashes.
func CleanPairingCode(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return -1
		}
		return r
	}, strings.ToUpper(strings.TrimSpace(s)))
}
