package telegram_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
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

// TestUnchangedPreviewIsNotSentAgain: an answer that has become longer than one message changes nothing in its first one, so a group keeps its
// twenty calls a minute for the parts of the answer.
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

// TestARefusedDraftCostsOneChat: a chat that refuses a draft is shown a message; other chats continue with drafts.
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

// TestALostPreviewIsTheOnlyOne: when it is unknown whether the first message of a preview has arrived, no second one follows it.
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
