package telegram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"
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

// inbound turns updates into messages and passes them to the receiver. It is the handler of
// [intake]: it is safe for concurrent use, but the updates of one chat come one after the other,
// except urgent ones.
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
	metrics  *Metrics
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
		in.metrics.update("ignored") // edited messages, votes, members: nothing that begins a turn
		return nil
	case u.message.MigrateToChatID != 0:
		return in.addresses.move(ctx, u.chat, u.message.MigrateToChatID)
	case u.message.MigrateFromChatID != 0:
		return in.addresses.move(ctx, u.message.MigrateFromChatID, u.chat)
	}
	return in.message(ctx, parts)
}

// message handles one message: access, limits and commands of the channel first, because they cost
// no download.
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
		in.metrics.update("ignored")
		known, err := in.access.knownElsewhere(ctx, m)
		if known {
			in.notes.sendOnce(ctx, to, noteGroup, fmt.Sprintf("I don't answer in this group yet. Its number is %d: add it to the list groups of the bot, and restart laneway.", u.chat))
		}
		return err
	}
	if addressed, err := in.access.addressed(ctx, parts); err != nil || !addressed {
		in.metrics.update("ignored")
		return err
	}
	if settled, err := in.early(ctx, u, to); settled || err != nil {
		return err
	}
	content, err := in.content(ctx, parts, to)
	if err != nil || (content.Text == "" && len(content.Attachments) == 0) {
		in.metrics.update("ignored")
		return err
	}
	return in.offer(ctx, u, messageRef{to: to, message: m.MessageID}, content)
}

// early applies the limit of the sender, the rule of the group for /stop, and the channel's own
// command. settled means that no message is to be passed on.
func (in *inbound) early(ctx context.Context, u update, to address) (settled bool, err error) {
	word, args, isCommand := in.words.parse(textOf(u.message))
	isStop := isCommand && (word == "stop" || word == "stopall")
	if !isStop && !u.memo.counted && !in.limits.allow(u.message.From.ID, 1) {
		in.metrics.update("limited")
		in.notes.sendOnce(ctx, to, noteLimit, fmt.Sprintf("You have reached the limit of %d messages a minute. I skipped the rest; send it again in a minute.", in.cfg.userRate))
		return true, nil
	}
	u.memo.counted = true
	if !to.group() || u.forwarded {
		return false, nil
	}
	switch {
	case isStop && in.cfg.groupStop == StopAdmins:
		return in.adminsOnly(ctx, u, to, "Only administrators of this group can stop a turn here.")
	case isCommand && word == "quiet" && args != "":
		return in.adminsOnly(ctx, u, to, "Only administrators of this group can choose its quiet hours.")
	case isCommand && word == activationWord:
		if settled, err := in.adminsOnly(ctx, u, to, refusedActivation); settled || err != nil {
			return true, err
		}
		return true, in.activation.run(ctx, to, u.message.From.ID, args)
	}
	return false, nil
}

// adminsOnly refuses the command of a person who is not an administrator of the group, also when
// Telegram cannot be reached. When Telegram asks to wait, it returns that error: the command is
// handled after the wait.
func (in *inbound) adminsOnly(ctx context.Context, u update, to address, refusal string) (settled bool, err error) {
	admin, err := in.access.isAdmin(ctx, to.chat, u.message.From.ID)
	if asked(err) > 0 {
		return false, err
	}
	if err != nil {
		in.log.WarnContext(ctx, "the administrators of a group are unknown; the command is refused", "err", err)
	}
	if !admin {
		in.metrics.update("refused")
		in.notes.sendOnce(ctx, to, refusal, refusal)
	}
	return !admin, nil
}

