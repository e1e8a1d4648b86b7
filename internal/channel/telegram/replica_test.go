package telegram_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel/telegram"
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

func TestGlobalFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		after(time.Second)
		b.srv.Break("getUpdates", testtelegram.Flood(30))
		b.srv.Say(anna, anna, "wakes the poll")
		after(2 * time.Second)
		_, err := b.send("1", to(anna, ""), "not now")
		if failed := wantSendError(t, err, "rate_limited", false); !failed.Global || failed.RetryAfter < 20*time.Second {
			t.Errorf("got %+v", failed)
		}
		b.ch.Typing(t.Context(), to(bob, ""))
		b.mustSend("1", to(anna, ""), "now")
		wantTexts(t, "anna reads", b.srv.Texts(anna), "now")
		after(time.Minute)
		b.stop()
	})
}

// counter implements telegram.Observer.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *counter) Call(method, result string) { c.add(method + " " + result) }

func (c *counter) Update(result string) { c.add(result) }

func (c *counter) add(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[key]++
}

func (c *counter) get(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[key]
}

func TestCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counter{counts: map[string]int{}}
		b := newBot(t, func(s *setup) { s.deps.Observer = c })
		b.start()
		b.srv.Say(anna, anna, "hello")
		b.srv.Say(bob, bob, "let me in")
		b.srv.Say(group, anna, "not for the bot")
		b.srv.PushRaw(9000, `{"update_id":9000,"message":7}`)
		b.srv.Break("sendMessage", testtelegram.Refuse(403, "Forbidden: bot was blocked by the user"))
		after(5 * time.Second)
		for key, want := range map[string]int{"accepted": 1, "refused": 1, "ignored": 1, "parked": 1, "sendMessage blocked": 1, "getMe ok": 1} {
			if got := c.get(key); got != want {
				t.Errorf("%s: %d, want %d", key, got, want)
			}
		}
		b.stop()
	})
}
