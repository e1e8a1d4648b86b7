package telegram_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/channel/telegram"
	"laneway/internal/chat"
	"laneway/internal/testtelegram"
)

func retryAfter(err error) time.Duration {
	if s, ok := errors.AsType[*channel.SendError](err); ok && s.RetryAfter > 0 {
		return s.RetryAfter
	}
	return time.Second
}

func TestOffsetWaitsForTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		for range 12 {
			b.fail(chat.ErrStoreUnavailable)
		}
		b.start()
		id := b.srv.Say(anna, anna, "hello")
		after(20 * time.Second)
		if got := b.srv.Confirmed(); len(got) != 0 {
			t.Errorf("confirmed %v before the message was durable", got)
		}
		after(time.Minute)
		wantTexts(t, "received", b.texts(), "hello")
		if got := b.srv.Confirmed(); len(got) != 1 || got[0] != id {
			t.Errorf("confirmed %v, want %d", got, id)
		}
		b.stop()
	})
}

func TestRestartBetweenAllSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.UserRate = -1 })
		var want []string
		for i := range 40 { // the process ends at another moment each time
			b.start()
			want = append(want, fmt.Sprint("message ", i))
			b.srv.Say(anna, anna, want[i])
			after(time.Duration(i) * 7 * time.Millisecond)
			b.stop()
		}
		b.start()
		after(time.Minute)
		wantTexts(t, "received", b.texts(), want...)
		b.stop()
	})
}

func TestConflictWaitsAndRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.srv.Say(anna, anna, "before")
		after(time.Second)
		polls := len(b.srv.Calls("getUpdates"))
		until := time.Now().Add(90 * time.Second)
		for time.Now().Before(until) {
			b.srv.OtherPoller()
			after(200 * time.Millisecond)
		}
		if n := len(b.srv.Calls("getUpdates")) - polls; n < 1 || n > 18 {
			t.Errorf("%d polls in 90 s beside the other poller; each may be five seconds after the one before, and then longer", n)
		}
		if s := b.ch.Status(); s.State != "conflict" || s.LastError == "" {
			t.Errorf("status %+v", s)
		}
		b.srv.Say(anna, anna, "during")
		after(time.Minute)
		wantTexts(t, "received", b.texts(), "before", "during")
		if s := b.ch.Status(); s.State != "connected" {
			t.Errorf("status %+v a minute after the other poller had ended", s)
		}
		b.stop()
	})
}

func TestRefusedTokenDisables(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.Token = "123456789:another-token-than-the-right-one" })
		b.start()
		after(time.Minute)
		if s := b.ch.Status(); s.State != "disabled" || !s.Running || s.Connected {
			t.Errorf("status %+v", s)
		}
		if n := len(b.srv.Calls("")); n != 0 {
			t.Errorf("%d calls went through", n)
		}
		b.stop()
	})
}

func TestLateStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.srv.BreakAlways(testtelegram.Fault{Hang: true})
		b.start()
		after(5 * time.Minute)
		if s := b.ch.Status(); s.State != "degraded" {
			t.Errorf("status %+v", s)
		}
		b.srv.Mend()
		b.srv.Say(anna, anna, "at last")
		after(15 * time.Second)
		wantTexts(t, "received", b.texts(), "at last")
		b.stop()
	})
}

func TestBadAnswers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for name, f := range map[string]testtelegram.Fault{
		"garbage": {Garbage: true}, "html": {HTML: 502}, "cut": {Cut: true}, "50 MB": {Huge: 50 << 20}, "reset": {Reset: true}, "hang": {Hang: true},
		"500": testtelegram.Refuse(500, "Internal Server Error"), "flood": testtelegram.Flood(3), "another answer": testtelegram.Refuse(400, "Bad Request: nonsense"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				after(time.Second)
				b.srv.Break("getUpdates", f, f, f)
				b.srv.Say(anna, anna, "first") // answers the poll that waits
				after(time.Millisecond)
				b.srv.Say(anna, anna, "second")
				after(2 * time.Minute)
				wantTexts(t, "received", b.texts(), "first", "second")
				if s := b.ch.Status(); !s.Connected {
					t.Errorf("status %+v", s)
				}
				b.stop()
			})
		})
	}
}

func TestPoisonIsPutAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		broken := errors.New("something is wrong with this one")
		b.fail(broken, broken, broken)
		b.srv.Say(anna, anna, "poison")
		b.srv.PushRaw(7000, `{"update_id":7000,"message":{"message_id":"not a number"}}`)
		b.srv.PushRaw(7001, `{"update_id":7001,"business_connection":{"id":"x"}}`)
		b.srv.PushRaw(7002, `{"update_id":7002,"edited_message":{"message_id":5,"date":1,"chat":{"id":7,"type":"private"},"from":{"id":7},"text":"changed"}}`)
		b.srv.PushRaw(7003, `{"update_id":7003,"message":{"message_id":5,"date":1}}`)
		b.srv.Say(anna, anna, "healthy")
		after(time.Minute)
		wantTexts(t, "received", b.texts(), "healthy")
		if left := b.srv.Pending(); len(left) != 0 {
			t.Errorf("unconfirmed: %v", left)
		}
		b.stop()
	})
}

