package telegram

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
)

const (
	// greetEvery is the shortest time between two greetings of one chat.
	greetEvery = time.Minute
	// greetingLife is how long a greeting that was not delivered is kept: less than the validity of its code.
	greetingLife = channel.PairingLife - 10*time.Minute
)

// greeter answers people who are not admitted, with a pairing code or with the reason. Their messages have no other effect: no session, no row of
// the inbox, no call of a model.
type greeter struct {
	allowlist bool // the policy is a list, so there are no codes
	identity  *identity
	records   channel.Pairings
	notes     *notes
	obs       Observer
	log       *slog.Logger

	sent *ttlMap // chats that received a greeting
	// unsent are greetings by chat that Telegram did not accept. The next message of the chat is answered with the same text, and so the same code.
	unsent *ttlMap
}

// greet sends at most one greeting a minute to a chat. Only a greeting that Telegram has accepted counts.
func (g *greeter) greet(ctx context.Context, from *tgbotapi.User, to address) error {
	g.obs.Update("refused")
	key := number(to.chat)
	if g.sent.has(key) {
		return nil
	}
	text := g.unsent.get(key)
	if text == "" {
		var err error
		if text, err = g.text(ctx, from, to); err != nil {
			return err
		}
	}
	if !g.notes.send(ctx, to, text, 0) {
		g.unsent.set(key, text)
		return nil
	}
	g.unsent.forget(key)
	g.sent.add(key)
	return nil
}

// text returns the greeting for a person. It creates the code.
func (g *greeter) text(ctx context.Context, from *tgbotapi.User, to address) (string, error) {
	if g.allowlist {
		return fmt.Sprintf("This bot talks to people on its list only. To be put there, give its operator your number: %d.", from.ID), nil
	}
	p, err := g.records.CreatePairing(ctx, g.identity.peer(from.ID, to.chat), nameOf(from))
	switch {
	case errors.Is(err, channel.ErrPairingChatFull):
		return "You have three codes already. Ask the operator of this bot to approve one of them; they are good for an hour.", nil
	case errors.Is(err, channel.ErrPairingBotFull):
		return "Too many people are waiting to be let in. Try again in an hour.", nil
	case err != nil:
		return "", fmt.Errorf("creating a pairing code: %w", err)
	}
	g.log.InfoContext(ctx, "a person asks for access", "user", from.ID)
	return "Hello. I do not know you yet. Ask the operator of this bot to run:\n\nlaneway pair approve " + p.Code +
		"\n\nThe code is good for one hour. Then write again.", nil
}
