package telegram_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/testtelegram"
)

// aPicture begins like a PNG; only the beginning is inspected.
const aPicture = "\x89PNG\r\n\x1a\na chart"

// put writes a file where the gateway keeps the files of an answer.
func (b *bot) put(path, content string) {
	b.t.Helper()
	if err := b.files.WriteFile(path, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bot) sendFile(target chat.Target, f chat.Attachment) (chat.Sent, error) {
	return b.ch.SendFile(b.t.Context(), chat.Reply{ID: "1", RunID: "run", Target: target, Kind: "reply", Text: f.Line(), File: &f, Attempt: 1}, b.claims.of("1"))
}

// withFile runs a test with a bot that has a picture, chart.png, and a text file, notes.txt.
func withFile(t *testing.T, f func(b *bot, picture, text chat.Attachment)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.put("a", aPicture)
		b.put("b", "the notes")
		f(b, chat.Attachment{Name: "chart.png", MIMEType: "image/png", Path: "a", Size: 15}, chat.Attachment{Name: "notes.txt", MIMEType: "text/plain", Path: "b", Size: 9})
		b.stop()
	})
}

// shownFiles returns the files of a chat as METHOD NAME.
func (b *bot) shownFiles(chatID int64) []string {
	var out []string
	for _, m := range b.srv.Messages(chatID) {
		if m.File != nil {
			out = append(out, m.File.Method+" "+m.File.Name)
		}
	}
	return out
}

func TestFilesGoOutAsWhatTheyLookLike(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, content, name string // name "" means file.bin
		method, shown       string // shown "" means name
	}{
		"APNG":                    {kind: "image/png", content: aPicture, method: "sendPhoto"},
		"AJPEG":                   {kind: "image/jpeg", content: "\xff\xd8\xff a photo", method: "sendPhoto"},
		"AWebP":                   {kind: "image/webp", content: "RIFF\x09\x00\x00\x00WEBPVP8 ", method: "sendPhoto"},
		"TheLargestPhoto":         {kind: "image/png", content: aPicture + strings.Repeat("x", testtelegram.MaxPhoto-len(aPicture)), method: "sendPhoto"},
		"TooLargeForAPhoto":       {kind: "image/png", content: aPicture + strings.Repeat("x", testtelegram.MaxPhoto-len(aPicture)+1), method: "sendDocument"},
		"APictureThatMoves":       {kind: "image/gif", content: "GIF89a", method: "sendDocument"},
		"AVoice":                  {kind: "audio/ogg", content: "OggS", method: "sendVoice"},
		"AText":                   {kind: "text/plain", content: "the notes", method: "sendDocument"},
		"UnknownKind":             {content: "\x00\x01", method: "sendDocument"},
		"TheEndOfAFormInside":     {kind: "text/plain", content: "\r\n--x--\r\n", method: "sendDocument"},
		"ANameWithUmlauts":        {kind: "text/plain", content: "x", name: "Übersicht für März 📈.txt", method: "sendDocument"},
		"ANameWithQuotes":         {kind: "text/plain", content: "x", name: `the "real" one.txt`, shown: "the 'real' one.txt", method: "sendDocument"},
		"ANameWithASemicolon":     {kind: "text/plain", content: "x", name: `a; filename=b.txt`, shown: "a, filename=b.txt", method: "sendDocument"},
		"ANameThatEndsTheHeader":  {kind: "text/plain", content: "x", name: "a\r\nX-Other: b.txt", shown: "a  X-Other: b.txt", method: "sendDocument"},
		"ANameWithAPercentEscape": {kind: "text/plain", content: "x", name: "100%25.txt", method: "sendDocument"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				defer b.stop()
				b.put("file", c.content)
				f := chat.Attachment{Name: cmp.Or(c.name, "file.bin"), MIMEType: c.kind, Path: "file"}
				sent, err := b.sendFile(to(group, "10"), f)
				got := b.srv.Messages(group)
				if err != nil || len(got) != 1 || got[0].File == nil {
					t.Fatalf("sent %+v, %v; shown are %+v", sent, err, got)
				}
				m := got[0]
				if sent.ProviderID != strconv.Itoa(m.ID) || m.Thread != 10 {
					t.Errorf("sent %+v in topic %d, shown as message %d", sent, m.Thread, m.ID)
				}
				if m.File.Method != c.method || m.File.Name != cmp.Or(c.shown, f.Name) || m.File.Type != cmp.Or(c.kind, "application/octet-stream") {
					t.Errorf("%s with %q, %q", m.File.Method, m.File.Name, m.File.Type)
				}
				if n := len(b.srv.Calls("sendPhoto")) + len(b.srv.Calls("sendVoice")) + len(b.srv.Calls("sendDocument")); n != 1 {
					t.Errorf("%d calls", n)
				}
				if string(m.File.Content) != c.content {
					t.Errorf("%d bytes arrived of %d, or others", len(m.File.Content), len(c.content))
				}
			})
		})
	}
}

