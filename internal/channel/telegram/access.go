package telegram

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// accessRecords is the part of [channel.Records] that access needs.
type accessRecords interface {
	Paired(ctx context.Context, p channel.Peer) (bool, error)
	GroupActivation(ctx context.Context, channel string, chatID int64) (string, error)
	SetGroupActivation(ctx context.Context, channel string, chatID int64, activation string) error
	GroupBefore(ctx context.Context, channel string, chatID int64) (from int64, err error)
}

// access decides who may talk to the bot, whether a message of a group is for it, and who may change that. Only the ids of the bot, the person
// and the chat identify a sender; names prove nothing. It keeps no state; after an error of the store or of Telegram it admits no person.
type access struct {
	rules    accessRules
	identity *identity
	words    *commandWords
	records  accessRecords
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

// judgeGroup requires that the chat is in the list and, unless every member may talk, that the person is too. Pairings count in private chats only.
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

// listed reports whether a group is in the list, possibly under the id that it had before it became a supergroup.
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

// partAddressed reports whether one part is for the bot. In a private chat every message is. In a group a message is if it answers the bot, is a
// command, mentions the bot, or the bot answers every message there.
func (a *access) partAddressed(ctx context.Context, m *tgbotapi.Message) (bool, error) {
	if m.Chat.IsPrivate() {
		return true, nil
	}
	if r := m.ReplyToMessage; r != nil && r.From != nil && r.From.ID == a.identity.bot {
		return true, nil
	}
	if a.words.isCommand(textOf(m)) || a.words.mentioned(m) {
		return true, nil
	}
	when, err := a.activation(ctx, m.Chat.ID)
	return when == ActivationAlways, err
}

// activation returns when the bot answers in a group: as its administrators chose, otherwise as configured.
func (a *access) activation(ctx context.Context, chatID int64) (string, error) {
	chosen, err := a.records.GroupActivation(ctx, a.identity.name, chatID)
	if err != nil {
		return "", fmt.Errorf("reading the activation of a group: %w", err)
	}
	if chosen == "" {
		chosen = a.rules.activation
	}
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

// nameOf returns the display name of a person, safe to print anywhere. It does not identify the person.
func nameOf(u *tgbotapi.User) string {
	name := strings.TrimSpace(u.FirstName + " " + u.LastName)
	if name == "" {
		name = u.UserName
	}
	return cleanName(name)
}

// cleanName removes what would make a list or a log line look like something else.
func cleanName(s string) string {
	const limit = 64
	s = chat.Printable(chat.CleanText(s))
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit])
	}
	return strings.TrimSpace(s)
}