// pressed turns the press of a button into the message of the button. It answers every press,
// otherwise the button would show progress forever. The access rules of typed messages apply. The
// set of buttons is used up by a press that they allow, before the message is durable: see memo.
func (in *inbound) pressed(ctx context.Context, u update) error {
	p := u.press
	if p.From == nil || p.Message == nil || p.Message.Chat == nil {
		in.metrics.update("ignored")
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
		in.refusePress(ctx, u, "You can't use this.")
		return nil
	}
	text, err := in.choices.take(ctx, p.Data, p.From.ID, p.Message.Chat.ID, int64(u.id))
	switch {
	case errors.Is(err, channel.ErrButtonNotYours):
		in.refusePress(ctx, u, "This button is for another user.")
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
	in.metrics.update("refused")
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

// compose makes the message of an update. Its idempotency key is the number of the update, so a
// repeated update makes no second message.
func (in *inbound) compose(u update, to address, content chat.Content) (chat.Message, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return chat.Message{}, fmt.Errorf("making the id of a message: %w", err)
	}
	name, who := in.identity.name, content.Sender.ID
	if who == number(anonymousAdmin) { // all anonymous administrators have this id: here they act for their group, and for no other
		who = number(to.chat)
	}
	return chat.Message{
		Session: sessionOf(in.cfg.agent, to), ID: id.String(),
		Principal: name + ":" + who, Scope: scope, BotName: in.identity.username(), Channel: name, ExternalID: int64(u.id),
		Dedupe: name + "/" + strconv.Itoa(u.id), Content: content,
	}, nil
}

// received evaluates the result of Receive. A refusal settles the update, and its sender receives a
// note; a temporary failure does not settle it.
func (in *inbound) received(ctx context.Context, to address, r chat.Receipt, err error) error {
	var app *chat.Error
	switch {
	case err == nil && r.Duplicate:
		in.metrics.update("duplicate")
	case err == nil && r.Command:
		in.metrics.update("command")
	case err == nil:
		in.metrics.update("accepted")
	case temporary(err) || !errors.As(err, &app) || app.Code == chat.CodeInternal:
		return err
	case app.Code == chat.CodeQueueFull: // the gateway sends one notice per burst, with the number of refused messages
		in.metrics.update("refused")
	default:
		in.metrics.update("refused")
		in.notes.sendOnce(ctx, to, noteRefused, "This was not taken: "+strings.TrimSuffix(app.Message, ".")+".")
	}
	return nil
}

// content returns the text of all parts and their files. It is made once per update: a further
// attempt uses the files of the first.
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
	var texts, left []string
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
			in.notes.sendOnce(ctx, to, noteBytes, fmt.Sprintf("You have reached the limit of %d MB of files a minute. I skipped the rest; send it again in a minute.",
				in.cfg.userFileBytes>>20))
			continue
		}
		a, note, err := in.files.save(ctx, lead.fetch, file, fmt.Sprintf("%d-%d-%d", lead.id, lead.message.Date, i))
		if err != nil {
			return content, err
		}
		if note != "" {
			texts = append(texts, "["+note+"]")
			left = append(left, sentence(note))
			continue
		}
		content.Attachments = append(content.Attachments, a)
	}
	content.Text = strings.Join(texts, "\n")
	if len(left) > 0 {
		in.notes.sendOnce(ctx, to, noteFiles, strings.Join(left, "\n"))
	}
	if content.Text == "" && len(content.Attachments) == 0 && unreadable(lead.message) {
		in.notes.sendOnce(ctx, to, noteUnreadable, "I can't read this kind of message. Send text, a photo, a document or a voice message.")
	}
	return content, nil
}

// answered returns the message that a message answers or quotes; nil if none. Telegram says that
// each message of a topic answers the one that made the topic, which is not what its sender means.
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

// mayFetch takes the bytes of a file from the allowance of its sender, once for each update. A file
// without a stated size counts as the largest; one that is too large is not fetched and takes
// nothing.
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
	return cmp.Or(m.Text, m.Caption)
}

// entitiesOf returns the entities of [textOf].
func entitiesOf(m *tgbotapi.Message) []tgbotapi.MessageEntity {
	if m.Text != "" {
		return m.Entities
	}
	return m.CaptionEntities
}

// written returns the words of a part for the agent: those that the person typed, with the
// addresses of linked words, and the buttons that open addresses. In a command the addresses begin
// after its name, which must stay as it was typed; forwarded text is not a command.
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

// linked writes the addresses of an incoming text that its reader sees only as linked words, each
// after its words: of links, and of people without a user name, as Telegram writes their addresses.
// The ends of entities are UTF-16 positions; one outside of the text or inside of a character is
// ignored. from is the first byte whose entities count. bot is the person whose address is known.
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

// buttonsOf returns the buttons of a message that open an address, one on a line: posts of channels
// keep their links there.
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

// unreadable reports whether a person sent a message of a kind that has neither words nor a file.
// It is false for service messages of a group.
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
