package telegram

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/chat"
)

// content returns the text of all parts and their files. It is made once per update: a further attempt uses the files of the first.
func (in *inbound) content(ctx context.Context, parts []update, to address) (chat.Content, error) {
	done := parts[0].memo
	if done.content != nil {
		return *done.content, nil
	}
	content, err := in.gather(ctx, parts, to)
	if err == nil {
		done.content = &content
	}
	return content, err
}

func (in *inbound) gather(ctx context.Context, parts []update, to address) (chat.Content, error) {
	lead := parts[0]
	content := chat.Content{
		Sender: chat.Sender{ID: number(lead.message.From.ID), Name: nameOf(lead.message.From)}, External: lead.forwarded,
		Network: number(int64(lead.message.MessageID)),
		Options: chat.Options{Typed: true, ReplyTo: in.addresses.target(to), StopOwn: to.group() && in.cfg.groupStop == StopOwn},
	}
	content.Thread = content.Options.ReplyTo.Thread
	content.Answered = in.answered(lead)
	var texts []string
	for i, p := range parts {
		if t := strings.TrimSpace(chat.CleanText(in.words.written(p))); t != "" {
			texts = append(texts, t)
		}
		file, has := fileOf(p.message)
		if !has {
			continue
		}
		if !in.mayFetch(lead.message.From.ID, p, file) {
			texts = append(texts, "["+chat.FileName(file.name)+" was left out: too many files in a minute]")
			in.notes.sendOnce(ctx, to, fmt.Sprintf("You send files faster than I may keep them: %d MB a minute. What came above that was left out; send it again in a minute.",
				in.cfg.userFileBytes>>20))
			continue
		}
		a, note, err := in.files.save(ctx, lead.fetch, file, fmt.Sprintf("%d-%d-%d", lead.id, lead.message.Date, i))
		if err != nil {
			return content, err
		}
		if note != "" {
			texts = append(texts, "["+note+"]")
			in.notes.sendOnce(ctx, to, sentence(note))
			continue
		}
		content.Attachments = append(content.Attachments, a)
	}
	content.Text = strings.Join(texts, "\n")
	if content.Text == "" && len(content.Attachments) == 0 && unreadable(lead.message) {
		in.notes.sendOnce(ctx, to, "I cannot read this kind of message. Send text, a photo, a document or a voice message.")
	}
	return content, nil
}

// answered returns the message that a message answers or quotes; nil if none. Telegram says that each message of a topic answers the one that made the topic, which is
// not what its sender means.
func (in *inbound) answered(u update) *chat.Answered {
	a, r := &chat.Answered{}, u.message.ReplyToMessage
	if u.answers.Quote != nil {
		a.Selected = chat.CleanText(linked(u.answers.Quote.Text, u.answers.Quote.Entities, 0, in.identity.bot))
	}
	var author int64
	switch more := u.answers; {
	case more.External != nil:
		o := more.External.Origin
		if a.Author, a.Text = o.name(), named(&more.External.Message, in.identity.bot); o.User != nil {
			author = o.User.ID
		}
	case r == nil || more.Replied != nil && len(more.Replied.TopicCreated) > 0:
		if a.Selected == "" {
			return nil
		}
	default:
		a.Message = number(int64(r.MessageID))
		a.Text = named(r, in.identity.bot)
		switch {
		case r.SenderChat != nil:
			a.Author = cleanName(r.SenderChat.Title)
		case r.From != nil:
			a.Author = nameOf(r.From)
			if r.ForwardDate == 0 && (more.Replied == nil || len(more.Replied.ForwardOrigin) == 0) && r.From.ID != anonymousAdmin {
				author = r.From.ID
			}
		}
	}
	if a.Text == "" && a.Selected == "" && a.Author == "" {
		return nil
	}
	a.Ours, a.Own = author == in.identity.bot, author != 0 && author == u.message.From.ID
	a.Outside = !a.Ours && !a.Own
	return a.Bound()
}

// named returns an answered message in words: its text, and a word for its file.
func named(m *tgbotapi.Message, bot int64) string {
	text := wordsOf(m)
	if typed := textOf(m); typed != "" {
		text = linked(typed, entitiesOf(m), 0, bot)
	}
	media := ""
	switch f, has := fileOf(m); {
	case len(m.Photo) > 0:
		media = "[photo]"
	case m.Voice != nil:
		media = "[voice message]"
	case m.VideoNote != nil:
		media = "[video message]"
	case has:
		media = "[file: " + chat.FileName(f.name) + "]"
	}
	return chat.CleanText(joinLines(media, text, buttonsOf(m)))
}

