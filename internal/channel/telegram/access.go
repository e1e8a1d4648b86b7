package telegram

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// anonymousAdmin is the user as whom Telegram shows administrators who hide.
const anonymousAdmin = 1087968824

// verdict is what happens to a message because of who sent it.
type verdict int

const (
	ignore verdict = iota // not for us, or nobody we answer
	admit
	unknown // a person in a private chat whom nobody has let in
)

// judge decides by identity alone: the numbers of the bot, the person and the chat. Names prove nothing. An error of the store lets
// nobody in.
func (c *Channel) judge(ctx context.Context, from *tgbotapi.User, in *tgbotapi.Chat) (verdict, error) {
	if c.cfg.Access == AccessDisabled || from == nil || (from.IsBot && from.ID != anonymousAdmin) {
		return ignore, nil
	}
	if !in.IsPrivate() {
		return c.judgeGroup(ctx, from, in)
	}
	switch {
	case from.ID == anonymousAdmin || from.ID != in.ID:
		return ignore, nil
	case c.cfg.Access == AccessOpen || slices.Contains(c.cfg.Allow, from.ID):
		return admit, nil
	case c.cfg.Access == AccessAllowlist:
		return unknown, nil
	}
	allowed, err := c.records.Paired(ctx, channel.Peer{Channel: c.name, UserID: from.ID, ChatID: in.ID})
	switch {
	case err != nil:
		return ignore, fmt.Errorf("asking whether somebody may talk: %w", err)
	case allowed:
		return admit, nil
	}
	return unknown, nil
}

// judgeGroup needs the chat in the list and, unless any member will do, the person too. A pairing counts for nothing here.
func (c *Channel) judgeGroup(ctx context.Context, from *tgbotapi.User, in *tgbotapi.Chat) (verdict, error) {
	if !in.IsGroup() && !in.IsSuperGroup() {
		return ignore, nil
	}
	listed, err := c.listed(ctx, in.ID)
	if err != nil || !listed {
		return ignore, err
	}
	if c.cfg.Members == MembersAny || slices.Contains(c.cfg.Allow, from.ID) {
		return admit, nil
	}
	return ignore, nil
}

// listed reports whether a group is in the list, also as what it was before it became a supergroup.
func (c *Channel) listed(ctx context.Context, id int64) (bool, error) {
	if slices.Contains(c.cfg.Groups, id) {
		return true, nil
	}
	from, err := c.records.GroupBefore(ctx, c.name, id)
	if err != nil {
		return false, fmt.Errorf("asking what a group was before: %w", err)
	}
	return from != 0 && slices.Contains(c.cfg.Groups, from), nil
}

// greet answers somebody whom nobody has let in: with a code, or with the reason. At most one answer a minute goes to a chat, and nothing
// else is made of the message: no session, no row, no call of a model. It counts as told when Telegram has taken it; until then the next
// message gets the same words, and so the same code.
func (c *Channel) greet(ctx context.Context, from *tgbotapi.User, to address) error {
	c.obs.Update("refused")
	key := "greet/" + number(to.chat)
	if c.told.lately(key) {
		return nil
	}
	text := c.untold.again(key)
	if text == "" {
		var err error
		if text, err = c.greeting(ctx, from, to); err != nil {
			return err
		}
	}
	if !c.sayOut(ctx, outgoing{to: to}, text) {
		c.untold.said(key, text)
		return nil
	}
	c.untold.forget(key)
	c.told.first(key)
	return nil
}

// greeting is what somebody is told whom nobody has let in. It makes the code.
func (c *Channel) greeting(ctx context.Context, from *tgbotapi.User, to address) (string, error) {
	if c.cfg.Access == AccessAllowlist {
		return fmt.Sprintf("This bot talks to people on its list only. To be put there, give its operator your number: %d.", from.ID), nil
	}
	p, err := c.records.CreatePairing(ctx, channel.Peer{Channel: c.name, UserID: from.ID, ChatID: to.chat}, nameOf(from))
	switch {
	case errors.Is(err, channel.ErrPairingChatFull):
		return "You have three codes already. Ask the operator of this bot to approve one of them; they are good for an hour.", nil
	case errors.Is(err, channel.ErrPairingBotFull):
		return "Too many people are waiting to be let in. Try again in an hour.", nil
	case err != nil:
		return "", fmt.Errorf("making a pairing code: %w", err)
	}
	c.log.InfoContext(ctx, "somebody asks to be let in", "user", from.ID)
	return "Hello. I do not know you yet. Ask the operator of this bot to run:\n\nlaneway pair approve " + p.Code +
		"\n\nThe code is good for one hour. Then write again.", nil
}

