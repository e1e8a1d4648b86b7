package telegram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// anonymousAdmin is the user id that Telegram shows for messages of anonymous administrators.
const anonymousAdmin = 1087968824

// verdict is the decision about a message by its sender.
type verdict int

const (
	ignore  verdict = iota // not for the bot, or from a sender who receives no answer
	admit                  // handle it
	unknown                // a person in a private chat whom no list and no pairing admits
)

// accessRules are the access settings of [Config], and when the bot answers in a group.
type accessRules struct {
	policy, members, activation string
	allow, groups               []int64
}

// access decides who may talk to the bot, whether a message of a group is for it, and who may
// change that. Only the ids of the bot, the person and the chat identify a sender; names prove
// nothing. It keeps no state; after an error of the store or of Telegram it admits no person.
type access struct {
	rules    accessRules
	identity *identity
	words    *commandWords
	records  channel.Records
	api      *client
}

// judge decides about a sender in a chat.
func (a *access) judge(ctx context.Context, from *tgbotapi.User, in *tgbotapi.Chat) (verdict, error) {
	if a.rules.policy == AccessDisabled || from == nil || (from.IsBot && from.ID != anonymousAdmin) {
		return ignore, nil
	}
	if !in.IsPrivate() {
		return a.judgeGroup(ctx, from, in)
	}
	switch {
	case from.ID == anonymousAdmin || from.ID != in.ID:
		return ignore, nil
	case a.rules.policy == AccessOpen || slices.Contains(a.rules.allow, from.ID):
		return admit, nil
	case a.rules.policy == AccessAllowlist:
		return unknown, nil
	}
	allowed, err := a.records.Paired(ctx, a.identity.peer(from.ID, in.ID))
	switch {
	case err != nil:
		return ignore, fmt.Errorf("reading the pairing of a person: %w", err)
	case allowed:
		return admit, nil
	}
	return unknown, nil
}

// judgeGroup requires that the chat is in the list and, unless every member may talk, that the
// person is too. Pairings count in private chats only.
func (a *access) judgeGroup(ctx context.Context, from *tgbotapi.User, in *tgbotapi.Chat) (verdict, error) {
	if !in.IsGroup() && !in.IsSuperGroup() {
		return ignore, nil
	}
	listed, err := a.listed(ctx, in.ID)
	if err != nil || !listed {
		return ignore, err
	}
	if a.rules.members == MembersAny || slices.Contains(a.rules.allow, from.ID) {
		return admit, nil
	}
	return ignore, nil
}

// listed reports whether a group is in the list, possibly under the id that it had before it became
// a supergroup.
func (a *access) listed(ctx context.Context, id int64) (bool, error) {
	if slices.Contains(a.rules.groups, id) {
		return true, nil
	}
	from, err := a.records.GroupBefore(ctx, a.identity.name, id)
	if err != nil {
		return false, fmt.Errorf("reading the former id of a group: %w", err)
	}
	return from != 0 && slices.Contains(a.rules.groups, from), nil
}

// addressed reports whether one of the parts of a message is for the bot.
func (a *access) addressed(ctx context.Context, parts []update) (bool, error) {
	for _, p := range parts {
		if yes, err := a.partAddressed(ctx, p.message); yes || err != nil {
			return yes, err
		}
	}
	return false, nil
}

// partAddressed reports whether one part is for the bot. In a private chat every message is. In a
// group a message is if it answers the bot, is a command, mentions the bot, or the bot answers
// every message there.
func (a *access) partAddressed(ctx context.Context, m *tgbotapi.Message) (bool, error) {
	if m.Chat.IsPrivate() || a.named(m) {
		return true, nil
	}
	when, err := a.activation(ctx, m.Chat.ID)
	return when == ActivationAlways, err
}

// named reports whether a message answers the bot, is a command, or mentions the bot.
func (a *access) named(m *tgbotapi.Message) bool {
	r := m.ReplyToMessage
	return r != nil && r.From != nil && r.From.ID == a.identity.bot || a.words.isCommand(textOf(m)) || a.words.mentioned(m)
}

