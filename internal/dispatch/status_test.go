package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// waitsOf returns what the open turns wait for, by the text of their message; "" = only for their
// agent.
func (h *harness) waitsOf(f store.TurnFilter) map[string]chat.Waiting {
	h.t.Helper()
	list, waits, err := h.d.Turns(h.t.Context(), f)
	if err != nil {
		h.t.Fatal(err)
	}
	by := map[string]chat.Waiting{}
	for _, t := range list {
		by[t.Text] = waits[t.ID]
	}
	return by
}

func wantWaits(t *testing.T, got, expect map[string]chat.Waiting) {
	t.Helper()
	if !maps.Equal(got, expect) {
		t.Errorf("open turns wait for\n%+v, want\n%+v", got, expect)
	}
}

func TestOpenTurnsSayWhatTheyWaitFor(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		runs := h.send("main", "sleep 1h")
		h.send("main", "after it")
		h.send("two", "in the lane")
		h.send("three", "after that")
		h.send("four", "typing", typed)
		synctest.Wait()
		wantWaits(t, h.waitsOf(store.TurnFilter{}), map[string]chat.Waiting{
			"sleep 1h": {}, "after it": {Cause: chat.WaitSession, Position: 1, BlockedBy: runs}, "in the lane": {Cause: chat.WaitLane, Position: 1},
			"after that": {Cause: chat.WaitLane, Position: 2}, "typing": {Cause: chat.WaitDebounce, Until: time.Now().Add(3 * time.Second)},
		})
		if _, err := h.d.Stop(t.Context(), store.StopParams{Session: chat.MainKey("main"), Scope: store.StopRun, MessageID: runs}); err != nil {
			t.Fatal(err)
		}
	}, lanes(1), queue(scheduler.Settings{Debounce: 3 * time.Second, MaxConcurrent: 1}))
}

func TestATurnThatAsksWaitsForItsPerson(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send(askerChat, "go", askerMessage("7"))
		h.asked(0)
		wantWaits(t, h.waitsOf(store.TurnFilter{Which: store.TurnsRunning}), map[string]chat.Waiting{"go": {Cause: chat.WaitQuestion}})
		h.by7(texts(h.asked(0))[0])
		h.end(id)
		want(t, "after the answer", len(h.waitsOf(store.TurnFilter{})), 0)
	}, runBy(asks{}))
}

func TestARunBetweenTwoAttemptsWaitsForTheNextOne(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(once("failing", "fail", time.Second))
		after(1500 * time.Millisecond)
		var next time.Time
		for text, w := range h.waitsOf(store.TurnFilter{Which: store.TurnsWaiting}) {
			if text != "failing" || w.Cause != chat.WaitRetry || !w.Until.After(time.Now()) {
				t.Errorf("%s waits for %+v", text, w)
			}
			next = w.Until
		}
		want(t, "found", next.IsZero(), false)
		want(t, "in the lane main", len(h.waitsOf(store.TurnFilter{Lane: "main"})), 0)
		want(t, "that run", len(h.waitsOf(store.TurnFilter{Which: store.TurnsRunning})), 0)
	})
}

// endings counts the runs that the observer of cron received.
type endings struct {
	cron.NopRunnerObserver

	mu    sync.Mutex
	count map[string]int
}

func (e *endings) Ended(t cron.Trigger, s cron.RunState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count[string(t)+" "+string(s)]++
}

func TestFiguresAreFreshWithoutACallOfStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(500 * time.Millisecond) // so that no count, every 15 s from the start, coincides with a fire
		seen := &endings{count: map[string]int{}}
		h := openCron(t, sqlitetest.Open(t, sqlite.Config{}), func(c *dispatch.Config) { c.Cron.Observer = seen })
		h.box.fail = func(chat.Reply) error { return &channel.SendError{Reason: "rate_limited", RetryAfter: time.Hour} }
		if f := h.d.Figures(); f.OutboxWaiting != 0 || f.Cron.OldestDue >= 0 {
			t.Errorf("before anything happened: %+v", f)
		}
		h.end(h.send("main", "hello", replyTo("1")))
		h.put(cron.Job{ID: "ends", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}, Payload: cron.Payload{Text: "sleep 100ms"}})
		h.put(cron.Job{ID: "lasts", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}, Payload: cron.Payload{Text: "sleep 40s"}})
		time.Sleep(31 * time.Second)
		synctest.Wait()
		f := h.d.Figures()
		if f.OutboxWaiting != 1 || f.Cron.Jobs != 2 || f.Cron.Running != 1 || f.Cron.Paused != 0 {
			t.Errorf("after half a minute: %+v, want one message that waits, two jobs and one run", f)
		}
		seen.mu.Lock()
		if n := seen.count["schedule ok"]; n < 29 || n > 31 || len(seen.count) != 1 {
			t.Errorf("runs that ended: %v, want one each second", seen.count)
		}
		seen.mu.Unlock()
		h.close()
	})
}

