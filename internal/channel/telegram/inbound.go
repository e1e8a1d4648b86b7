package telegram

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"
	"github.com/google/uuid"

	"laneway/internal/chat"
)

// activationWord is the one command that is the channel's own.
const activationWord = "activation"

const refusedActivation = "Only administrators of this group may change when I answer."

// scope is what a person of a chat may do.
const scope = "operator.write"

func number(n int64) string { return strconv.FormatInt(n, 10) }

// handle works on one update, or on the parts of one album. When it returns without an error the update is settled: the message is
// durable, or there is a reason to do nothing.
func (c *Channel) handle(ctx context.Context, parts []update) error {
	u := parts[0]
	switch {
	case u.press != nil:
		return c.pressed(ctx, u)
	case u.message == nil || u.message.Chat == nil:
		c.obs.Update("ignored") // edited messages, votes, members: nothing that begins a turn
		return nil
	case u.message.MigrateToChatID != 0:
		return c.migrate(ctx, u.chat, u.message.MigrateToChatID)
	case u.message.MigrateFromChatID != 0:
		return c.migrate(ctx, u.message.MigrateFromChatID, u.chat)
	}
	return c.message(ctx, parts)
}

func (c *Channel) message(ctx context.Context, parts []update) error {
	u := parts[0]
	m := u.message
	to := address{chat: u.chat, thread: u.thread}
	who, err := c.judge(ctx, m.From, m.Chat)
	switch {
	case err != nil:
		return err
	case who == unknown:
		return c.greet(ctx, m.From, to)
	case who == ignore:
		c.obs.Update("ignored")
		return nil
	}
	if addressed, err := c.anyAddressed(ctx, parts); err != nil || !addressed {
		c.obs.Update("ignored")
		return err
	}
	if settled, err := c.early(ctx, u, to); settled || err != nil {
		return err
	}
	content, err := c.content(ctx, parts, to)
	if err != nil || (content.Text == "" && len(content.Attachments) == 0) {
		c.obs.Update("ignored")
		return err
	}
	return c.offer(ctx, u, to, content)
}

func (c *Channel) anyAddressed(ctx context.Context, parts []update) (bool, error) {
	for _, p := range parts {
		if yes, err := c.addressed(ctx, p.message); yes || err != nil {
			return yes, err
		}
	}
	return false, nil
}

// early does what comes before a message is one: limits, and commands that the group's rules or the channel itself decide. settled = there
// is nothing more to do.
func (c *Channel) early(ctx context.Context, u update, to address) (settled bool, err error) {
	word, args, isCommand := c.command(textOf(u.message))
	isStop := isCommand && (word == "stop" || word == "stopall")
	if !isStop && !u.memo.counted && !c.spam.allow(u.message.From.ID) {
		c.obs.Update("limited")
		c.sayOnce(ctx, to, fmt.Sprintf("You write faster than I may read: %d messages a minute. What came above that was left out; send it again in a minute.", c.cfg.UserRate))
		return true, nil
	}
	u.memo.counted = true
	if !to.group() || u.forwarded {
		return false, nil
	}
	switch {
	case isStop && c.cfg.GroupStop == StopAdmins:
		return c.adminsOnly(ctx, u, to, "Only administrators of this group may stop a turn here.")
	case isCommand && word == activationWord:
		if settled, err := c.adminsOnly(ctx, u, to, refusedActivation); settled || err != nil {
			return true, err
		}
		return true, c.changeActivation(ctx, to, u.message.From.ID, args)
	}
	return false, nil
}

// adminsOnly settles the message of somebody who does not run the group. When Telegram cannot be asked, the answer is no; when it asks to wait, that is
// the error, and the message is handled afterwards.
func (c *Channel) adminsOnly(ctx context.Context, u update, to address, refusal string) (settled bool, err error) {
	admin, err := c.isAdmin(ctx, to.chat, u.message.From.ID)
	if asked(err) > 0 {
		return false, err
	}
	if err != nil {
		c.log.WarnContext(ctx, "nobody knows who runs a group; the command is refused", "err", err)
	}
	if !admin {
		c.obs.Update("refused")
		c.sayOnce(ctx, to, refusal)
	}
	return !admin, nil
}

// textOf is what a message says.
func textOf(m *tgbotapi.Message) string {
	if m.Text != "" {
		return m.Text
	}
	return m.Caption
}

// content is what the agent gets: the texts of all parts and their files. It is gathered once.
func (c *Channel) content(ctx context.Context, parts []update, to address) (chat.Content, error) {
	done := parts[0].memo
	if done.content != nil {
		return *done.content, nil
	}
	content, err := c.gather(ctx, parts, to)
	if err == nil {
		done.content = &content
	}
	return content, err
}

