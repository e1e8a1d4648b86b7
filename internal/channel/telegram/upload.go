package telegram

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"sync/atomic"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"
)

const (
	// maxPhoto is the largest picture that Telegram accepts as a photo, in bytes; a larger one is sent as a document.
	maxPhoto = 10 << 20
	// uploadRate is the lowest speed of an upload in bytes per second; a slower one is canceled.
	uploadRate = 256 << 10
)

// form is how a file is shown: the method that sends it and the field that has it.
type form struct{ method, field string }

// asDocument returns the form in which every file can be sent.
func asDocument() form { return form{"sendDocument", "document"} }

// formOf returns the form that shows most of a file.
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

// upload is a file to be sent. content is read and not closed.
type upload struct {
	form
	name, kind string
	size       int64
	content    io.ReaderAt
}

// upload makes a call with a file and decodes its result into out. The file is streamed with a few kilobytes of memory. Errors are *apiError.
func (c *client) upload(ctx context.Context, chat int64, params tgbotapi.Params, u *upload, out any) error {
	head, tail, kind, err := u.envelope(params)
	if err != nil {
		return c.understand(ctx, u.method, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTime+time.Duration(u.size/uploadRate)*time.Second, errCallTime)
	defer cancel()
	var whole atomic.Bool
	err = c.exchange(ctx, request{method: u.method, chat: chat, complete: func(r *http.Request) (err error) {
		r.Header.Set("Content-Type", kind)
		r.ContentLength = int64(len(head)) + u.size + int64(len(tail))
		r.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(head), io.NewSectionReader(u.content, 0, u.size), bytes.NewReader(tail), mark{&whole})), nil
		}
		r.Body, err = r.GetBody()
		return err
	}}, out)
	if e, ok := errors.AsType[*apiError](err); ok && e.code == 0 && !whole.Load() {
		e.unknown = false // Telegram does not execute half a request
	}
	return err
}

// mark is an empty reader that records that the end of a body was read.
type mark struct{ reached *atomic.Bool }

// Read implements io.Reader.
func (m mark) Read([]byte) (int, error) {
	m.reached.Store(true)
	return 0, io.EOF
}

// envelope returns what comes before and after the content in the body of the call, and the type of the body.
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

// uploadName returns a file name in the form that Telegram's form parser accepts. The parser supports neither escapes nor the encoded form
// (filename*): it would not recognize such a part as a file. It ends a name at a semicolon, even within quotes.
func uploadName(name string) string {
	return strings.NewReplacer(`"`, "'", `\`, "_", ";", ",", "\r", " ", "\n", " ").Replace(name)
}
