package telegram

import (
	"context"
	"errors"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/chat"
)

// signTime bounds a call that only shows something.
const signTime = 3 * time.Second

// sign makes a call that is only nice to have: not while its chat has to be quiet, and without anybody waiting for it twice.
func (c *Channel) sign(ctx context.Context, to address, method string, p tgbotapi.Params) error {
	if !c.limits.spare(to.chat, false) {
		return nil
	}
	err := c.api.call(ctx, signTime, method, p, nil)
	if e, ok := errors.AsType[*apiError](err); ok {
		c.heed(ctx, to, e)
	}
	return err
}

// heed takes from a failure what later calls have to know.
func (c *Channel) heed(ctx context.Context, to address, e *apiError) {
	if err := c.migrate(ctx, to.chat, e.migrateTo); err != nil { // the next sign tries again
		c.log.WarnContext(ctx, "a group moved", "err", err)
	}
}

// Typing shows for about five seconds that an answer is being made.
func (c *Channel) Typing(ctx context.Context, target chat.Target) {
	to, err := c.target(target)
	if err != nil {
		return
	}
	p := place(to)
	p["action"] = "typing"
	if err := c.sign(ctx, to, "sendChatAction", p); err != nil && ctx.Err() == nil {
		c.log.DebugContext(ctx, "typing was not shown", "reason", reasonFor(err))
	}
}

// Queued puts a pair of eyes under a message that has to wait, or answers it with a note where reactions are not allowed. A message that
// came through another node, or long ago, is not remembered and gets nothing.
func (c *Channel) Queued(ctx context.Context, _ chat.Target, messageID string) {
	r, ok := c.recent.get(messageID)
	if !ok {
		return
	}
	r.to.chat = c.follow(r.to.chat)
	err := c.sign(ctx, r.to, "setMessageReaction", tgbotapi.Params{
		"chat_id": number(r.to.chat), "message_id": number(int64(r.message)),
		"reaction": jsonOf([]map[string]string{{"type": "emoji", "emoji": "👀"}}),
	})
	if reason := reasonFor(err); err != nil && (reason == reasonBadRequest || reason == reasonUnauthorized) {
		c.say(ctx, r.to, "I have seen this; it waits until there is room.", r.message)
	}
}