// knownElsewhere reports whether a person who may talk to the bot in private addresses it in a
// group that is not in the list. They learn the id of the group; to everybody else there the bot is
// silent.
func (a *access) knownElsewhere(ctx context.Context, m *tgbotapi.Message) (bool, error) {
	if a.rules.policy == AccessDisabled || m.From == nil || m.From.IsBot || m.Chat.IsPrivate() || !a.named(m) {
		return false, nil
	}
	if listed, err := a.listed(ctx, m.Chat.ID); listed || err != nil {
		return false, err
	}
	if slices.Contains(a.rules.allow, m.From.ID) {
		return true, nil
	}
	paired, err := a.records.Paired(ctx, a.identity.peer(m.From.ID, m.From.ID))
	if err != nil {
		return false, fmt.Errorf("reading the pairing of a person: %w", err)
	}
	return paired && a.rules.policy == AccessPairing, nil
}

// activation returns when the bot answers in a group: as its administrators chose, otherwise as
// configured.
func (a *access) activation(ctx context.Context, chatID int64) (string, error) {
	chosen, err := a.records.GroupActivation(ctx, a.identity.name, chatID)
	if err != nil {
		return "", fmt.Errorf("reading the activation of a group: %w", err)
	}
	chosen = cmp.Or(chosen, a.rules.activation)
	return chosen, nil
}

// setActivation records when the bot answers in a group.
func (a *access) setActivation(ctx context.Context, chatID int64, choice string) error {
	if err := a.records.SetGroupActivation(ctx, a.identity.name, chatID, choice); err != nil {
		return fmt.Errorf("recording the activation of a group: %w", err)
	}
	return nil
}

// isAdmin asks Telegram whether a person is an administrator of a group.
func (a *access) isAdmin(ctx context.Context, chatID, userID int64) (bool, error) {
	if userID == anonymousAdmin {
		return true, nil
	}
	var member tgbotapi.ChatMember
	err := a.api.call(ctx, callTime, "getChatMember", tgbotapi.Params{"chat_id": number(chatID), "user_id": number(userID)}, &member)
	if err != nil {
		return false, err
	}
	return member.Status == "creator" || member.Status == "administrator", nil
}

// nameOf returns the display name of a person, safe to print anywhere. It does not identify the
// person.
func nameOf(u *tgbotapi.User) string {
	name := cmp.Or(strings.TrimSpace(u.FirstName+" "+u.LastName), u.UserName)
	return cleanName(name)
}

// cleanName removes what would make a list or a log line look like something else.
func cleanName(s string) string {
	const limit = 64
	s = chat.Name(chat.CleanText(s))
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit])
	}
	return strings.TrimSpace(s)
}

// activationCommand executes /activation: administrators of a group choose when the bot answers
// there. Its callers have checked that the sender is an administrator.
type activationCommand struct {
	access  *access
	words   *commandWords
	choices *choices
	notes   *notes
	signs   *signs
	metrics *Metrics
	log     *slog.Logger
}

const (
	usageActivation   = "Write /activation always or /activation mention."
	refusedActivation = "Only administrators of this group can change when I answer."
)

