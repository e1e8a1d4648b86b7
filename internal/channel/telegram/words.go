package telegram

import (
	"strings"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"
)

// activationWord is the one command that the channel itself executes.
const activationWord = "activation"

// commandWords recognizes commands in messages by the gateway's command table.
type commandWords struct {
	identity *identity
	urgent   map[string]bool // names and aliases of the commands; true if urgent
}

// parse reads the first word of text as a command for this bot: `/name`, `/name@bot` or `@bot /name`. The word need not be in the table.
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

// isUrgent reports whether an update consists of an urgent command alone. Forwarded text has no authority, and a command in the caption of a
// file waits for the file.
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

// mentioned reports whether an entity of a message mentions the bot. Telegram makes the entities; the text proves nothing.
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

// units returns a part of a string by UTF-16 positions, "" if they are outside of it or inside of a character.
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
