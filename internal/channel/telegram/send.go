package telegram

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// Kinds of replies: the answer of an agent replaces its preview, a notice is sent once a minute.
const (
	kindReply  = "reply"
	kindNotice = "notice"
)

// sender delivers the replies of the outbox. It is safe for concurrent use; the outbox calls it for
// one reply of a chat at a time.
type sender struct {
	poster    *poster
	addresses *addresses
	previews  *previews
	choices   *choices
	root      *os.Root // of all files; nil means no file can be sent
	log       *slog.Logger
	notices   *ttlMap // ids of delivered notices, by place and text
}

// badTarget makes the outbox's error for a target that is not an address of this bot.
func badTarget(err error) *channel.SendError {
	return &channel.SendError{Reason: reasonBadTarget, Permanent: true, Cause: err}
}

// send delivers one reply in as many messages as it needs. The first one replaces the preview of
// the same run, if there is one. A further attempt does not send messages again that are recorded
// as arrived. The same notice is sent at most once a minute to one place: a repetition counts as
// delivered by the message of the first.
func (s *sender) send(ctx context.Context, r chat.Reply, claim channel.Claim) (chat.Sent, error) {
	to, err := s.addresses.address(r.Target)
	if err != nil {
		return chat.Sent{}, badTarget(err)
	}
	return s.deliver(ctx, r, to, s.progressOf(ctx, r), claim)
}

// progressOf returns what earlier attempts of a reply have recorded.
func (s *sender) progressOf(ctx context.Context, r chat.Reply) progress {
	done, err := progressOf(r.Progress)
	if err != nil { // of another release
		s.log.WarnContext(ctx, "what has arrived of a message cannot be read; it is sent from its beginning", "outbox_id", r.ID, "err", err)
	}
	return done
}

// deliver sends the part of a text reply that has not arrived.
func (s *sender) deliver(ctx context.Context, r chat.Reply, to address, done progress, claim channel.Claim) (chat.Sent, error) {
	key := r.Target.ChatID + "/" + r.Target.Thread + "/" + r.Text
	if r.Kind == kindNotice {
		if id := s.notices.get(key); id != "" {
			return chat.Sent{ProviderID: id}, nil
		}
	}
	d := render(r.Text)
	if len(d.chunks(maxUnits)) == 0 {
		d = plain(chat.EmptyAnswer(""))
	}
	if r.Kind == kindReply {
		if preview := s.previews.take(ctx, to, r.RunID); preview != 0 && preview != done.Preview && done.First == "" {
			done.Preview = preview
			if err := claim.Record(ctx, jsonOf(done)); err != nil {
				return chat.Sent{}, err
			}
		}
	}
	parts, err := s.sendParts(ctx, to, d, &done, claim)
	if errors.Is(err, errKeyboard) { // the words of the choice are the last part of the text
		s.log.WarnContext(ctx, "Telegram refused the buttons of a message; writing them as words", "outbox_id", r.ID)
		d = render(r.Text + "\n\n" + r.Choice.Typed)
		done.Markup, done.Typed = "", true
		if done.PlainTo > done.UpTo {
			done.PlainTo = len(d.text)
		}
		if err := claim.Record(ctx, jsonOf(done)); err != nil {
			return chat.Sent{}, err
		}
		parts, err = s.sendParts(ctx, to, d, &done, claim)
	}
	if err != nil {
		return chat.Sent{}, err
	}
	if r.Kind == kindNotice {
		s.notices.set(key, done.First)
	}
	return chat.Sent{ProviderID: done.First, At: s.addresses.arrived(done), Parts: parts}, nil
}

// errKeyboard means that Telegram accepts a reply only without its buttons.
var errKeyboard = errors.New("the buttons were refused")