// Telegram refuses a picture for its content: it is sent as a document, once, in the same topic.
func TestAPictureThatTelegramRefusesIsADocument(t *testing.T) {
	t.Parallel()
	for _, why := range []string{"Bad Request: PHOTO_INVALID_DIMENSIONS", "Bad Request: wrong file identifier/HTTP URL specified"} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			withFile(t, func(b *bot, picture, _ chat.Attachment) {
				b.srv.Break("sendPhoto", testtelegram.Refuse(400, why))
				if _, err := b.sendFile(to(group, "20"), picture); err != nil {
					t.Fatal(err)
				}
				wantTexts(t, "the group sees", b.shownFiles(group), "sendDocument chart.png")
				if m := b.srv.Messages(group)[0]; m.Thread != 20 || string(m.File.Content) != aPicture {
					t.Errorf("topic %d, %q", m.Thread, m.File.Content)
				}
				if n := len(b.srv.Calls("sendPhoto")); n != 1 {
					t.Errorf("%d calls for a photo", n)
				}
			})
		})
	}
	t.Run("NoPictureAtAll", func(t *testing.T) {
		t.Parallel()
		withFile(t, func(b *bot, picture, text chat.Attachment) {
			picture.Path = text.Path
			if _, err := b.sendFile(to(anna, ""), picture); err != nil {
				t.Error(err)
			}
			wantTexts(t, "anna sees", b.shownFiles(anna), "sendDocument chart.png")
		})
	})
	t.Run("AndNotAsADocumentEither", func(t *testing.T) {
		t.Parallel()
		withFile(t, func(b *bot, picture, _ chat.Attachment) {
			b.srv.Break("sendPhoto", testtelegram.Refuse(400, "Bad Request: IMAGE_PROCESS_FAILED"))
			b.srv.Break("sendDocument", testtelegram.Refuse(400, "Bad Request: file is too big"))
			_, err := b.sendFile(to(anna, ""), picture)
			wantGone(t, wantSendError(t, err, "bad_request", true), false)
			if n := len(b.srv.Calls("sendPhoto")) + len(b.srv.Calls("sendDocument")); n != 2 {
				t.Errorf("%d calls, want one of each", n)
			}
		})
	})
}

func TestFilesFailAsTextsDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault                    testtelegram.Fault
		reason                   string
		permanent, gone, unknown bool
	}{
		"TooLarge":             {testtelegram.Refuse(413, "Request Entity Too Large"), "bad_request", true, false, false},
		"Blocked":              {testtelegram.Refuse(403, "Forbidden: bot was blocked by the user"), "blocked", true, true, false},
		"NoSuchChat":           {testtelegram.Refuse(400, "Bad Request: chat not found"), "chat_not_found", true, true, false},
		"AServerError":         {testtelegram.Refuse(502, "Bad Gateway"), "server_error", false, false, true},
		"AnAnswerThatIsNoJSON": {testtelegram.Fault{After: true, Garbage: true}, "bad_response", false, false, true},
		"AConnectionReset":     {testtelegram.Fault{Reset: true}, "connection", false, false, true},
		"NoAnswer":             {testtelegram.Fault{Hang: true}, "timeout", false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withFile(t, func(b *bot, _, text chat.Attachment) {
				b.srv.Break("sendDocument", c.fault)
				_, err := b.sendFile(to(anna, ""), text)
				failed := wantSendError(t, err, c.reason, c.permanent)
				wantGone(t, failed, c.gone)
				if failed.Unknown != c.unknown {
					t.Errorf("unknown is %t for %v", failed.Unknown, failed)
				}
				b.noToken("the error", err.Error())
				if n := len(b.srv.Calls("sendDocument")); n != 1 {
					t.Errorf("%d calls", n)
				}
				if !c.permanent {
					after(time.Second)
					if _, err := b.sendFile(to(anna, ""), text); err != nil {
						t.Errorf("the next attempt: %v", err)
					}
				}
			})
		})
	}
}

