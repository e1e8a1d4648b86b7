package telegram_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/channel/telegram"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron/service"
	"laneway/internal/dispatch"
	"laneway/internal/gateway"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/testtelegram"
)

// storyteller is an agent that follows instructions: `think 20s TEXT` takes that long, `fail`
// fails, everything else is answered at once.
type storyteller struct {
	mu    sync.Mutex
	calls []agent.Request
}

func (s *storyteller) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	s.mu.Lock()
	s.calls = append(s.calls, req)
	s.mu.Unlock()
	var said []string
	for _, m := range req.Messages {
		said = append(said, m.Text)
	}
	text := strings.Join(said, " / ")
	word, rest, _ := strings.Cut(said[len(said)-1], " ")
	switch word {
	case "fail":
		return agent.Result{}, &agent.Error{Reason: chat.FailOverloaded, Message: "the model is overloaded; try again"}
	case "think":
		length, answer, _ := strings.Cut(rest, " ")
		d, err := time.ParseDuration(length)
		if err != nil {
			return agent.Result{}, err
		}
		for left := d; left > 0; left -= 500 * time.Millisecond {
			emit(agent.Event{Kind: agent.EventDelta, Text: "hm "})
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
				return agent.Result{}, context.Cause(ctx)
			}
		}
		return agent.Result{Text: answer, StopReason: "stop"}, nil
	}
	return agent.Result{Text: "You said: **" + text + "**", StopReason: "stop"}, nil
}

// home is the whole path: fake Telegram, the channel, a dispatcher, a store. The process can end
// and restart on the same store.
type home struct {
	t         *testing.T
	srv       *testtelegram.Server
	st        *sqlite.Store
	agent     *storyteller
	log       *logBuffer
	down      bool
	groupStop string
	line      network // between the bot and its Telegram
	mu        sync.Mutex

	d    *dispatch.Dispatcher
	ch   *telegram.Channel
	stop []func()
}

func newHome(t *testing.T) *home {
	t.Helper()
	h := &home{t: t, srv: testtelegram.New(testtelegram.Config{}), agent: &storyteller{}, log: &logBuffer{}}
	h.st = sqlitetest.Open(t, sqlite.Config{Before: func(context.Context, string) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.down {
			return chat.ErrStoreUnavailable
		}
		return nil
	}})
	h.line.next = h.srv.Transport()
	h.srv.AddPrivate(anna, "Anna")
	h.srv.AddPrivate(bob, "Bob")
	h.srv.AddGroup(group, "Friends", 10, 20)
	return h
}

func (h *home) breakStore(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = on
}

func (h *home) begin() {
	h.t.Helper()
	table, err := command.New()
	if err != nil {
		h.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(leak.Through("a log of the whole way", h.log), &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.ch, err = telegram.New(
		telegram.Config{Token: h.srv.Token(), Agent: "main", Groups: []int64{group}, Members: telegram.MembersAny, GroupStop: h.groupStop},
		telegram.Deps{Records: h.st, Commands: table.Infos(), Transport: &h.line, Logger: log},
	)
	if err != nil {
		h.t.Fatal(err)
	}
	work, cancelWork := context.WithCancelCause(h.t.Context())
	h.d, err = dispatch.New(work, dispatch.Config{
		Version: "test", Cron: service.Config{Enabled: true, Fires: true}, Agents: []dispatch.Agent{{Info: agent.Info{ID: "main", Runner: "story"}, Runner: h.agent}},
	}, dispatch.Deps{Store: h.st, Commands: table, Needs: gateway.Needs(), Channels: []channel.Channel{h.ch}, Logger: log})
	if err != nil {
		h.t.Fatal(err)
	}
	loops, cancelLoops := context.WithCancel(h.t.Context())
	polls, cancelPolls := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.d.Run(loops); err != nil {
			h.t.Errorf("the dispatcher ended with %v", err)
		}
	})
	running.Go(func() {
		if err := h.d.RunCron(loops); err != nil {
			h.t.Errorf("the loop of cron ended with %v", err)
		}
	})
	running.Go(func() {
		if err := h.ch.Run(polls, h.d); err != nil {
			h.t.Errorf("the channel ended with %v", err)
		}
	})
	h.stop = []func(){cancelPolls, cancelLoops, running.Wait, func() { cancelWork(errors.New("over")) }}
	after(time.Second)
}

