package telegram_test

import (
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/testtelegram"
)

// Telegram asks to wait in the answer to a call that sends nothing. Until that time has passed no call is made (stop
// checks the server), and nothing is lost.
func TestNoCallOfAnyKindComesInsideAWait(t *testing.T) {
	t.Parallel()
	for method, calls := range map[string]func(b *bot){
		"getMyCommands": func(*bot) {},
		"getMe":         func(*bot) {},
		"getUpdates":    func(*bot) {},
		"getFile": func(b *bot) {
			b.srv.AddFile("v", []byte("content"))
			b.srv.Say(anna, anna, "", testtelegram.With("voice", map[string]any{"file_id": "v", "file_unique_id": "u", "duration": 1}))
		},
		"getChatMember": func(b *bot) {
			b.srv.MakeAdmin(group, anna)
			b.srv.Say(group, anna, "/activation@lane_bot always")
		},
		"setMessageReaction": func(b *bot) {
			b.srv.Say(anna, anna, "busy?")
			after(time.Second)
			b.ch.Queued(b.t.Context(), to(anna, ""), b.messages()[0].ID)
		},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, func(s *setup) { s.cfg.Members = "any" })
				b.srv.Break(method, testtelegram.Flood(20))
				b.start()
				calls(b)
				after(5 * time.Second)
				b.srv.Say(anna, anna, "are you there?")
				after(45 * time.Second)
				if left := b.srv.Faults(method); left != 0 {
					t.Fatal("the call was never made")
				}
				got := b.messages()
				if len(got) == 0 || got[len(got)-1].Content.Text != "are you there?" {
					t.Errorf("received %q", b.texts())
				}
				switch method {
				case "getFile":
					if len(got) != 2 || len(got[0].Content.Attachments) != 1 {
						t.Errorf("the voice is missing: %q", b.texts())
					}
				case "getChatMember":
					if n := len(b.srv.Texts(group)); n != 1 {
						t.Errorf("the group reads %q", b.srv.Texts(group))
					}
				}
				if s := b.ch.Status(); s.State != "connected" {
					t.Errorf("the status is %+v", s)
				}
				b.stop()
			})
		})
	}
}
