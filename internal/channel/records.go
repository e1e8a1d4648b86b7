package channel

import (
	"context"
	"errors"
	"time"
)

// Records is what channels keep beside messages. A store provides it.
type Records interface {
	Pairings
	Groups
	Buttons
}

// Groups remembers what people chose per group, and which group became which. channel is the account's name, `telegram:<bot id>`.
type Groups interface {
	// GroupActivation is what was chosen for a chat, "" = nothing.
	GroupActivation(ctx context.Context, channel string, chatID int64) (string, error)
	SetGroupActivation(ctx context.Context, channel string, chatID int64, activation string) error
	// GroupBefore is the group from which a chat was made, 0 = none.
	GroupBefore(ctx context.Context, channel string, chatID int64) (from int64, err error)
	// MoveGroup remembers that a group has another number now. What was chosen for it goes along. Idempotent.
	MoveGroup(ctx context.Context, channel string, from, to int64) error
}

// Bounds of buttons.
const (
	// ButtonLife is how long the buttons of a message work.
	ButtonLife = 10 * time.Minute
	// MaxButtons is how many buttons of one account may be open at once.
	MaxButtons = 10_000
)

// Errors of [Buttons].
var (
	// ErrButtonUnknown: no open button like this. It does not say whether it never was, is used or is over.
	ErrButtonUnknown = errors.New("no open button like this")
	// ErrButtonNotYours: the button is for somebody else, or of another chat or account. It stays open.
	ErrButtonNotYours = errors.New("this button is for somebody else")
	// ErrButtonsFull: the account has [MaxButtons] open buttons.
	ErrButtonsFull = errors.New("too many buttons are open")
)

// Buttons keeps what the buttons under a message mean. All times are the store's; every method is atomic and safe for concurrent use by
// several nodes.
type Buttons interface {
	// PutButtons keeps one message's buttons for [ButtonLife]. Those that are over are removed first. ErrButtonsFull keeps none of them.
	PutButtons(ctx context.Context, s ButtonSet) error
	// TakeButton says what a button means to the peer who pressed it, and uses its whole set up: of one message's buttons one works, once.
	// press is the provider's number of the press, never 0: the same press again is told the same, because what it said may not have
	// been kept yet. ErrButtonUnknown and ErrButtonNotYours change nothing.
	TakeButton(ctx context.Context, id string, by Peer, press int64) (text string, err error)
}

// ButtonSet is the buttons of one message.
type ButtonSet struct {
	// Peer is for whom they are; UserID 0 = everybody who may talk in the chat.
	Peer
	// Texts are what the buttons say, by button id.
	Texts map[string]string
}

// CheckPress is ErrButtonNotYours unless by may press the buttons of owner, and ErrButtonUnknown when another press (usedBy, 0 = none) has
// used the button up. again: it was this press.
func CheckPress(owner, by Peer, usedBy, press int64) (again bool, err error) {
	switch {
	case owner.Channel != by.Channel || owner.ChatID != by.ChatID || (owner.UserID != 0 && owner.UserID != by.UserID):
		return false, ErrButtonNotYours
	case usedBy != 0 && usedBy != press:
		return false, ErrButtonUnknown
	}
	return usedBy != 0, nil
}
