package telegram

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// activationCommand executes /activation: administrators of a group choose when the bot answers there. Its callers have checked that the sender is an
// administrator.
type activationCommand struct {
	access  *access
	words   *commandWords
	choices *choices
	notes   *notes
	signs   *signs
	obs     Observer
	log     *slog.Logger
}

const (
	usageActivation   = "Say /activation always or /activation mention."
	refusedActivation = "Only administrators of this group may change when I answer."
)

// run executes the command with its argument. Without an argument it shows the current choice, with a button for each option.
func (a *activationCommand) run(ctx context.Context, to address, user int64, choice string) error {
	a.obs.Update("command")
	switch choice = strings.ToLower(choice); choice {
	case "":
		return a.show(ctx, to, user)
	case ActivationAlways, ActivationMention:
		return a.set(ctx, to, choice)
	default:
		a.notes.send(ctx, to, usageActivation, 0)
		return nil
	}
}

// show answers with the current choice, and buttons for the person who sent the command.
func (a *activationCommand) show(ctx context.Context, to address, user int64) error {
	now, err := a.access.activation(ctx, to.chat)
	if err != nil {
		return err
	}
	choice := &chat.Choice{For: number(user), Rows: [][]chat.Button{{}}}
	for _, word := range []string{ActivationMention, ActivationAlways} {
		label := word
		if word == now {
			label = "✓ " + label
		}
		choice.Rows[0] = append(choice.Rows[0], chat.Button{Label: label, Text: "/" + activationWord + " " + word})
	}
	text := "I answer here when I am mentioned or answered."
	if now == ActivationAlways {
		text = "I answer every message here."
	}
	keyboard, err := a.choices.keyboard(ctx, to, choice)
	if errors.Is(err, channel.ErrButtonsFull) {
		text, err = text+" "+usageActivation, nil
	}
	if err == nil {
		a.notes.sendWith(ctx, to, text, keyboard)
	}
	return err
}

// set records the choice for a group and confirms it there.
func (a *activationCommand) set(ctx context.Context, to address, choice string) error {
	if err := a.access.setActivation(ctx, to.chat, choice); err != nil {
		return err
	}
	answer := "From now on I answer here when I am mentioned or answered."
	if choice == ActivationAlways {
		answer = "From now on I answer every message here. Telegram shows me all of them only when my privacy mode is off."
	}
	a.notes.send(ctx, to, answer, 0)
	return nil
}

// pressed executes the button of [activationCommand.show] that has this text; settled is false for another button. The person may have
// lost the rights of an administrator since the button was shown, so the rights are checked again.
func (a *activationCommand) pressed(ctx context.Context, u update, to address, text string) (settled bool, err error) {
	word, choice, ok := a.words.parse(text)
	if !ok || word != activationWord || !to.group() {
		return false, nil
	}
	admin, err := a.access.isAdmin(ctx, to.chat, u.press.From.ID)
	if err != nil {
		a.log.WarnContext(ctx, "the administrators of a group are unknown; the press is refused", "err", err)
	}
	if !admin {
		a.obs.Update("refused")
		a.signs.answerPress(ctx, u.press.ID, refusedActivation)
		return true, nil
	}
	a.signs.answerPress(ctx, u.press.ID, "")
	if err := a.run(ctx, to, u.press.From.ID, choice); err != nil {
		return true, err
	}
	a.signs.removeKeyboard(ctx, to, u.press.Message.MessageID)
	return true, nil
}
