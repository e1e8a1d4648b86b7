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

// grow streams an answer with the given number of words, ten a second, and finishes it.
func (b *bot) grow(run string, chatID int64, words int) string {
	text := ""
	for range words {
		text += "word "
		b.ch.Update(to(chatID, ""), run, channel.Preview{Text: text})
		after(100 * time.Millisecond)
	}
	b.ch.Finish(to(chatID, ""), run, true)
	return text
}

func TestPreviewBecomesTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.grow("run-1", anna, 100)
		b.mustSend("1", to(anna, ""), "The **final** answer.")
		got := b.srv.Messages(anna)
		if len(got) != 1 || got[0].Text != "The final answer." || got[0].HTML != "The <b>final</b> answer." {
			t.Fatalf("got %+v", got)
		}
		if n := len(got[0].Edits); n < 7 || n > 11 {
			t.Errorf("%d states were shown in ten seconds", n)
		}
		calls := append(b.srv.Calls("sendMessage"), b.srv.Calls("editMessageText")...)
		wantMost(t, "chat in a second", calls, time.Second, 1)
		if n := len(b.srv.Calls("sendMessageDraft")); n != 1 {
			t.Errorf("an API without drafts was asked %d times", n)
		}
		b.stop()
	})
}

func TestPreviewAsDraft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.srv.Drafts = true })
		b.start()
		b.grow("run-1", anna, 50)
		b.mustSend("1", to(anna, ""), "final")
		wantTexts(t, "anna reads", b.srv.Texts(anna), "final")
		drafts := b.srv.Calls("sendMessageDraft")
		if len(drafts) < 4 {
			t.Fatalf("%d drafts", len(drafts))
		}
		id := drafts[0].Params.Get("draft_id")
		for _, d := range drafts {
			if d.Params.Get("draft_id") != id {
				t.Errorf("the draft changed its number: %v", d.Params)
			}
		}
		b.grow("run-2", group, 20) // groups have no drafts
		b.mustSend("2", to(group, ""), "final")
		wantTexts(t, "the group reads", b.srv.Texts(group), "final")
		b.stop()
	})
}

func TestLongAnswerContinuesBehindThePreview(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		text := strings.Repeat("A rather long answer. ", 500)
		b.ch.Update(to(anna, ""), "run-1", channel.Preview{Text: text[:3000]})
		after(3 * time.Second)
		b.ch.Update(to(anna, ""), "run-1", channel.Preview{Text: text})
		after(3 * time.Second)
		b.ch.Finish(to(anna, ""), "run-1", true)
		b.mustSend("1", to(anna, ""), text)
		if got := strings.Join(b.srv.Texts(anna), ""); got != strings.TrimRight(text, " ") {
			t.Errorf("%d bytes instead of %d", len(got), len(text))
		}
		b.stop()
	})
}

func TestPreviewIsGoneOrTheSame(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]testtelegram.Fault{
		"deleted": testtelegram.Refuse(400, "Bad Request: message to edit not found"),
		"old":     testtelegram.Refuse(400, "Bad Request: message can't be edited"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				b.grow("run-1", anna, 5)
				b.srv.Break("editMessageText", f)
				b.mustSend("1", to(anna, ""), "final")
				if got := b.srv.Texts(anna); len(got) != 2 || got[1] != "final" {
					t.Errorf("got %q", got)
				}
				b.stop()
			})
		})
	}
	t.Run("the same", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBot(t, nil)
			b.start()
			text := b.grow("run-1", anna, 5)
			after(5 * time.Second)
			b.ch.Update(to(anna, ""), "run-1", channel.Preview{Text: text})
			after(5 * time.Second)
			b.mustSend("1", to(anna, ""), text)
			wantTexts(t, "anna reads", b.srv.Texts(anna), strings.TrimSpace(text))
			b.stop()
		})
	})
}

func TestFinalEditFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.grow("run-1", anna, 20)
		b.srv.Break("editMessageText", testtelegram.Flood(10), testtelegram.Refuse(500, "oops"))
		began := time.Now()
		if _, err := b.send("1", to(anna, ""), "final"); err == nil {
			t.Error("the first attempt must fail")
		}
		if _, err := b.send("2", to(bob, ""), "for bob"); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("the other chat: %v after %s", err, time.Since(began))
		}
		b.mustSend("1", to(anna, ""), "final")
		wantTexts(t, "anna reads", b.srv.Texts(anna), "final")
		b.stop()
	})
}

