package channel

import (
	"context"
	"errors"
	"time"
)

// Records is the durable state of channels besides messages. A store implements it; channeltest has its contract.
type Records interface {
	Pairings
	Groups
	Buttons
}

// Groups stores the settings that people chose for a group, and the ids that groups had before. channel is the account's name, `telegram:<bot id>`.
type Groups interface {
	// GroupActivation returns the setting of a chat, "" if none was chosen.
	GroupActivation(ctx context.Context, channel string, chatID int64) (string, error)
	SetGroupActivation(ctx context.Context, channel string, chatID int64, activation string) error
	// GroupBefore returns the former id of a group, 0 if none.
	GroupBefore(ctx context.Context, channel string, chatID int64) (from int64, err error)
	// MoveGroup records that a group has a new id. Its settings move with it. Idempotent.
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
	// ErrButtonUnknown means that no such button is open. The error does not distinguish a button that never existed from one that was used or has
	// expired.
	ErrButtonUnknown = errors.New("no open button like this")
	// ErrButtonNotYours means that the button is for another person, or belongs to another chat or account. It stays open.
	ErrButtonNotYours = errors.New("this button is for another person")
	// ErrButtonsFull means that the account has [MaxButtons] open buttons.
	ErrButtonsFull = errors.New("too many buttons are open")
)

// Buttons stores the text that each button under a message sends. All times are the store's; every method is atomic and safe for concurrent use by
// several nodes.
type Buttons interface {
	// PutButtons stores the buttons of one message for [ButtonLife], after it has removed expired ones. ErrButtonsFull stores none of them.
	PutButtons(ctx context.Context, s ButtonSet) error
	// TakeButton returns the text of a button to the peer who pressed it, and uses up its whole set: only one button of a message works, once. press
	// is the provider's number of the press, never 0. A repetition of the same press returns the same text, because its message may not have been
	// durable before a crash. ErrButtonUnknown and ErrButtonNotYours change nothing.
	TakeButton(ctx context.Context, id string, by Peer, press int64) (text string, err error)
}

// ButtonSet is the buttons of one message.
type ButtonSet struct {
	// Peer may press them; UserID 0 means every person who may talk in the chat.
	Peer
	// Texts maps the id of a button to the words that it sends.
	Texts map[string]string
}

// CheckPress returns ErrButtonNotYours unless by may press the buttons of owner, and ErrButtonUnknown when another press (usedBy, 0 if
// none) has used up the button. again is true when this press has used it up.
func CheckPress(owner, by Peer, usedBy, press int64) (again bool, err error) {
	switch {
	case owner.Channel != by.Channel || owner.ChatID != by.ChatID || (owner.UserID != 0 && owner.UserID != by.UserID):
		return false, ErrButtonNotYours
	case usedBy != 0 && usedBy != press:
		return false, ErrButtonUnknown
	}
	return usedBy != 0, nil
}
