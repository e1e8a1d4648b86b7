package telegram_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/channel/telegram"
	"laneway/internal/chat"
	"laneway/internal/testtelegram"
)

// letIn approves the pairing of a person without a message.
func (h *home) letIn(person int64) {
	h.t.Helper()
	made, err := h.st.CreatePairing(h.t.Context(), channel.Peer{Channel: "telegram:123456789", UserID: person, ChatID: person}, "")
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.st.ApprovePairing(h.t.Context(), channel.PairingRef{ID: made.ID}, chat.ChangedBy{Who: "operator"}); err != nil {
		h.t.Fatal(err)
	}
}

// people adds n people who may talk and returns their numbers.
func (h *home) people(n int) []int64 {
	h.t.Helper()
	var all []int64
	for i := range n {
		id := int64(1000 + i)
		h.srv.AddPrivate(id, fmt.Sprintf("Person %d", i))
		h.letIn(id)
		all = append(all, id)
	}
	return all
}

// answers sends one question of each person, ten a second, and returns how long each waited for the
// answer, sorted.
func (h *home) answers(people []int64, question string) []time.Duration {
	h.t.Helper()
	asked := map[int64]time.Time{}
	for _, p := range people {
		asked[p] = time.Now()
		h.srv.Say(p, p, question)
		after(100 * time.Millisecond)
	}
	after(3 * time.Minute)
	var waits []time.Duration
	for _, p := range people {
		for _, m := range h.srv.Messages(p) {
			if strings.Contains(m.Text, question) {
				waits = append(waits, m.SentAt.Sub(asked[p]))
			}
		}
	}
	if len(waits) != len(people) {
		h.t.Fatalf("%d of %d people were answered", len(waits), len(people))
	}
	slices.Sort(waits)
	return waits
}

func p99(sorted []time.Duration) time.Duration { return sorted[len(sorted)*99/100] }

// TestACooldownOfOneChatDelaysNoOther: one chat has a cooldown of ten minutes; every other chat is
// answered without delay.
func TestACooldownOfOneChatDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		people := h.people(50)
		h.letIn(bob)
		h.begin()
		calm := h.answers(people, "how are you")
		h.srv.Break("sendMessage", testtelegram.Flood(600))
		began := time.Now()
		for i := range 5 {
			h.srv.Say(bob, bob, fmt.Sprintf("bob %d", i))
			after(5 * time.Second)
		}
		busy := h.answers(people, "and now")
		t.Logf("others' p99: %s without, %s beside the chat with a cooldown", p99(calm), p99(busy))
		if p99(busy) > p99(calm)*3/2 {
			t.Errorf("others wait %s (p99) beside a chat with a cooldown and %s without it", p99(busy), p99(calm))
		}
		if n := len(h.srv.Texts(bob)); n != 0 {
			t.Errorf("bob reads %d messages within his cooldown", n)
		}
		after(10*time.Minute - time.Since(began) + time.Minute)
		got := h.srv.Texts(bob)
		for i := range 5 {
			if len(got) != 5 || !strings.Contains(got[i], fmt.Sprintf("bob %d", i)) {
				t.Fatalf("bob reads %q", got)
			}
		}
		h.end()
	})
}

// TestAWaitingMessageIsSeen: a message that waits for another turn receives a reaction after a
// moment; a message that is answered at once receives none.
func TestAWaitingMessageIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		h.letIn(anna)
		h.begin()
		h.srv.Say(anna, anna, "hello")
		after(10 * time.Second)
		if n := len(h.srv.Calls("setMessageReaction")); n != 0 {
			t.Errorf("%d signs under a message that was answered at once", n)
		}
		h.srv.Say(anna, anna, "think 1m done")
		after(5 * time.Second)
		h.srv.Say(anna, anna, "and this?")
		after(5 * time.Second)
		if n := len(h.srv.Calls("setMessageReaction")); n != 1 {
			t.Errorf("%d signs under a message that waits", n)
		}
		after(2 * time.Minute)
		h.wantLast("the answer", anna, "and this?")
		h.end()
	})
}

// TestGroupStopOwn: if people may stop only their own turns, a /stop of another person finds no
// turn.
func TestGroupStopOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		h.groupStop = "own"
		h.begin()
		say := func(who int64, text string) {
			h.srv.Say(group, who, "@lane_bot "+text, testtelegram.Mentioning(9))
			after(10 * time.Second) // a group accepts one message in three seconds, and each edit of the preview counts as one
		}
		say(anna, "/stop")
		h.wantLast("with nothing there", group, "nothing to stop")
		h.srv.Say(group, anna, "think 5m anna's", testtelegram.With("reply_to_message", map[string]any{
			"message_id": 1, "date": 1, "chat": map[string]any{"id": group, "type": "supergroup"}, "from": map[string]any{"id": 123456789, "is_bot": true, "first_name": "Lane"},
		}))
		after(3 * time.Second)
		say(bob, "/stop")
		h.wantLast("another person", group, "nothing to stop")
		say(bob, "/stopall")
		h.wantLast("another person, all", group, "nothing to stop")
		say(anna, "/stop")
		h.wantLast("her own", group, "Stopped the running turn")
		after(6 * time.Minute)
		if strings.Contains(strings.Join(h.srv.Texts(group), " "), "anna's") {
			t.Error("a stopped turn was answered")
		}
		h.end()
	})
}