// end drains the process as a stop does; crash ends it without a drain.
func (h *home) end() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.t.Context()), 10*time.Second)
	defer cancel()
	if err := h.d.Drain(ctx); err != nil {
		h.t.Logf("the drain: %v", err)
	}
	h.stop[0]() // the channel, then the place in the table of nodes, then the loops
	h.d.Leave(ctx)
	h.crash()
	for _, v := range h.srv.Violations() {
		h.t.Errorf("the fake server complains: %s", v)
	}
}

func (h *home) crash() {
	for _, f := range h.stop {
		f()
	}
}

func (h *home) last(chatID int64) string {
	texts := h.srv.Texts(chatID)
	if len(texts) == 0 {
		return ""
	}
	return texts[len(texts)-1]
}

func (h *home) wantLast(what string, chatID int64, part string) {
	h.t.Helper()
	if got := h.last(chatID); !strings.Contains(got, part) {
		h.t.Errorf("%s: the last message reads %q, want something with %q", what, got, part)
	}
}

// TestAnEvening plays one person's conversation with the bot: pairing, answers, a stop, an outage
// of the store, a flood, a restart in the middle of an answer, and a group.
func TestAnEvening(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		h.begin()

		// Anna writes for the first time and is given a code. The operator approves it.
		h.srv.Say(anna, anna, "Hello?")
		after(2 * time.Second)
		found := code.FindStringSubmatch(h.last(anna))
		if found == nil {
			t.Fatalf("no code in %q", h.last(anna))
		}
		if _, err := h.st.ApprovePairing(t.Context(), channel.PairingRef{Code: found[1]}, chat.ChangedBy{Who: "operator"}); err != nil {
			t.Fatal(err)
		}

		// Two quick messages are one question; the answer is formatted.
		h.srv.Say(anna, anna, "Good evening.")
		after(300 * time.Millisecond)
		h.srv.Say(anna, anna, "How are you?")
		after(4 * time.Second)
		h.wantLast("the answer", anna, "You said: Good evening. / How are you?")
		if all := h.srv.Messages(anna); !strings.HasPrefix(all[len(all)-1].HTML, "You said: <b>") {
			t.Errorf("the answer is not formatted: %q", all[len(all)-1].HTML)
		}

		// A long answer grows in one message, with the typing indicator, and ends as the answer.
		before := len(h.srv.Texts(anna))
		h.srv.Say(anna, anna, "think 10s Done thinking.")
		after(6 * time.Second)
		h.wantLast("growing", anna, "hm hm")
		after(10 * time.Second)
		h.wantLast("grown", anna, "Done thinking.")
		if got := h.srv.Texts(anna); len(got) != before+1 {
			t.Errorf("the answer took %d messages: %q", len(got)-before, got[before:])
		}
		typing := h.srv.Calls("sendChatAction")
		if len(typing) < 3 {
			t.Errorf("typing was shown %d times", len(typing))
		}
		after(time.Minute)
		if n := len(h.srv.Calls("sendChatAction")); n != len(typing) {
			t.Errorf("typing continued after the answer")
		}

		// /stop takes effect at once.
		h.srv.Say(anna, anna, "think 5m This is never said.")
		after(5 * time.Second)
		h.srv.Say(anna, anna, "/stop")
		after(2 * time.Second)
		h.wantLast("stopped", anna, "Stopped the running turn")
		after(6 * time.Minute)
		if strings.Contains(strings.Join(h.srv.Texts(anna), " "), "This is never said") {
			t.Error("a stopped turn was answered")
		}

		// The model fails twice; Anna receives one notice.
		h.srv.Say(anna, anna, "fail")
		after(5 * time.Second)
		h.srv.Say(anna, anna, "fail")
		after(10 * time.Second)
		if n := strings.Count(strings.Join(h.srv.Texts(anna), " "), "overloaded"); n != 1 {
			t.Errorf("the error was told %d times", n)
		}

		// The database is unavailable while she writes. Nothing is lost.
		h.breakStore(true)
		h.srv.Say(anna, anna, "Are you still there?")
		after(8 * time.Second)
		if len(h.srv.Pending()) != 1 {
			t.Error("the message was confirmed without a store")
		}
		h.breakStore(false)
		after(30 * time.Second)
		h.wantLast("after the outage", anna, "Are you still there?")

		// Telegram is busy; the answer comes when it allows.
		h.srv.Break("sendMessage", testtelegram.Flood(20))
		h.srv.Say(anna, anna, "Patience.")
		after(10 * time.Second)
		h.srv.Say(bob, bob, "Who is there?") // another person is not delayed
		after(3 * time.Second)
		h.wantLast("bob", bob, "pair approve")
		after(30 * time.Second)
		h.wantLast("after the flood", anna, "Patience.")

		// The process is stopped while it answers, and restarts: the turn runs again, and is
		// answered once.
		h.srv.Say(anna, anna, "think 40s Back again.")
		after(5 * time.Second)
		h.end()
		h.srv.Say(anna, anna, "Written while no gateway ran.")
		h.begin()
		after(2 * time.Minute)
		all := strings.Join(h.srv.Texts(anna), " ")
		if n := strings.Count(all, "Back again."); n != 1 {
			t.Errorf("the interrupted turn was answered %d times", n)
		}
		h.wantLast("after the restart", anna, "Written while no gateway ran.")

		// In the group the bot answers in the topic in which it is asked, and only when it is
		// asked.
		h.srv.Say(group, bob, "Did you see the match?", testtelegram.InTopic(10))
		h.srv.Say(group, bob, "@lane_bot what is the time?", testtelegram.Mentioning(9), testtelegram.InTopic(20))
		after(5 * time.Second)
		if got := h.srv.Messages(group); len(got) != 1 || got[0].Thread != 20 || !strings.Contains(got[0].Text, "what is the time?") {
			t.Errorf("the group reads %+v", got)
		}

		h.srv.Say(anna, anna, "/whoami")
		after(3 * time.Second)
		h.wantLast("who", anna, "telegram:123456789:7")

		h.end()
		if left := h.srv.Pending(); len(left) != 0 {
			t.Errorf("unconfirmed: %v", left)
		}
		if _, secret, _ := strings.Cut(h.srv.Token(), ":"); strings.Contains(h.log.String(), secret) {
			t.Error("the token is in the log")
		}
	})
}

