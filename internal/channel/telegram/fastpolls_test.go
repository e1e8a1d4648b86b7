package telegram_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/testtelegram"
)

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

// TestAnswersThatComeTooFastArePaced counts the polls of a minute of servers that do not hold polls, in different ways. The first three answers
// cost no wait; after them the bot polls once a second.
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
