package telegram

import (
	"context"
	"fmt"
	"strings"

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
		Options: chat.Options{Typed: true, ReplyTo: in.addresses.target(to), StopOwn: to.group() && in.cfg.groupStop == StopOwn},
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
	default:
		return ""
	}
}

// unreadable reports whether a person sent a message of a kind that has neither words nor a file. It is false for service messages of a group.
func unreadable(m *tgbotapi.Message) bool {
	return m.Poll != nil || m.Dice != nil || m.Game != nil || m.Invoice != nil || m.Sticker != nil
}