// TestCrashAtAnyMoment ends the process without a drain at many moments of a conversation. Each
// message is answered, in order; only the answer that was being sent may be sent twice.
func TestCrashAtAnyMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		if _, err := h.st.CreatePairing(t.Context(), channel.Peer{Channel: "telegram:123456789", UserID: anna, ChatID: anna}, "Anna"); err != nil {
			t.Fatal(err)
		}
		open, err := h.st.OpenPairings(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.st.ApprovePairing(t.Context(), channel.PairingRef{Code: open[0].Code}, chat.ChangedBy{Who: "operator"}); err != nil {
			t.Fatal(err)
		}
		const rounds = 26
		for i := range rounds {
			h.begin()
			h.srv.Say(anna, anna, "round "+string(rune('A'+i)))
			after(time.Duration(i) * 67 * time.Millisecond)
			h.crash()
			after(20 * time.Second) // the lease of the dead process ends
		}
		h.begin()
		after(2 * time.Minute)
		all := h.srv.Texts(anna)
		doubled := len(all) - rounds
		for i := range rounds {
			part := "round " + string(rune('A'+i))
			found := false
			for _, text := range all {
				found = found || strings.HasSuffix(text, part)
			}
			if !found {
				t.Errorf("%s was never answered: %q", part, all)
			}
		}
		if doubled > rounds/4 {
			t.Errorf("%d answers came twice", doubled)
		}
		t.Logf("%d rounds, %d answers came twice", rounds, doubled)
		h.end()
	})
}
