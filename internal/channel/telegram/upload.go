package telegram

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

const (
	// maxPhoto is the largest picture that Telegram takes as one, in bytes; a larger one goes as a document.
	maxPhoto = 10 << 20
	// uploadRate is how many bytes go out in a second at least; a slower upload is given up.
	uploadRate = 256 << 10
)

// form is how a file is shown: the method that sends it and the field that has it.
type form struct{ method, field string }

// asDocument is how every file can be sent.
func asDocument() form { return form{"sendDocument", "document"} }

// formOf chooses how people see a file best.
func formOf(kind string, size int64) form {
	switch kind {
	case "image/jpeg", "image/png", "image/webp":
		if size <= maxPhoto {
			return form{"sendPhoto", "photo"}
		}
	case "audio/ogg", "audio/opus":
		return form{"sendVoice", "voice"}
	}
	return asDocument()
}

// upload is a file on its way.
type upload struct {
	form
	name, kind string
	size       int64
	content    io.ReaderAt
}

// SendFile delivers one file. Where it is not there, the line that stands for it is sent as text. Telegram looks into pictures and voices, and refuses
// some; those go out as documents.
func (c *Channel) SendFile(ctx context.Context, r chat.Reply) (_ chat.Sent, err error) {
	to, err := c.target(r.Target)
	if err != nil {
		return chat.Sent{}, &channel.SendError{Reason: reasonBadTarget, Permanent: true, Cause: err}
	}
	out := outgoing{to: to}
	file, size, err := c.openFile(r.File.Path)
	if err == nil {
		defer func() { _ = file.Close() }() // it was only read, and what was sent stays sent
		out.file = &upload{form: formOf(r.File.MIMEType, size), name: r.File.Name, kind: r.File.MIMEType, size: size, content: file}
	} else {
		c.log.ErrorContext(ctx, "a file of an answer is not on this node; with several replicas the directory for attachments must be a shared one", "outbox_id", r.ID, "err", err)
		out.chunk = plain(r.File.Line() + "\nThis file is not on this node and cannot be sent; the operator can find out why.").chunks(maxUnits)[0]
	}
	id, err := c.deliver(ctx, out)
	if err != nil {
		return chat.Sent{}, err
	}
	return chat.Sent{ProviderID: number(int64(id))}, nil
}

// errNoFile: the path names nothing that can be sent.
var errNoFile = errors.New("there is no such file")

func (c *Channel) openFile(path string) (*os.File, int64, error) {
	if c.root == nil {
		return nil, 0, errNoFile
	}
	file, err := c.root.Open(path)
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

// postFile makes the one call of a file.
func (c *Channel) postFile(ctx context.Context, o outgoing) (int, error) {
	var m tgbotapi.Message
	if err := c.api.upload(ctx, o.to.chat, place(o.to), o.file, &m); err != nil {
		return 0, err
	}
	return messageID(o.file.method, m)
}

// upload makes a call with a file and decodes its result into out. The file is streamed: what is in memory is a few kilobytes. Errors are *apiError.
func (c *client) upload(ctx context.Context, chat int64, params tgbotapi.Params, u *upload, out any) error {
	head, tail, kind, err := u.envelope(params)
	if err != nil {
		return c.understand(ctx, u.method, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTime+time.Duration(u.size/uploadRate)*time.Second, errCallTime)
	defer cancel()
	return c.exchange(ctx, request{method: u.method, chat: chat, complete: func(r *http.Request) (err error) {
		r.Header.Set("Content-Type", kind)
		r.ContentLength = int64(len(head)) + u.size + int64(len(tail))
		r.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(head), io.NewSectionReader(u.content, 0, u.size), bytes.NewReader(tail))), nil
		}
		r.Body, err = r.GetBody()
		return err
	}}, out)
}

// envelope is what comes before and after the content in the body of the call, and the type of the body.
func (u *upload) envelope(params tgbotapi.Params) (head, tail []byte, kind string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for name, value := range params {
		err = errors.Join(err, w.WriteField(name, value))
	}
	header := textproto.MIMEHeader{}
	header.Set("Content-Disposition", multipart.FileContentDisposition(u.field, uploadName(u.name)))
	header.Set("Content-Type", orElse(u.kind, "application/octet-stream"))
	_, e := w.CreatePart(header)
	head = bytes.Clone(b.Bytes())
	b.Reset()
	err = errors.Join(err, e, w.Close())
	return head, b.Bytes(), w.FormDataContentType(), err
}

// uploadName is a name as Telegram's reader of forms understands it: as it is, without escapes, because it knows neither those nor the encoded form
// (filename*), which it takes for no file at all, and without the semicolon, where it ends even inside of quotes.
func uploadName(name string) string {
	return strings.NewReplacer(`"`, "'", `\`, "_", ";", ",", "\r", " ", "\n", " ").Replace(name)
}
