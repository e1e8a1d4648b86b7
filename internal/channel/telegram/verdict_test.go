package telegram_test

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/testtelegram"
)

// TestAPageIsNoVerdict: the answer of a proxy to a call is ignored, whatever its status: the message arrives later, no address is gone, and
// the bot continues.
func TestAPageIsNoVerdict(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 409, 413, 429, 500, 502} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				page := testtelegram.Fault{HTML: status}
				b.srv.Break("sendMessage", page)
				_, err := b.send("1", to(anna, ""), "hello")
				reason := "bad_response"
				if status >= 500 {
					reason = "server_error"
				}
				if failed := wantSendError(t, err, reason, false); failed.Gone || !failed.Uncounted {
					t.Errorf("a page is held against the message: %+v", failed)
				}
				b.mustSend("1", to(anna, ""), "hello")
				wantTexts(t, "anna reads", b.srv.Texts(anna), "hello")
				b.srv.Break("getUpdates", page, page)
				b.srv.Say(anna, anna, "one")
				b.srv.Say(anna, anna, "two")
				after(2 * time.Second)
				if s := b.ch.Status().State; s == "disabled" || s == "conflict" {
					t.Errorf("the bot is %s because of a page", s)
				}
				after(15 * time.Second)
				wantTexts(t, "received", b.texts(), "one", "two")
				if s := b.ch.Status().State; s != "connected" {
					t.Errorf("the bot is %s afterwards", s)
				}
				b.stop()
			})
		})
	}
}

// TestAGroupIsNotLostAtItsMove: the store is unavailable when a group becomes a supergroup; the next message to the old number records the move.
func TestAGroupIsNotLostAtItsMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const next = int64(-200600)
		b := newBot(t, func(s *setup) { s.cfg.Members, s.cfg.Activation = "any", "always" })
		b.start()
		b.breakRecords(errors.New("away"))
		b.srv.Migrate(group, next)
		b.mustSend("1", to(group, ""), "first")
		after(2 * time.Second)
		b.breakRecords(nil)
		b.mustSend("2", to(group, ""), "second")
		b.srv.Say(next, bob, "hello from the new group")
		after(10 * time.Second)
		wantTexts(t, "received", b.texts(), "hello from the new group")
		wantTexts(t, "the new group reads", b.srv.Texts(next), "first", "second")
		b.stop()
	})
}

// TestAnotherPollerIsGivenFiveSeconds: after a conflict the bot never polls again sooner, whatever the spread.
func TestAnotherPollerIsGivenFiveSeconds(t *testing.T) {
	t.Parallel()
	for i := range 10 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.srv.Break("getUpdates", testtelegram.Refuse(409, "Conflict"), testtelegram.Refuse(409, "Conflict"))
				b.start()
				after(time.Minute)
				calls := b.srv.Calls("getUpdates")
				if len(calls) < 3 {
					t.Fatalf("%d polls in a minute", len(calls))
				}
				for n := range 2 {
					if d := calls[n+1].At.Sub(calls[n].At); d < 5*time.Second || d > time.Minute {
						t.Errorf("poll %d came %s after a conflict", n+2, d)
					}
				}
				b.stop()
			})
		})
	}
}