// A row that stays taken blocks what comes after it, and only a restart of its process helps.
func TestRowTakenTooLongIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := open(t, st)
		if err := st.Register(t.Context(), store.Node{ID: "other", Lease: 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		row := store.Outgoing{ID: "o1", Kind: store.KindReply, Target: chat.Target{Channel: "elsewhere", ChatID: "1"}, Text: "hello"}
		if err := st.Enqueue(t.Context(), []store.Outgoing{row}); err != nil {
			t.Fatal(err)
		}
		if l, err := st.ClaimOutgoing(t.Context(), store.ClaimOutgoingParams{Node: "other", Channels: []string{"elsewhere"}, Limit: 1}); err != nil || len(l) != 1 {
			t.Fatalf("claimed %v, %v", l, err)
		}
		time.Sleep(10 * time.Minute)
		want(t, "rows before it is certain", h.d.Figures().TakenLong, 0)
		time.Sleep(time.Minute)
		want(t, "rows", h.d.Figures().TakenLong, 1)
		words := []string{"1 × delivery by gateway other: taken for more than 10m, which is longer than it can last; restart that gateway, then another attempt follows"}
		wantList(t, "problems", h.d.Status(t.Context()).Stranded[:1], words)
	})
}

// blind is a store that loses what finds a taken row again: what waits, and the runs
// of a heartbeat.
type blind struct{ *sqlite.Store }

func (blind) Fronts(context.Context, store.FrontsParams) ([]store.Front, error) {
	return nil, nil
}

func (b blind) Heartbeat(ctx context.Context, id string, draining bool) (store.Beat, error) {
	beat, err := b.Store.Heartbeat(ctx, id, draining)
	beat.Runs = nil
	return beat, err
}

// Turns and messages that this process has in the store and not in memory are reported; those that
// wait or run for long are not.
func TestLostTurnsAndMessagesAreReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := open(t, blind{st})
		accept := func(name string) (store.Accepted, string) {
			m := chat.Message{ID: "m-" + name, Session: chat.SessionKey{Agent: "main", Rest: name}, Lane: "main", Principal: "anna"}
			acc, err := st.Accept(t.Context(), store.AcceptParams{Node: h.d.NodeID(), Take: true, Message: m})
			if err != nil {
				t.Fatal(err)
			}
			return acc, m.ID
		}
		accept("lost")
		acc, id := accept("begun")
		claim := store.Claim{Session: chat.SessionKey{Agent: "main", Rest: "begun"}, Node: h.d.NodeID(), Epoch: acc.Epoch}
		if _, err := st.Start(t.Context(), store.StartParams{Claim: claim, RunID: id, Lane: "main", Seqs: []int64{acc.Seq}}); err != nil {
			t.Fatal(err)
		}
		h.send("agent:main:long", "sleep 1h")
		h.send("agent:main:long", "a message that waits for it")
		time.Sleep(11 * time.Minute)
		want(t, "rows", h.d.Figures().TakenLong, 2)
		var kinds []string
		for _, words := range h.d.Status(t.Context()).Stranded {
			kind, _, _ := strings.Cut(words, " by gateway ")
			kinds = append(kinds, kind)
		}
		wantList(t, "problems", kinds, []string{"1 × message", "1 × turn"})
	})
}

// second adds an agent.
func second(runner agent.Runner) option {
	return func(c *dispatch.Config) {
		c.Agents = append(c.Agents, dispatch.Agent{Info: agent.Info{ID: "second", Runner: "script"}, Runner: runner})
	}
}

// warnings records the warnings of a log.
type warnings struct {
	mu  sync.Mutex
	all []slog.Record
}

func (w *warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, r)
	return nil
}

func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w *warnings) WithGroup(string) slog.Handler { return w }

