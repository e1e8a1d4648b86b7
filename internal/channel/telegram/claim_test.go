package telegram_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/testtelegram"
)

// pages returns text that needs three messages.
func pages() string { return strings.Repeat("A sentence that fills the page. ", 360) }

// The claim ends while the second message waits for the limit of its chat.
func TestNoFurtherPartIsSentOnceTheClaimHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		ended := &channel.SendError{Reason: "stale"}
		from := time.Now()
		b.claims.check = func() error {
			if time.Since(from) > 500*time.Millisecond {
				return ended
			}
			return nil
		}
		_, err := b.send("1", to(anna, ""), pages())
		if !errors.Is(err, ended) {
			t.Errorf("the attempt ended with %v", err)
		}
		if n := len(b.srv.Calls("sendMessage")); n != 1 {
			t.Errorf("%d messages were sent, want the one before the end of the claim", n)
		}
		b.stop()
	})
}

// A process shows a growing answer and ends. The next one, without its memory, continues that message, and its final text replaces it.
func TestAnotherProcessContinuesThePreview(t *testing.T) {
	t.Parallel()
	for _, in := range []struct {
		chat   int64
		thread string
	}{{anna, ""}, {group, ""}, {group, "10"}} {
		synctest.Test(t, func(t *testing.T) {
			b, place := newBot(t, nil), to(in.chat, in.thread)
			next := newBot(t, func(s *setup) { s.network = func(http.RoundTripper) http.RoundTripper { return b.srv.Transport() } })
			next.lease = func() (bool, error) { return false, nil }
			b.start()
			next.start()
			var recorded string
			record := func(_ context.Context, shown string) { recorded = shown }
			b.ch.Update(place, "run-1", channel.Preview{Text: "half", Record: record})
			after(2 * time.Second)
			b.ch.EndPreviews(t.Context())
			b.ch.Update(place, "run-1", channel.Preview{Text: "late"})
			next.ch.Update(place, "run-1", channel.Preview{Text: "half and", Shown: recorded, Record: record})
			after(2 * time.Second)
			shown, own := next.ch.Close(t.Context(), place, "run-1")
			if !own || shown == "" || shown != recorded {
				t.Errorf("the preview is %q, recorded %q, own %t", shown, recorded, own)
			}
			b.claims.by = map[string]string{"1": shown}
			next.claims.by = b.claims.by
			next.mustSend("1", place, "half and whole")
			wantTexts(t, "the chat", b.srv.Texts(in.chat), "half and whole")
			b.stop()
			next.stop()
		})
	}
}

// Close waits for a running call, so that another process knows the message that it made.
func TestCloseWaitsForAPreviewOnTheWire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.srv.Break("sendMessage", testtelegram.Fault{Delay: 5 * time.Second})
		b.ch.Update(to(group, ""), "run-1", channel.Preview{Text: "half"})
		after(time.Second)
		hurry, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if shown, own := b.ch.Close(hurry, to(group, ""), "run-1"); shown != "" || !own {
			t.Errorf("without a result the preview is %q, own %t", shown, own)
		}
		if shown, own := b.ch.Close(t.Context(), to(group, ""), "run-1"); shown == "" || !own {
			t.Errorf("with a result the preview is %q, own %t", shown, own)
		}
		b.ch.Update(to(group, ""), "other", channel.Preview{})
		if shown, own := b.ch.Close(t.Context(), to(group, ""), "unknown"); shown != "" || own {
			t.Errorf("the preview of an unknown run is %q, own %t", shown, own)
		}
		b.stop()
	})
}

// One process sends the first part and ends; another process, without its memory, sends the rest.
func TestAnotherProcessContinuesAfterTheLastRecordedPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		whole, b, next := newBot(t, nil), newBot(t, nil), newBot(t, nil)
		whole.start()
		whole.mustSend("1", to(anna, ""), pages())
		b.start()
		b.claims.check = func() error {
			if len(b.srv.Calls("sendMessage")) > 0 {
				return &channel.SendError{Reason: "stale"}
			}
			return nil
		}
		_, err := b.send("1", to(anna, ""), pages())
		if err == nil {
			t.Error("the first process sent everything")
		}
		next.claims.by = b.claims.by
		next.start()
		sent := next.mustSend("1", to(anna, ""), pages())
		if got, want := append(b.srv.Texts(anna), next.srv.Texts(anna)...), whole.srv.Texts(anna); !slices.Equal(got, want) {
			t.Errorf("the two processes sent %d parts, want the %d of one process", len(got), len(want))
		}
		if first := b.srv.Messages(anna)[0].ID; sent.ProviderID != strconv.Itoa(first) {
			t.Errorf("the id of the reply is %s, want that of its first part, %d", sent.ProviderID, first)
		}
		whole.stop()
		b.stop()
		next.stop()
	})
}