// nameOf is what a person calls themselves, safe to show anywhere. It is never identity.
func nameOf(u *tgbotapi.User) string {
	name := strings.TrimSpace(u.FirstName + " " + u.LastName)
	if name == "" {
		name = u.UserName
	}
	return cleanName(name, 64)
}

// cleanName removes what makes a list or a log line say something else than it contains.
func cleanName(s string, limit int) string {
	s = chat.Printable(chat.CleanText(s))
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit])
	}
	return strings.TrimSpace(s)
}

// addressed reports whether a message of a group is for the bot: it is mentioned, answered, given a command, or asked to listen to all.
func (c *Channel) addressed(ctx context.Context, m *tgbotapi.Message) (bool, error) {
	if m.Chat.IsPrivate() {
		return true, nil
	}
	if r := m.ReplyToMessage; r != nil && r.From != nil && r.From.ID == c.bot {
		return true, nil
	}
	if word, _, ok := c.command(textOf(m)); ok {
		if _, known := c.words[word]; known || word == activationWord {
			return true, nil
		}
	}
	if c.mentioned(m) {
		return true, nil
	}
	when, err := c.activationOf(ctx, m.Chat.ID)
	return when == ActivationAlways, err
}

// mentioned looks for the bot among the entities, which Telegram made, and not in the text.
func (c *Channel) mentioned(m *tgbotapi.Message) bool {
	text, entities := m.Text, m.Entities
	if text == "" {
		text, entities = m.Caption, m.CaptionEntities
	}
	for _, e := range entities {
		switch e.Type {
		case "text_mention":
			if e.User != nil && e.User.ID == c.bot {
				return true
			}
		case "mention":
			if name := c.Username(); name != "" && strings.EqualFold(units(text, e.Offset, e.Length), "@"+name) {
				return true
			}
		}
	}
	return false
}

// units is a part of a text by UTF-16 positions, "" when they are outside of it.
func units(s string, offset, length int) string {
	if offset < 0 || length < 0 {
		return ""
	}
	begin, at := -1, 0
	for i, r := range s {
		if at == offset {
			begin = i
		}
		if begin >= 0 && at == offset+length {
			return s[begin:i]
		}
		at++
		if r > 0xFFFF {
			at++
		}
	}
	if begin >= 0 && at == offset+length {
		return s[begin:]
	}
	return ""
}

// command reads the first word as a command that is meant for this bot: `/name`, `/name@bot` or `@bot /name`.
func (c *Channel) command(text string) (word, args string, ok bool) {
	word, args = firstWord(text)
	if mention, isMention := strings.CutPrefix(word, "@"); isMention {
		if !strings.EqualFold(mention, c.Username()) {
			return "", "", false
		}
		word, args = firstWord(args)
	}
	word, isCommand := strings.CutPrefix(word, "/")
	if !isCommand {
		return "", "", false
	}
	word, bot, named := strings.Cut(word, "@")
	if named && !strings.EqualFold(bot, c.Username()) {
		return "", "", false
	}
	return strings.ToLower(word), args, true
}

func firstWord(s string) (word, rest string) {
	s = strings.TrimSpace(s)
	if i := strings.IndexAny(s, " \t\r\n"); i >= 0 {
		return s[:i], strings.TrimSpace(s[i:])
	}
	return s, ""
}

// isAdmin asks Telegram whether a person runs a group.
func (c *Channel) isAdmin(ctx context.Context, chatID, userID int64) (bool, error) {
	if userID == anonymousAdmin {
		return true, nil
	}
	var member tgbotapi.ChatMember
	err := c.api.call(ctx, callTime, "getChatMember", tgbotapi.Params{"chat_id": number(chatID), "user_id": number(userID)}, &member)
	if err != nil {
		return false, err
	}
	return member.Status == "creator" || member.Status == "administrator", nil
}
