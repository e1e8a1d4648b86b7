package telegram_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel/telegram"
	"laneway/internal/chat"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/testtelegram"
)

const hookSecret = "0123456789abcdef0123456789abcdef"

func webhook(s *setup) {
	s.cfg.Mode, s.cfg.WebhookURL, s.cfg.WebhookSecret = "webhook", "https://example.org/telegram/webhook/default", hookSecret
	s.cfg.UserRate = -1
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, webhook)
		h := b.ch.WebhookHandler()
		if got := b.srv.Deliver(t.Context(), h, b.srv.Message(anna, anna, "too early")); got != http.StatusUnauthorized && got != http.StatusServiceUnavailable {
			t.Errorf("before Run: %d", got)
		}
		b.start()
		if address, secret := b.srv.Webhook(); address != "https://example.org/telegram/webhook/default" || secret != hookSecret {
			t.Fatalf("the webhook is %q", address)
		}
		u := b.srv.Message(anna, anna, "hello")
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				c := map[string]any{"update_id": 77, "message": u["message"]}
				if got := b.srv.Deliver(context.WithoutCancel(t.Context()), h, c); got != http.StatusOK {
					t.Errorf("delivered with %d", got)
				}
			})
		}
		wg.Wait()
		for range 5 {
			b.srv.Deliver(t.Context(), h, map[string]any{"update_id": 77, "message": u["message"]})
		}
		wantTexts(t, "received", b.texts(), "hello")

		b.fail(chat.ErrStoreUnavailable)
		late := b.srv.Message(anna, anna, "second")
		if got := b.srv.Deliver(t.Context(), h, late); got != http.StatusServiceUnavailable {
			t.Errorf("while the store is away: %d", got)
		}
		if got := b.srv.Deliver(t.Context(), h, late); got != http.StatusOK {
			t.Errorf("again: %d", got)
		}
		wantTexts(t, "received", b.texts(), "hello", "second")
		if n := len(b.srv.Calls("getUpdates")); n != 0 {
			t.Errorf("%d polls in webhook mode", n)
		}
		if s := b.ch.Status(); !s.Connected || s.Mode != "webhook" || s.LastPollAge >= 0 {
			t.Errorf("status %+v", s)
		}
		b.stop()
		if got := b.srv.Deliver(t.Context(), h, b.srv.Message(anna, anna, "too late")); got != http.StatusServiceUnavailable {
			t.Errorf("after the end: %d", got)
		}
	})
}

// neverRead fails the test when it is read.
type neverRead struct{ t *testing.T }

func (n neverRead) Read([]byte) (int, error) {
	n.t.Error("the body was read before the secret was known to be right")
	return 0, http.ErrBodyNotAllowed
}

func TestWebhookRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, webhook)
		h := b.ch.WebhookHandler()
		b.start()
		for _, secret := range []string{"", " ", hookSecret[:31], hookSecret + "x", strings.ToUpper(hookSecret), "wrong"} {
			r := httptest.NewRequest(http.MethodPost, "/telegram/webhook/default", neverRead{t})
			r.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusUnauthorized {
				t.Errorf("secret %q: %d", secret, w.Code)
			}
		}
		for body, want := range map[string]int{
			strings.Repeat(" ", 10<<20): http.StatusRequestEntityTooLarge, "": http.StatusBadRequest, "nonsense": http.StatusBadRequest, "{}": http.StatusBadRequest,
			`{"update_id":5,"message":{"message_id":"x"}}`: http.StatusOK, `{"update_id":6,"poll":{}}`: http.StatusOK,
		} {
			r := httptest.NewRequest(http.MethodPost, "/telegram/webhook/default", bytes.NewReader([]byte(body)))
			r.Header.Set("X-Telegram-Bot-Api-Secret-Token", hookSecret)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("body of %d bytes (%.20q): %d, want %d", len(body), body, w.Code, want)
			}
		}
		get := httptest.NewRecorder()
		h.ServeHTTP(get, httptest.NewRequest(http.MethodGet, "/telegram/webhook/default", nil))
		if get.Code != http.StatusMethodNotAllowed {
			t.Errorf("GET: %d", get.Code)
		}
		wantTexts(t, "received", b.texts())
		b.stop()
		polling := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/telegram/webhook/default", neverRead{t})
		newBot(t, nil).ch.WebhookHandler().ServeHTTP(polling, r)
		if polling.Code != http.StatusNotFound {
			t.Errorf("in polling mode: %d", polling.Code)
		}
	})
}

