// Package channeltest is the contract of channels, and the contract of the records that a store
// keeps for channels.
//
// [Run] takes a function that opens a channel together with the provider that it talks to, and
// checks what the rest of the gateway relies on: a message is offered until it is durable and
// acknowledged only then; a reply arrives whole and in order, or Send returns a
// [channel.SendError]; an outage does not end Run; Run returns shortly after the end of its
// context; Status and Typing never block. [RunRecords] does the same for [channel.Records], so that
// every store keeps the same bounds.
//
// The tests of Run are in virtual time: each opens its channel inside a synctest bubble, so it must
// not use real sockets.
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

// Harness is a new channel with a new provider. One person may talk, in one chat.
type Harness struct {
	Channel channel.Channel
	// Target is the person's chat.
	Target chat.Target
	// Say sends a message of the person.
	Say func(text string)
	// Read returns what the person can read now, oldest first.
	Read func() []string
	// Incoming is the form in which a message of the person reaches the receiver; nil means that of
	// a chat network.
	Incoming *Incoming
	// Outage makes every call of the channel fail, or work again. Hang makes them block instead.
	Outage, Hang func(on bool)
}

// Incoming is what the receiver gets with a message in addition to its text. A message of a chat
// network is typed, answered in the person's chat, and its idempotency key begins with the
// channel's name.
type Incoming struct {
	// ReplyTo is where the answer goes besides the transcript; zero means nowhere.
	ReplyTo chat.Target
	// Typed text is debounced.
	Typed bool
	// Key is the prefix of the idempotency key: the name of the component that makes such keys.
	Key string
}

func (h *Harness) incoming() Incoming {
	if h.Incoming != nil {
		return *h.Incoming
	}
	return Incoming{ReplyTo: h.Target, Typed: true, Key: h.Channel.Name()}
}

// contract is one test of the contract.
type contract struct {
	name string
	test func(r *receiver)
}

// sending returns the part of the contract for every channel, including one that only sends.
func sending() []contract {
	return []contract{
		{"replies arrive in order and whole", repliesArrive},
		{"a wrong address is permanent", wrongAddress},
		{"a cancelled send returns", cancelledSend},
		{"run ends while the provider hangs", endsWhileHanging},
		{"typing and status do not block", signsDoNotBlock},
	}
}

// Run tests the whole contract. open is called inside a synctest bubble, once for each test.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	run(t, open, append(sending(), []contract{
		{"a message has everything that the receiver needs", messageIsWhole},
		{"a message is offered until it is durable", offeredUntilDurable},
		{"a message is offered once when it is durable", offeredOnce},
		{"an outage ends nothing", outage},
	}...))
}

// RunSending tests the part of the contract for a channel that only sends. Harness.Say and Outage
// are not used.
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
				r := &receiver{t: t, Harness: open(t)}
				c.test(r)
				r.close()
			})
		})
	}
}

// receiver records what the channel passes on.
type receiver struct {
	t *testing.T
	Harness
	mu     sync.Mutex
	got    []chat.Message
	tries  int
	refuse error
	cancel context.CancelFunc
	ended  chan error
}

// Receive implements [channel.Receiver].
func (r *receiver) Receive(_ context.Context, m chat.Message) (chat.Receipt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if r.refuse != nil {
		return chat.Receipt{}, r.refuse
	}
	if slices.ContainsFunc(r.got, func(old chat.Message) bool { return old.Dedupe == m.Dedupe }) {
		return chat.Receipt{Duplicate: true}, nil
	}
	r.got = append(r.got, m)
	return chat.Receipt{RunID: m.ID, Session: m.Session}, nil
}

// Held is a claim that no other process takes over; it does not record progress.
type Held struct{}

// Check implements [channel.Claim].
func (Held) Check() error { return nil }

// Record implements [channel.Claim].
func (Held) Record(context.Context, string, ...chat.Part) error { return nil }

// Alive implements [channel.Receiver].
func (r *receiver) Alive() error { return nil }

// Lease implements [channel.Receiver]: no other process exists.
func (r *receiver) Lease(context.Context, string) (bool, error) { return true, nil }

func (r *receiver) messages() []chat.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *receiver) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- r.Channel.Run(ctx, r) }()
}

// stop ends Run, which must return within a second.
func (r *receiver) stop() {
	r.t.Helper()
	r.cancel()
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Errorf("Run ended with %v", err)
		}
	case <-t.C:
		r.t.Errorf("Run did not end within a second, but later with %v", <-r.ended)
	}
	r.ended = nil
}

func (r *receiver) close() {
	if r.ended != nil {
		r.stop()
	}
}

// await waits in virtual time until ok, at most a minute.
func (r *receiver) await(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 1200 {
		if ok() {
			return
		}
		<-tick.C
	}
	r.t.Fatalf("not within a minute: %s", what)
}

func (r *receiver) texts() []string {
	var out []string
	for _, m := range r.messages() {
		out = append(out, m.Content.Text)
	}
	return out
}

func messageIsWhole(r *receiver) {
	r.start()
	r.Say("hello")
	r.await("the message", func() bool { return len(r.messages()) == 1 })
	m, want := r.messages()[0], r.incoming()
	if m.Content.Text != "hello" || m.Channel != r.Channel.Name() || m.Session.IsZero() || m.Dedupe == "" || m.Principal == "" || m.Scope == "" ||
		m.Content.Sender.ID == "" || m.Content.Options.ReplyTo != want.ReplyTo || m.Content.Options.Typed != want.Typed {
		r.t.Errorf("the message lacks something: %+v", m)
	}
	if !strings.HasPrefix(m.Dedupe, want.Key) {
		r.t.Errorf("the key %q does not begin with %q", m.Dedupe, want.Key)
	}
}

