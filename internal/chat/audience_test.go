package chat_test

import (
	"strings"
	"testing"

	"laneway/internal/chat"
)

func TestTheAudienceOfATurnIsAtThePlaceOfItsAnswer(t *testing.T) {
	t.Parallel()
	const person = "telegram:666:7"
	at := func(channel, chatID, thread string) chat.Target {
		return chat.Target{Channel: channel, ChatID: chatID, Thread: thread}
	}
	for name, tt := range map[string]struct {
		principal, session, owner string
		to                        chat.Target
		conversation, readers     string // "" = private
	}{
		"private chat":                       {person, "telegram:direct:7", person, at("telegram:666", "7", ""), "", ""},
		"topic of a private chat":            {person, "telegram:direct:7:topic:3", person, at("telegram:666", "7", "3"), "", ""},
		"group":                              {person, "telegram:group:-5", person, at("telegram:666", "-5", ""), "telegram:group:-5", "everyone in this group (telegram -5)"},
		"topic":                              {person, "telegram:group:-5:topic:3", person, at("telegram:666", "-5", "3"), "telegram:group:-5:topic:3", "everyone in this group (telegram -5, topic 3)"},
		"group without an address":           {person, "telegram:group:-5", person, chat.Target{}, "telegram:group:-5", "everyone in this group"},
		"own web session":                    {"ann", "notes", "ann", chat.Target{}, "", ""},
		"new web session":                    {"ann", "notes", "", chat.Target{}, "", ""},
		"web session of another":             {"bob", "notes", "ann", chat.Target{}, "notes", "ann, who owns this session,"},
		"main":                               {"gateway", "main", "gateway", chat.Target{}, "", ""},
		"operator in a private chat":         {"gateway", "telegram:direct:7", person, chat.Target{}, "telegram:direct:7", "the person in the chat telegram 7"},
		"job for the own chat":               {person, "cron:j:at-1", person, at("telegram:666", "7", ""), "", ""},
		"job for a group":                    {person, "cron:j:at-1", person, at("telegram:666", "-5", "3"), "telegram:group:-5:topic:3", "everyone in this group"},
		"job of an operator for a chat":      {"gateway", "cron:j:at-1", "gateway", at("telegram:666", "7", ""), "telegram:group:7", "everyone in this group"},
		"job that answers nowhere":           {"ann", "cron:j:at-1", "ann", chat.Target{}, "", ""},
		"job with a webhook":                 {"ann", "cron:j:at-1", "ann", at("webhook", "https://ann.example.org", ""), "", ""},
		"job for a web session of its owner": {"ann", "cron:j:at-1", "ann", at("web", "agent:main:notes", ""), "", ""},
		"completion":                         {"ann", "api:ann:phone", "ann", chat.Target{}, "", ""},
	} {
		key, err := chat.ParseSessionKey(tt.session, "main")
		if err != nil {
			t.Fatal(err)
		}
		got := chat.AudienceOf(tt.principal, chat.ConversationOf(key, tt.to, tt.principal), tt.owner)
		if got.Conversation.Rest != tt.conversation || got.Shared() != (tt.conversation != "") || !strings.HasPrefix(got.Readers, tt.readers) || got.Shared() != (got.Readers != "") {
			t.Errorf("%s: got %+v, want the readers of %q, %q", name, got, tt.conversation, tt.readers)
		}
	}
}
