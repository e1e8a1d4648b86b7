package telegram

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// changeActivation is /activation of somebody who runs the group. Without a word it offers the two there are.
func (c *Channel) changeActivation(ctx context.Context, to address, user int64, choice string) error {
	c.obs.Update("command")
	switch choice = strings.ToLower(choice); choice {
	case "":
		return c.offerActivation(ctx, to, user)
	case ActivationAlways, ActivationMention:
		return c.setActivation(ctx, to, choice)
	default:
		c.say(ctx, to, saidActivation, 0)
		return nil
	}
}

const saidActivation = "Say /activation always or /activation mention."

// offerActivation shows when the bot answers in a group and what else there is to choose, for the one who asked.
func (c *Channel) offerActivation(ctx context.Context, to address, user int64) error {
	now, err := c.activationOf(ctx, to.chat)
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
	markup, err := c.offerChoice(ctx, to, choice)
	if errors.Is(err, channel.ErrButtonsFull) {
		text, err = text+" "+saidActivation, nil
	}
	if err == nil {
		c.sayWith(ctx, to, text, markup)
	}
	return err
}

// setActivation keeps when the bot answers in a group and says so.
func (c *Channel) setActivation(ctx context.Context, to address, choice string) error {
	if err := c.records.SetGroupActivation(ctx, c.name, to.chat, choice); err != nil {
		return fmt.Errorf("keeping when the bot answers: %w", err)
	}
	answer := "From now on I answer here when I am mentioned or answered."
	if choice == ActivationAlways {
		answer = "From now on I answer every message here. Telegram shows me all of them only when my privacy mode is off."
	}
	c.say(ctx, to, answer, 0)
	return nil
}

// activationOf is when the bot answers in a group: as somebody chose there, else as configured.
func (c *Channel) activationOf(ctx context.Context, chatID int64) (string, error) {
	chosen, err := c.records.GroupActivation(ctx, c.name, chatID)
	if err != nil {
		return "", fmt.Errorf("asking when the bot answers in a group: %w", err)
	}
	if chosen == "" {
		chosen = c.cfg.Activation
	}
	return chosen, nil
}

// pressedActivation does what a button of offerActivation says, if it is one. Who ran the group when it was offered may not run it any more.
func (c *Channel) pressedActivation(ctx context.Context, u update, to address, text string) (settled bool, err error) {
	word, choice, ok := c.command(text)
	if !ok || word != activationWord || !to.group() {
		return false, nil
	}
	admin, err := c.isAdmin(ctx, to.chat, u.press.From.ID)
	if err != nil {
		c.log.WarnContext(ctx, "nobody knows who runs a group; the press is refused", "err", err)
	}
	if !admin {
		c.obs.Update("refused")
		c.answerPress(ctx, u.press.ID, refusedActivation)
		return true, nil
	}
	c.answerPress(ctx, u.press.ID, "")
	if err := c.changeActivation(ctx, to, u.press.From.ID, choice); err != nil {
		return true, err
	}
	c.usedUp(ctx, to, u.press.Message.MessageID)
	return true, nil
}