func offeredUntilDurable(r *receiver) {
	r.refuse = chat.ErrStoreUnavailable
	r.start()
	r.Say("one")
	r.Say("two")
	r.await("three tries", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.tries >= 3 })
	r.stop() // the process ends before anything was durable

	r.mu.Lock()
	r.refuse = nil
	r.mu.Unlock()
	r.start()
	r.await("both messages", func() bool { return len(r.messages()) == 2 })
	if got := r.texts(); !slices.Equal(got, []string{"one", "two"}) {
		r.t.Errorf("got %q in this order", got)
	}
}

func offeredOnce(r *receiver) {
	r.start()
	r.Say("one")
	r.await("the message", func() bool { return len(r.messages()) == 1 })
	synctest.Wait()
	time.Sleep(2 * time.Minute) // virtual time: several polls go by
	r.stop()
	r.start()
	r.Say("two")
	r.await("the second message", func() bool { return len(r.messages()) == 2 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tries > 3 { // one of each, and one more by a run that did not know of the first
		r.t.Errorf("two messages were offered %d times", r.tries)
	}
}

func (r *receiver) reply(id, text string) (chat.Sent, error) {
	return r.Channel.Send(r.t.Context(), chat.Reply{ID: id, RunID: "run-" + id, Target: r.Target, Kind: "reply", Text: text, Attempt: 1}, Held{})
}

func repliesArrive(r *receiver) {
	r.start()
	long := strings.Repeat("A sentence with some words in it. ", 400)
	for i, text := range []string{"first", long, "last & <least>"} {
		sent, err := r.reply(strconv.Itoa(i), text)
		if err != nil || sent.ProviderID == "" {
			r.t.Fatalf("reply %d: %+v, %v", i, sent, err)
		}
	}
	read := r.Read()
	if read[0] != "first" || read[len(read)-1] != "last & <least>" {
		r.t.Errorf("order: %.40q … %q", read[0], read[len(read)-1])
	}
	letters := func(s string) string { return strings.Join(strings.Fields(s), "") }
	if letters(strings.Join(read[1:len(read)-1], "")) != letters(long) {
		r.t.Error("the long reply is not whole")
	}
}

func wrongAddress(r *receiver) {
	r.start()
	for _, to := range []chat.Target{{}, {Channel: r.Target.Channel, ChatID: "absent"}, {Channel: "elsewhere", ChatID: r.Target.ChatID}} {
		_, err := r.Channel.Send(r.t.Context(), chat.Reply{ID: "x", Target: to, Kind: "reply", Text: "hello"}, Held{})
		failed, ok := errors.AsType[*channel.SendError](err)
		if !ok || !failed.Permanent || failed.Reason == "" {
			r.t.Errorf("sending to %+v: %v; want a permanent error", to, err)
		}
	}
}

func cancelledSend(r *receiver) {
	r.start()
	r.Hang(true)
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	_, err := r.Channel.Send(ctx, chat.Reply{ID: "x", Target: r.Target, Kind: "reply", Text: "hello"}, Held{})
	failed, ok := errors.AsType[*channel.SendError](err)
	if !ok || failed.Permanent || time.Since(began) > 3*time.Second {
		r.t.Errorf("after %s: %v; want an error that allows another attempt", time.Since(began), err)
	}
}

func outage(r *receiver) {
	r.start()
	r.await("connected", func() bool { return r.Channel.Status().Connected })
	r.Outage(true)
	r.await("noticed", func() bool { return !r.Channel.Status().Connected })
	if s := r.Channel.Status(); !s.Running || s.State == "" || s.LastError == "" {
		r.t.Errorf("status during the outage: %+v", s)
	}
	if _, err := r.reply("1", "lost?"); err == nil {
		r.t.Error("a reply was delivered during the outage")
	}
	time.Sleep(5 * time.Minute) // virtual time
	r.Outage(false)
	healed := time.Now()
	r.Say("are you there?")
	r.await("the message after the outage", func() bool { return len(r.messages()) == 1 })
	if d := time.Since(healed); d > 15*time.Second {
		r.t.Errorf("the first message took %s after the network had healed", d)
	}
	if _, err := r.reply("1", "here"); err != nil {
		r.t.Errorf("the reply after the outage: %v", err)
	}
}

func endsWhileHanging(r *receiver) {
	r.Hang(true)
	r.start()
	time.Sleep(time.Minute) // virtual time
	r.stop()
	if s := r.Channel.Status(); s.Running || s.Connected {
		r.t.Errorf("status after the end: %+v", s)
	}
}

func signsDoNotBlock(r *receiver) {
	r.start()
	r.await("connected", func() bool { return r.Channel.Status().Connected })
	r.Hang(true)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	if ty, ok := r.Channel.(channel.Typer); ok {
		ty.Typing(ctx, r.Target)
	}
	if s, ok := r.Channel.(channel.Streamer); ok {
		s.Update(r.Target, "run", channel.Preview{Text: "text", Step: "step", Since: began, Steps: 1})
		s.Finish(r.Target, "run", false)
	}
	r.Channel.Status()
	if d := time.Since(began); d > time.Second {
		r.t.Errorf("they took %s", d)
	}
}
