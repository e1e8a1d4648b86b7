package telegram

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/chat"
	"laneway/internal/retry"
)

const (
	// downloadTime bounds one file, all attempts together.
	downloadTime = 60 * time.Second
	// minDownloadPause and maxDownloadPause bound the wait between two attempts.
	minDownloadPause = time.Second
	maxDownloadPause = 5 * time.Second
)

// errDisk means that the file cannot be saved here. The cause is this host and not the update.
var errDisk = errors.New("an attachment cannot be saved on this machine's disk")

// attachments downloads the files of messages into a directory that they cannot leave. Their paths
// consist of numbers that Telegram assigned; the name that a person chose is shown and never used
// as a path. A repeated update has the same paths and leaves no second copy. It is safe for
// concurrent use.
type attachments struct {
	root  *os.Root // nil means attachments are switched off
	dir   string   // below root
	limit int64    // bytes of one file
	api   *client
	conn  *connection
	log   *slog.Logger
	// local is the directory of a Bot API server in local mode; "" = there is none.
	local string
}

// file is an attachment that has not been fetched.
type file struct {
	id, name, kind string
	size           int64
}

// fileOf returns the file of a message; for a photo, that of the largest size.
func fileOf(m *tgbotapi.Message) (file, bool) {
	switch {
	case len(m.Photo) > 0:
		p := m.Photo[len(m.Photo)-1]
		return file{id: p.FileID, name: "photo.jpg", kind: "image/jpeg", size: int64(p.FileSize)}, true
	case m.Document != nil:
		return file{id: m.Document.FileID, name: m.Document.FileName, kind: m.Document.MimeType, size: int64(m.Document.FileSize)}, true
	case m.Voice != nil:
		return file{id: m.Voice.FileID, name: "voice.ogg", kind: cmp.Or(m.Voice.MimeType, "audio/ogg"), size: int64(m.Voice.FileSize)}, true
	case m.Audio != nil:
		return file{id: m.Audio.FileID, name: cmp.Or(m.Audio.FileName, "audio.mp3"), kind: m.Audio.MimeType, size: int64(m.Audio.FileSize)}, true
	case m.Video != nil:
		return file{id: m.Video.FileID, name: cmp.Or(m.Video.FileName, "video.mp4"), kind: m.Video.MimeType, size: int64(m.Video.FileSize)}, true
	case m.VideoNote != nil:
		return file{id: m.VideoNote.FileID, name: "video-note.mp4", kind: "video/mp4", size: int64(m.VideoNote.FileSize)}, true
	default:
		return file{}, false
	}
}

// save downloads a file to a path made of key. within bounds the download and can end before ctx.
// If no file was saved, note is the reason for the person: it is too large, or cannot be fetched.
// An error is the end of ctx, or errDisk: the update must then be retried, otherwise the file is
// lost.
func (s *attachments) save(ctx, within context.Context, f file, key string) (a chat.Attachment, note string, err error) {
	shown := chat.FileName(f.name)
	switch {
	case s.root == nil:
		return a, "attachments are switched off here, so " + shown + " was left out", nil
	case f.size > s.limit:
		return a, tooLarge(shown, s.limit), nil
	}
	a = chat.Attachment{Name: shown, MIMEType: cleanKind(f.kind), Path: s.dir + "/" + key + ending(shown)}
	limited, cancel := context.WithTimeoutCause(within, downloadTime, errCallTime)
	defer cancel()
	a.Size, err = s.fetch(limited, f.id, a.Path)
	s.conn.setDiskFull(errors.Is(err, errDisk))
	switch {
	case err == nil:
		return a, "", nil
	case ctx.Err() != nil:
		return a, "", ctx.Err()
	case errors.Is(err, errDisk) && within.Err() == nil:
		return a, "", err
	case errors.Is(err, errTooLarge):
		return a, tooLarge(shown, s.limit), nil
	}
	s.log.WarnContext(ctx, "an attachment could not be fetched", "err", err)
	return a, shown + " could not be fetched from Telegram", nil
}

func tooLarge(name string, limit int64) string {
	return fmt.Sprintf("%s is larger than %d MB and was left out", name, limit>>20)
}

// ending returns the extension of a name if it is harmless, otherwise "". Programs choose by it how
// to read a file.
func ending(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if len(ext) < 2 || len(ext) > 9 || strings.ContainsFunc(ext[1:], func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
		return ""
	}
	return ext
}

