package telegram_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/channel/channeltest"
	"laneway/internal/chat"
	"laneway/internal/testtelegram"
)

func wantSendError(t *testing.T, err error, reason string, permanent bool) *channel.SendError {
	t.Helper()
	failed, ok := errors.AsType[*channel.SendError](err)
	if !ok || failed.Reason != reason || failed.Permanent != permanent {
		t.Fatalf("got %v, want reason %s, permanent %v", err, reason, permanent)
	}
	return failed
}

// TestManyFloods sends many replies to many chats while a fifth of the calls is refused with
// windows of up to 500 seconds.
func TestManyFloods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const chats, each = 50, 40
		b := newBot(t, nil)
		rng := rand.New(rand.NewPCG(1, 2))
		var faults []testtelegram.Fault
		for range chats * each * 2 {
			f := testtelegram.Fault{Delay: time.Millisecond}
			if rng.IntN(5) == 0 {
				f = testtelegram.Flood(1 + rng.IntN(500))
			}
			faults = append(faults, f)
		}
		b.srv.Break("sendMessage", faults...)
		b.start()
		var wg sync.WaitGroup
		for n := range int64(chats) {
			id := 10_000 + n
			b.srv.AddPrivate(id, "x")
			wg.Go(func() {
				for i := range each {
					key := fmt.Sprintf("%d-%d", id, i)
					for _, err := b.send(key, to(id, ""), strconv.Itoa(i)); err != nil; _, err = b.send(key, to(id, ""), strconv.Itoa(i)) {
						time.Sleep(retryAfter(err))
					}
				}
			})
		}
		wg.Wait()
		for n := range int64(chats) {
			var want []string
			for i := range each {
				want = append(want, strconv.Itoa(i))
			}
			wantTexts(t, "chat", b.srv.Texts(10_000+n), want...)
		}
		b.stop() // any call inside of a window is a violation
	})
}

// TestLimits checks every window of a second and of a minute.
func TestLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		var wg sync.WaitGroup
		for n := range int64(60) {
			id := 10_000 + n
			b.srv.AddPrivate(id, "x")
			wg.Go(func() {
				for i := range 3 {
					for _, err := b.send(fmt.Sprint(id, i), to(id, ""), "x"); err != nil; _, err = b.send(fmt.Sprint(id, i), to(id, ""), "x") {
						time.Sleep(retryAfter(err))
					}
				}
			})
		}
		wg.Go(func() {
			for i := range 40 {
				for _, err := b.send(fmt.Sprint("g", i), to(group, ""), "x"); err != nil; _, err = b.send(fmt.Sprint("g", i), to(group, ""), "x") {
					time.Sleep(retryAfter(err))
				}
			}
		})
		wg.Wait()
		calls := b.srv.Calls("sendMessage")
		wantMost(t, "bot in a second", calls, time.Second, 30)
		byChat := map[int64][]testtelegram.Call{}
		for _, c := range calls {
			byChat[c.Chat()] = append(byChat[c.Chat()], c)
		}
		for id, list := range byChat {
			wantMost(t, fmt.Sprintf("chat %d in a second", id), list, time.Second, 1)
		}
		wantMost(t, "group in a minute", byChat[group], time.Minute, 20)
		b.stop()
	})
}

func wantMost(t *testing.T, what string, calls []testtelegram.Call, window time.Duration, limit int) {
	t.Helper()
	for i := range calls {
		n := 0
		for _, c := range calls[i:] {
			if c.At.Sub(calls[i].At) < window {
				n++
			}
		}
		if n > limit {
			t.Errorf("%s: %d calls, at most %d are allowed; the next came after %s", what, n, limit, calls[i+1].At.Sub(calls[i].At))
			return
		}
	}
}

// wantGone checks whether an error marks its address as gone.
func wantGone(t *testing.T, failed *channel.SendError, gone bool) {
	t.Helper()
	if failed.Gone != gone {
		t.Errorf("gone is %t for %v", failed.Gone, failed)
	}
}

func TestPermanentErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.srv.AddPrivate(20, "blocked")
		b.srv.Block(20)
		b.srv.AddPrivate(21, "gone")
		b.srv.Leave(21)
		b.start()
		_, err := b.send("1", to(20, ""), "x")
		wantGone(t, wantSendError(t, err, "blocked", true), true)
		_, err = b.send("2", to(21, ""), "x")
		wantGone(t, wantSendError(t, err, "chat_not_found", true), true)
		for _, text := range []string{"Forbidden: bot was kicked from the supergroup chat", "Forbidden: user is deactivated"} {
			b.srv.Break("sendMessage", testtelegram.Refuse(403, text))
			_, err = b.send(text, to(anna, ""), "x")
			wantGone(t, wantSendError(t, err, "blocked", true), true)
		}
		odd := testtelegram.Refuse(400, "Bad Request: something else")
		b.srv.Break("sendMessage", odd, odd) // with tags and without
		_, err = b.send("3", to(anna, ""), "x")
		wantGone(t, wantSendError(t, err, "bad_request", true), false)
		for _, code := range []int{500, 502} {
			b.srv.Break("sendMessage", testtelegram.Refuse(code, "oops"))
			_, err = b.send("4", to(anna, ""), "x")
			wantSendError(t, err, "server_error", false)
			after(time.Second)
		}
		b.srv.Break("sendMessage", testtelegram.Fault{HTML: 502})
		_, err = b.send("4", to(anna, ""), "x")
		wantSendError(t, err, "server_error", false)
		b.stop()
	})
}

func TestParseErrorGoesOutPlain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.srv.Break("sendMessage", testtelegram.Refuse(400, "Bad Request: can't parse entities: Unsupported start tag"))
		if _, err := b.send("1", to(anna, ""), "**bold** & <br> more"); err != nil {
			t.Fatal(err)
		}
		got := b.srv.Messages(anna)
		if len(got) != 1 || got[0].HTML != "" || got[0].Text != "bold & \n more" {
			t.Errorf("got %+v", got)
		}
		b.stop()
	})
}

// TestRefusedFormBecomesSimpler: what Telegram refuses for its form arrives in a simpler one, with
// every word and every address.
func TestRefusedFormBecomesSimpler(t *testing.T) {
	t.Parallel()
	refuse := func(texts ...string) (out []testtelegram.Fault) {
		for _, text := range texts {
			out = append(out, testtelegram.Refuse(400, "Bad Request: "+text))
		}
		return out
	}
	var many, marks strings.Builder
	for i := range 60 {
		fmt.Fprintf(&many, "[s%d](https://x.example/%d/%s)\n", i, i, strings.Repeat("x", 190))
	}
	for i := range 150 {
		fmt.Fprintf(&marks, "- **name** `value`, [l](https://x.example/%d/)\n", i)
	}
	long := "[first](https://x.example/0/) " + strings.Repeat("word ", 1000) + "[last](https://x.example/1/)"
	for name, c := range map[string]struct {
		text      string
		faults    []testtelegram.Fault
		addresses int
		first     int // number of the first address
		most      int // messages
		plain     int // of them without tags
	}{
		"many addresses":            {text: many.String(), addresses: 60, most: 2},
		"many addresses, refused":   {text: many.String(), faults: refuse("ENTITIES_TOO_LONG"), addresses: 60, most: 4},
		"refused again and again":   {text: many.String(), faults: refuse("ENTITIES_TOO_LONG", "ENTITIES_TOO_LONG", "ENTITIES_TOO_LONG", "ENTITIES_TOO_LONG"), addresses: 60, most: 20, plain: 1},
		"many marks":                {text: marks.String(), addresses: 150, most: 6},
		"unreadable":                {text: long, faults: refuse("can't parse entities: Unexpected end tag"), addresses: 2, most: 3, plain: 2},
		"unreadable, then too long": {text: many.String(), faults: refuse("can't parse entities: x", "message is too long"), addresses: 60, most: 14, plain: 5},
		"unknown entity":            {text: "[a](https://x.example/1/)", first: 1, faults: refuse("ENTITY_TEXTURL_INVALID"), addresses: 1, most: 1, plain: 1},
		"an unknown refusal":        {text: "[a](https://x.example/1/)", first: 1, faults: refuse("SOMETHING_NEW_INVALID"), addresses: 1, most: 1, plain: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				defer b.stop()
				b.srv.Break("sendMessage", c.faults...)
				b.mustSend("1", to(anna, ""), c.text)
				read := ""
				plain := 0
				got := b.srv.Messages(anna)
				for _, m := range got {
					if len(m.Entities) == testtelegram.MaxEntities {
						t.Error("a message reaches the limit of entities")
					}
					if m.HTML == "" {
						plain++
					}
					read += m.Text + m.HTML //nolint:perfsprint // a few parts
				}
				for i := range c.addresses {
					if !strings.Contains(read, fmt.Sprintf("https://x.example/%d/", i+c.first)) {
						t.Errorf("the address %d did not arrive", i)
					}
				}
				if len(got) > c.most || plain != c.plain {
					t.Errorf("%d messages, %d of them plain, want at most %d and %d", len(got), plain, c.most, c.plain)
				}
			})
		})
	}
}

