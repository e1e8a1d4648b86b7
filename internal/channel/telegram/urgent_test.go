package telegram_test

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/testtelegram"
)

// The download of a photo hangs, or the store does not accept a message: a /stop in the same chat is executed within a second, the overtaken update
// is handled once afterwards, and no update is confirmed before both are settled.
func TestAnUrgentCommandOvertakesWhatHangs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hang, repair func(*bot)
		file         bool
		first        string
	}{
		"download": {
			hang: func(b *bot) { b.srv.Break("file", testtelegram.Fault{Delay: 20 * time.Second}) }, repair: func(*bot) {},
			file: true,
		},
		"drain": {
			hang: func(b *bot) { b.draining(true) }, repair: func(b *bot) { b.draining(false) },
			first: "hello",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.srv.AddFile("v", []byte("content"))
				c.hang(b)
				b.start()
				var slow int
				if c.file {
					slow = b.srv.Say(anna, anna, "", document("v", "x.txt", 7))
				} else {
					slow = b.srv.Say(anna, anna, c.first)
				}
				after(2 * time.Second)
				b.srv.Say(anna, anna, "patient")
				stop := b.srv.Say(anna, anna, "/stop")
				after(time.Second)
				wantTexts(t, "a second after /stop", b.texts(), "/stop")
				if left := b.srv.Pending(); !slices.Contains(left, slow) || !slices.Contains(left, stop) {
					t.Errorf("unconfirmed while the first is in work: %v; want both %d and %d among them", left, slow, stop)
				}
				after(10 * time.Second)
				wantTexts(t, "still", b.texts(), "/stop")
				c.repair(b)
				after(40 * time.Second)
				wantTexts(t, "at the end", b.texts(), "/stop", c.first, "patient")
				if left := b.srv.Pending(); len(left) != 0 {
					t.Errorf("unconfirmed at the end: %v", left)
				}
				b.stop()
			})
		})
	}
}

// If no update takes long, urgent commands keep the order of the chat: a /stop sent right after a message finds it.
func TestAnUrgentCommandKeepsTheOrderOfAQuickChat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.srv.Say(anna, anna, "one")
		b.srv.Say(anna, anna, "two")
		b.srv.Say(anna, anna, "/stop")
		b.srv.Say(anna, anna, "three")
		b.start()
		after(5 * time.Second)
		wantTexts(t, "received", b.texts(), "one", "two", "/stop", "three")
		b.stop()
	})
}

// A hanging download does not block Telegram's window of a hundred updates: with many updates after it, it is given up within seconds.
func TestAHungDownloadDoesNotHoldUpEveryChat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.Allow, s.cfg.UserRate = []int64{anna, bob}, -1 })
		b.srv.AddFile("v", []byte("content"))
		b.srv.Break("file", testtelegram.Fault{Hang: true})
		b.srv.Say(anna, anna, "look", document("v", "x.txt", 7))
		for i := range 149 {
			b.srv.Say(bob, bob, strconv.Itoa(i))
		}
		b.start()
		after(4 * time.Second)
		if n := len(b.texts()); n != 99 {
			t.Errorf("%d messages while the window is closed, want 99", n)
		}
		after(4 * time.Second)
		got := b.texts()
		if len(got) != 150 || !slices.Contains(got, "look\n[x.txt could not be fetched from Telegram]") {
			t.Errorf("%d messages after 8 s: %q", len(got), got)
		}
		after(time.Second)
		if left := b.srv.Pending(); len(left) != 0 {
			t.Errorf("unconfirmed: %v", left)
		}
		b.stop()
	})
}

// A forwarded /stop and one in the caption of a file keep their place in the queue: neither is a request to stop now.
func TestWhatOnlyLooksUrgentWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.srv.AddFile("v", []byte("content"))
		b.srv.Break("file", testtelegram.Fault{Delay: 20 * time.Second})
		b.start()
		b.srv.Say(anna, anna, "", document("v", "x.txt", 7))
		b.srv.Say(anna, anna, "/stop", testtelegram.With("forward_date", 1))
		b.srv.Say(anna, anna, "/help")
		after(10 * time.Second)
		wantTexts(t, "while the download hangs", b.texts())
		after(20 * time.Second)
		wantTexts(t, "afterwards", b.texts(), "", "/stop", "/help")
		b.stop()
	})
}
