package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/channel/web"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/dispatch"
	"laneway/internal/gateway"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/testrun"
)

// core is the real core over SQLite. Its agent follows its message as a script: it streams the
// words one by one; `wait` pauses the turn until the test calls proceed, `fail` ends it with an
// error. The core records what reaches it, and a test may hold calls or change what it reports.
type core struct {
	*dispatch.Dispatcher
	tb testing.TB

	mu       sync.Mutex
	readers  []func(chat.Event)
	messages map[string]chat.Message // that were accepted, by id
	stops    []store.StopParams
	gate     chan struct{}
	paused   int // number of turns at the word `wait`

	// Settings of the test, under lock.
	down     bool          // the store is unavailable
	stall    time.Duration // how long no turn has started
	cronAge  time.Duration // time since the cron loop's last iteration; 0 = it has no cron loop
	refuse   error         // error of the next ReceiveFrom
	block    chan struct{} // ReceiveFrom waits for it and ignores its context
	blocked  int           // number of waiting calls
	lists    chan struct{} // Sessions waits for it, or until its context is done
	listing  int           // number of waiting calls
	panics   bool
	notReady error
	channels []chat.ChannelStatus
	stranded []string
}

// mailbox is a channel on which nothing goes out.
type mailbox struct{ name string }

func (m mailbox) Name() string                              { return m.name }
func (mailbox) Run(context.Context, channel.Receiver) error { return nil }
func (mailbox) Status() channel.Status                      { return channel.Status{Configured: true} }
func (mailbox) Typing(context.Context, chat.Target)         {}
func (mailbox) Send(context.Context, chat.Reply, channel.Claim) (chat.Sent, error) {
	return chat.Sent{ProviderID: "1"}, nil
}

func newCore(tb testing.TB) *core {
	tb.Helper()
	return newCoreOf(tb, agent.Info{ID: "main", Name: "Echo", Model: "echo-1", Runner: "echo"})
}

func newCoreOf(tb testing.TB, main agent.Info) *core {
	tb.Helper()
	table, err := command.New()
	if err != nil {
		tb.Fatal(err)
	}
	c := &core{tb: tb, messages: map[string]chat.Message{}, gate: make(chan struct{})}
	page := web.New()
	work, abandon := context.WithCancelCause(context.WithoutCancel(tb.Context()))
	c.Dispatcher, err = dispatch.New(work, dispatch.Config{Version: "0.1.0", Exclusive: true, Agents: []dispatch.Agent{{Info: main, Runner: c}}}, dispatch.Deps{
		Store: sqlitetest.Open(tb, sqlite.Config{}), Commands: table, Needs: gateway.Needs(),
		Channels: []channel.Channel{page, mailbox{"telegram"}, mailbox{"telegram:42"}, mailbox{"telegram:work"}, mailbox{"box"}},
	})
	if err == nil {
		err = c.Register(work)
	}
	if err != nil {
		tb.Fatal(err)
	}
	ctx, end := context.WithCancel(work)
	var loops sync.WaitGroup
	for _, run := range []func() error{func() error { return c.Dispatcher.Run(ctx) }, func() error { return page.Run(ctx, c.Dispatcher) }} {
		loops.Go(func() {
			if err := run(); err != nil {
				tb.Errorf("the core ended with %v", err)
			}
		})
	}
	tb.Cleanup(func() {
		abandon(errors.New("the test is over"))
		_ = c.Drain(work)
		end()
		loops.Wait()
	})
	return c
}

func (c *core) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// proceed continues one turn that has paused at the word `wait`.
func (c *core) proceed() {
	select {
	case c.gate <- struct{}{}:
	case <-time.After(patience):
		c.tb.Error("no turn has paused at wait")
	}
}

// untilPaused waits until n turns have paused at the word `wait`.
func (c *core) untilPaused(n int) {
	c.tb.Helper()
	testrun.Eventually(c.tb, fmt.Sprint(n, " turns are at wait"), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.paused == n
	})
}

// only returns the only message that was accepted.
func (c *core) only(t *testing.T) (only chat.Message) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.messages) != 1 {
		t.Fatalf("%d messages, want 1", len(c.messages))
	}
	for _, only = range c.messages {
	}
	return only
}

// accepted returns the number of messages that were accepted.
func (c *core) accepted() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.messages)
}

// stopped returns the stops that were asked for.
func (c *core) stopped() []store.StopParams {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.stops)
}

// message returns an accepted message by the id of its run or response.
func (c *core) message(t *testing.T, id string) chat.Message {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.messages[strings.TrimPrefix(id, "resp_")]
	if !ok {
		t.Fatalf("there is no message %s", id)
	}
	return m
}

// append adds an answer to a session.
func (c *core) append(t *testing.T, session, id, text string) {
	t.Helper()
	if _, err := c.AppendReply(t.Context(), chat.SessionKey{Agent: "main", Rest: session}, chat.Reply{ID: session + id, Text: text}); err != nil {
		t.Fatal(err)
	}
}