// TestRefusalOfTheChatIsNotTriedPlain: no other form of a message would pass.
func TestRefusalOfTheChatIsNotTriedPlain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		defer b.stop()
		for i, text := range []string{"not enough rights to send text messages to the chat", "CHAT_WRITE_FORBIDDEN", "PEER_ID_INVALID", "need administrator rights in the channel chat"} {
			b.srv.Break("sendMessage", testtelegram.Refuse(400, "Bad Request: "+text))
			_, err := b.send(strconv.Itoa(i), to(anna, ""), "x")
			wantSendError(t, err, "bad_request", true)
		}
		if n := len(b.srv.Calls("sendMessage")); n != 4 {
			t.Errorf("%d calls", n)
		}
	})
}

// TestTooLongIsSplitSmaller: Telegram finds parts too long although they keep its limit. Parts that
// have arrived are not sent again, the rest comes in smaller parts, and after refusals of the
// smallest parts the reply is given up.
func TestTooLongIsSplitSmaller(t *testing.T) {
	t.Parallel()
	tooLong, shouted := testtelegram.Refuse(400, "Bad Request: message is too long"), testtelegram.Refuse(400, "Bad Request: MESSAGE_TOO_LONG")
	fine := testtelegram.Fault{Delay: time.Millisecond}
	for name, c := range map[string]struct {
		faults  []testtelegram.Fault
		longest int  // units of the parts after the refusals
		plain   bool // they have no tags
		lost    bool
	}{
		"the first part":              {faults: []testtelegram.Fault{tooLong}, longest: 2048},
		"in capitals":                 {faults: []testtelegram.Fault{shouted}, longest: 2048},
		"a later part":                {faults: []testtelegram.Fault{fine, tooLong, fine, tooLong}, longest: 1024},
		"a flood in between":          {faults: []testtelegram.Fault{tooLong, fine, testtelegram.Flood(7), fine, tooLong, testtelegram.Refuse(500, "oops")}, longest: 1024},
		"because of its tags":         {faults: []testtelegram.Fault{tooLong, tooLong, tooLong, tooLong, tooLong}, longest: 256, plain: true},
		"and nothing is short enough": {faults: []testtelegram.Fault{tooLong, tooLong, tooLong, tooLong, tooLong, tooLong}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, nil)
				b.start()
				defer b.stop()
				b.srv.Break("sendMessage", c.faults...)
				var long strings.Builder
				for i := range 600 {
					fmt.Fprintf(&long, "line **%d** of it\n", i)
				}
				if c.lost {
					_, err := b.send("1", to(anna, ""), long.String())
					wantSendError(t, err, "bad_request", true)
					wantTexts(t, "anna reads", b.srv.Texts(anna))
					return
				}
				first := b.mustSend("1", to(anna, ""), long.String())
				got := b.srv.Messages(anna)
				wantTexts(t, "anna reads", strings.Fields(strings.Join(b.srv.Texts(anna), "\n")), strings.Fields(strings.ReplaceAll(long.String(), "*", ""))...)
				if first.ProviderID != strconv.Itoa(got[0].ID) {
					t.Errorf("delivered as %s, the first part is %d", first.ProviderID, got[0].ID)
				}
				last := got[len(got)-2]
				if n := testtelegram.Units(last.Text); n > c.longest || n < c.longest/2 || (last.HTML == "") != c.plain {
					t.Errorf("the last but one of %d parts has %d units, want up to %d; plain %v", len(got), n, c.longest, last.HTML == "")
				}
				if b.srv.Faults("sendMessage") != 0 {
					t.Error("some refusals were not met")
				}
			})
		})
	}
}

