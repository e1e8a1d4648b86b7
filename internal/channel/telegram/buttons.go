package telegram

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// Ask sends text with buttons. What a button says stays here: Telegram gets a random id for each, so that nobody can press what was
// never offered.
func (c *Channel) Ask(ctx context.Context, target chat.Target, userID, text string, rows [][]channel.Button) (chat.Sent, error) {
	to, err := c.target(target)
	user := int64(0)
	if err == nil && userID != "" {
		user, err = strconv.ParseInt(userID, 10, 64)
	}
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: reasonBadTarget, Permanent: true, Cause: err}
	}
	set := channel.ButtonSet{Peer: channel.Peer{Channel: c.name, UserID: user, ChatID: to.chat}, Texts: map[string]string{}}
	keyboard, err := fill(&set, rows)
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: reasonBadRequest, Permanent: true, Cause: err}
	}
	if err := c.records.PutButtons(ctx, set); err != nil {
		return chat.Sent{}, &channel.SendError{Reason: reasonConnection, Cause: fmt.Errorf("keeping the buttons: %w", err)}
	}
	chunks := render(text).chunks(maxUnits)
	if len(chunks) == 0 {
		chunks = plain("?").chunks(maxUnits)
	}
	first := 0
	for i, part := range chunks {
		o := outgoing{to: to, chunk: part}
		if i == len(chunks)-1 {
			o.markup = keyboard
		}
		id, err := c.deliver(ctx, o)
		if err != nil {
			return chat.Sent{}, err
		}
		if first == 0 {
			first = id
		}
	}
	return chat.Sent{ProviderID: number(int64(first))}, nil
}

// fill gives each button an id and makes the keyboard of them.
func fill(s *channel.ButtonSet, rows [][]channel.Button) (string, error) {
	keyboard := [][]map[string]string{}
	for _, row := range rows {
		var line []map[string]string
		for _, b := range row {
			if b.Text == "" || b.Label == "" {
				return "", errors.New("a button needs a label and something to say")
			}
			id := buttonID()
			s.Texts[id] = b.Text
			line = append(line, map[string]string{"text": escaped(b.Label), "callback_data": id})
		}
		keyboard = append(keyboard, line)
	}
	if len(s.Texts) == 0 {
		return "", errors.New("there are no buttons")
	}
	return jsonOf(map[string]any{"inline_keyboard": keyboard}), nil
}

func buttonID() string {
	var raw [18]byte
	_, _ = rand.Read(raw[:])
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// escaped shows characters that would make a label lie.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range chat.CleanText(s) {
		if chat.Unprintable(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
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
	text, err := c.records.TakeButton(ctx, p.Data, channel.Peer{Channel: c.name, UserID: p.From.ID, ChatID: p.Message.Chat.ID})
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
	u.message = &tgbotapi.Message{MessageID: u.press.Message.MessageID}
	return c.offer(ctx, u, address{chat: u.chat, thread: u.thread}, content)
}

func (c *Channel) answerPress(ctx context.Context, id, text string) {
	p := tgbotapi.Params{"callback_query_id": id}
	if text != "" {
		p["text"] = text
	}
	if err := c.api.call(ctx, signTime, "answerCallbackQuery", p, nil); err != nil {
		c.log.DebugContext(ctx, "a press was not answered", "reason", reasonFor(err))
	}
}
