package telegram

import (
	"context"
	"errors"
	"log/slog"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"
)

// signTime bounds a call that only shows something.
const signTime = 3 * time.Second

// signs makes the calls that only show something: typing, reactions, the end of buttons. They are made while the limits leave capacity, and are not
// retried. It is safe for concurrent use.
type signs struct {
	api       *client
	limits    *limiter
	addresses *addresses
	notes     *notes
	recent    *recentMessages
	log       *slog.Logger
}

// show makes one call, or none while its chat or the bot has no capacity for it.
func (s *signs) show(ctx context.Context, to address, method string, p tgbotapi.Params) error {
	if !s.limits.spare(to.chat, false) {
		return nil
	}
	err := s.api.call(ctx, signTime, method, p, nil)
	s.follow(ctx, to, err)
	return err
}

// follow records that the group of a failed call has moved.
func (s *signs) follow(ctx context.Context, to address, err error) {
	e, ok := errors.AsType[*apiError](err)
	if !ok {
		return
	}
	if err := s.addresses.move(ctx, to.chat, e.migrateTo); err != nil { // the next sign tries again
		s.log.WarnContext(ctx, "the new id of a group was not recorded", "err", err)
	}
}

// typing shows for about five seconds that an answer is being written.
func (s *signs) typing(ctx context.Context, to address) {
	p := place(to)
	p["action"] = "typing"
	if err := s.show(ctx, to, "sendChatAction", p); err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "typing was not shown", "reason", reasonFor(err))
	}
}

// queued puts a reaction under a message that has to wait, or answers it with a note where reactions are not allowed. A message that came through
// another node, or long ago, is not in memory and receives neither.
func (s *signs) queued(ctx context.Context, messageID string) {
	m, ok := s.recent.get(messageID)
	if !ok {
		return
	}
	m.to.chat = s.addresses.follow(m.to.chat)
	err := s.show(ctx, m.to, "setMessageReaction", tgbotapi.Params{
		"chat_id": number(m.to.chat), "message_id": number(int64(m.message)),
		"reaction": jsonOf([]map[string]string{{"type": "emoji", "emoji": "👀"}}),
	})
	if reason := reasonFor(err); err != nil && (reason == reasonBadRequest || reason == reasonUnauthorized) {
		s.notes.send(ctx, m.to, "I have seen this; it waits until there is room.", m.message)
	}
}

// removeKeyboard removes the buttons of a message after one of them was used.
func (s *signs) removeKeyboard(ctx context.Context, to address, message int) {
	p := tgbotapi.Params{"chat_id": number(to.chat), "message_id": number(int64(message))}
	if err := s.show(ctx, to, "editMessageReplyMarkup", p); err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "the buttons of a message were not removed", "reason", reasonFor(err))
	}
}

// answerPress ends the progress indicator of a button and shows text to the person, if any. The call concerns no chat, so only the limits and the
// cooldown of the bot apply.
func (s *signs) answerPress(ctx context.Context, id, text string) {
	if !s.limits.spare(anyChat, false) {
		return
	}
	p := tgbotapi.Params{"callback_query_id": id}
	if text != "" {
		p["text"] = text
	}
	if err := s.api.call(ctx, signTime, "answerCallbackQuery", p, nil); err != nil {
		s.log.DebugContext(ctx, "a press of a button was not answered", "reason", reasonFor(err))
	}
}