// TestTooLongKeepsThePreviewsPlace: the first of the smaller parts replaces the preview.
func TestTooLongKeepsThePreviewsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.ch.Update(to(anna, ""), "run-1", channel.Preview{Text: "growing"})
		after(3 * time.Second)
		b.srv.Break("editMessageText", testtelegram.Refuse(400, "Bad Request: message is too long"))
		long := strings.TrimSpace(strings.Repeat("word ", 700))
		b.mustSend("1", to(anna, ""), long)
		got := b.srv.Messages(anna)
		if len(got) != 2 || !slices.Equal(got[0].Edits, []string{"growing"}) || strings.Join(strings.Fields(got[0].Text+" "+got[1].Text), " ") != long {
			t.Errorf("got %+v", got)
		}
		b.stop()
	})
}

func TestTopics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		long := strings.Repeat("word ", 1500)
		b.mustSend("1", to(group, "10"), long)
		b.mustSend("2", to(group, "1"), "general")
		b.ch.Typing(t.Context(), to(group, "10"))
		b.ch.Typing(t.Context(), to(group, "1"))
		b.srv.CloseTopic(group, 20)
		if sent := b.mustSend("3", to(group, "20"), "into a topic that is gone"); sent.At != to(group, "") {
			t.Errorf("it arrived at %+v", sent.At)
		}
		if key, owner, err := b.ch.Conversation(to(group, "10")); key.String() != "agent:main:telegram:group:-100500:topic:10" || owner != "" || err != nil {
			t.Errorf("the conversation of a topic is %s of %q, %v", key, owner, err)
		}
		var threads []int
		for _, m := range b.srv.Messages(group) {
			threads = append(threads, m.Thread)
		}
		if !slices.Equal(threads, []int{10, 10, 0, 0}) {
			t.Errorf("threads %v", threads)
		}
		typing := b.srv.Calls("sendChatAction")
		if len(typing) != 2 || typing[0].Params.Get("message_thread_id") != "10" || typing[1].Params.Has("message_thread_id") {
			t.Errorf("typing: %+v", typing)
		}
		b.stop()
	})
}

func TestMigratedGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const next = int64(-200600)
		b := newBot(t, func(s *setup) { s.cfg.Members, s.cfg.Activation = "any", "always" })
		b.start()
		b.srv.Migrate(group, next)
		for i, text := range []string{"first", "second"} {
			want := chat.Part{At: to(next, ""), Message: strconv.Itoa(i + 1), To: len(text)}
			sent := b.mustSend(text, to(group, ""), text)
			if at := cmp.Or(sent.At, want.At); at != want.At || !slices.Equal(sent.Parts, []chat.Part{want}) {
				t.Errorf("%q arrived at %+v as %+v", text, sent.At, sent.Parts)
			}
		}
		wantTexts(t, "the new group reads", b.srv.Texts(next), "first", "second")
		if n := len(b.srv.Calls("sendMessage")); n != 3 {
			t.Errorf("%d calls; the new number must be remembered", n)
		}
		b.srv.Say(next, bob, "hello from the new group")
		after(time.Second)
		wantTexts(t, "received", b.texts(), "hello from the new group")
		b.stop()
	})
}

func TestPartsAreNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		long := strings.Repeat("All parts come once. ", 900)
		fine := testtelegram.Fault{Delay: time.Millisecond}
		b.srv.Break("sendMessage", fine, fine, testtelegram.Refuse(500, "oops"), testtelegram.Flood(7), fine, testtelegram.Fault{Reset: true})
		first := b.mustSend("1", to(anna, ""), long)
		got := b.srv.Messages(anna)
		if strings.Join(b.srv.Texts(anna), "") != strings.TrimRight(long, " ") || len(got) < 4 {
			t.Errorf("%d parts, %d of %d bytes", len(got), len(strings.Join(b.srv.Texts(anna), "")), len(long))
		}
		if first.ProviderID != strconv.Itoa(got[0].ID) {
			t.Errorf("delivered as %s, the first part is %d", first.ProviderID, got[0].ID)
		}
		parts := append(b.claims.parts["1"], first.Parts...)
		if len(parts) != len(got) || len(first.Parts) != 1 {
			t.Fatalf("parts %+v, of which the last call returned %+v", parts, first.Parts)
		}
		for i, p := range parts {
			if p.At != to(anna, "") || p.Message != strconv.Itoa(got[i].ID) || b.ch.Shows(long, p.From, p.To) != strings.TrimSpace(got[i].Text) {
				t.Errorf("part %d is %+v and shows %q", i, p, b.ch.Shows(long, p.From, p.To))
			}
		}
		b.stop()
	})
}