// cleanKind keeps what can be a MIME type.
func cleanKind(s string) string {
	ok := func(r rune) bool {
		return (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9') || strings.ContainsRune("/.+-_", r)
	}
	if len(s) > 100 || strings.ContainsFunc(s, func(r rune) bool { return !ok(r) }) {
		return ""
	}
	return s
}

// fetch downloads a file. It repeats attempts that may succeed later until ctx is done, and honours
// the waits that Telegram asks for.
func (s *attachments) fetch(ctx context.Context, id, name string) (int64, error) {
	var n int64
	err := retry.Do(ctx, retry.Options{Policy: retry.Policy{Base: minDownloadPause, Max: maxDownloadPause}, Retryable: passing, After: asked},
		func(ctx context.Context) (err error) {
			n, err = s.attempt(ctx, id, name)
			return err
		})
	return n, err
}

// passing reports whether the next attempt may succeed.
func passing(err error) bool {
	var e *apiError
	return errors.As(err, &e) && (e.broken() || e.code == http.StatusTooManyRequests)
}

func (s *attachments) attempt(ctx context.Context, id, name string) (int64, error) {
	var found tgbotapi.File
	if err := s.api.call(ctx, callTime, "getFile", tgbotapi.Params{"file_id": id}, &found); err != nil {
		return 0, err
	}
	if int64(found.FileSize) > s.limit {
		return 0, errTooLarge
	}
	if err := s.root.MkdirAll(s.dir, 0o700); err != nil {
		return 0, fmt.Errorf("%w: %w", errDisk, err)
	}
	return s.write(name, func(w io.Writer) (int64, error) {
		if filepath.IsAbs(found.FilePath) {
			return s.copyLocal(found.FilePath, w)
		}
		return s.api.download(ctx, found.FilePath, s.limit, w)
	})
}

// copyLocal copies a file that a Bot API server in local mode has stored. Only regular files below
// the directory that the operator names are read; a link out of it is refused.
func (s *attachments) copyLocal(path string, w io.Writer) (n int64, err error) {
	refused := func(text string) error { return &apiError{method: methodFile, reason: reasonBadRequest, text: text} }
	if s.local == "" {
		return 0, refused("the Bot API server runs in local mode and names files by an absolute path; set files_dir of the bot to the directory of the server")
	}
	root, err := os.OpenRoot(s.local)
	if err != nil {
		return 0, refused("files_dir " + s.local + " cannot be opened; let the gateway's user read it")
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	rel, err := filepath.Rel(s.local, path)
	if target, failed := filepath.EvalSymlinks(s.local); failed == nil && (err != nil || !filepath.IsLocal(rel)) {
		rel, err = filepath.Rel(target, path)
	}
	if err != nil || !filepath.IsLocal(rel) {
		return 0, refused("the file is not below files_dir " + s.local)
	}
	if info, failed := root.Stat(rel); failed != nil || !info.Mode().IsRegular() { // before it is opened: opening a pipe may never end
		return 0, refused("the file cannot be read below files_dir " + s.local)
	}
	f, err := root.Open(rel)
	if err != nil {
		return 0, refused("the file cannot be read below files_dir " + s.local)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n, err = io.Copy(w, io.LimitReader(f, s.limit+1))
	if err == nil && n > s.limit {
		err = errTooLarge
	}
	return n, err
}

// write writes a temporary file next to the path and renames it when it is complete.
func (s *attachments) write(name string, fill func(io.Writer) (int64, error)) (n int64, err error) {
	part := name + ".part"
	f, err := s.root.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errDisk, err)
	}
	to := &onDisk{f: f}
	n, err = fill(to)
	local := errors.Join(to.err, f.Close())
	if err == nil && local == nil {
		local = s.root.Rename(part, name)
	}
	switch {
	case local != nil:
		err = fmt.Errorf("%w: %w", errDisk, local)
	case err == nil:
		return n, nil
	}
	return 0, errors.Join(err, s.root.Remove(part))
}

// onDisk records the error of its writer: [io.Copy] does not report which side has failed.
type onDisk struct {
	f   io.Writer
	err error
}

func (w *onDisk) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	w.err = err
	return n, err
}

const (
	// maxPhoto is the largest picture that Telegram accepts as a photo, in bytes; a larger one is
	// sent as a document.
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

// upload makes a call with a file and decodes its result into out. The file is streamed with a few
// kilobytes of memory. Errors are *apiError.
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

// envelope returns what comes before and after the content in the body of the call, and the type of
// the body.
func (u *upload) envelope(params tgbotapi.Params) (head, tail []byte, kind string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for name, value := range params {
		err = errors.Join(err, w.WriteField(name, value))
	}
	header := textproto.MIMEHeader{}
	header.Set("Content-Disposition", multipart.FileContentDisposition(u.field, uploadName(u.name)))
	header.Set("Content-Type", cmp.Or(u.kind, "application/octet-stream"))
	_, e := w.CreatePart(header)
	head = bytes.Clone(b.Bytes())
	b.Reset()
	err = errors.Join(err, e, w.Close())
	return head, b.Bytes(), w.FormDataContentType(), err
}

// uploadName returns a file name in the form that Telegram's form parser accepts. The parser
// supports neither escapes nor the encoded form (filename*): it would not recognize such a part as
// a file. It ends a name at a semicolon, even within quotes.
func uploadName(name string) string {
	return strings.NewReplacer(`"`, "'", `\`, "_", ";", ",", "\r", " ", "\n", " ").Replace(name)
}
