package telegram_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
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
	groupStop string
	line      network // between the bot and its Telegram

	d    *dispatch.Dispatcher
	ch   *telegram.Channel
	stop []func()
}

func newHome(t *testing.T) *home {
	t.Helper()
	h := &home{t: t, srv: testtelegram.New(testtelegram.Config{}), agent: &storyteller{}, log: &logBuffer{}}
	h.st = sqlitetest.Open(t, sqlite.Config{})
	h.line.next = h.srv.Transport()
	h.srv.AddPrivate(anna, "Anna")
	h.srv.AddPrivate(bob, "Bob")
	h.srv.AddGroup(group, "Friends", 10, 20)
	return h
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
		if err := h.d.Jobs.Run(loops); err != nil {
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