func TestLostAnswerDoublesOnePart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.srv.Break("sendMessage", testtelegram.Fault{Reset: true, After: true})
		_, err := b.send("1", to(anna, ""), "hello")
		if failed := wantSendError(t, err, "connection", false); !failed.Unknown {
			t.Errorf("it may have arrived: %+v", failed)
		}
		b.mustSend("1", to(anna, ""), "hello")
		wantTexts(t, "anna reads", b.srv.Texts(anna), "hello", "hello")
		b.stop()
	})
}

func TestSameErrorOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		send := func(kind, id, text string) string {
			t.Helper()
			sent, err := b.ch.Send(t.Context(), chat.Reply{ID: id, RunID: "r" + id, Target: to(anna, ""), Kind: kind, Text: text}, b.claims.of(id))
			if err != nil || sent.ProviderID == "" {
				t.Fatalf("%s %s: %+v, %v", kind, id, sent, err)
			}
			return sent.ProviderID
		}
		notice := func(id, text string) string { t.Helper(); return send("notice", id, text) }
		first := notice("1", "the model is overloaded; try again")
		if again := notice("2", "the model is overloaded; try again"); again != first {
			t.Errorf("the second one counts as message %s, want %s", again, first)
		}
		notice("3", "another error")
		after(time.Minute)
		notice("4", "the model is overloaded; try again")
		wantTexts(t, "anna reads", b.srv.Texts(anna), "the model is overloaded; try again", "another error", "the model is overloaded; try again")

		for _, id := range []string{"5", "6"} { // the answer to a command is always sent
			send("command", id, "There's nothing to stop.")
		}
		if got := b.srv.Texts(anna); len(got) != 5 {
			t.Errorf("anna reads %q", got)
		}
		b.stop()
	})
}

func TestQueuedShowsEyesOrANote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		b.srv.Say(anna, anna, "hello")
		after(time.Second)
		id := b.messages()[0].ID
		b.ch.Queued(t.Context(), to(anna, ""), id)
		b.ch.Queued(t.Context(), to(anna, ""), "unknown")
		if calls := b.srv.Calls("setMessageReaction"); len(calls) != 1 || !strings.Contains(calls[0].Params.Get("reaction"), "👀") {
			t.Errorf("reactions: %+v", calls)
		}
		b.srv.ForbidReactions(anna)
		for range 5 {
			b.ch.Queued(t.Context(), to(anna, ""), id)
		}
		if got := b.srv.Messages(anna); len(got) != 1 || got[0].ReplyTo == 0 {
			t.Errorf("a note in its place: %+v", got)
		}
		b.stop()
	})
}

func TestNetworkErrorsDoNotShowTheToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		b.start()
		faults := []testtelegram.Fault{
			{Reset: true},
			{Hang: true},
			{Garbage: true},
			{Cut: true},
			{HTML: 502},
			{Huge: 5 << 20},
			testtelegram.Flood(1),
			testtelegram.Refuse(401, "Unauthorized"), testtelegram.Refuse(404, "Not Found"), testtelegram.Refuse(409, "Conflict"),
			testtelegram.Refuse(400, "Bad Request: "+b.srv.Token()), testtelegram.Refuse(500, "failed at https://api.telegram.org/bot"+b.srv.Token()+"/sendMessage"),
		}
		for i, f := range faults {
			b.srv.Break("sendMessage", f, f)
			_, err := b.send(strconv.Itoa(i), to(anna, ""), "x")
			if err == nil {
				t.Errorf("fault %d did not show", i)
				continue
			}
			b.noToken("an error", fmt.Sprintf("%v %+v", err, errors.Unwrap(err)))
			b.srv.Mend()
			after(2 * time.Second)
		}
		b.noToken("the status", fmt.Sprintf("%+v", b.ch.Status()))
		b.stop()
	})
}

func TestOwnTransportDoesNotShowTheToken(t *testing.T) {
	t.Parallel()
	const token = "123456789:TEST-Token-canary-0123456789abcdefghi"
	for _, address := range []string{"http://127.0.0.1:1", "http://name.invalid", "https://127.0.0.1:1/with/a/path"} {
		ch := newPlain(t, token, address)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := ch.Send(ctx, chat.Reply{ID: "1", Target: to(anna, ""), Kind: "reply", Text: "x"}, channeltest.Held{})
		cancel()
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", address, err)
		}
		wantSendError(t, err, "connection", false)
	}
}