func TestSecondAttemptGoesOnInThePreview(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.grow("run-1", anna, 15)
		b.grow("run-1", anna, 15) // the turn ran again
		b.mustSend("1", to(anna, ""), "final")
		wantTexts(t, "anna reads", b.srv.Texts(anna), "final")
		b.stop()
	})
}

// TestUnchangedPreviewIsNotSentAgain: an answer that has become longer than one message changes
// nothing in its first one, so a group keeps its twenty calls a minute for the parts of the answer.
func TestUnchangedPreviewIsNotSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		text := strings.Repeat("A rather long answer. ", 500)
		for range 300 {
			text += "word "
			b.ch.Update(to(group, ""), "run-1", channel.Preview{Text: text})
			after(100 * time.Millisecond)
		}
		b.ch.Finish(to(group, ""), "run-1", true)
		if posts, edits := len(b.srv.Calls("sendMessage")), len(b.srv.Calls("editMessageText")); posts != 1 || edits != 0 {
			t.Errorf("%d messages and %d edits for an answer that did not change", posts, edits)
		}
		began := time.Now()
		b.mustSend("1", to(group, ""), text)
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("the final parts took %s", d)
		}
		if got := strings.Join(b.srv.Texts(group), ""); got != strings.TrimRight(text, " ") {
			t.Errorf("%d bytes instead of %d", len(got), len(text))
		}
		b.stop()
	})
}

// TestARefusedDraftCostsOneChat: a chat that refuses a draft is shown a message; other chats
// continue with drafts.
func TestARefusedDraftCostsOneChat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.srv.Drafts = true })
		b.start()
		b.srv.Break("sendMessageDraft", testtelegram.Refuse(400, "Bad Request: something about this chat"))
		b.grow("run-1", anna, 20)
		b.grow("run-2", bob, 20)
		of := map[int64]int{}
		for _, c := range b.srv.Calls("sendMessageDraft") {
			of[c.Chat()]++
		}
		if of[anna] != 1 || of[bob] < 2 || len(b.srv.Texts(anna)) != 1 || len(b.srv.Texts(bob)) != 0 {
			t.Errorf("drafts %v; anna reads %q, bob %q", of, b.srv.Texts(anna), b.srv.Texts(bob))
		}
		b.mustSend("1", to(anna, ""), "final")
		wantTexts(t, "anna reads", b.srv.Texts(anna), "final")
		b.stop()
	})
}

// TestALostPreviewIsTheOnlyOne: when it is unknown whether the first message of a preview has
// arrived, no second one follows it.
func TestALostPreviewIsTheOnlyOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.srv.Break("sendMessage", testtelegram.Fault{After: true, Reset: true})
		b.grow("run-1", group, 60)
		if got := b.srv.Texts(group); len(got) != 1 {
			t.Errorf("previews: %q", got)
		}
		b.mustSend("1", to(group, ""), "final")
		if got := b.srv.Texts(group); len(got) != 2 || got[1] != "final" {
			t.Errorf("the group reads %q", got)
		}
		b.stop()
	})
}

// TestPreviewOutlivesItsTopic: the preview goes where the answer will go when its topic is gone.
func TestPreviewOutlivesItsTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		for range 40 {
			b.ch.Update(to(group, "77"), "run-1", channel.Preview{Text: time.Now().String()})
			after(100 * time.Millisecond)
		}
		b.ch.Finish(to(group, "77"), "run-1", true)
		if n := len(b.srv.Texts(group)); n != 1 {
			t.Errorf("%d previews", n)
		}
		b.mustSend("1", to(group, "77"), "final")
		wantTexts(t, "the group reads", b.srv.Texts(group), "final")
		b.stop()
	})
}

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

// A process shows a growing answer and ends. The next one, without its memory, continues that
// message, and its final text replaces it.
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

// A process whose lease has ended may not have noticed yet that another one has taken over its
// turns.
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

// One person's chat is at its limit because answers are sent to it, and the person's flood is
// refused with a note. The note waits for the chat. The message of another person, which Telegram
// returns only after the flood is settled, does not wait.
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

// An upload that was cut off has not been executed: it can be sent again, and must not count as
// possibly sent.
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