func TestNothingGrowsOnceThePreviewsHaveEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.ch.Update(to(anna, ""), "run-1", channel.Preview{Text: "word"})
		after(time.Second)
		b.srv.Break("editMessageText", testtelegram.Fault{Delay: 700 * time.Millisecond})
		b.ch.Update(to(anna, ""), "run-1", channel.Preview{Text: "word by word"})
		after(time.Second)
		b.ch.Update(to(anna, ""), "run-1", channel.Preview{Text: "word by word by word"})
		began := time.Now()
		b.ch.EndPreviews(t.Context())
		edits := b.srv.Calls("editMessageText")
		if n := len(edits); n == 0 || edits[n-1].Code == 0 {
			t.Errorf("a call of a preview is under way %s after the end", time.Since(began))
		}
		b.ch.Update(to(anna, ""), "run-1", channel.Preview{Text: "word by word by word by word"})
		b.ch.Update(to(bob, ""), "run-2", channel.Preview{Text: "word"})
		after(10 * time.Second)
		if n := len(b.srv.Calls("editMessageText")); n != len(edits) || len(b.srv.Texts(bob)) != 0 {
			t.Errorf("%d further edits, and bob reads %q", n-len(edits), b.srv.Texts(bob))
		}
		b.mustSend("1", to(anna, ""), "final") // the message of the preview is replaced nevertheless
		b.stop()
	})
}

// A process whose lease has ended may not have noticed yet that another one has taken over its turns.
func TestNothingGrowsWhileTheLeaseHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		gone := errors.New("the lease has ended")
		b.alive.Store(&gone)
		b.ch.Update(to(anna, ""), "run-1", channel.Preview{Text: "word"})
		after(10 * time.Second)
		wantTexts(t, "while the lease has ended", b.srv.Texts(anna))
		b.alive.Store(nil)
		after(2 * time.Second)
		wantTexts(t, "afterwards", b.srv.Texts(anna), "word")
		b.stop()
	})
}

// One person's chat is at its limit because answers are sent to it, and the person's flood is refused with a note. The note waits for the chat. The
// message of another person, which Telegram returns only after the flood is settled, does not wait.
func TestARefusedFloodDoesNotWaitForItsNote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.Allow = []int64{anna, bob} })
		b.start()
		after(time.Second)
		b.srv.Break("sendMessage", testtelegram.Fault{Delay: 4 * time.Second})
		for i := range 200 {
			b.srv.Say(anna, anna, "message "+strconv.Itoa(i))
		}
		asked := time.Now()
		b.srv.Say(bob, bob, "are you there?")
		after(30 * time.Second)
		for i, m := range b.messages() {
			if m.Content.Text == "are you there?" {
				if waited := b.receivedAt(i).Sub(asked); waited > time.Second {
					t.Errorf("bob's message was received after %s, want at most a second", waited)
				}
				b.stop()
				return
			}
		}
		t.Error("bob's message was not received")
		b.stop()
	})
}

// An upload that was cut off has not been executed: it can be sent again, and must not count as possibly sent.
func TestAnUploadThatWasCutHasNotArrived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) {
			s.network = func(next http.RoundTripper) http.RoundTripper {
				return roundTrip(func(r *http.Request) (*http.Response, error) {
					if !strings.HasSuffix(r.URL.Path, "/sendDocument") {
						return next.RoundTrip(r)
					}
					if _, err := io.CopyN(io.Discard, r.Body, 100); err != nil {
						t.Error(err)
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
			}
		})
		b.start()
		b.put("b", strings.Repeat("x", 1<<20))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		file := chat.Attachment{Name: "notes.txt", MIMEType: "text/plain", Path: "b"}
		_, err := b.ch.SendFile(ctx, chat.Reply{ID: "1", Target: to(anna, ""), File: &file}, b.claims.of("1"))
		if failed := wantSendError(t, err, "canceled", false); failed.Unknown {
			t.Errorf("got %+v", failed)
		}
		b.stop()
	})
}
