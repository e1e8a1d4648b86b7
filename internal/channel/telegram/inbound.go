package telegram

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// scope is what a person of a chat may do.
const scope = "operator.write"

func number(n int64) string { return strconv.FormatInt(n, 10) }

// inboundConfig are the settings of [Config] for incoming messages.
type inboundConfig struct {
	agent, groupStop string
	userRate         int
	userFileBytes    int
}

// inbound turns updates into messages and passes them to the receiver. It is the handler of [intake]: it is safe for concurrent use, but the updates
// of one chat come one after the other, except urgent ones.
type inbound struct {
	cfg        inboundConfig
	identity   *identity
	addresses  *addresses
	access     *access
	words      *commandWords
	files      *attachments
	choices    *choices
	greeter    *greeter
	activation *activationCommand
	notes      *notes
	signs      *signs
	recent     *recentMessages
	limits     *userLimits // messages
	fileBytes  *userLimits // bytes of files
	// receiver returns the receiver of messages, nil while the channel does not run.
	receiver func() channel.Receiver
	obs      Observer
	log      *slog.Logger
}

// urgent implements handler.
func (in *inbound) urgent(u update) bool { return in.words.isUrgent(u) }

// handle implements handler. parts is one update, or the parts of one album.
func (in *inbound) handle(ctx context.Context, parts []update) error {
	u := parts[0]
	switch {
	case u.press != nil:
		return in.pressed(ctx, u)
	case u.message == nil || u.message.Chat == nil:
		in.obs.Update("ignored") // edited messages, votes, members: nothing that begins a turn
		return nil
	case u.message.MigrateToChatID != 0:
		return in.addresses.move(ctx, u.chat, u.message.MigrateToChatID)
	case u.message.MigrateFromChatID != 0:
		return in.addresses.move(ctx, u.message.MigrateFromChatID, u.chat)
	}
	return in.message(ctx, parts)
}

// message handles one message: access, limits and commands of the channel first, because they cost no download.
func (in *inbound) message(ctx context.Context, parts []update) error {
	u, m := parts[0], parts[0].message
	to := address{chat: u.chat, thread: u.thread}
	who, err := in.access.judge(ctx, m.From, m.Chat)
	switch {
	case err != nil:
		return err
	case who == unknown:
		return in.greeter.greet(ctx, m.From, to)
	case who == ignore:
		in.obs.Update("ignored")
		return nil
	}
	if addressed, err := in.access.addressed(ctx, parts); err != nil || !addressed {
		in.obs.Update("ignored")
		return err
	}
	if settled, err := in.early(ctx, u, to); settled || err != nil {
		return err
	}
	content, err := in.content(ctx, parts, to)
	if err != nil || (content.Text == "" && len(content.Attachments) == 0) {
		in.obs.Update("ignored")
		return err
	}
	return in.offer(ctx, u, messageRef{to: to, message: m.MessageID}, content)
}

// early applies the limit of the sender, the rule of the group for /stop, and the channel's own command. settled means that no message is to be
// passed on.
func (in *inbound) early(ctx context.Context, u update, to address) (settled bool, err error) {
	word, args, isCommand := in.words.parse(textOf(u.message))
	isStop := isCommand && (word == "stop" || word == "stopall")
	if !isStop && !u.memo.counted && !in.limits.allow(u.message.From.ID, 1) {
		in.obs.Update("limited")
		in.notes.sendOnce(ctx, to, fmt.Sprintf("You write faster than I may read: %d messages a minute. What came above that was left out; send it again in a minute.", in.cfg.userRate))
		return true, nil
	}
	u.memo.counted = true
	if !to.group() || u.forwarded {
		return false, nil
	}
	switch {
	case isStop && in.cfg.groupStop == StopAdmins:
		return in.adminsOnly(ctx, u, to, "Only administrators of this group may stop a turn here.")
	case isCommand && word == activationWord:
		if settled, err := in.adminsOnly(ctx, u, to, refusedActivation); settled || err != nil {
			return true, err
		}
		return true, in.activation.run(ctx, to, u.message.From.ID, args)
	}
	return false, nil
}

// adminsOnly refuses the command of a person who is not an administrator of the group, also when Telegram cannot be reached. When Telegram asks to
// wait, it returns that error: the command is handled after the wait.
func (in *inbound) adminsOnly(ctx context.Context, u update, to address, refusal string) (settled bool, err error) {
	admin, err := in.access.isAdmin(ctx, to.chat, u.message.From.ID)
	if asked(err) > 0 {
		return false, err
	}
	if err != nil {
		in.log.WarnContext(ctx, "the administrators of a group are unknown; the command is refused", "err", err)
	}
	if !admin {
		in.obs.Update("refused")
		in.notes.sendOnce(ctx, to, refusal)
	}
	return !admin, nil
}

