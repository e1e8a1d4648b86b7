package telegram_test

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/testtelegram"
)

var code = regexp.MustCompile(`pair approve ([A-Z2-7]{8})`)

func TestAnUnknownPersonGetsACodeAndNoAnswerUntilPaired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		for range 5 { // one answer a minute
			b.srv.Say(bob, bob, "hello?")
			after(time.Second)
		}
		texts := b.srv.Texts(bob)
		if len(texts) != 1 || !code.MatchString(texts[0]) {
			t.Fatalf("bob reads %q", texts)
		}
		wantTexts(t, "received", b.texts())
		made := code.FindStringSubmatch(texts[0])[1]
		if _, err := b.records.ApprovePairing(t.Context(), channel.PairingRef{Code: strings.ToLower(made)}, chat.ChangedBy{Who: "operator"}); err != nil {
			t.Fatal(err)
		}
		b.srv.Say(bob, bob, "now?")
		after(time.Second)
		wantTexts(t, "received", b.texts(), "now?")
		b.srv.Say(group, bob, "@lane_bot let me in here too", testtelegram.Mentioning(9))
		after(time.Second)
		wantTexts(t, "a pairing is good for one chat", b.texts(), "now?")
		b.stop()
	})
}

// The code cannot be stored, or its message is not delivered: the person receives a code later, and not a second one in addition.
func TestAnUndeliveredCodeIsSentLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.breakRecords(recordsError{chat.ErrStoreUnavailable, "open a pairing"})
		b.srv.Say(bob, bob, "hello?")
		after(20 * time.Second)
		wantTexts(t, "without a store bob reads", b.srv.Texts(bob))
		b.breakRecords(nil)
		after(10 * time.Second)
		if got := b.srv.Texts(bob); len(got) != 1 || !code.MatchString(got[0]) {
			t.Fatalf("bob reads %q", got)
		}
		b.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.srv.Break("sendMessage", testtelegram.Refuse(500, "Internal Server Error"))
		b.srv.Say(bob, bob, "hello?")
		after(20 * time.Second)
		wantTexts(t, "while nothing can be sent bob reads", b.srv.Texts(bob))
		open, err := b.records.OpenPairings(t.Context(), "")
		if err != nil || len(open) != 1 {
			t.Fatalf("%d codes are open (%v)", len(open), err)
		}
		for range 3 {
			b.srv.Say(bob, bob, "hello??")
			after(10 * time.Second)
		}
		got := b.srv.Texts(bob)
		if len(got) != 1 || !code.MatchString(got[0]) {
			t.Fatalf("bob reads %q", got)
		}
		made := code.FindStringSubmatch(got[0])[1]
		if again, err := b.records.ApprovePairing(t.Context(), channel.PairingRef{Code: made}, chat.ChangedBy{Who: "operator"}); err != nil || again.ID != open[0].ID {
			t.Errorf("the code that was told is %+v (%v), want the first", again, err)
		}
		b.stop()
	})
}

func TestPairingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		for range 6 {
			b.srv.Say(bob, bob, "hello?")
			after(61 * time.Second)
		}
		texts := b.srv.Texts(bob)
		codes := 0
		for _, s := range texts {
			codes += len(code.FindAllString(s, -1))
		}
		if codes != channel.MaxPairingsPerChat || len(texts) != 6 || !strings.Contains(texts[5], "three codes") {
			t.Errorf("%d codes in %q", codes, texts)
		}
		for n := range int64(300) {
			b.srv.AddPrivate(20_000+n, "unknown")
			b.srv.Say(20_000+n, 20_000+n, "hello?")
		}
		after(5 * time.Minute)
		if open, err := b.records.OpenPairings(t.Context(), ""); err != nil || len(open) != channel.MaxPairingsPerBot {
			t.Errorf("%d codes are open (%v)", len(open), err)
		}
		wantTexts(t, "received", b.texts())
		b.stop()
	})
}

