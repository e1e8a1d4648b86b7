package channeltest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// Harness is a channel with its provider, both fresh. One person may talk, in one chat.
type Harness struct {
	Channel channel.Channel
	// Target is the person's chat.
	Target chat.Target
	// Say makes the person say something.
	Say func(text string)
	// Read is what the person can read now, oldest first.
	Read func() []string
	// Said is how what the person says reaches the house; nil = as from a chat network.
	Said *Said
	// Outage makes every call of the channel fail, or work again. Hang makes them wait for ever instead.
	Outage, Hang func(on bool)
}

// Said is what the house gets with a message besides its text. From a chat network it is typed, answered in the person's chat, and its key begins
// with the channel's name.
type Said struct {
	// ReplyTo is where the answer goes besides the transcript; zero = nowhere.
	ReplyTo chat.Target
	// Typed text is debounced.
	Typed bool
	// Key is how the idempotency key begins: with the name of whoever alone can make such keys.
	Key string
}

func (h *Harness) said() Said {
	if h.Said != nil {
		return *h.Said
	}
	return Said{ReplyTo: h.Target, Typed: true, Key: h.Channel.Name()}
}

// contract is one test of it.
type contract struct {
	name string
	test func(h *house)
}

// sending is what holds for channels that bring nothing in, too.
func sending() []contract {
	return []contract{
		{"replies arrive in order and whole", repliesArrive},
		{"a wrong address is permanent", wrongAddress},
		{"a cancelled send returns", cancelledSend},
		{"run ends while the provider hangs", endsWhileHanging},
		{"typing and status do not block", signsDoNotBlock},
	}
}

// Run holds the contract. open is called inside a bubble, once for each test.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	run(t, open, append(sending(), []contract{
		{"a message has everything that the house needs", messageIsWhole},
		{"a message is offered until it is durable", offeredUntilDurable},
		{"a message is offered once when it is durable", offeredOnce},
		{"an outage ends nothing", outage},
	}...))
}

// RunSending holds the part of the contract that concerns a channel that only sends. Harness.Say and Outage are not used.
func RunSending(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	run(t, open, sending())
}

func run(t *testing.T, open func(t *testing.T) Harness, list []contract) {
	t.Helper()
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &house{t: t, Harness: open(t)}
				c.test(h)
				h.close()
			})
		})
	}
}

// house receives what the channel brings in.
type house struct {
	t *testing.T
	Harness
	mu     sync.Mutex
	got    []chat.Message
	tries  int
	refuse error
	cancel context.CancelFunc
	ended  chan error
}

// Receive implements [channel.House].
func (h *house) Receive(_ context.Context, m chat.Message) (chat.Receipt, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries++
	if h.refuse != nil {
		return chat.Receipt{}, h.refuse
	}
	if slices.ContainsFunc(h.got, func(old chat.Message) bool { return old.Dedupe == m.Dedupe }) {
		return chat.Receipt{Duplicate: true}, nil
	}
	h.got = append(h.got, m)
	return chat.Receipt{RunID: m.ID, Session: m.Session}, nil
}

// Lease implements [channel.House]: there is no other process.
func (h *house) Lease(context.Context, string) (int64, bool, error) { return 0, true, nil }

func (h *house) messages() []chat.Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got)
}

func (h *house) start() {
	ctx, cancel := context.WithCancel(h.t.Context())
	h.cancel, h.ended = cancel, make(chan error, 1)
	go func() { h.ended <- h.Channel.Run(ctx, h) }()
}

// stop ends Run, which must return within a second.
func (h *house) stop() {
	h.t.Helper()
	h.cancel()
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case err := <-h.ended:
		if err != nil {
			h.t.Errorf("Run ended with %v", err)
		}
	case <-t.C:
		h.t.Errorf("Run did not end within a second, but later with %v", <-h.ended)
	}
	h.ended = nil
}

func (h *house) close() {
	if h.ended != nil {
		h.stop()
	}
}

// soon waits in virtual time until ok, at most a minute.
func (h *house) soon(what string, ok func() bool) {
	h.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 1200 {
		if ok() {
			return
		}
		<-tick.C
	}
	h.t.Fatalf("not within a minute: %s", what)
}

func (h *house) texts() []string {
	var out []string
	for _, m := range h.messages() {
		out = append(out, m.Content.Text)
	}
	return out
}

func messageIsWhole(h *house) {
	h.start()
	h.Say("hello")
	h.soon("the message", func() bool { return len(h.messages()) == 1 })
	m, said := h.messages()[0], h.said()
	if m.Content.Text != "hello" || m.Channel != h.Channel.Name() || m.Session.IsZero() || m.Dedupe == "" || m.Principal == "" || m.Scope == "" ||
		m.Content.Sender.ID == "" || m.Content.Options.ReplyTo != said.ReplyTo || m.Content.Options.Typed != said.Typed {
		h.t.Errorf("the message lacks something: %+v", m)
	}
	if !strings.HasPrefix(m.Dedupe, said.Key) {
		h.t.Errorf("the key %q does not begin with %q", m.Dedupe, said.Key)
	}
}

