package telegram_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
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

// The code cannot be stored, or its message is not delivered: the person receives a code later, and
// not a second one in addition.
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
		codes := map[string]bool{}
		for _, s := range texts {
			codes[code.FindString(s)] = true
		}
		if len(codes) != 1 || codes[""] || len(texts) != 6 {
			t.Errorf("the codes %v in %q, want one", codes, texts)
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

// The operator adds the bot to a group before the group is in the configuration, where its number is
// needed: whoever may talk to the bot in private learns it there, once.
func TestUnlistedGroupTellsItsNumberToKnownPeople(t *testing.T) {
	t.Parallel()
	for policy, paired := range map[string]bool{"pairing": true, "allowlist": false, "open": false, "disabled": false} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, func(s *setup) { s.cfg.Access = policy })
				const other, later, quiet = -999, -998, -997
				for _, id := range []int64{other, later, quiet} {
					b.srv.AddGroup(id, "not listed")
				}
				b.start()
				say := func(where, who int64, text string, more ...func(map[string]any)) {
					b.srv.Say(where, who, text, more...)
					after(time.Second)
				}
				say(quiet, anna, "nothing for the bot")
				say(quiet, bob, "/help")
				say(other, anna, "@lane_bot hello", testtelegram.Mentioning(9))
				say(other, anna, "/help")
				want := []string{"I don't answer in this group yet. Its number is -999: add it to the list groups of the bot, and restart laneway."}
				if policy == "disabled" {
					want = nil
				}
				wantTexts(t, "the group reads", b.srv.Texts(other), want...)
				if paired {
					b.srv.Say(bob, bob, "hello?")
					after(time.Second)
					made := code.FindStringSubmatch(b.srv.Texts(bob)[0])[1]
					if _, err := b.records.ApprovePairing(t.Context(), channel.PairingRef{Code: made}, chat.ChangedBy{Who: "operator"}); err != nil {
						t.Fatal(err)
					}
				}
				say(later, bob, "/help")
				if got := len(b.srv.Texts(later)); got != map[bool]int{true: 1}[paired] {
					t.Errorf("bob's group reads %d notes", got)
				}
				wantTexts(t, "other groups read", b.srv.Texts(quiet))
				wantTexts(t, "received", b.texts())
				b.stop()
			})
		})
	}
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

func TestQuietHoursOfGroupsAreForAdministrators(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.Members = "any" })
		b.srv.MakeAdmin(group, anna)
		b.start()
		b.srv.Say(group, bob, "/quiet@lane_bot 22-7")
		b.srv.Say(group, bob, "/quiet@lane_bot")
		b.srv.Say(group, anna, "/quiet@lane_bot 22-7")
		after(5 * time.Second)
		wantTexts(t, "received", b.texts(), "/quiet@lane_bot", "/quiet@lane_bot 22-7")
		if got := b.srv.Texts(group); len(got) != 1 || !strings.Contains(got[0], "Only administrators") {
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

// TestActivationWithoutAWordOffersWhatThereIs sends /activation in a group, and presses a button of
// the answer.
func TestActivationWithoutAWordOffersWhatThereIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, func(s *setup) { s.cfg.Members = "any" })
		b.srv.MakeAdmin(group, anna)
		b.start()
		last := func() testtelegram.Message {
			all := b.srv.Messages(group)
			return all[len(all)-1]
		}
		labels := func(m testtelegram.Message) string {
			var list []string
			for _, row := range m.Buttons {
				for _, button := range row {
					list = append(list, button.Text)
				}
			}
			return strings.Join(list, "|")
		}
		b.srv.Say(group, anna, "/activation")
		after(5 * time.Second)
		asked := last()
		if got := labels(asked); got != "✓ mention|always" || !strings.Contains(asked.Text, "when you mention me") {
			t.Fatalf("the group reads %q with the buttons %q", asked.Text, got)
		}
		b.srv.Press(group, bob, asked.ID, asked.Buttons[0][1].Data) // it is for Anna
		after(5 * time.Second)
		b.srv.Say(group, bob, "not addressed")
		after(5 * time.Second)
		wantTexts(t, "received", b.texts())
		b.srv.Press(group, anna, asked.ID, asked.Buttons[0][1].Data)
		after(5 * time.Second)
		if got := last().Text; !strings.Contains(got, "From now on I answer every message") {
			t.Errorf("the group reads %q", got)
		}
		b.srv.Say(group, bob, "now I hear everything")
		after(5 * time.Second)
		wantTexts(t, "received", b.texts(), "now I hear everything")
		b.srv.Say(group, anna, "/activation")
		after(5 * time.Second)
		if got := labels(last()); got != "mention|✓ always" {
			t.Errorf("afterwards the buttons are %q", got)
		}
		b.srv.Say(group, anna, "/activation perhaps")
		after(5 * time.Second)
		if got := last().Text; got != "Write /activation always or /activation mention." {
			t.Errorf("to a word that is none: %q", got)
		}
		b.stop()
	})
}

// TestAPageIsNoVerdict: the answer of a proxy to a call is ignored, whatever its status: the
// message arrives later, no address is gone, and the bot continues.
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

// TestAGroupIsNotLostAtItsMove: the store is unavailable when a group becomes a supergroup; the
// next message to the old number records the move.
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

// TestAnotherPollerIsGivenFiveSeconds: after a conflict the bot never polls again sooner, whatever
// the spread.
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

// All anonymous administrators of all groups have one id, which identifies none of them: they act
// for their group.
func TestAnonymousAdministratorsOfTwoGroupsAreTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const anonymous = int64(1087968824)
		other := group - 1
		b := newBot(t, func(s *setup) {
			s.cfg.Groups, s.cfg.Members = []int64{group, other}, "any"
		})
		b.srv.AddGroup(other, "another group")
		b.start()
		defer b.stop()
		for _, in := range []int64{group, other} {
			b.srv.Say(in, anonymous, "@lane_bot hello", testtelegram.Mentioning(9))
		}
		after(time.Second)
		var who []string
		for _, m := range b.messages() {
			who = append(who, m.Principal)
		}
		slices.Sort(who)
		wantTexts(t, "principals", who, fmt.Sprintf("telegram:%d:%d", b.srv.BotID(), group), fmt.Sprintf("telegram:%d:%d", b.srv.BotID(), other))
	})
}