func (c *Channel) gather(ctx context.Context, parts []update, to address) (chat.Content, error) {
	lead := parts[0]
	content := chat.Content{
		Sender: chat.Sender{ID: number(lead.message.From.ID), Name: nameOf(lead.message.From)}, External: lead.forwarded,
		Options: chat.Options{Typed: true, ReplyTo: c.targetOf(to), StopOwn: to.group() && c.cfg.GroupStop == StopOwn},
	}
	content.Thread = content.Options.ReplyTo.Thread
	var texts []string
	for i, p := range parts {
		if t := strings.TrimSpace(chat.CleanText(wordsOf(p.message))); t != "" {
			texts = append(texts, t)
		}
		file, has := fileOf(p.message)
		if !has {
			continue
		}
		a, note, err := c.fetchFile(ctx, lead.fetch, file, fmt.Sprintf("%d-%d-%d", lead.id, lead.message.Date, i))
		if err != nil {
			return content, err
		}
		if note != "" {
			texts = append(texts, "["+note+"]")
			c.sayOnce(ctx, to, sentence(note))
			continue
		}
		content.Attachments = append(content.Attachments, a)
	}
	content.Text = strings.Join(texts, "\n")
	if content.Text == "" && len(content.Attachments) == 0 && strange(lead.message) {
		c.sayOnce(ctx, to, "I cannot read this kind of message. Send text, a photo, a document or a voice message.")
	}
	return content, nil
}

func sentence(note string) string { return strings.ToUpper(note[:1]) + note[1:] + "." }

// wordsOf is a message in words: its text, or what it shows.
func wordsOf(m *tgbotapi.Message) string {
	switch {
	case textOf(m) != "":
		return textOf(m)
	case m.Sticker != nil:
		return m.Sticker.Emoji
	case m.Venue != nil:
		return fmt.Sprintf("Place: %s, %s (%.6f, %.6f)", m.Venue.Title, m.Venue.Address, m.Venue.Location.Latitude, m.Venue.Location.Longitude)
	case m.Location != nil:
		return fmt.Sprintf("Place: %.6f, %.6f", m.Location.Latitude, m.Location.Longitude)
	case m.Contact != nil:
		return strings.TrimSpace("Contact: "+m.Contact.FirstName+" "+m.Contact.LastName) + ", " + m.Contact.PhoneNumber
	default:
		return ""
	}
}

// strange reports whether a person sent something that nobody reads, as opposed to what Telegram says about a group.
func strange(m *tgbotapi.Message) bool {
	return m.Poll != nil || m.Dice != nil || m.Game != nil || m.Invoice != nil || m.Sticker != nil
}

// offer hands a message over and tells the person when it cannot be taken.
func (c *Channel) offer(ctx context.Context, u update, to address, content chat.Content) error {
	m, err := c.compose(u, to, content)
	if err != nil {
		return err
	}
	c.recent.add(m.ID, ref{to: to, message: u.message.MessageID})
	receiver := c.receiving()
	if receiver == nil {
		return context.Canceled
	}
	r, err := receiver.Receive(ctx, m)
	return c.received(ctx, to, r, err)
}

func (c *Channel) compose(u update, to address, content chat.Content) (chat.Message, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return chat.Message{}, fmt.Errorf("naming a message: %w", err)
	}
	kind := chat.KindDirect
	if to.group() {
		kind = chat.KindGroup
	}
	return chat.Message{
		Session: chat.PeerKey(c.cfg.Agent, "telegram", kind, number(to.chat), content.Thread), ID: id.String(),
		Principal: c.name + ":" + content.Sender.ID, Scope: scope, BotName: c.Username(), Channel: c.name, ExternalID: int64(u.id),
		Dedupe: c.name + "/" + strconv.Itoa(u.id), Content: content,
	}, nil
}

// received settles what the house said about a message: a refusal of its own is told to the person, the store's absence is not settled.
func (c *Channel) received(ctx context.Context, to address, r chat.Receipt, err error) error {
	var app *chat.Error
	switch {
	case err == nil && r.Duplicate:
		c.obs.Update("duplicate")
	case err == nil && r.Command:
		c.obs.Update("command")
	case err == nil:
		c.obs.Update("accepted")
	case temporary(err) || !errors.As(err, &app) || app.Code == chat.CodeInternal:
		return err
	case app.Code == chat.CodeQueueFull: // the gateway tells it, once per burst and with the number
		c.obs.Update("refused")
	default:
		c.obs.Update("refused")
		c.sayOnce(ctx, to, "This was not taken: "+strings.TrimSuffix(app.Message, ".")+".")
	}
	return nil
}
