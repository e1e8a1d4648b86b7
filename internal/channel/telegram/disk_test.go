package telegram_test

import (
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/testtelegram"
)

// The disk accepts no file, or Telegram's file server is unavailable for half a minute: the attachment is not lost, other chats are served
// meanwhile, and the status names the disk.
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