// pressed turns the press of a button into the message of the button. It answers every press, otherwise the button would show progress forever. The
// access rules of typed messages apply. The set of buttons is used up by a press that they allow, before the message is durable: see memo.
func (in *inbound) pressed(ctx context.Context, u update) error {
	p := u.press
	if p.From == nil || p.Message == nil || p.Message.Chat == nil {
		in.obs.Update("ignored")
		return nil
	}
	if done := u.memo.content; done != nil { // the button is used up, but the store did not accept the message
		return in.offerPress(ctx, u, *done)
	}
	who, err := in.access.judge(ctx, p.From, p.Message.Chat)
	if err != nil {
		return err
	}
	if who != admit {
		in.refusePress(ctx, u, "You may not use this.")
		return nil
	}
	text, err := in.choices.take(ctx, p.Data, p.From.ID, p.Message.Chat.ID, int64(u.id))
	switch {
	case errors.Is(err, channel.ErrButtonNotYours):
		in.refusePress(ctx, u, "This button is for somebody else.")
		return nil
	case errors.Is(err, channel.ErrButtonUnknown):
		in.refusePress(ctx, u, "This button was used or is too old. Ask again.")
		return nil
	case err != nil:
		return fmt.Errorf("reading a button: %w", err)
	}
	to := address{chat: u.chat, thread: u.thread}
	if settled, err := in.activation.pressed(ctx, u, to, text); settled || err != nil {
		return err
	}
	content := chat.Content{
		Text: text, Sender: chat.Sender{ID: number(p.From.ID), Name: nameOf(p.From)},
		Options: chat.Options{ReplyTo: in.addresses.target(to), NoMerge: true, StopOwn: to.group() && in.cfg.groupStop == StopOwn},
	}
	content.Thread = content.Options.ReplyTo.Thread
	u.memo.content = &content
	in.signs.answerPress(ctx, p.ID, "")
	return in.offerPress(ctx, u, content)
}

func (in *inbound) refusePress(ctx context.Context, u update, reason string) {
	in.obs.Update("refused")
	in.signs.answerPress(ctx, u.press.ID, reason)
}

// offerPress passes the message of a press to the receiver, and then removes the buttons.
func (in *inbound) offerPress(ctx context.Context, u update, content chat.Content) error {
	at := messageRef{to: address{chat: u.chat, thread: u.thread}, message: u.press.Message.MessageID}
	if err := in.offer(ctx, u, at, content); err != nil {
		return err
	}
	in.signs.removeKeyboard(ctx, at.to, at.message)
	return nil
}

// offer passes a message to the receiver, and sends a note when the receiver refuses it.
func (in *inbound) offer(ctx context.Context, u update, at messageRef, content chat.Content) error {
	m, err := in.compose(u, at.to, content)
	if err != nil {
		return err
	}
	in.recent.add(m.ID, at)
	receiver := in.receiver()
	if receiver == nil {
		return context.Canceled
	}
	r, err := receiver.Receive(ctx, m)
	return in.received(ctx, at.to, r, err)
}

// compose makes the message of an update. Its idempotency key is the number of the update, so a repeated update makes no second message.
func (in *inbound) compose(u update, to address, content chat.Content) (chat.Message, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return chat.Message{}, fmt.Errorf("making the id of a message: %w", err)
	}
	name := in.identity.name
	return chat.Message{
		Session: sessionOf(in.cfg.agent, to), ID: id.String(),
		Principal: name + ":" + content.Sender.ID, Scope: scope, BotName: in.identity.username(), Channel: name, ExternalID: int64(u.id),
		Dedupe: name + "/" + strconv.Itoa(u.id), Content: content,
	}, nil
}

// received evaluates the result of Receive. A refusal settles the update, and its sender receives a note; a temporary failure does not settle it.
func (in *inbound) received(ctx context.Context, to address, r chat.Receipt, err error) error {
	var app *chat.Error
	switch {
	case err == nil && r.Duplicate:
		in.obs.Update("duplicate")
	case err == nil && r.Command:
		in.obs.Update("command")
	case err == nil:
		in.obs.Update("accepted")
	case temporary(err) || !errors.As(err, &app) || app.Code == chat.CodeInternal:
		return err
	case app.Code == chat.CodeQueueFull: // the gateway sends one notice per burst, with the number of refused messages
		in.obs.Update("refused")
	default:
		in.obs.Update("refused")
		in.notes.sendOnce(ctx, to, "This was not taken: "+strings.TrimSuffix(app.Message, ".")+".")
	}
	return nil
}
