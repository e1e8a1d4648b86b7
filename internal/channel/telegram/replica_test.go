package telegram_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/channel/telegram"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// TestAnotherNodeTakesOver moves the right to poll from one node to another while a person writes.
func TestAnotherNodeTakesOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newBot(t, func(s *setup) { s.cfg.UserRate = -1 })
		b := &bot{t: t, srv: a.srv, log: &logBuffer{}}
		var err error
		b.ch, err = telegram.New(telegram.Config{Token: a.srv.Token(), Agent: "main", Allow: []int64{anna}, UserRate: -1},
			telegram.Deps{Records: a.records, Transport: a.srv.Transport()})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		holder := a
		for _, node := range []*bot{a, b} {
			node.lease = func() (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				return holder == node, nil
			}
		}
		a.start()
		endB := a.alongside(b) // both nodes pass messages to one store
		var want []string
		for i := range 40 {
			mu.Lock()
			holder = []*bot{a, b}[i/10%2]
			mu.Unlock()
			want = append(want, strconv.Itoa(i))
			a.srv.Say(anna, anna, want[i])
			after(1700 * time.Millisecond)
		}
		after(2 * time.Minute)
		if got := a.texts(); !slices.Equal(got, want) {
			t.Errorf("received %q", got)
		}
		if left := a.srv.Pending(); len(left) != 0 {
			t.Errorf("unconfirmed: %v", left)
		}
		endB()
		a.stop()
	})
}

// shared is the receiver of one bot with the lease of another: two nodes with one store.
type shared struct {
	*bot
	node *bot
}

func (s shared) Lease(ctx context.Context, name string) (bool, error) {
	return s.node.Lease(ctx, name)
}

// alongside runs another node's channel whose messages come to this receiver.
func (b *bot) alongside(other *bot) (end func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- other.ch.Run(ctx, shared{bot: b, node: other}) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("the other node ended with %v", err)
		}
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counted := prometheus.NewRegistry()
		b := newBot(t, func(s *setup) { s.deps.Metrics = telegram.NewMetrics(counted) })
		b.start()
		b.srv.Say(anna, anna, "hello")
		b.srv.Say(bob, bob, "let me in")
		b.srv.Say(group, anna, "not for the bot")
		b.srv.PushRaw(9000, `{"update_id":9000,"message":7}`)
		b.srv.Break("sendMessage", testtelegram.Refuse(403, "Forbidden: bot was blocked by the user"))
		after(5 * time.Second)
		updates, calls := testrun.Counted(t, counted, "laneway_telegram_updates_total"), testrun.Counted(t, counted, "laneway_telegram_calls_total")
		if want := map[string]int{"accepted": 1, "refused": 1, "ignored": 1, "parked": 1}; !maps.Equal(updates, want) {
			t.Errorf("updates %v, want %v", updates, want)
		}
		if calls["sendMessage blocked"] != 1 || calls["getMe ok"] != 1 {
			t.Errorf("calls %v", calls)
		}
		b.stop()
	})
}

// The download of a photo hangs, or the store does not accept a message: a /stop in the same chat
// is executed within a second, the overtaken update is handled once afterwards, and no update is
// confirmed before both are settled.
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

// If no update takes long, urgent commands keep the order of the chat: a /stop sent right after a
// message finds it.
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

// A hanging download does not block Telegram's window of a hundred updates: with many updates after
// it, it is given up within seconds.
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

// A forwarded /stop and one in the caption of a file keep their place in the queue: neither is a
// request to stop now.
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

// Telegram asks to wait in the answer to a call that sends nothing. Until that time has passed no
// call is made (stop checks the server), and nothing is lost.
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
