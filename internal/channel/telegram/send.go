package telegram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// Kinds of replies: the answer of an agent replaces its preview, a notice is sent once a minute.
const (
	kindReply  = "reply"
	kindNotice = "notice"
)

// sender delivers the replies of the outbox. It is safe for concurrent use; the outbox calls it for one reply of a chat at a time.
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

// send delivers one reply in as many messages as it needs. The first one replaces the preview of the same run, if there is one. A further attempt
// does not send messages again that are recorded as arrived. The same notice is sent at most once a minute to one place: a repetition counts as
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
	id, err := s.sendParts(ctx, to, d, &done, claim)
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
		id, err = s.sendParts(ctx, to, d, &done, claim)
	}
	if err != nil {
		return chat.Sent{}, err
	}
	if r.Kind == kindNotice {
		s.notices.set(key, id)
	}
	return chat.Sent{ProviderID: id}, nil
}

// errKeyboard means that Telegram accepts a reply only without its buttons.
var errKeyboard = errors.New("the buttons were refused")

// sendParts sends the messages of a document that have not arrived yet, and returns the id of the first one. Each is recorded before the next one is sent.
// A message that Telegram refuses for its form is sent in a simpler one, see [progress.simplify].
func (s *sender) sendParts(ctx context.Context, to address, d *document, done *progress, claim channel.Claim) (string, error) {
	chunks := d.rest(*done)
	for len(chunks) > 0 {
		out := outgoing{to: to, chunk: chunks[0], claim: claim}
		if done.First == "" {
			out.edit = done.Preview
		}
		if len(chunks) == 1 {
			out.markup = done.Markup
		}
		id, err := s.poster.deliver(ctx, out)
		refused, _ := errors.AsType[*apiError](err)
		switch {
		case err == nil:
			done.UpTo, done.Within, chunks = chunks[0].upTo, chunks[0].within, chunks[1:]
			done.First = cmp.Or(done.First, number(int64(id)))
		case refused == nil:
			return "", err
		case out.markup != "" && refused.ofKeyboard():
			return "", errKeyboard
		case done.simplify(refused, chunks[0], len(d.text)):
			s.log.WarnContext(ctx, "Telegram refused the form of a message; sending it in a simpler one", "err", refused)
			chunks = d.rest(*done)
		case out.markup != "" && refused.ofForm():
			return "", errKeyboard
		default:
			return "", err
		}
		if len(chunks) > 0 {
			if err := claim.Record(ctx, jsonOf(done)); err != nil {
				return "", err
			}
		}
	}
	return done.First, nil
}

// ask sends a reply with a keyboard under its last message. If no more buttons can be recorded, the choice is written as words.
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
		case errors.Is(err, channel.ErrButtonsFull):
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
	id, err := s.poster.deliver(ctx, out)
	if err != nil {
		return chat.Sent{}, err
	}
	return chat.Sent{ProviderID: number(int64(id))}, nil
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