// TestDeliveriesWhileTheChannelEnds: whenever a delivery comes while Run ends, it is accepted or
// refused.
func TestDeliveriesWhileTheChannelEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, webhook)
		h := b.ch.WebhookHandler()
		for round := range 60 {
			b.start()
			var wg sync.WaitGroup
			var delivered atomic.Int64
			enough := make(chan struct{})
			for i := range 8 {
				u := b.srv.Message(anna, anna, "hello")
				wg.Go(func() {
					for n := 0; ; n++ {
						got := b.srv.Deliver(context.WithoutCancel(t.Context()), h, map[string]any{"update_id": 1 + round*100_000 + i*10_000 + n, "message": u["message"]})
						if got == http.StatusServiceUnavailable {
							return
						}
						if got != http.StatusOK {
							t.Errorf("delivered with %d", got)
						}
						if delivered.Add(1) == int64(round+1)*4 {
							close(enough)
						}
					}
				})
			}
			<-enough // a count of requests: the time for a number of yields would depend on the other tests of the package
			b.stop()
			wg.Wait()
		}
	})
}

func TestWebhookDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, webhook)
		b.start()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		b.srv.AddFile("v", []byte("x"))
		b.srv.BreakAlways(testtelegram.Fault{Hang: true})
		began := time.Now()
		if got := b.srv.Deliver(ctx, b.ch.WebhookHandler(), b.srv.Message(anna, anna, "", document("v", "x.txt", 1))); got != http.StatusServiceUnavailable {
			t.Errorf("delivered with %d", got)
		}
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("Telegram waited %s", d)
		}
		b.srv.Mend()
		b.stop()
	})
}

// newPlain makes a channel with its own transport.
func newPlain(t *testing.T, token, address string) *telegram.Channel {
	t.Helper()
	ch, err := telegram.New(telegram.Config{Token: token, APIURL: address, Agent: "main"}, telegram.Deps{Records: sqlitetest.Open(t, sqlite.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func TestConfig(t *testing.T) {
	t.Parallel()
	const token = "123456789:secret-canary-123456789"
	good := telegram.Config{Token: token, Agent: "main"}
	deps := telegram.Deps{Records: sqlitetest.Open(t, sqlite.Config{})}
	for name, c := range map[string]struct {
		change func(*telegram.Config)
		want   string
	}{
		"no token":     {func(c *telegram.Config) { c.Token = "" }, "bot token"},
		"odd token":    {func(c *telegram.Config) { c.Token = "canary" }, "bot token"},
		"access":       {func(c *telegram.Config) { c.Access = "everyone" }, "access must be"},
		"group stop":   {func(c *telegram.Config) { c.GroupStop = "owner" }, "group_stop must be"},
		"poll timeout": {func(c *telegram.Config) { c.PollTimeout = 1 }, "poll timeout"},
		"attachment":   {func(c *telegram.Config) { c.MaxAttachment = 1 << 40 }, "attachment"},
		"address":      {func(c *telegram.Config) { c.APIURL = "https://user:canary@example.org" }, "no password"},
		"agent":        {func(c *telegram.Config) { c.Agent = "" }, "agent"},
		"no secret":    {func(c *telegram.Config) { c.Mode, c.WebhookURL = "webhook", "https://example.org" }, "32 characters"},
		"short secret": {func(c *telegram.Config) {
			c.Mode, c.WebhookURL, c.WebhookSecret = "webhook", "https://example.org", "canary"
		}, "32 characters"},
		"blank secret": {func(c *telegram.Config) {
			c.Mode, c.WebhookURL, c.WebhookSecret = "webhook", "https://example.org", strings.Repeat(" ", 40)
		}, "characters A-Z"},
		"plain webhook":  {func(c *telegram.Config) { c.Mode, c.WebhookURL = "webhook", "http://example.org" }, "https"},
		"unknown method": {func(c *telegram.Config) { c.Mode = "push" }, "mode must be"},
	} {
		cfg := good
		c.change(&cfg)
		_, err := telegram.New(cfg, deps)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want something about %q without secrets", name, err, c.want)
		}
	}
	if _, err := telegram.New(good, telegram.Deps{}); err == nil {
		t.Error("a channel without a place for what it keeps was accepted")
	}
	if s := fmt.Sprintf("%v %+v %#v %s", good, good, good, good.LogValue()); strings.Contains(s, "canary") {
		t.Errorf("the configuration prints its token: %s", s)
	}
}