// sendParts sends the messages of a document that have not arrived yet. Each is recorded before the
// next one is sent; the last one is returned. A message that Telegram refuses for its form is sent
// in a simpler one, see [progress.simplify].
func (s *sender) sendParts(ctx context.Context, to address, d *document, done *progress, claim channel.Claim) (parts []chat.Part, err error) {
	chunks := d.rest(*done)
	for len(chunks) > 0 {
		out := outgoing{to: done.place(to), chunk: chunks[0], claim: claim}
		if done.First == "" {
			out.edit = done.Preview
		}
		if len(chunks) == 1 {
			out.markup = done.Markup
		}
		got, err := s.poster.deliver(ctx, out)
		refused, _ := errors.AsType[*apiError](err)
		switch {
		case err == nil:
			part := chat.Part{At: s.addresses.target(got.to), Message: number(int64(got.id)), From: done.UpTo, To: chunks[0].upTo}
			if chunks[0].within > 0 { // a piece of what goes without tags
				part.To = min(done.PlainTo, len(d.text))
			}
			parts = append(parts, part)
			done.UpTo, done.Within, chunks = chunks[0].upTo, chunks[0].within, chunks[1:]
			done.First = cmp.Or(done.First, part.Message)
			if got.to != to {
				done.At = &savedAddress{Chat: got.to.chat, Thread: got.to.thread}
			}
		case refused == nil:
			return nil, err
		case out.markup != "" && refused.ofKeyboard():
			return nil, errKeyboard
		case done.simplify(refused, chunks[0], len(d.text)):
			s.log.WarnContext(ctx, "Telegram refused the form of a message; sending it in a simpler one", "err", refused)
			chunks = d.rest(*done)
		case out.markup != "" && refused.ofForm():
			return nil, errKeyboard
		default:
			return nil, err
		}
		if len(chunks) > 0 {
			if err := claim.Record(ctx, jsonOf(done), parts...); err != nil {
				return nil, err
			}
			parts = nil
		}
	}
	return parts, nil
}

// ask sends a reply with a keyboard under its last message. If no more buttons can be recorded, the
// choice is written as words.
func (s *sender) ask(ctx context.Context, r chat.Reply, claim channel.Claim) (chat.Sent, error) {
	to, err := s.addresses.address(r.Target)
	if err != nil {
		return chat.Sent{}, badTarget(err)
	}
	done := s.progressOf(ctx, r)
	if done.Typed {
		r.Text += "\n\n" + r.Choice.Typed
	} else if done.Markup == "" { // a further attempt uses the buttons of the first one
		done.Markup, err = s.choices.keyboard(ctx, to, r.Choice)
		switch {
		case errors.Is(err, channel.ErrButtonsFull), errors.Is(err, errNoPress):
			r.Text += "\n\n" + r.Choice.Typed
		case errors.Is(err, errBadChoice):
			return chat.Sent{}, &channel.SendError{Reason: reasonBadRequest, Permanent: true, Cause: err}
		case err != nil:
			return chat.Sent{}, &channel.SendError{Reason: reasonConnection, Cause: err}
		default:
			if err := claim.Record(ctx, jsonOf(done)); err != nil {
				return chat.Sent{}, err
			}
		}
	}
	return s.deliver(ctx, r, to, done, claim)
}

// sendFile delivers one file. If the file does not exist, a line of text is sent instead.
func (s *sender) sendFile(ctx context.Context, r chat.Reply, claim channel.Claim) (chat.Sent, error) {
	to, err := s.addresses.address(r.Target)
	if err != nil {
		return chat.Sent{}, badTarget(err)
	}
	out := outgoing{to: to, claim: claim}
	file, size, err := s.openFile(r.File.Path)
	if err == nil {
		defer func() { _ = file.Close() }() // the file was only read, so an error of Close has no effect
		out.file = &upload{form: formOf(r.File.MIMEType, size), name: r.File.Name, kind: r.File.MIMEType, size: size, content: file}
	} else {
		s.log.ErrorContext(ctx, "a file of an answer is not on this node; with several replicas the directory for attachments must be a shared one", "outbox_id", r.ID, "err", err)
		out.chunk = plain(r.File.Line() + "\nThis file is not on this node and cannot be sent; the operator can find out why.").chunks(maxUnits)[0]
	}
	got, err := s.poster.deliver(ctx, out)
	if err != nil {
		return chat.Sent{}, err
	}
	part := chat.Part{At: s.addresses.target(got.to), Message: number(int64(got.id))}
	return chat.Sent{ProviderID: part.Message, At: part.At, Parts: []chat.Part{part}}, nil
}

// errNoFile means that the path does not name a file that can be sent.
var errNoFile = errors.New("there is no such file")