func TestStoreErrorAdmitsNoPerson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.breakRecords(errors.New("disk on fire"))
		b.srv.Say(bob, bob, "hello?")
		after(time.Minute)
		wantTexts(t, "received", b.texts())
		wantTexts(t, "bob reads", b.srv.Texts(bob))
		b.breakRecords(chat.ErrStoreUnavailable)
		b.srv.Say(bob, bob, "hello?")
		after(time.Minute)
		if len(b.srv.Pending()) != 1 {
			t.Error("the message must wait for the store")
		}
		b.breakRecords(nil)
		after(10 * time.Second)
		if got := b.srv.Texts(bob); len(got) != 1 {
			t.Errorf("bob reads %q", got)
		}
		b.stop()
	})
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	for policy, c := range map[string]struct{ heard, answered bool }{
		"pairing": {false, true}, "allowlist": {false, true}, "open": {true, false}, "disabled": {false, false},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, func(s *setup) { s.cfg.Access = policy })
				b.start()
				// Bob calls himself Anna and takes her user name: names prove nothing.
				b.srv.Say(bob, bob, "hello", testtelegram.With("from", map[string]any{"id": bob, "is_bot": false, "first_name": "Anna", "username": "7"}))
				after(time.Second)
				if got := len(b.texts()) == 1; got != c.heard {
					t.Errorf("heard: %v, want %v", got, c.heard)
				}
				if got := len(b.srv.Texts(bob)) == 1; got != c.answered {
					t.Errorf("answered: %v (%q), want %v", got, b.srv.Texts(bob), c.answered)
				}
				b.stop()
			})
		})
	}
}

func TestOtherSendersAreIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.Access = "open" })
		b.srv.AddGroup(-999, "not listed")
		b.start()
		b.srv.Say(-999, anna, "@lane_bot hello", testtelegram.Mentioning(9))
		b.srv.Say(anna, anna, "from a bot", testtelegram.With("from", map[string]any{"id": anna, "is_bot": true, "first_name": "x"}))
		b.srv.Say(anna, bob, "someone else's private chat")
		b.srv.Say(group, bob, "@lane_bot hello", testtelegram.Mentioning(9))
		b.srv.Say(group, 0, "no sender", func(m map[string]any) { delete(m, "from") })
		after(time.Second)
		wantTexts(t, "received", b.texts())
		b.stop()
	})
}

func TestGroupActivation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.Members = "any" })
		b.srv.MakeAdmin(group, anna)
		b.start()
		say := func(text string, more ...func(map[string]any)) {
			b.srv.Say(group, bob, text, more...)
			after(4 * time.Second)
		}
		say("just talking")
		say("@lane_bot hello", testtelegram.Mentioning(9))
		say("@other_bot hello", testtelegram.Mentioning(10))
		say("lane_bot is a word")
		say("/stop@other_bot")
		say("/stop@Lane_Bot now")
		say("/stop")
		say("/unknown")
		say("yes", testtelegram.With("reply_to_message", map[string]any{"message_id": 1, "date": 1, "chat": map[string]any{"id": group, "type": "supergroup"}, "from": map[string]any{"id": int64(123456789), "is_bot": true, "first_name": "Lane"}}))
		want := []string{"@lane_bot hello", "/stop@Lane_Bot now", "/stop", "yes"}
		wantTexts(t, "received", b.texts(), want...)

		say("/activation always") // Bob is not an administrator
		say("not addressed")
		wantTexts(t, "received", b.texts(), want...)
		b.srv.Say(group, anna, "/activation@lane_bot always")
		after(5 * time.Second)
		say("now I hear everything")
		wantTexts(t, "received", b.texts(), append(want, "now I hear everything")...)
		if got := b.srv.Texts(group); len(got) != 2 || !strings.Contains(got[0], "administrators") || !strings.Contains(got[1], "every message") {
			t.Errorf("the group reads %q", got)
		}
		b.stop()
	})
}

func TestGroupStopByAdmins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.Members, s.cfg.GroupStop = "any", "admins" })
		b.srv.MakeAdmin(group, anna)
		b.start()
		b.srv.Say(group, bob, "/stop")
		b.srv.Say(group, anna, "/stop")
		b.srv.Say(bob, bob, "/stop") // not a group, and not admitted
		after(10 * time.Second)
		got := b.messages()
		if len(got) != 1 || got[0].Content.Sender.ID != "7" {
			t.Errorf("received %+v", got)
		}
		b.stop()
	})
}

func TestTooManyMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.Allow = []int64{anna, bob} })
		b.start()
		for i := range 1000 {
			b.srv.Say(anna, anna, strconv.Itoa(i))
			if i == 500 {
				b.srv.Say(anna, anna, "/stop")
				b.srv.Say(bob, bob, "hello")
			}
		}
		after(50 * time.Second)
		n, stop, other := 0, 0, 0
		for _, m := range b.messages() {
			switch {
			case m.Content.Text == "/stop":
				stop++
			case m.Content.Sender.ID == "8":
				other++
			default:
				n++
			}
		}
		if n < 20 || n > 40 || stop != 1 || other != 1 {
			t.Errorf("%d messages, %d stops, %d of the other person", n, stop, other)
		}
		if got := b.srv.Texts(anna); len(got) != 1 {
			t.Errorf("anna was told %d times: %q", len(got), got)
		}
		b.stop()
	})
}