func TestNumbersThatJump(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		for i, id := range []int{900_000, 2_000_000_000, 12} { // the last one after a week without updates
			u := b.srv.Message(anna, anna, fmt.Sprint("message ", i))
			u["update_id"] = id
			b.srv.Push(u)
			after(40 * time.Second)
		}
		wantTexts(t, "received", b.texts(), "message 0", "message 1", "message 2")
		if left := b.srv.Pending(); len(left) != 0 {
			t.Errorf("unconfirmed: %v", left)
		}
		b.stop()
	})
}

// TestMenuIsSetWhenItChanged: several runs with the same table set it once, a run with another
// table sets it again.
func TestMenuIsSetWhenItChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		live := func(lives, sets int, shown string) {
			t.Helper()
			for range lives {
				b.start()
				after(time.Second)
				b.stop()
			}
			calls := b.srv.Calls("setMyCommands")
			if len(calls) != sets || !strings.Contains(calls[sets-1].Params.Get("commands"), shown) {
				t.Errorf("the menu was set %d times, want %d with %q", len(calls), sets, shown)
			}
		}
		live(3, 1, "Help.")
		var err error
		b.ch, err = telegram.New(telegram.Config{Token: b.srv.Token(), Agent: "main"}, telegram.Deps{
			Records: b.records, Transport: b.srv.Transport(), Commands: []chat.CommandInfo{{Name: "stop", Description: "Stop."}, {Name: "help", Description: "Say more."}},
		})
		if err != nil {
			t.Fatal(err)
		}
		live(2, 2, "Say more.")
	})
}

// answerTime is the time after which the servers of these tests answer polls that they should hold.
const answerTime = 600 * time.Microsecond

// insteadOf answers getUpdates itself; everything else reaches the fake server.
type insteadOf struct {
	http.RoundTripper

	polls  atomic.Int64
	answer func(n int) (code int, result string)
}

func (i *insteadOf) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/getUpdates") {
		return i.RoundTripper.RoundTrip(r)
	}
	time.Sleep(answerTime)
	code, body := i.answer(int(i.polls.Add(1)))
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// TestAnswersThatComeTooFastArePaced counts the polls of a minute of servers that do not hold
// polls, in different ways. The first three answers cost no wait; after them the bot polls once a
// second.
func TestAnswersThatComeTooFastArePaced(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	const empty = `{"ok":true,"result":[]}`
	refused := func(code int) (int, string) {
		return code, fmt.Sprintf(`{"ok":false,"error_code":%d,"description":"nonsense"}`, code)
	}
	updates := func(first, n int) string {
		var list []string
		for id := first; id < first+n; id++ {
			list = append(list, fmt.Sprintf(`{"update_id":%d,"my_chat_member":{"date":1}}`, id))
		}
		return `{"ok":true,"result":[` + strings.Join(list, ",") + `]}`
	}
	for name, answer := range map[string]func(n int) (int, string){
		"nothing":                      func(int) (int, string) { return 200, empty },
		"the same update again":        func(int) (int, string) { return 200, updates(500, 1) },
		"more of the same than it may": func(int) (int, string) { return 200, updates(500, 1000) },
		"old updates in turn":          func(n int) (int, string) { return 200, updates(500+n%5*100, 100) },
		"an update without a number":   func(int) (int, string) { return 200, `{"ok":true,"result":[{"my_chat_member":{"date":1}}]}` },
		"errors":                       func(int) (int, string) { return refused(400) },
		"errors and nothing in turn": func(n int) (int, string) {
			if n%2 == 0 {
				return refused(500)
			}
			return 200, empty
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				network := &insteadOf{answer: answer}
				b := newBot(t, func(s *setup) {
					s.network = func(next http.RoundTripper) http.RoundTripper { network.RoundTripper = next; return network }
				})
				b.start()
				after(time.Minute)
				if n := network.polls.Load(); n < 5 || n > 80 {
					t.Errorf("%d polls in a minute, want 5 to 80: a few at once, and then one a second", n)
				}
				b.stop()
			})
		})
	}
}

// TestAServerWithoutLongPollsIsPolledEachSecond: a message arrives within one second.
func TestAServerWithoutLongPollsIsPolledEachSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.srv = testtelegram.Config{Hurry: answerTime}; s.cfg.UserRate = -1 })
		b.start()
		defer b.stop()
		for i := range 20 {
			after(10*time.Second + time.Duration(i)*37*time.Millisecond)
			began := time.Now()
			b.srv.Say(anna, anna, fmt.Sprint("message ", i))
			after(1100 * time.Millisecond)
			if got := b.messages(); len(got) != i+1 {
				t.Fatalf("message %d is not there after 1.1 s", i)
			} else if d := b.receivedAt(i).Sub(began); d > 1050*time.Millisecond {
				t.Errorf("message %d was there after %s", i, d)
			}
		}
	})
}

// TestUpdatesInQuickSuccessionAreNotPaced: no pause follows an answer with a new update.
func TestUpdatesInQuickSuccessionAreNotPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.UserRate = -1 })
		b.start()
		defer b.stop()
		for i := range 500 {
			b.srv.Say(anna, anna, fmt.Sprint("message ", i))
			after(5 * time.Millisecond)
			if got := b.messages(); len(got) != i+1 {
				t.Fatalf("message %d is not there after 5 ms", i)
			}
		}
	})
}