func offeredUntilDurable(h *house) {
	h.refuse = chat.ErrStoreUnavailable
	h.start()
	h.Say("one")
	h.Say("two")
	h.soon("three tries", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.tries >= 3 })
	h.stop() // the process ends before anything was durable

	h.mu.Lock()
	h.refuse = nil
	h.mu.Unlock()
	h.start()
	h.soon("both messages", func() bool { return len(h.messages()) == 2 })
	if got := h.texts(); !slices.Equal(got, []string{"one", "two"}) {
		h.t.Errorf("got %q in this order", got)
	}
}

func offeredOnce(h *house) {
	h.start()
	h.Say("one")
	h.soon("the message", func() bool { return len(h.messages()) == 1 })
	synctest.Wait()
	time.Sleep(2 * time.Minute) //nolint:forbidigo // virtual time: several polls go by
	h.stop()
	h.start()
	h.Say("two")
	h.soon("the second message", func() bool { return len(h.messages()) == 2 })
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tries > 3 { // one of each, and one more by a life that could not know
		h.t.Errorf("two messages were offered %d times", h.tries)
	}
}

func (h *house) reply(id, text string) (chat.Sent, error) {
	return h.Channel.Send(h.t.Context(), chat.Reply{ID: id, RunID: "run-" + id, Target: h.Target, Kind: "reply", Text: text, Attempt: 1})
}

func repliesArrive(h *house) {
	h.start()
	long := strings.Repeat("A sentence with some words in it. ", 400)
	for i, text := range []string{"first", long, "last & <least>"} {
		sent, err := h.reply(strconv.Itoa(i), text)
		if err != nil || sent.ProviderID == "" {
			h.t.Fatalf("reply %d: %+v, %v", i, sent, err)
		}
	}
	read := h.Read()
	if read[0] != "first" || read[len(read)-1] != "last & <least>" {
		h.t.Errorf("order: %.40q … %q", read[0], read[len(read)-1])
	}
	letters := func(s string) string { return strings.Join(strings.Fields(s), "") }
	if letters(strings.Join(read[1:len(read)-1], "")) != letters(long) {
		h.t.Error("the long reply is not whole")
	}
}

func wrongAddress(h *house) {
	h.start()
	for _, to := range []chat.Target{{}, {Channel: h.Target.Channel, ChatID: "nobody"}, {Channel: "elsewhere", ChatID: h.Target.ChatID}} {
		_, err := h.Channel.Send(h.t.Context(), chat.Reply{ID: "x", Target: to, Kind: "reply", Text: "hello"})
		failed, ok := errors.AsType[*channel.SendError](err)
		if !ok || !failed.Permanent || failed.Reason == "" {
			h.t.Errorf("sending to %+v: %v; want a permanent error", to, err)
		}
	}
}

func cancelledSend(h *house) {
	h.start()
	h.Hang(true)
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	_, err := h.Channel.Send(ctx, chat.Reply{ID: "x", Target: h.Target, Kind: "reply", Text: "hello"})
	failed, ok := errors.AsType[*channel.SendError](err)
	if !ok || failed.Permanent || time.Since(began) > 3*time.Second {
		h.t.Errorf("after %s: %v; want an error that allows another attempt", time.Since(began), err)
	}
}

func outage(h *house) {
	h.start()
	h.soon("connected", func() bool { return h.Channel.Status().Connected })
	h.Outage(true)
	h.soon("noticed", func() bool { return !h.Channel.Status().Connected })
	if s := h.Channel.Status(); !s.Running || s.State == "" || s.LastError == "" {
		h.t.Errorf("status during the outage: %+v", s)
	}
	if _, err := h.reply("1", "lost?"); err == nil {
		h.t.Error("a reply was delivered during the outage")
	}
	time.Sleep(5 * time.Minute) //nolint:forbidigo // virtual time
	h.Outage(false)
	healed := time.Now()
	h.Say("are you there?")
	h.soon("the message after the outage", func() bool { return len(h.messages()) == 1 })
	if d := time.Since(healed); d > 15*time.Second {
		h.t.Errorf("the first message took %s after the network had healed", d)
	}
	if _, err := h.reply("1", "here"); err != nil {
		h.t.Errorf("the reply after the outage: %v", err)
	}
}

func endsWhileHanging(h *house) {
	h.Hang(true)
	h.start()
	time.Sleep(time.Minute) //nolint:forbidigo // virtual time
	h.stop()
	if s := h.Channel.Status(); s.Running || s.Connected {
		h.t.Errorf("status after the end: %+v", s)
	}
}

func signsDoNotBlock(h *house) {
	h.start()
	h.soon("connected", func() bool { return h.Channel.Status().Connected })
	h.Hang(true)
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	if ty, ok := h.Channel.(channel.Typer); ok {
		ty.Typing(ctx, h.Target)
	}
	if s, ok := h.Channel.(channel.Streamer); ok {
		s.Update(h.Target, "run", "text")
		s.Finish(h.Target, "run")
	}
	h.Channel.Status()
	if d := time.Since(began); d > time.Second {
		h.t.Errorf("they took %s", d)
	}
}