// roundTrip is a function that implements http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// uploadsTo makes a network that passes uploads of documents to f and returns its result as
// Telegram's answer.
func uploadsTo(f func(*http.Request) string) func(*setup) {
	return func(s *setup) {
		s.network = func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if !strings.HasSuffix(r.URL.Path, "/sendDocument") {
					return next.RoundTrip(r)
				}
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(f(r)))}, nil
			})
		}
	}
}

// An answer with ok and without a message does not count as a delivery.
func TestAFileWithoutAMessageIsNotDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, uploadsTo(func(*http.Request) string { return `{"ok":true,"result":{}}` }))
		b.start()
		b.put("b", "the notes")
		sent, err := b.sendFile(to(anna, ""), chat.Attachment{Name: "notes.txt", MIMEType: "text/plain", Path: "b"})
		if failed := wantSendError(t, err, "bad_response", false); !failed.Unknown || sent.ProviderID != "" {
			t.Errorf("sent %+v, %+v", sent, failed)
		}
		b.stop()
	})
}

// A flood starts a cooldown of the chat for files and text messages, and files keep the limit of
// one message a second.
func TestFilesKeepTheLimits(t *testing.T) {
	t.Parallel()
	withFile(t, func(b *bot, picture, text chat.Attachment) {
		t := b.t
		b.srv.Break("sendPhoto", testtelegram.Flood(30))
		_, err := b.sendFile(to(anna, ""), picture)
		if failed := wantSendError(t, err, "rate_limited", false); failed.RetryAfter != 30*time.Second || failed.Global {
			t.Errorf("got %+v", failed)
		}
		_, err = b.send("2", to(anna, ""), "a text")
		wantSendError(t, err, "rate_limited", false)
		after(30 * time.Second) // an earlier call is a violation
		for _, f := range []chat.Attachment{picture, text} {
			if _, err := b.sendFile(to(anna, ""), f); err != nil {
				t.Error(err)
			}
		}
		wantTexts(t, "anna sees", b.shownFiles(anna), "sendPhoto chart.png", "sendDocument notes.txt")
		if m := b.srv.Messages(anna); m[1].SentAt.Sub(m[0].SentAt) < time.Second {
			t.Errorf("two files within %s", m[1].SentAt.Sub(m[0].SentAt))
		}
	})
}

// A deleted topic and a moved group: files follow as text messages do.
func TestFilesFollowTheirChat(t *testing.T) {
	t.Parallel()
	withFile(t, func(b *bot, picture, text chat.Attachment) {
		if _, err := b.sendFile(to(group, "99"), picture); err != nil {
			b.t.Error(err)
		}
		if m := b.srv.Messages(group); len(m) != 1 || m[0].Thread != 0 || string(m[0].File.Content) != aPicture {
			b.t.Errorf("shown are %+v", m)
		}
		b.srv.Migrate(group, -100900)
		if _, err := b.sendFile(to(group, ""), text); err != nil {
			b.t.Error(err)
		}
		wantTexts(b.t, "the supergroup sees", b.shownFiles(-100900), "sendDocument notes.txt")
	})
}