// of returns the values of an attribute in all warnings that have it.
func (w *warnings) of(key string) (values []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.all {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == key {
				values = append(values, a.Value.String())
			}
			return true
		})
	}
	return values
}

// The only process with an agent ends in the middle of a run. A process without the agent leaves
// its work, and a later one with the agent finishes it. One crash is counted, not one for each
// process that found the run.
func TestARunWaitsForAProcessThatHasItsAgent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		c, off := cord(st)
		killed := open(t, c, second(&script{}))
		running, waiting := killed.send("agent:second:main", "sleep 5m"), killed.send("agent:second:main", "waits for the first one")
		killed.send("main", "sleep 1h")
		time.Sleep(time.Second)
		off.Store(true)

		lacking := open(t, st)
		defer lacking.close()
		time.Sleep(time.Minute)
		wantList(t, "agents that are missing", lacking.d.Status(t.Context()).Stranded, []string{"agent second: 2 messages wait for it, and no running gateway has it: " +
			"start a gateway that has the agent in its configuration, or reset the sessions and disable the jobs"})
		time.Sleep(time.Minute)
		wantList(t, "warnings", lacking.log.of("cure"), []string{"start a gateway that has the agent in its configuration, or reset the sessions and disable the jobs"})
		want(t, "runs of the agent that it has", lacking.active("main"), 1)
		for _, id := range []string{running, waiting} {
			m, err := st.MessageByID(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			want(t, "outcome of "+id+" while no process has the agent", m.Outcome, "")
		}

		having := open(t, st, second(&script{}))
		defer having.close()
		want(t, "outcome of the interrupted run", having.end(running).Outcome, chat.OutcomeAnswered)
		want(t, "outcome of what waited", having.end(waiting).Outcome, chat.OutcomeAnswered)
		time.Sleep(time.Minute)
		want(t, "agents that are missing when a process has them", len(lacking.d.Status(t.Context()).Stranded), 0)
		m, err := st.MessageByID(t.Context(), running)
		if err != nil {
			t.Fatal(err)
		}
		r, err := st.RunByID(t.Context(), m.RunID)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "state", r.State, store.RunOK)
		want(t, "attempts", r.Attempt, 2)
		want(t, "crashes", r.Crashes, 1)
		killed.abandon()
	})
}

// Ten minutes after the last process with the agent has ended, its running and waiting messages
// fail with a notice; work of other agents continues. A process that has just started waits for its
// own ten minutes.
func TestMessagesOfAnAgentThatNoProcessHasFailAfterTheirWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		wait := func(c *dispatch.Config) { c.AgentWait = 10 * time.Minute }
		c, off := cord(st)
		killed := open(t, c, second(&script{}), wait)
		running, waits := killed.send("agent:second:main", "sleep 5m"), killed.send("agent:second:main", "waits for the first one")
		time.Sleep(time.Second)
		off.Store(true)

		lacking := open(t, st, wait)
		defer lacking.close()
		ends := func() (list []string) {
			t.Helper()
			for _, id := range []string{running, waits} {
				m, err := st.MessageByID(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, string(m.Outcome)+m.Reason)
			}
			return list
		}
		time.Sleep(9 * time.Minute)
		wantList(t, "before ten minutes have passed", ends(), []string{"", ""})
		time.Sleep(2 * time.Minute)
		failed := string(chat.OutcomeFailed) + string(chat.FailUnknownAgent)
		wantList(t, "after them", ends(), []string{failed, failed})
		want(t, "a turn of its own agent", lacking.end(lacking.send("main", "sleep 1s", func(m *chat.Message) { m.ID = "of-its-own" })).Outcome, chat.OutcomeAnswered)
		time.Sleep(time.Minute)
		want(t, "problems", len(lacking.d.Status(t.Context()).Stranded), 0)
		killed.abandon()
	})
}