// mayFetch takes the bytes of a file from the allowance of its sender, once for each update. A file without a stated size counts as the largest; one that is
// too large is not fetched and takes nothing.
func (in *inbound) mayFetch(sender int64, p update, f file) bool {
	size := f.size
	if size <= 0 {
		size = in.files.limit
	}
	if p.memo.paid || size > in.files.limit {
		return true
	}
	p.memo.paid = in.fileBytes.allow(sender, int(size))
	return p.memo.paid
}

func sentence(note string) string { return strings.ToUpper(note[:1]) + note[1:] + "." }

// textOf returns the text or the caption of a message.
func textOf(m *tgbotapi.Message) string {
	if m.Text != "" {
		return m.Text
	}
	return m.Caption
}

// entitiesOf returns the entities of [textOf].
func entitiesOf(m *tgbotapi.Message) []tgbotapi.MessageEntity {
	if m.Text != "" {
		return m.Entities
	}
	return m.CaptionEntities
}

// written returns the words of a part for the agent: those that the person typed, with the addresses of linked words, and the buttons that open addresses. In a
// command the addresses begin after its name, which must stay as it was typed; forwarded text is not a command.
func (w *commandWords) written(u update) string {
	m, from := u.message, 0
	if word, args, ok := w.parse(textOf(m)); ok && !u.forwarded && w.isCommand("/"+word) {
		from = len(strings.TrimRightFunc(textOf(m), unicode.IsSpace)) - len(args)
	}
	text := wordsOf(m)
	if typed := textOf(m); typed != "" {
		text = linked(typed, entitiesOf(m), from, w.identity.bot)
	}
	return joinLines(text, buttonsOf(m))
}

func joinLines(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return strings.TrimSpace(s) == "" }), "\n")
}

// linked writes the addresses of an incoming text that its reader sees only as linked words, each after its words: of links, and of people without a user name, as
// Telegram writes their addresses. The ends of entities are UTF-16 positions; one outside of the text or inside of a character is ignored. from is the first byte
// whose entities count. bot is the person whose address is known.
func linked(text string, entities []tgbotapi.MessageEntity, from int, bot int64) string {
	type mark struct {
		at      int
		address string
	}
	var marks []mark
	ends := byteOffsets(text)
	for _, e := range entities {
		begin, okBegin := ends[e.Offset]
		end, okEnd := ends[e.Offset+e.Length]
		if !okBegin || !okEnd || end <= begin || begin < from {
			continue
		}
		address := ""
		switch {
		case e.Type == "text_link":
			address = strings.Join(strings.Fields(e.URL), "%20")
		case e.Type == "text_mention" && e.User != nil && e.User.ID != bot:
			address = "tg://user?id=" + number(e.User.ID)
		}
		label := strings.TrimSpace(text[begin:end])
		if address == "" || address == label {
			continue
		}
		if label != "" { // white space at the end of the words stays after the address
			end = begin + len(strings.TrimRightFunc(text[begin:end], unicode.IsSpace))
		}
		marks = append(marks, mark{at: end, address: address})
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	done := 0
	for i, m := range marks {
		if i > 0 && m == marks[i-1] {
			continue
		}
		b.WriteString(text[done:m.at] + " (" + m.address + ")")
		done = m.at
	}
	return b.String() + text[done:]
}

// byteOffsets maps the UTF-16 positions between characters to byte offsets.
func byteOffsets(s string) map[int]int {
	offsets, at := make(map[int]int, len(s)+1), 0
	for i, r := range s {
		offsets[at] = i
		at += max(1, utf16.RuneLen(r))
	}
	offsets[at] = len(s)
	return offsets
}

// buttonsOf returns the buttons of a message that open an address, one on a line: posts of channels keep their links there.
func buttonsOf(m *tgbotapi.Message) string {
	if m.ReplyMarkup == nil {
		return ""
	}
	var lines []string
	for _, row := range m.ReplyMarkup.InlineKeyboard {
		for _, button := range row {
			if button.URL != nil && *button.URL != "" {
				lines = append(lines, strings.TrimSpace(button.Text)+" ("+strings.Join(strings.Fields(*button.URL), "%20")+")")
			}
		}
	}
	return strings.Join(lines, "\n")
}

// wordsOf returns a message in words: its text, or a description of what it shows.
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
	case m.Poll != nil:
		return pollOf(m.Poll)
	default:
		return ""
	}
}

// unreadable reports whether a person sent a message of a kind that has neither words nor a file. It is false for service messages of a group.
func unreadable(m *tgbotapi.Message) bool {
	return m.Dice != nil || m.Game != nil || m.Invoice != nil || m.Sticker != nil
}

// pollOf returns a poll in words: its question, its answers, and the explanation of a quiz.
func pollOf(p *tgbotapi.Poll) string {
	lines := []string{"Poll: " + p.Question}
	for _, o := range p.Options {
		lines = append(lines, "- "+o.Text)
	}
	return joinLines(append(lines, linked(p.Explanation, p.ExplanationEntities, 0, 0))...)
}