// run executes the command with its argument. Without an argument it shows the current choice, with
// a button for each option.
func (a *activationCommand) run(ctx context.Context, to address, user int64, choice string) error {
	a.metrics.update("command")
	switch choice = strings.ToLower(choice); choice {
	case "":
		return a.show(ctx, to, user)
	case ActivationAlways, ActivationMention:
		return a.set(ctx, to, choice)
	default:
		a.notes.sendOnce(ctx, to, usageActivation, usageActivation)
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
	text := "I answer here when you mention me or reply to me."
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
	answer := "From now on I answer here when you mention me or reply to me."
	if choice == ActivationAlways {
		answer = "From now on I answer every message here. For that, turn off my privacy mode at @BotFather."
	}
	a.notes.send(ctx, to, answer, 0)
	return nil
}

// pressed executes the button of [activationCommand.show] that has this text; settled is false for
// another button. The person may have lost the rights of an administrator since the button was
// shown, so the rights are checked again.
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
		a.metrics.update("refused")
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

const (
	// greetEvery is the shortest time between two greetings of one chat.
	greetEvery = time.Minute
	// greetingLife is how long a greeting that was not delivered is kept: less than the validity of
	// its code.
	greetingLife = channel.PairingLife - 10*time.Minute
)

// greeter answers people who are not admitted, with a pairing code or with the reason. Their
// messages have no other effect: no session, no row of the inbox, no call of a model.
type greeter struct {
	allowlist bool // the policy is a list, so there are no codes
	identity  *identity
	records   channel.Records
	notes     *notes
	metrics   *Metrics
	log       *slog.Logger

	sent *ttlMap // chats that received a greeting
	// unsent are greetings by chat that Telegram did not accept. The next message of the chat is
	// answered with the same text, and so the same code.
	unsent *ttlMap
}

// greet sends at most one greeting a minute to a chat. Only a greeting that Telegram has accepted
// counts.
func (g *greeter) greet(ctx context.Context, from *tgbotapi.User, to address) error {
	g.metrics.update("refused")
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
		return fmt.Sprintf("Only people on a list can use this bot. To get on it, give its operator your number: %d.", from.ID), nil
	}
	p, err := g.records.CreatePairing(ctx, g.identity.peer(from.ID, to.chat), nameOf(from))
	switch {
	case errors.Is(err, channel.ErrPairingChatFull):
		return "You already have three codes. Ask the operator of this bot to approve one within an hour.", nil
	case errors.Is(err, channel.ErrPairingBotFull):
		return "Too many people are waiting for approval. Try again in an hour.", nil
	case err != nil:
		return "", fmt.Errorf("creating a pairing code: %w", err)
	}
	g.log.InfoContext(ctx, "a person asks for access", "user", from.ID)
	return "Hello. You need approval to use this bot. Ask its operator to run:\n\nlaneway pair approve " + p.Code +
		"\n\nThe code is good for one hour. Then write again.", nil
}

// activationWord is the one command that the channel itself executes.
const activationWord = "activation"

// commandWords recognizes commands in messages by the gateway's command table.
type commandWords struct {
	identity *identity
	urgent   map[string]bool // names and aliases of the commands; true if urgent
}

// parse reads the first word of text as a command for this bot: `/name`, `/name@bot` or
// `@bot /name`. The word need not be in the table.
func (w *commandWords) parse(text string) (word, args string, ok bool) {
	word, args = firstWord(text)
	if mention, isMention := strings.CutPrefix(word, "@"); isMention {
		if !strings.EqualFold(mention, w.identity.username()) {
			return "", "", false
		}
		word, args = firstWord(args)
	}
	word, isCommand := strings.CutPrefix(word, "/")
	if !isCommand {
		return "", "", false
	}
	word, bot, named := strings.Cut(word, "@")
	if named && !strings.EqualFold(bot, w.identity.username()) {
		return "", "", false
	}
	return strings.ToLower(word), args, true
}

// isCommand reports whether text is a command of the table or the channel's own.
func (w *commandWords) isCommand(text string) bool {
	word, _, ok := w.parse(text)
	_, known := w.urgent[word]
	return ok && (known || word == activationWord)
}

// isUrgent reports whether an update consists of an urgent command alone. Forwarded text has no
// authority, and a command in the caption of a file waits for the file.
func (w *commandWords) isUrgent(u update) bool {
	if u.message == nil || u.forwarded {
		return false
	}
	if _, has := fileOf(u.message); has {
		return false
	}
	word, _, ok := w.parse(textOf(u.message))
	return ok && w.urgent[word]
}

// mentioned reports whether an entity of a message mentions the bot. Telegram makes the entities;
// the text proves nothing.
func (w *commandWords) mentioned(m *tgbotapi.Message) bool {
	text := textOf(m)
	for _, e := range entitiesOf(m) {
		switch e.Type {
		case "text_mention":
			if e.User != nil && e.User.ID == w.identity.bot {
				return true
			}
		case "mention":
			if name := w.identity.username(); name != "" && strings.EqualFold(units(text, e.Offset, e.Length), "@"+name) {
				return true
			}
		}
	}
	return false
}

// units returns a part of a string by UTF-16 positions, "" if they are outside of it or inside of a
// character.
func units(s string, offset, length int) string {
	offsets := byteOffsets(s)
	begin, ok := offsets[offset]
	end, found := offsets[offset+length]
	if !ok || !found || end < begin {
		return ""
	}
	return s[begin:end]
}

func firstWord(s string) (word, rest string) {
	s = strings.TrimSpace(s)
	if i := strings.IndexAny(s, " \t\r\n"); i >= 0 {
		return s[:i], strings.TrimSpace(s[i:])
	}
	return s, ""
}