func TestAFileThatIsNotOnThisNodeIsReplacedByText(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"Removed": "nothing", "ADirectory": "dir", "Outside": "../b", "Absolute": "/etc/hostname", "NoName": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withFile(t, func(b *bot, picture, _ chat.Attachment) {
				if err := b.files.Mkdir("dir", 0o700); err != nil {
					t.Fatal(err)
				}
				picture.Path = path
				sent, err := b.sendFile(to(group, "10"), picture)
				got := b.srv.Messages(group)
				if err != nil || len(got) != 1 || sent.ProviderID != strconv.Itoa(got[0].ID) || got[0].Thread != 10 {
					t.Fatalf("sent %+v, %v; shown are %+v", sent, err, got)
				}
				if text := got[0].Text; !strings.HasPrefix(text, "[file: chart.png, image/png, 15 bytes]\n") || !strings.Contains(text, "not on this node") {
					t.Errorf("the group reads %q", text)
				}
			})
		})
	}
	t.Run("NoDirectory", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBot(t, func(s *setup) { s.deps.Files = nil })
			b.start()
			if _, err := b.sendFile(to(anna, ""), chat.Attachment{Name: "a", Path: "a"}); err != nil || len(b.srv.Texts(anna)) != 1 {
				t.Errorf("%v; anna reads %q", err, b.srv.Texts(anna))
			}
			b.stop()
		})
	})
}

func TestAFileToNoAddressOfThisBot(t *testing.T) {
	t.Parallel()
	withFile(t, func(b *bot, picture, _ chat.Attachment) {
		_, err := b.sendFile(chat.Target{Channel: "telegram:1", ChatID: "7"}, picture)
		wantSendError(b.t, err, "bad_target", true)
	})
}

// A large file has more time than a text message: what it takes at a quarter of a megabyte a
// second.
func TestALargeFileHasMoreTime(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	withFile(t, func(b *bot, _, text chat.Attachment) {
		b.put("b", strings.Repeat("x", 10<<20))
		b.srv.Break("sendDocument", testtelegram.Fault{Delay: 50 * time.Second}, testtelegram.Fault{Hang: true})
		if _, err := b.sendFile(to(anna, ""), text); err != nil {
			b.t.Errorf("a slow upload: %v", err)
		}
		began := time.Now()
		_, err := b.sendFile(to(anna, ""), text)
		wantSendError(b.t, err, "timeout", false)
		if took := time.Since(began); took < 50*time.Second || took > 70*time.Second {
			b.t.Errorf("given up after %s", took)
		}
	})
}

// The process ends while an upload hangs: it is canceled at once, and its result is unknown.
func TestAnUploadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	withFile(t, func(b *bot, _, text chat.Attachment) {
		b.srv.Break("sendDocument", testtelegram.Fault{Hang: true})
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		_, err := b.ch.SendFile(ctx, chat.Reply{ID: "1", Target: to(anna, ""), File: &text}, b.claims.of("1"))
		if failed, ok := errors.AsType[*channel.SendError](err); !ok || failed.Reason != "canceled" || failed.Permanent || !failed.Unknown {
			b.t.Errorf("got %v", err)
		}
	})
}

// The largest file is sent with its length, and is never in memory as a whole. Not parallel: the
// test counts what the process allocates.
//
//nolint:paralleltest // see above
func TestALargeFileIsStreamed(t *testing.T) {
	const size = testtelegram.MaxUpload
	synctest.Test(t, func(t *testing.T) {
		var announced, came int64
		b := newBot(t, uploadsTo(func(r *http.Request) string {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				t.Error(err)
			}
			announced, came = r.ContentLength, n
			return `{"ok":true,"result":{"message_id":5}}`
		}))
		b.start()
		defer b.stop()
		b.put("large", "x")
		file, err := b.files.OpenFile("large", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(file.Truncate(size), file.Close()); err != nil {
			t.Fatal(err)
		}
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		sent, err := b.sendFile(to(anna, ""), chat.Attachment{Name: "large.bin", Path: "large"})
		runtime.ReadMemStats(&now)
		if err != nil || sent.ProviderID != "5" {
			t.Errorf("sent %+v, %v", sent, err)
		}
		if announced != came || came < size || came > size+1000 {
			t.Errorf("%d bytes were announced, %d came, the file has %d", announced, came, size)
		}
		if used := now.TotalAlloc - before.TotalAlloc; used > 4<<20 {
			t.Errorf("%d bytes were allocated", used)
		}
	})
}
