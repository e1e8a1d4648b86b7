package telegram_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/testtelegram"
)

// grow streams an answer of so many words, ten a second, and finishes it.
func (b *bot) grow(run string, chatID int64, words int) string {
	text := ""
	for range words {
		text += "word "
		b.ch.Update(to(chatID, ""), run, text)
		after(100 * time.Millisecond)
	}
	b.ch.Finish(to(chatID, ""), run)
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
		b.ch.Update(to(anna, ""), "run-1", text[:3000])
		after(3 * time.Second)
		b.ch.Update(to(anna, ""), "run-1", text)
		after(3 * time.Second)
		b.ch.Finish(to(anna, ""), "run-1")
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
			b.ch.Update(to(anna, ""), "run-1", text)
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