// Without a bound one person could fill the disk: 20 albums a minute of ten files of 20 MB each.
func TestTheFilesOfOnePersonAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 400 << 10
		b := newBot(t, func(s *setup) { s.cfg.UserFileBytes, s.cfg.Allow = 1<<20, []int64{anna, bob} })
		for n := range 5 {
			b.srv.AddFile(fmt.Sprint("f", n), make([]byte, size))
		}
		b.start()
		for n := range 4 {
			b.srv.Say(anna, anna, "", document(fmt.Sprint("f", n), fmt.Sprintf("f%d.bin", n), size), testtelegram.With("caption", fmt.Sprint("file ", n)))
		}
		b.srv.Say(bob, bob, "", document("f4", "f4.bin", size))
		after(10 * time.Second)
		left := "[%s was left out: too many files in a minute]"
		if got := strings.Join(b.texts(), "|"); strings.Count(got, "left out") != 2 || !strings.Contains(got, "file 2\n"+fmt.Sprintf(left, "f2.bin")) {
			t.Errorf("received %q", got)
		}
		if got := b.stored(); len(got) != 3 {
			t.Errorf("stored %q, want two files of one person and one of the other", got)
		}
		after(time.Minute)
		b.srv.Say(anna, anna, "", document("f2", "f2.bin", size))
		after(10 * time.Second)
		if got := b.stored(); len(got) != 4 {
			t.Errorf("stored %q after a minute, want one more", got)
		}
		b.stop()
	})
}

// A retry after a failure of the disk does not count the bytes again.
func TestAFileThatIsTriedAgainIsCountedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.UserFileBytes = 1 << 20 })
		b.srv.AddFile("v", make([]byte, 900<<10))
		if err := b.files.WriteFile("telegram-123456789", []byte("in the way"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.srv.Say(anna, anna, "look", document("v", "x.txt", 900<<10))
		after(20 * time.Second)
		if err := b.files.Remove("telegram-123456789"); err != nil {
			t.Fatal(err)
		}
		after(20 * time.Second)
		if got := b.messages(); len(got) != 1 || len(got[0].Content.Attachments) != 1 {
			t.Errorf("received %+v", got)
		}
		b.stop()
	})
}

func TestTheLargestAttachmentIsTakenToTheByte(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	synctest.Test(t, func(t *testing.T) {
		const limit = 20_971_520
		b := newBot(t, func(s *setup) { s.cfg.MaxAttachment = telegram.MaxAttachment })
		whole := make([]byte, limit+1)
		b.srv.AddFile("under", whole[:limit-1])
		b.srv.AddFile("just", whole[:limit])
		b.srv.AddFile("over", whole)
		b.start()
		b.srv.Say(anna, anna, "", document("under", "under.bin", limit-1))
		b.srv.Say(anna, anna, "", document("just", "just.bin", limit))
		b.srv.Say(anna, anna, "", document("over", "over.bin", limit+1), testtelegram.With("caption", "as it says"))
		b.srv.Say(anna, anna, "", document("over", "liar.bin", limit), testtelegram.With("caption", "not as it says"))
		after(time.Minute)
		wantTexts(t, "received", b.texts(), "", "", "as it says\n[over.bin is larger than 20 MB and was left out]", "not as it says\n[liar.bin is larger than 20 MB and was left out]")
		for i, m := range b.messages()[:2] {
			if a := m.Content.Attachments; len(a) != 1 || len(b.read(a[0].Path)) != limit-1+i {
				t.Errorf("%s: %+v", []string{"one byte less", "exactly"}[i], a)
			}
		}
		if got := b.stored(); len(got) != 2 || strings.Contains(strings.Join(got, " "), "over") {
			t.Errorf("stored %q", got)
		}
		b.stop()
	})
}

// The disk accepts no file, or Telegram's file server is unavailable for half a minute: the
// attachment is not lost, other chats are served meanwhile, and the status names the disk.
func TestAnAttachmentSurvivesATroubleThatPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.srv.AddFile("v", []byte("content"))
		if err := b.files.WriteFile("telegram-123456789", []byte("in the way"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.srv.Say(anna, anna, "look", document("v", "x.txt", 7))
		b.srv.Say(group, anna, "@lane_bot elsewhere", testtelegram.Mentioning(9))
		after(5 * time.Minute)
		wantTexts(t, "while the disk takes no file", b.texts(), "@lane_bot elsewhere")
		if s := b.ch.Status(); s.State != "degraded" || s.LastError == "" {
			t.Errorf("status %+v", s)
		}
		if err := b.files.Remove("telegram-123456789"); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Second)
		if got := b.messages(); len(got) != 2 || len(got[1].Content.Attachments) != 1 {
			t.Errorf("received %+v", got)
		}
		if s := b.ch.Status(); s.State != "connected" {
			t.Errorf("status %+v", s)
		}
		b.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.srv.AddFile("v", []byte("content"))
		bad := testtelegram.Refuse(502, "Bad Gateway")
		b.srv.Break("file", bad, bad, bad, bad, bad, bad)
		b.start()
		b.srv.Say(anna, anna, "look", document("v", "x.txt", 7))
		after(time.Minute)
		if got := b.messages(); len(got) != 1 || len(got[0].Content.Attachments) != 1 {
			t.Errorf("received %+v", got)
		}
		b.stop()
	})
}
