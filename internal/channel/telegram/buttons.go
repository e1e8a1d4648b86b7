package telegram

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// errBadChoice means that the choice has no button, or an invalid one.
var errBadChoice = errors.New("no choice that can be offered")

// choices turns choices into keyboards. The text of a button stays in the store; Telegram receives a random id for it, so that a button that was
// never offered cannot be pressed. choices keeps no state.
type choices struct {
	identity *identity
	records  channel.Buttons
}

// keyboard records what the buttons of a choice mean in a chat, and returns the keyboard as JSON. It returns errBadChoice, or the errors of
// [channel.Buttons]. An anonymous administrator writes as [anonymousAdmin] and presses as a person, so those buttons are for every member who may
// talk.
func (c *choices) keyboard(ctx context.Context, to address, choice *chat.Choice) (string, error) {
	set := channel.ButtonSet{Peer: c.identity.peer(0, to.chat), Texts: map[string]string{}}
	if choice == nil {
		return "", errBadChoice
	}
	if choice.For != "" {
		user, err := strconv.ParseInt(choice.For, 10, 64)
		if err != nil {
			return "", fmt.Errorf("%w: %q is not the id of a person", errBadChoice, chat.Cut(choice.For, 40))
		}
		if user != anonymousAdmin {
			set.UserID = user
		}
	}
	keyboard, err := addButtons(&set, choice.Rows)
	if err != nil {
		return "", err
	}
	if err := c.records.PutButtons(ctx, set); err != nil {
		return "", fmt.Errorf("recording the buttons: %w", err)
	}
	return keyboard, nil
}

// take returns the text of the button with an id and uses up its set. press identifies the press: a repetition of the same press returns the same
// text.
func (c *choices) take(ctx context.Context, id string, userID, chatID, press int64) (string, error) {
	return c.records.TakeButton(ctx, id, c.identity.peer(userID, chatID), press)
}

// addButtons gives each button an id in the set, and returns the keyboard.
func addButtons(s *channel.ButtonSet, rows [][]chat.Button) (string, error) {
	keyboard := [][]map[string]string{}
	for _, row := range rows {
		var line []map[string]string
		for _, b := range row {
			if b.Text == "" || b.Label == "" {
				return "", fmt.Errorf("%w: a button needs a label and a text", errBadChoice)
			}
			id := buttonID()
			s.Texts[id] = b.Text
			line = append(line, map[string]string{"text": chat.Escaped(chat.CleanText(b.Label), ""), "callback_data": id})
		}
		keyboard = append(keyboard, line)
	}
	if len(s.Texts) == 0 {
		return "", fmt.Errorf("%w: there are no buttons", errBadChoice)
	}
	return jsonOf(map[string]any{"inline_keyboard": keyboard}), nil
}

func buttonID() string {
	var raw [18]byte
	_, _ = rand.Read(raw[:])
	return base64.RawURLEncoding.EncodeToString(raw[:])
}