// The slots wait for a process with the agent for the catch-up window of the job, and are then
// recorded as missed. The job continues when such a process starts. A job that has to run once
// waits for it.
func TestSlotsOfAnAgentThatNoProcessHasAreMissedAfterTheirWindow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		wait := func(c *dispatch.Config) { c.AgentWait = 10 * time.Minute }
		having := openCron(t, st, second(&script{}), wait)
		of := func(j *cron.Job) { j.Agent = "second" }
		often := having.put(cron.Job{ID: "often", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 30 * 60_000}, Payload: cron.Payload{Text: "sleep 1s"}}, of)
		once := having.put(cron.Job{ID: "once", Schedule: schedule.Spec{Kind: schedule.KindAt, At: time.Now().Add(45 * time.Minute)}, Payload: cron.Payload{Text: "sleep 1s"}}, of)
		time.Sleep(31 * time.Minute)
		having.close()

		lacking := openCron(t, st, wait)
		states := func(when string, job cron.Job, want string) {
			t.Helper()
			var list []string
			for _, r := range lacking.runs(job.ID) {
				list = append(list, fmt.Sprintf("%s %s %d", r.State, r.Reason, max(1, r.SlotCount)))
			}
			if got := strings.Join(list, ", "); got != want {
				t.Errorf("%s, the job %s: got %q, want %q", when, job.ID, got, want)
			}
		}
		time.Sleep(55 * time.Minute) // the slot of minute 60 is 26 minutes old
		states("within the window", often, "ok  1")
		time.Sleep(40 * time.Minute) // minute 126: that of minute 60 is too old, those of 90 and 120 are not
		states("after the window", often, "ok  1, missed no_agent 1")
		states("after the window", once, "")
		lacking.close()

		lacking = openCron(t, st, second(&script{}), wait)
		time.Sleep(time.Minute)
		states("with the agent", often, "ok  1, missed no_agent 1, missed policy 1, ok  1")
		states("with the agent", once, "ok  1")
		lacking.close()
	})
}

// The message is for a bot of a process that no longer exists.
func TestMessagesThatNoProcessSendsAreNamed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := open(t, st)
		defer h.close()
		if err := st.Enqueue(t.Context(), []store.Outgoing{{Kind: store.KindNotice, Text: "old", Count: 1, Target: chat.Target{Channel: "telegram:99", ChatID: "7"}}}); err != nil {
			t.Fatal(err)
		}
		wantList(t, "problems", h.d.Status(t.Context()).Stranded, []string{"channel telegram:99: 1 message waits to be sent, and no running gateway has it: start a gateway with this account"})
		if err := st.Register(t.Context(), store.Node{ID: "other", Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := st.AcquireLease(t.Context(), "telegram:99", "other"); err != nil || !ok {
			t.Fatal(ok, err)
		}
		want(t, "problems while another process has the bot", len(h.d.Status(t.Context()).Stranded), 0)
	})
}

// A job of one agent has a session of another one, which the rule for claiming jobs does not
// detect.
func TestARunInTheSessionOfAnAgentThatThisProcessLacksFails(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		j := h.put(everySecond("j", "hello"), func(j *cron.Job) { j.Session = cron.NamedSession + "agent:second:main" })
		time.Sleep(2 * time.Second)
		runs := h.runs(j.ID)
		if len(runs) == 0 {
			t.Fatal("the job did not run")
		}
		want(t, "state of the attempt", runs[0].Attempts[0].State, cron.AttemptError)
		want(t, "sentence", runs[0].Error, `no running gateway has the agent "second"; the operator can start one that has it in its configuration`)
	})
}

// A process without the agent receives a message for it, a command and a reset. The message waits
// for the process that has the agent. When that process no longer exists, nothing is accepted or
// stored.
func TestInputForAnAgentOfAnotherProcessIsAnsweredThere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		having, lacking := open(t, st, second(&script{})), open(t, st)
		defer lacking.close()
		want(t, "outcome", having.end(lacking.send("agent:second:main", "hello")).Outcome, chat.OutcomeAnswered)
		for _, text := range []string{"/status", "/compact", "/queue", "/new"} {
			if _, err := lacking.d.Receive(t.Context(), lacking.msg("agent:second:main", text)); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
		want(t, "outcome after the reset", having.end(lacking.send("agent:second:main", "again")).Outcome, chat.OutcomeAnswered)

		having.close()
		for _, text := range []string{"hello", "/status"} {
			m := lacking.msg("agent:second:main", text)
			_, err := lacking.d.Receive(t.Context(), m)
			if !errors.Is(err, chat.ErrUnknownAgent) {
				t.Errorf("%s: %v", text, err)
			}
			if _, err := st.MessageByID(t.Context(), m.ID); !errors.Is(err, chat.ErrNotFound) {
				t.Errorf("%s is stored: %v", text, err)
			}
		}
	})
}