// publish passes an event to the gateway.
func (c *core) publish(ev chat.Event) {
	c.mu.Lock()
	readers := slices.Clone(c.readers)
	c.mu.Unlock()
	if ev.At.IsZero() {
		ev.At = time.Now()
	}
	for _, read := range readers {
		read(ev)
	}
}

func (c *core) Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) func() {
	c.set(func() { c.readers = append(c.readers, fn) })
	return c.Dispatcher.Subscribe(fn, wanted)
}

func (c *core) ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error) {
	c.mu.Lock()
	if block := c.block; block != nil {
		c.blocked++
		c.mu.Unlock()
		<-block
		c.mu.Lock()
		c.blocked--
		ctx = context.WithoutCancel(ctx)
	}
	panics, refusal := c.panics, c.refuse
	c.refuse = nil
	c.mu.Unlock()
	if panics {
		panic("a defect")
	}
	if refusal != nil {
		return chat.Receipt{}, refusal
	}
	r, err := c.Dispatcher.ReceiveFrom(ctx, m, by)
	if err == nil && !r.Duplicate {
		c.set(func() { c.messages[m.ID] = m })
	}
	return r, err
}

func (c *core) Stop(ctx context.Context, p store.StopParams) ([]string, error) {
	c.set(func() { c.stops = append(c.stops, p) })
	return c.Dispatcher.Stop(ctx, p)
}

func (c *core) Sessions(ctx context.Context, f store.SessionFilter) ([]chat.SessionStatus, int, error) {
	c.mu.Lock()
	if lists := c.lists; lists != nil {
		c.listing++
		c.mu.Unlock()
		select {
		case <-lists:
		case <-ctx.Done():
		}
		c.mu.Lock()
		c.listing--
	}
	c.mu.Unlock()
	return c.Dispatcher.Sessions(ctx, f)
}

func (c *core) Turns(ctx context.Context, f store.TurnFilter) ([]store.Turn, map[string]chat.Waiting, error) {
	c.mu.Lock()
	down := c.down
	c.mu.Unlock()
	if down {
		return nil, nil, chat.ErrStoreUnavailable
	}
	return c.Dispatcher.Turns(ctx, f)
}

func (c *core) Status(ctx context.Context) chat.SystemStatus {
	st := c.Dispatcher.Status(ctx)
	st.Channels, st.Progress = c.Channels(), c.Progress()
	c.set(func() {
		st.Stranded = c.stranded
		if c.down {
			st.StoreError = "the database cannot be reached"
		}
	})
	return st
}

func (c *core) Channels() []chat.ChannelStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.channels)
}

func (c *core) Progress() chat.Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := chat.Progress{StalledFor: c.stall, CronAge: -1, DispatcherAge: time.Second}
	if c.cronAge > 0 {
		p.CronAge = c.cronAge
	}
	return p
}

func (c *core) Ready(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return &chat.NotReadyError{Check: chat.CheckDatabase, Cause: chat.ErrStoreUnavailable}
	}
	return c.notReady
}

// Run is the agent.
func (c *core) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	res := agent.Result{StopReason: agent.StopNormal}
	for i, word := range strings.Fields(req.Messages[len(req.Messages)-1].Text) {
		switch word {
		case "wait":
			c.set(func() { c.paused++ })
			select {
			case <-c.gate:
			case <-ctx.Done():
			}
			c.set(func() { c.paused-- })
			if ctx.Err() != nil {
				return agent.Result{}, context.Cause(ctx)
			}
			continue
		case "mute":
			continue
		case "fail":
			return agent.Result{}, agent.NewError(chat.FailTimeout, "the agent took too long", nil)
		case "refused":
			return agent.Result{}, &agent.Error{Reason: chat.FailBadRequest, Message: "the model service did not accept it", Detail: "no such model"}
		case string(chat.FailContextLength), string(chat.FailRefusal), string(chat.FailRateLimit):
			return agent.Result{}, agent.NewError(chat.FailReason(word), "the model service did not take it", nil)
		case "tool":
			emit(agent.Event{Kind: agent.EventTool, Tool: &chat.ToolEvent{Phase: "start", CallID: "call-1", Name: "look", Args: `{"at":"sky"}`}})
			continue
		}
		if i > 0 {
			word = " " + word
		}
		res.Text += word
		emit(agent.Event{Kind: agent.EventDelta, Text: word})
	}
	if client := req.Client; client != nil && !client.NoCalls && len(client.Rounds) == 0 {
		res.StopReason, res.Calls = chat.StopCalls, []chat.ToolCall{{ID: "call_1", Name: client.Tools[0].Name, Args: `{"city":"Oslo"}`}}
		if res.Calls[0].Name == "signed" {
			res.Calls[0].Extra = `{"google":{"thought_signature":"c2ln"}}`
		}
	}
	return res, nil
}