// openFile opens a regular file below the directory for attachments. The caller closes it.
func (s *sender) openFile(path string) (*os.File, int64, error) {
	if s.root == nil {
		return nil, 0, errNoFile
	}
	file, err := s.root.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("opening a file of an answer: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNoFile
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// outgoing is one message to be sent.
type outgoing struct {
	to    address
	chunk chunk
	// edit is a message to be replaced; 0 means a new one.
	edit    int
	replyTo int
	markup  string // the keyboard as JSON, "" if none
	// file is sent instead of the chunk; nil if none.
	file *upload
	// claim is checked before each request; nil if the message is not a row of the outbox.
	claim channel.Claim
}

// arrival is a message that has arrived, and where.
type arrival struct {
	id int
	to address
}

// poster sends single messages. It is safe for concurrent use and has no state.
type poster struct {
	api       *client
	limits    *limiter
	addresses *addresses
	conn      *connection
	log       *slog.Logger
}

// deliver waits for the limits and sends one message. A message that Telegram refuses at one place
// is sent to another: outside of a deleted topic, to the new id of a group, as a new message; a
// file is sent as a document. Its errors are [*channel.SendError].
func (p *poster) deliver(ctx context.Context, o outgoing) (arrival, error) {
	for range 6 { // each change of the form is made at most once
		if err := p.limits.wait(ctx, o.to.chat); err != nil {
			return arrival{}, err
		}
		if o.claim != nil { // the claim may have ended during the wait
			if err := o.claim.Check(); err != nil {
				return arrival{}, err
			}
		}
		id, err := p.post(ctx, o)
		var e *apiError
		switch {
		case err == nil:
			return arrival{id, o.to}, nil
		case !errors.As(err, &e):
			return arrival{}, &channel.SendError{Reason: reasonConnection, Unknown: true, Uncounted: true, Cause: err}
		case o.edit != 0 && e.describes("message is not modified"):
			return arrival{o.edit, o.to}, nil
		case o.edit != 0 && (e.describes("message to edit not found") || e.describes("message can't be edited")):
			o.edit = 0
		case o.to.thread != 0 && e.noTopic():
			o.to.thread = 0
		case e.migrateTo != 0 && o.to.chat != e.migrateTo:
			if err := p.addresses.move(ctx, o.to.chat, e.migrateTo); err != nil { // this message needs no record
				p.log.WarnContext(ctx, "the new id of a group was not recorded", "err", err)
			}
			o.to.chat, o.edit = e.migrateTo, 0
		case o.file != nil && o.file.form != asDocument() && e.reason == reasonBadRequest:
			p.log.WarnContext(ctx, "Telegram refused a file in its own form; sending it as a document", "err", e)
			o.file.form = asDocument()
		default:
			return arrival{}, e.sendError()
		}
	}
	return arrival{}, &channel.SendError{Reason: reasonBadRequest, Permanent: true}
}

// post makes the one call. It does not wait for the limits; its callers have counted the message.
func (p *poster) post(ctx context.Context, o outgoing) (int, error) {
	if o.file != nil {
		return p.postFile(ctx, o)
	}
	method, params := "sendMessage", placed(o.to)
	if o.edit != 0 {
		method, params = "editMessageText", tgbotapi.Params{"chat_id": number(o.to.chat), "message_id": number(int64(o.edit))}
	}
	params["text"] = o.chunk.plain
	if o.chunk.html != "" {
		params["text"], params["parse_mode"] = o.chunk.html, "HTML"
	}
	params["link_preview_options"] = jsonOf(map[string]bool{"is_disabled": true})
	if o.replyTo != 0 && o.edit == 0 {
		params["reply_parameters"] = jsonOf(map[string]any{"message_id": o.replyTo, "allow_sending_without_reply": true})
	}
	if o.markup != "" {
		params["reply_markup"] = o.markup
	}
	var m tgbotapi.Message
	if err := p.api.call(ctx, p.conn.patience(), method, params, &m); err != nil {
		return 0, err
	}
	return messageID(method, m)
}

// postFile makes the one call of a file.
func (p *poster) postFile(ctx context.Context, o outgoing) (int, error) {
	var m tgbotapi.Message
	if err := p.api.upload(ctx, o.to.chat, placed(o.to), o.file, &m); err != nil {
		return 0, err
	}
	return messageID(o.file.method, m)
}

// messageID returns the id of a message that was sent. An answer without an id does not prove a
// delivery.
func messageID(method string, m tgbotapi.Message) (int, error) {
	if m.MessageID == 0 {
		return 0, &apiError{method: method, reason: reasonBadResponse, text: "the answer names no message", unknown: true}
	}
	return m.MessageID, nil
}

// placed returns the parameters that name an address.
func placed(to address) tgbotapi.Params {
	p := tgbotapi.Params{"chat_id": number(to.chat)}
	if to.thread != 0 && to.thread != general {
		p["message_thread_id"] = number(int64(to.thread))
	}
	return p
}

// progress is how much of a reply has arrived. It is stored in the row of the reply, so that a
// further attempt continues there, in any process.
type progress struct {
	UpTo  int `json:"up_to,omitempty"` // offset in the document after what has arrived
	Limit int `json:"limit,omitempty"` // units of a message; 0 means maxUnits. Smaller if Telegram found messages too long
	// Halvings is how often the limits of entities were halved because Telegram found them too
	// many.
	Halvings int `json:"halvings,omitempty"`
	// PlainTo is the offset up to which the text goes without tags, because Telegram refused it
	// with them; Within is how much of that form has arrived, in bytes after UpTo.
	PlainTo int    `json:"plain_to,omitempty"`
	Within  int    `json:"within,omitempty"`
	First   string `json:"first,omitempty"` // id of the first message, "" if nothing has arrived
	// At is where it has arrived, nil = at the address of the reply.
	At *savedAddress `json:"at,omitempty"`
	// Preview is the message that the first one replaces, 0 if none.
	Preview int `json:"preview,omitempty"`
	// Markup is the keyboard under the last chunk, "" if none. Typed is true when Telegram refused
	// it: the choice is written as words.
	Markup string `json:"markup,omitempty"`
	Typed  bool   `json:"typed,omitempty"`
}

// savedAddress is an [address] in the form that is stored.
type savedAddress struct {
	Chat   int64 `json:"chat"`
	Thread int   `json:"thread,omitempty"`
}

// place returns where the rest of a reply to an address is sent.
func (p *progress) place(to address) address {
	if p.At == nil {
		return to
	}
	return address{chat: p.At.Chat, thread: p.At.Thread}
}

// progressOf reads what earlier attempts have recorded.
func progressOf(recorded string) (p progress, err error) {
	if recorded != "" {
		err = json.Unmarshal([]byte(recorded), &p)
	}
	return p, err
}

// simplify changes the form of what comes next, which Telegram refused, to a simpler one; false if
// there is none. part is the refused message, and whole the length of the document. A message that
// is too long is divided, at last without its tags; entities that are too many are fewer a message;
// whatever else Telegram does not accept goes without its tags, then as a new message instead of an
// edit, and at last without its buttons. The last one is for the caller: it changes the text.
func (p *progress) simplify(e *apiError, part chunk, whole int) bool {
	limit := cmp.Or(p.Limit, maxUnits)
	switch tagged := part.html != ""; {
	case e.tooLong() && limit > minUnits:
		p.Limit = limit / 2
	case e.tooLong() && tagged:
		p.PlainTo = whole
	case e.tooManyMarks() && tagged && p.Halvings < maxHalvings:
		p.Halvings++
	case tagged && e.ofForm():
		p.PlainTo = part.upTo
	case p.Preview != 0 && p.First == "" && e.ofForm():
		p.Preview = 0
	default:
		return false
	}
	return true
}

// noteTime bounds the delivery of one note.
const noteTime = 5 * time.Second

// notes sends the channel's own messages to people: refusals, hints, pairing codes. A note belongs
// to no conversation, is not a row of the outbox, and is not retried.
type notes struct {
	poster *poster
	log    *slog.Logger
	recent *ttlMap // notes by place and kind

	wg sync.WaitGroup // of notes that are sent concurrently with the handling of updates
}

// send sends a note; replyTo is the message that it answers, 0 if none. It reports whether Telegram
// accepted it.
func (n *notes) send(ctx context.Context, to address, text string, replyTo int) bool {
	return n.deliver(ctx, outgoing{to: to, replyTo: replyTo}, text)
}

// sendWith is send with a keyboard below the note; "" if none.
func (n *notes) sendWith(ctx context.Context, to address, text, keyboard string) {
	n.deliver(ctx, outgoing{to: to, markup: keyboard}, text)
}

// Kinds of notes for [notes.sendOnce]; a refused command is a kind by its refusal.
const (
	noteLimit      = "limit"
	noteRefused    = "refused"
	noteBytes      = "bytes"
	noteFiles      = "files"
	noteUnreadable = "unreadable"
	noteWaits      = "waits"
	noteGroup      = "group"
)

// sendOnce sends one note of a kind a minute to one place: a burst of messages has one answer, even
// if the texts differ. It returns at once: a note that waits for the limits of its chat must not
// delay the updates after it, because Telegram returns at most a hundred unsettled updates of all
// chats. close waits for its end.
func (n *notes) sendOnce(ctx context.Context, to address, kind, text string) {
	if n.first(to, kind) {
		n.wg.Go(func() { n.send(ctx, to, text, 0) })
	}
}

// replyOnce is sendOnce as a reply to the first message of a burst. It waits for its end.
func (n *notes) replyOnce(ctx context.Context, to address, kind, text string, replyTo int) {
	if n.first(to, kind) {
		n.send(ctx, to, text, replyTo)
	}
}

// first reports whether no note of the kind went to a place within a minute.
func (n *notes) first(to address, kind string) bool {
	return n.recent.add(number(to.chat) + "/" + number(int64(to.thread)) + "/" + kind)
}

// close waits for the notes of sendOnce. The caller has ended their context, and no further update
// is handled.
func (n *notes) close() { n.wg.Wait() }

func (n *notes) deliver(ctx context.Context, o outgoing, text string) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, noteTime, errCallTime)
	defer cancel()
	o.chunk = plain(text).chunks(maxUnits)[0]
	_, err := n.poster.deliver(ctx, o)
	if err != nil {
		n.log.WarnContext(ctx, "a note to a person was not delivered", "reason", reasonFor(err))
	}
	return err == nil
}

