package telegram

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// Ask sends a reply with a keyboard under its last part. What a button says stays here: Telegram gets a random id for each, so that nobody can
// press what was never offered. Where no more buttons can be kept, the choice is put into words.
func (c *Channel) Ask(ctx context.Context, r chat.Reply) (chat.Sent, error) {
	to, err := c.target(r.Target)
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: reasonBadTarget, Permanent: true, Cause: err}
	}
	done := c.sent.get(r.ID)
	if done.markup == "" { // a further attempt goes on with the buttons of the first one
		done.markup, err = c.offerChoice(ctx, to, r.Choice)
		if errors.Is(err, channel.ErrButtonsFull) {
			r.Text, err = r.Text+"\n\n"+r.Choice.Typed, nil
		}
		if err != nil {
			return chat.Sent{}, asSendError(err)
		}
		c.sent.set(r.ID, done)
	}
	return c.Send(ctx, r)
}

// asSendError is the outbox's view of a choice that could not be offered.
func asSendError(err error) *channel.SendError {
	if errors.Is(err, errBadChoice) {
		return &channel.SendError{Reason: reasonBadRequest, Permanent: true, Cause: err}
	}
	return &channel.SendError{Reason: reasonConnection, Cause: err}
}

// errBadChoice: nobody could choose from it.
var errBadChoice = errors.New("no choice that can be offered")

// offerChoice keeps what the buttons mean and makes the keyboard of them. Administrators who hide write as nobody in particular and press as
// themselves, so what they asked for is for whoever may talk in the chat.
func (c *Channel) offerChoice(ctx context.Context, to address, choice *chat.Choice) (string, error) {
	set := channel.ButtonSet{Peer: channel.Peer{Channel: c.name, ChatID: to.chat}, Texts: map[string]string{}}
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
	keyboard, err := fill(&set, choice.Rows)
	if err != nil {
		return "", err
	}
	if err := c.records.PutButtons(ctx, set); err != nil {
		return "", fmt.Errorf("keeping the buttons: %w", err)
	}
	return keyboard, nil
}

// fill gives each button an id and makes the keyboard of them.
func fill(s *channel.ButtonSet, rows [][]chat.Button) (string, error) {
	keyboard := [][]map[string]string{}
	for _, row := range rows {
		var line []map[string]string
		for _, b := range row {
			if b.Text == "" || b.Label == "" {
				return "", fmt.Errorf("%w: a button needs a label and something to say", errBadChoice)
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

// pressed turns the press of a button into the message that it stands for. It is answered in every case, else the button spins. The same
// rules hold as for a typed message; the set is used up by a press that they allow.
func (c *Channel) pressed(ctx context.Context, u update) error {
	p := u.press
	if p.From == nil || p.Message == nil || p.Message.Chat == nil {
		c.obs.Update("ignored")
		return nil
	}
	if done := u.memo.content; done != nil { // the button is used up, the store was away
		return c.offerPress(ctx, u, *done)
	}
	who, err := c.judge(ctx, p.From, p.Message.Chat)
	if err != nil {
		return err
	}
	if who != admit {
		c.obs.Update("refused")
		c.answerPress(ctx, p.ID, "You may not use this.")
		return nil
	}
	text, err := c.records.TakeButton(ctx, p.Data, channel.Peer{Channel: c.name, UserID: p.From.ID, ChatID: p.Message.Chat.ID}, int64(u.id))
	switch {
	case errors.Is(err, channel.ErrButtonNotYours):
		c.obs.Update("refused")
		c.answerPress(ctx, p.ID, "This button is for somebody else.")
		return nil
	case errors.Is(err, channel.ErrButtonUnknown):
		c.obs.Update("refused")
		c.answerPress(ctx, p.ID, "This button was used or is too old. Ask again.")
		return nil
	case err != nil:
		return fmt.Errorf("looking for a button: %w", err)
	}
	to := address{chat: u.chat, thread: u.thread}
	if settled, err := c.pressedActivation(ctx, u, to, text); settled || err != nil {
		return err
	}
	content := chat.Content{
		Text: text, Sender: chat.Sender{ID: number(p.From.ID), Name: nameOf(p.From)},
		Options: chat.Options{ReplyTo: c.targetOf(to), NoMerge: true, StopOwn: to.group() && c.cfg.GroupStop == StopOwn},
	}
	content.Thread = content.Options.ReplyTo.Thread
	u.memo.content = &content
	c.answerPress(ctx, p.ID, "")
	return c.offerPress(ctx, u, content)
}

func (c *Channel) offerPress(ctx context.Context, u update, content chat.Content) error {
	to, message := address{chat: u.chat, thread: u.thread}, u.press.Message.MessageID
	u.message = &tgbotapi.Message{MessageID: message}
	if err := c.offer(ctx, u, to, content); err != nil {
		return err
	}
	c.usedUp(ctx, to, message)
	return nil
}

// usedUp takes the keyboard away of which one button was pressed; the others say nothing any more.
func (c *Channel) usedUp(ctx context.Context, to address, message int) {
	p := tgbotapi.Params{"chat_id": number(to.chat), "message_id": number(int64(message))}
	if err := c.sign(ctx, to, "editMessageReplyMarkup", p); err != nil && ctx.Err() == nil {
		c.log.DebugContext(ctx, "the buttons of a message were not taken away", "reason", reasonFor(err))
	}
}

// answerPress ends the waiting sign of a button, unless Telegram wants to hear nothing at all.
func (c *Channel) answerPress(ctx context.Context, id, text string) {
	if !c.limits.spare(0, false) {
		return
	}
	p := tgbotapi.Params{"callback_query_id": id}
	if text != "" {
		p["text"] = text
	}
	if err := c.api.call(ctx, signTime, "answerCallbackQuery", p, nil); err != nil {
		c.log.DebugContext(ctx, "a press was not answered", "reason", reasonFor(err))
	}
}
