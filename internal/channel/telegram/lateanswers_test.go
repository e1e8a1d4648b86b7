package telegram_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/testtelegram"
)

// outages are the ways in which Telegram cannot be reached; each function returns one that ends the outage.
var outages = map[string]func(h *home) (end func()){
	"unreachable": func(h *home) func() {
		h.line.set(func(context.Context) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: net.UnknownNetworkError("unreachable")}
		})
		return func() { h.line.set(nil) }
	},
	"black hole": func(h *home) func() {
		h.line.set(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		return func() { h.line.set(nil) }
	},
	"page of a proxy": func(h *home) func() {
		h.srv.BreakAlways(testtelegram.Fault{HTML: 502})
		return h.srv.Mend
	},
	"refused by Telegram's own servers": func(h *home) func() {
		h.srv.BreakAlways(testtelegram.Refuse(503, "Service Unavailable"))
		return h.srv.Mend
	},
}

// TestAfterAnOutageEverythingThatWaitsGoesOut: answers that could not be sent for half an hour arrive within fifteen seconds after its end, in order;
// only the chat with the longer cooldown waits.
func TestAfterAnOutageEverythingThatWaitsGoesOut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHome(t)
				people := h.people(3)
				h.letIn(bob)
				h.begin()
				h.srv.Break("sendMessage", testtelegram.Flood(2400))
				h.srv.Say(bob, bob, "think 1s patience")
				after(3 * time.Second)
				for _, p := range people {
					h.srv.Say(p, p, "think 20s first")
				}
				after(3 * time.Second)
				for _, p := range people {
					h.srv.Say(p, p, "think 20s second")
				}
				after(10 * time.Second)
				end := begin(h)
				after(30 * time.Minute)
				end()
				healed := time.Now()
				after(15 * time.Second)
				for _, p := range people {
					got := strings.Join(h.srv.Texts(p), "|")
					if a, b := strings.Index(got, "first"), strings.LastIndex(got, "second"); a < 0 || b < a {
						t.Errorf("%d reads %q fifteen seconds after the outage", p, got)
					}
				}
				var took time.Duration
				for _, p := range people {
					for _, m := range h.srv.Messages(p) {
						took = max(took, m.SentAt.Sub(healed))
					}
				}
				t.Logf("the last answer came %s after the outage", took)
				after(15 * time.Minute)
				h.wantLast("when the cooldown of the chat has ended", bob, "patience")
				h.end() // a call inside of the cooldown is a violation
			})
		})
	}
}

// TestAnOutageUsesUpNoAttempts: ten hours without Telegram, or sixty times a 429, lose no answer; an answer of the day before is given up, with the
// reason.
func TestAnOutageUsesUpNoAttempts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for name, begin := range outages {
		for _, hours := range []int{10, 25} {
			if hours == 25 && name != "unreachable" {
				continue // the end does not depend on the kind of outage
			}
			t.Run(fmt.Sprintf("%s for %d hours", name, hours), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					h := newHome(t)
					h.letIn(anna)
					h.begin()
					h.srv.Say(anna, anna, "think 30s still there")
					after(10 * time.Second)
					end := begin(h)
					after(time.Duration(hours) * time.Hour)
					end()
					after(15 * time.Second)
					h.srv.Say(anna, anna, "think 1s news")
					after(15 * time.Second)
					h.wantLast("after the outage", anna, "news")
					if got := strings.Join(h.srv.Texts(anna), "|"); strings.Contains(got, "still there") != (hours < 24) {
						t.Errorf("after %d hours anna reads %q", hours, got)
					}
					if given := strings.Contains(h.log.String(), "given up after 24h"); given != (hours > 24) {
						t.Errorf("after %d hours the log says that the answer was given up: %t", hours, given)
					}
					h.end()
				})
			})
		}
	}
	t.Run("sixty floods", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t)
			h.letIn(anna)
			h.begin()
			for range 60 {
				h.srv.Break("sendMessage", testtelegram.Flood(20))
			}
			h.srv.Say(anna, anna, "hello")
			after(30 * time.Minute)
			h.wantLast("after the floods", anna, "hello")
			h.end()
		})
	})
}