// errBadChoice means that the choice has no button, or an invalid one.
var errBadChoice = errors.New("no choice that can be offered")

// choices turns choices into keyboards. The text of a button stays in the store; Telegram receives
// a random id for it, so that a button that was never offered cannot be pressed. choices keeps no
// state.
type choices struct {
	identity *identity
	records  channel.Records
}

// errNoPress means that the choice is for the anonymous administrators of a group. They write as
// the group and press as persons, who have no right to it.
var errNoPress = errors.New("anonymous administrators cannot press a button")

// keyboard records what the buttons of a choice mean in a chat, and returns the keyboard as JSON.
// It returns errBadChoice, errNoPress, or the errors of [channel.Records]. A choice for the sender
// [anonymousAdmin], the answer to a command, is for every member who may talk: who presses acts
// with their rights.
func (c *choices) keyboard(ctx context.Context, to address, choice *chat.Choice) (string, error) {
	set := channel.ButtonSet{Peer: c.identity.peer(0, to.chat), Texts: map[string]string{}}
	if choice == nil {
		return "", errBadChoice
	}
	if choice.For != "" {
		user, err := strconv.ParseInt(choice.For, 10, 64)
		if err != nil {
			return "", fmt.Errorf("%w: %q is not the id of a person", errBadChoice, chat.Cut(choice.For, 40))
		}
		switch {
		case user < 0: // a group
			return "", errNoPress
		case user != anonymousAdmin:
			set.UserID = user
		}
	}
	keyboard, err := addButtons(&set, choice.Rows)
	if err != nil {
		return "", err
	}
	if err := c.records.PutButtons(ctx, set); err != nil {
		return "", fmt.Errorf("recording the buttons: %w", err)
	}
	return keyboard, nil
}

