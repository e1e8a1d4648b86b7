package dispatch_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const inWords = "Write /queue queue, followup, interrupt, collect, steer or default"

// A choice of a command is shown on every channel: as buttons for the person who gave the command where the channel supports buttons,
// otherwise in words.
func TestAChoiceIsButtonsWhereThereAreSomeAndWordsElsewhere(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		h.send("agent:main:asker:direct:7", "/queue", func(m *chat.Message) {
			m.Channel, m.Content.Sender.ID = "asker", "7"
			m.Content.Options.ReplyTo = chat.Target{Channel: "asker", ChatID: "7", Thread: "3"}
		})
		h.send("agent:main:box:direct:7", "/queue", replyTo("7"))
		id := h.send("web", "/queue")
		time.Sleep(2 * time.Second)
		synctest.Wait()

		h.asker.mu.Lock()
		got := h.asker.sent
		h.asker.mu.Unlock()
		if len(got) != 1 || got[0].Choice == nil || got[0].Choice.For != "7" || len(got[0].Choice.Rows) != 2 || strings.Contains(got[0].Text, "Write") || got[0].Target.Thread != "3" {
			t.Errorf("the channel with buttons got %+v", got)
		}
		h.box.mu.Lock()
		plain := h.box.sent
		h.box.mu.Unlock()
		if len(plain) != 1 || plain[0].Choice != nil || !strings.Contains(plain[0].Text, "lane main.\n\n"+inWords) {
			t.Errorf("the channel without buttons got %+v", plain)
		}
		if end := h.end(id); !strings.Contains(end.Text, inWords) {
			t.Errorf("a caller without a channel gets %q", end.Text)
		}
		key, err := chat.ParseSessionKey("agent:main:asker:direct:7", "main")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := h.st.Transcript(t.Context(), store.TranscriptQuery{Session: key, Limit: 5})
		if err != nil || len(tr.Entries) != 2 || !strings.Contains(tr.Entries[1].Text, inWords) {
			t.Errorf("those who look at the conversation read %+v, %v", tr.Entries, err)
		}
	})
}

// A choice that was not delivered is offered again, with its buttons.
func TestAChoiceSurvivesAFailedAttempt(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		failed := 0
		h.asker.fail = func(chat.Reply) error {
			if failed++; failed < 3 {
				return chat.ErrStoreUnavailable
			}
			return nil
		}
		h.send("agent:main:asker:direct:7", "/queue", func(m *chat.Message) {
			m.Content.Options.ReplyTo = chat.Target{Channel: "asker", ChatID: "7"}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(h.asker.sent) != 1 || h.asker.sent[0].Attempt != 3 || h.asker.sent[0].Choice == nil {
			t.Errorf("delivered was %+v", h.asker.sent)
		}
	})
}
