package telegram_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
)

// steps streams a turn in a chat that writes text and then makes three calls of 15 seconds.
func (b *bot) steps(run string, chatID int64, text string) {
	for n := range 3 {
		b.ch.Update(to(chatID, ""), run, channel.Preview{Text: text, Step: fmt.Sprintf("go test ./%d <x>", n), Since: time.Now(), Steps: n + 1})
		after(15 * time.Second)
	}
}

// TestAStepIsOneLineThatTheAnswerReplaces in a group and in a private chat, with and without text above it.
func TestAStepIsOneLineThatTheAnswerReplaces(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"alone": "", "below a text": "I look at it."} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				for id, chatID := range map[string]int64{"1": anna, "2": group} {
					b.steps("run-"+id, chatID, text)
					before := text
					if text != "" {
						before += "\n\n"
					}
					want := []string{"go test ./0 <x>…", "go test ./0 <x>… 10 s", "go test ./1 <x>… 2 tools", "go test ./1 <x>… 10 s, 2 tools", "go test ./2 <x>… 3 tools", "go test ./2 <x>… 10 s, 3 tools"}
					got := b.srv.Messages(chatID)
					if len(got) != 1 {
						t.Fatalf("got %+v, want one message", got)
					}
					shown := append(got[0].Edits, got[0].Text)
					for i := range want {
						want[i] = before + want[i]
					}
					wantTexts(t, "states", shown, want...)
					b.ch.Finish(to(chatID, ""), "run-"+id, true)
					b.mustSend(id, to(chatID, ""), "final")
					wantTexts(t, "in the end", b.srv.Texts(chatID), "final")
				}
				b.stop()
			})
		})
	}
}

// TestWithoutAReplyNothingOfAStepRemains: a stopped turn leaves its text, or nothing if it has no text. This also holds after the previews of a
// process have ended, as in a drain.
func TestWithoutAReplyNothingOfAStepRemains(t *testing.T) {
	t.Parallel()
	for name, drained := range map[string]bool{"stopped": false, "drained": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				b.steps("run-1", group, "")
				b.steps("run-2", anna, "I look at it.")
				if drained {
					b.ch.EndPreviews(t.Context())
				}
				b.ch.Finish(to(group, ""), "run-1", false)
				b.ch.Finish(to(anna, ""), "run-2", false)
				after(5 * time.Second)
				wantTexts(t, "the group reads", b.srv.Texts(group))
				wantTexts(t, "anna reads", b.srv.Texts(anna), "I look at it.")
				b.stop()
			})
		})
	}
}

// TestTheTimeOfAStepKeepsTheLimits: a step of twenty minutes in a group leaves room for messages, and the draft of a private chat does not expire.
func TestTheTimeOfAStepKeepsTheLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.srv.Drafts = true })
		b.start()
		p := channel.Preview{Text: strings.Repeat("A rather long answer. ", 500), Step: strings.Repeat("long ", 100), Since: time.Now(), Steps: 1}
		b.ch.Update(to(group, ""), "run-1", p)
		b.ch.Update(to(anna, ""), "run-2", p)
		after(20*time.Minute - 5*time.Second)
		wantMost(t, "edits in a minute", b.srv.Calls("editMessageText"), time.Minute, 7)
		drafts := b.srv.Calls("sendMessageDraft")
		for i := 1; i < len(drafts); i++ {
			if gap := drafts[i].At.Sub(drafts[i-1].At); gap > 15*time.Second {
				t.Fatalf("no draft for %s", gap)
			}
		}
		last := drafts[len(drafts)-1].Params.Get("text")
		if !strings.HasSuffix(last, "long… 19 min 50 s</i>") || !strings.Contains(last, "A rather long answer.") || len(b.srv.Texts(anna)) != 0 {
			t.Errorf("the last draft is %q", last)
		}
		if got := b.srv.Texts(group); len(got) != 1 || !strings.HasSuffix(got[0], "long… 19 min 50 s") {
			t.Errorf("the group reads %q", got)
		}
		b.stop()
	})
}