// take returns the text of the button with an id and uses up its set. press identifies the press: a
// repetition of the same press returns the same text.
func (c *choices) take(ctx context.Context, id string, userID, chatID, press int64) (string, error) {
	return c.records.TakeButton(ctx, id, c.identity.peer(userID, chatID), press)
}

// addButtons gives each button an id in the set, and returns the keyboard.
func addButtons(s *channel.ButtonSet, rows [][]chat.Button) (string, error) {
	keyboard := [][]map[string]string{}
	for _, row := range rows {
		var line []map[string]string
		for _, b := range row {
			if b.Text == "" || b.Label == "" {
				return "", fmt.Errorf("%w: a button needs a label and a text", errBadChoice)
			}
			id := buttonID()
			s.Texts[id] = b.Text
			line = append(line, map[string]string{"text": chat.Escaped(chat.CleanText(b.Label), ""), "callback_data": id})
		}
		keyboard = append(keyboard, line)
	}
	if len(s.Texts) == 0 {
		return "", fmt.Errorf("%w: there are no buttons", errBadChoice)
	}
	return jsonOf(map[string]any{"inline_keyboard": keyboard}), nil
}

func buttonID() string {
	var raw [18]byte
	_, _ = rand.Read(raw[:])
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// general is the topic of a forum that a message without a topic belongs to.
const general = 1

// address is a chat and one of its topics; 0 if none.
type address struct {
	chat   int64
	thread int
}

func (a address) group() bool { return a.chat < 0 }

// addresses translates between targets of the gateway and addresses of Telegram. It follows groups
// whose id has changed: Telegram refuses calls for the old id. It is safe for concurrent use; the
// lock is not held while the store is called.
type addresses struct {
	name   string // of the channel
	groups channel.Records
	log    *slog.Logger

	mu    sync.Mutex
	moved map[int64]int64 // new id by old id, as far as this process knows
}

// address parses a target of this bot and follows its group.
func (a *addresses) address(to chat.Target) (address, error) {
	if to.Channel != a.name {
		return address{}, fmt.Errorf("%q is not the channel %s", to.Channel, a.name)
	}
	id, err := strconv.ParseInt(to.ChatID, 10, 64)
	if err != nil || id == 0 {
		return address{}, fmt.Errorf("%q is not the id of a chat", chat.Cut(to.ChatID, 40))
	}
	out := address{chat: a.follow(id)}
	if to.Thread != "" {
		if out.thread, err = strconv.Atoi(to.Thread); err != nil || out.thread < 0 {
			return address{}, fmt.Errorf("%q is not the id of a topic", chat.Cut(to.Thread, 40))
		}
	}
	if out.thread == general {
		out.thread = 0
	}
	return out, nil
}

// sessionOf returns the session of an agent at an address.
func sessionOf(agent string, at address) chat.SessionKey {
	kind, thread := chat.KindDirect, ""
	if at.group() {
		kind = chat.KindGroup
	}
	if at.thread != 0 {
		thread = strconv.Itoa(at.thread)
	}
	return chat.PeerKey(agent, "telegram", kind, strconv.FormatInt(at.chat, 10), thread)
}

// target returns an address in the form that the gateway uses.
func (a *addresses) target(of address) chat.Target {
	t := chat.Target{Channel: a.name, ChatID: strconv.FormatInt(of.chat, 10)}
	if of.thread != 0 {
		t.Thread = strconv.Itoa(of.thread)
	}
	return t
}

// arrived returns where a reply has arrived; zero = at its address.
func (a *addresses) arrived(done progress) (at chat.Target) {
	if done.At != nil {
		at = a.target(done.place(address{}))
	}
	return at
}

// follow returns the current id of a chat.
func (a *addresses) follow(id int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range 4 { // a group can move more than once; the bound ends a cycle of wrong entries
		next, ok := a.moved[id]
		if !ok {
			break
		}
		id = next
	}
	return id
}

// move records that a group has a new id; equal or zero ids change nothing. After an error of the
// store nothing is recorded here either: the same update, or the next message to the old id, shows
// the move again.
func (a *addresses) move(ctx context.Context, from, to int64) error {
	if from == 0 || to == 0 || from == to {
		return nil
	}
	a.mu.Lock()
	known := a.moved[from] == to
	a.mu.Unlock()
	if known {
		return nil
	}
	if err := a.groups.MoveGroup(ctx, a.name, from, to); err != nil {
		return fmt.Errorf("recording the new id of a group: %w", err)
	}
	a.log.WarnContext(ctx, "a group became a supergroup; put the new id into the list of groups", "old_chat", from, "new_chat", to)
	a.mu.Lock()
	a.moved[from] = to
	a.mu.Unlock()
	return nil
}
