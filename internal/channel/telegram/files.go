package telegram

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/chat"
	"laneway/internal/retry"
)

const (
	// downloadTime bounds one file, all tries together.
	downloadTime = 60 * time.Second
	// minDownloadPause and maxDownloadPause bound the wait between two tries.
	minDownloadPause = time.Second
	maxDownloadPause = 5 * time.Second
)

// errDisk: the file cannot be saved here. That is about the house and not about the update.
var errDisk = errors.New("an attachment cannot be saved on this machine's disk")

// attachments keeps attachments in a directory that they cannot leave. Names are made here of numbers that Telegram gave: what a person calls a
// file is shown and never used. The same update gets the same names, so one that comes again leaves nothing behind.
type attachments struct {
	root  *os.Root
	dir   string
	limit int64
	api   *client
}

// file is an attachment that has not been fetched.
type file struct {
	id, name, kind string
	size           int64
}

// fileOf finds the file of a message; of a photo the largest size.
func fileOf(m *tgbotapi.Message) (file, bool) {
	switch {
	case len(m.Photo) > 0:
		p := m.Photo[len(m.Photo)-1]
		return file{id: p.FileID, name: "photo.jpg", kind: "image/jpeg", size: int64(p.FileSize)}, true
	case m.Document != nil:
		return file{id: m.Document.FileID, name: m.Document.FileName, kind: m.Document.MimeType, size: int64(m.Document.FileSize)}, true
	case m.Voice != nil:
		return file{id: m.Voice.FileID, name: "voice.ogg", kind: orElse(m.Voice.MimeType, "audio/ogg"), size: int64(m.Voice.FileSize)}, true
	case m.Audio != nil:
		return file{id: m.Audio.FileID, name: orElse(m.Audio.FileName, "audio.mp3"), kind: m.Audio.MimeType, size: int64(m.Audio.FileSize)}, true
	case m.Video != nil:
		return file{id: m.Video.FileID, name: orElse(m.Video.FileName, "video.mp4"), kind: m.Video.MimeType, size: int64(m.Video.FileSize)}, true
	case m.VideoNote != nil:
		return file{id: m.VideoNote.FileID, name: "video-note.mp4", kind: "video/mp4", size: int64(m.VideoNote.FileSize)}, true
	default:
		return file{}, false
	}
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// fetchFile brings a file in under a name made of key, while within lasts. note says in a few words why there is none: too large, or not to be
// had. An error is the end of ctx, or errDisk: the update is tried again then, because the file is lost otherwise.
func (c *Channel) fetchFile(ctx, within context.Context, f file, key string) (a chat.Attachment, note string, err error) {
	shown := chat.FileName(f.name)
	switch {
	case c.files == nil:
		return a, "attachments are switched off here, so " + shown + " was left out", nil
	case f.size > c.files.limit:
		return a, tooLarge(shown, c.files.limit), nil
	}
	a = chat.Attachment{Name: shown, MIMEType: cleanKind(f.kind), Path: c.files.dir + "/" + key + ending(shown)}
	limited, cancel := context.WithTimeoutCause(within, downloadTime, errCallTime)
	defer cancel()
	a.Size, err = c.files.fetch(limited, f.id, a.Path)
	c.diskFull.Store(errors.Is(err, errDisk))
	switch {
	case err == nil:
		return a, "", nil
	case ctx.Err() != nil:
		return a, "", ctx.Err()
	case errors.Is(err, errDisk) && within.Err() == nil:
		return a, "", err
	case errors.Is(err, errTooLarge):
		return a, tooLarge(shown, c.files.limit), nil
	}
	c.log.WarnContext(ctx, "an attachment could not be fetched", "err", err)
	return a, shown + " could not be fetched from Telegram", nil
}

func tooLarge(name string, limit int64) string {
	return fmt.Sprintf("%s is larger than %d MB and was left out", name, limit>>20)
}

// ending is the harmless ending of a name, because programs look at it.
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

// fetch downloads a file. What can pass is tried again as long as ctx lasts, and not before the time that Telegram asks to wait.
func (s *attachments) fetch(ctx context.Context, id, name string) (int64, error) {
	var n int64
	err := retry.Do(ctx, retry.Options{Policy: retry.Policy{Base: minDownloadPause, Max: maxDownloadPause}, Retryable: passing, After: asked},
		func(ctx context.Context) (err error) {
			n, err = s.attempt(ctx, id, name)
			return err
		})
	return n, err
}

// passing reports whether a failure may be over at the next try.
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
	return s.save(name, func(w io.Writer) (int64, error) { return s.api.download(ctx, found.FilePath, s.limit, w) })
}

// save writes a file beside its place and moves it there when it is whole.
func (s *attachments) save(name string, fill func(io.Writer) (int64, error)) (n int64, err error) {
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

// onDisk remembers that writing failed, because whoever copies does not say which side it was.
type onDisk struct {
	f   io.Writer
	err error
}

func (w *onDisk) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	w.err = err
	return n, err
}
