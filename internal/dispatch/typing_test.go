package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
	"laneway/internal/retry"
	"laneway/internal/scheduler"
)

// A person who keeps typing extends the debounce window up to its maximum. Then a batch is cut.
// Nothing is dropped, because messages that share a turn occupy one place.
func TestFastTypingStartsWithinTheMaximumAndLosesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		n     int
		every time.Duration
		first time.Duration
		sizes []int
	}{
		"twenty a second": {60, 50 * time.Millisecond, 550 * time.Millisecond, []int{12, 12, 12, 12, 12}},
		"two a second":    {14, 500 * time.Millisecond, 2400 * time.Millisecond, []int{5, 5, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			inDispatcher(t, func(t *testing.T, h *harness) {
				began := time.Now()
				var ids []string
				for i := range c.n {
					ids = append(ids, h.send("main", strconv.Itoa(i), typed))
					time.Sleep(c.every)
				}
				merged := 0
				for _, id := range ids {
					switch e := h.end(id); e.Outcome {
					case chat.OutcomeMerged:
						merged++
					case chat.OutcomeAnswered:
					default:
						t.Errorf("%s ended %s", id, e.Outcome)
					}
				}
				var sizes []int
				for _, text := range h.runner.texts() {
					sizes = append(sizes, strings.Count(text, "\n")+1)
				}
				want(t, "messages per turn", fmt.Sprint(sizes), fmt.Sprint(c.sizes))
				want(t, "merged", merged, c.n-len(c.sizes))
				_, first, _ := h.runner.call(0)
				want(t, "the first turn began after", first.Sub(began), c.first)
			})
		})
	}
}

// Messages in two topics within one window are two turns, each answered in its topic, and a stop in
// one does not affect the other. The same applies to two private threads.
func TestTopicsOfOnePersonStaySeparate(t *testing.T) {
	for name, key := range map[string]string{"topics of a group": "box:group:1", "private threads": "box:direct:7"} {
		t.Run(name, func(t *testing.T) {
			inDispatcher(t, func(t *testing.T, h *harness) {
				in := func(topic string) func(*chat.Message) {
					return func(m *chat.Message) {
						m.Content.Thread, m.Channel = topic, "box"
						m.Content.Options.ReplyTo = chat.Target{Channel: "box", ChatID: "1", Thread: topic}
					}
				}
				ten := h.send(key+":topic:10", "for ten", typed, in("10"))
				time.Sleep(300 * time.Millisecond)
				twenty := h.send(key+":topic:20", "for twenty", typed, in("20"))
				want(t, "topic 10", h.end(ten).Text, "for ten")
				want(t, "topic 20", h.end(twenty).Text, "for twenty")
				time.Sleep(5 * time.Second)
				want(t, "sent", fmt.Sprint(h.box.byThread()), "map[10:for ten 20:for twenty]")

				ten = h.send(key+":topic:10", "sleep 10s", in("10"))
				twenty = h.send(key+":topic:20", "sleep 10s", in("20"))
				h.send(key+":topic:20", "/stop", in("20"))
				want(t, "the stopped topic", h.end(twenty).Outcome, chat.OutcomeStopped)
				want(t, "the other topic", h.end(ten).Outcome, chat.OutcomeAnswered)
			})
		})
	}
}

// A message that no person typed starts at once. Messages that waited for a turn start right after
// it, typed or not.
func TestProgramsPayNoWindow(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		slot := time.Now().Add(3 * time.Second)
		h.put(cron.Job{ID: "job", Schedule: schedule.Spec{Kind: schedule.KindAt, At: slot}, Payload: cron.Payload{Text: "by the clock"}})
		sentAt := time.Now()
		for _, lane := range []string{scheduler.LaneMain, scheduler.LaneSubagent, scheduler.LaneTeam} {
			h.end(h.send("program-"+lane, "in "+lane, func(m *chat.Message) { m.Lane = lane }))
			want(t, "start in "+lane, h.runner.began("in "+lane).Sub(sentAt), 0)
		}
		h.send("main", "sleep 10s")
		var last string
		for i := range 10 {
			last = h.send("main", fmt.Sprint("waits ", i), func(m *chat.Message) { m.Content.Options.Typed = true; m.Content.Sender.ID = strconv.Itoa(i) })
			time.Sleep(400 * time.Millisecond)
		}
		h.end(last)
		for i := range 10 {
			want(t, fmt.Sprint("start of waiting message ", i), h.runner.began(fmt.Sprint("waits ", i)).Sub(sentAt), 10*time.Second)
		}
		if late := h.runner.began("by the clock").Sub(slot); late < 0 || late > 5*time.Millisecond {
			t.Errorf("the job began %s after its slot", late)
		}
	})
}

// Three messages of one session arrive by three channels; the first sender has disconnected before
// its turn starts. Each turn is answered and has the origin of its own message.
func TestEachTurnHasAContextOfItsOwn(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		socket, gone := context.WithCancel(t.Context())
		web := h.msg("box:direct:7", "sleep 1s")
		if _, err := h.d.Receive(socket, web); err != nil {
			t.Fatal(err)
		}
		gone()
		box := h.send("box:direct:7", "from a chat", replyTo("7"), func(m *chat.Message) { m.Content.Thread = "42" })
		hook := h.send("box:direct:7", "from a hook", func(m *chat.Message) { m.Channel, m.Content.External = "hook", true })
		for i, id := range []string{web.ID, box, hook} {
			want(t, "outcome", h.end(id).Outcome, chat.OutcomeAnswered)
			synctest.Wait()
			req, _, ended := h.runner.call(i)
			want(t, "run id", req.RunID, id)
			want(t, "idempotency key", req.IdempotencyKey, req.Session.String()+"/"+id)
			want(t, "messages", len(req.Messages), 1)
			want(t, "thread", req.Messages[0].Thread, map[string]string{box: "42"}[id])
			want(t, "where the answer goes", req.Messages[0].Options.ReplyTo.ChatID, map[string]string{box: "7"}[id])
			want(t, "from outside", req.Messages[0].External, id == hook)
			if ended != nil {
				t.Errorf("the context of turn %d had ended: %v", i, ended)
			}
		}
		synctest.Wait()
		time.Sleep(5 * time.Second)
		wantList(t, "sent to the chat", h.box.texts("7"), []string{"from a chat"})
	})
}

// Two runs are concurrent; when the first ends, the second is still listed and can be cancelled.
func TestRunsOfOneJobHaveIdsOfTheirOwn(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(everySecond("both", "sleep 15s"), func(j *cron.Job) {
			j.Overlap, j.Schedule.EveryMs = cron.OverlapConcurrent, 10_000
		})
		time.Sleep(28 * time.Second) // the first ran from 10 s to 25 s, the second runs from 20 s to 35 s
		synctest.Wait()
		var ids []string
		for _, r := range h.runs("both") {
			if r.State == cron.RunOK || r.State == cron.RunRunning {
				ids = append(ids, r.ID+" "+string(r.State))
			}
		}
		if len(ids) != 2 || !strings.HasSuffix(ids[0], " ok") || !strings.HasSuffix(ids[1], " running") || ids[0][:len(ids[0])-3] == ids[1][:len(ids[1])-8] {
			t.Fatalf("runs: %q", ids)
		}
		second := strings.TrimSuffix(ids[1], " running")
		cancelled, err := h.d.Jobs.Cancel(t.Context(), cron.CancelParams{RunID: second}, chat.Caller{Principal: "gateway"})
		if err != nil {
			t.Fatal(err)
		}
		wantList(t, "cancelled", cancelled, []string{second})
		synctest.Wait()
		for _, r := range h.runs("both") {
			if r.ID == second {
				want(t, "state of the cancelled run", r.State, cron.RunCancelled)
			}
		}
	})
}

// signs returns when the typing sign was shown, as time since began.
func (p *postbox) signs(began time.Time) []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []time.Duration
	for _, at := range p.typings {
		out = append(out, at.Sub(began))
	}
	return out
}

// The sign is shown at the beginning and every four seconds, and never after the turn has ended or
// was cancelled, for every kind of end.
func TestTypingIsShownUntilTheTurnEnds(t *testing.T) {
	const every = 4 * time.Second
	for name, c := range map[string]struct {
		text    string
		stop    time.Duration // after which /stop is sent; 0 = never
		timeout time.Duration // of the turn; 0 = the default
		outcome chat.Outcome
		last    time.Duration // the last sign; the turn ends, or is cancelled, between it and the next one
	}{
		"answered":            {text: "sleep 18s", outcome: chat.OutcomeAnswered, last: 16 * time.Second},
		"answered at once":    {text: "hello", outcome: chat.OutcomeAnswered},
		"failed":              {text: "fail", outcome: chat.OutcomeFailed},
		"panicked":            {text: "panic", outcome: chat.OutcomeFailed},
		"stopped":             {text: "sleep 1h", stop: 10 * time.Second, outcome: chat.OutcomeStopped, last: 8 * time.Second},
		"timed out":           {text: "sleep 1h", timeout: 10 * time.Second, outcome: chat.OutcomeFailed, last: 8 * time.Second},
		"deaf to the stop":    {text: "deaf 1m", stop: 10 * time.Second, outcome: chat.OutcomeStopped, last: 8 * time.Second},
		"deaf to the timeout": {text: "deaf 1m", timeout: 10 * time.Second, outcome: chat.OutcomeAnswered, last: 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inDispatcher(t, func(t *testing.T, h *harness) {
				began := time.Now()
				id := h.send("box:direct:7", c.text, replyTo("7"), func(m *chat.Message) { m.Content.Options.TimeoutMs = c.timeout.Milliseconds() })
				if c.stop > 0 {
					time.Sleep(c.stop)
					h.end(h.send("box:direct:7", "/stop", replyTo("7")))
				}
				want(t, "outcome", h.end(id).Outcome, c.outcome)
				time.Sleep(2 * time.Minute)
				var expect []time.Duration
				for at := time.Duration(0); at <= c.last; at += every {
					expect = append(expect, at)
				}
				if got := h.box.signs(began); !slices.Equal(got, expect) {
					t.Errorf("typing was shown at %v, want %v", got, expect)
				}
			})
		})
	}
}

// TestAJobShowsNoTyping: no person waits for the answer of a job.
func TestAJobShowsNoTyping(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(once("quiet", "sleep 20s", time.Second), deliverTo(cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "7"}))
		time.Sleep(time.Minute)
		synctest.Wait()
		wantList(t, "the chat reads", h.box.texts("7"), []string{"begun"})
		if got := h.box.signs(time.Now()); len(got) != 0 {
			t.Errorf("typing was shown %d times", len(got))
		}
	})
}

// stepping is a runner that makes two tool calls, the second one while the first one runs, with
// text around them.
type stepping struct{}

func (stepping) Run(ctx context.Context, _ agent.Request, emit func(agent.Event)) (agent.Result, error) {
	answer := agent.NewAnswer(0, emit)
	call := func(phase, id, name string) error {
		emit(agent.Event{Kind: agent.EventTool, Tool: &chat.ToolEvent{Phase: phase, CallID: id, Name: name}})
		if err := retry.Sleep(ctx, 10*time.Second); err != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	for _, do := range []func() error{
		func() error { return answer.Append("one ") },
		func() error { return call("start", "a", "go test") },
		func() error { return call("start", "b", "grep") },
		func() error { return call("update", "b", "grep -r") },
		func() error { return call("result", "b", "grep") },
		func() error { return answer.Append("two ") },
		func() error { return call("result", "a", "go test") },
		func() error { return answer.Append("three") },
	} {
		if err := do(); err != nil {
			return agent.Result{Text: answer.Text()}, err
		}
	}
	return agent.Result{Text: answer.Text(), StopReason: agent.StopNormal}, nil
}

// The step is the last started call without a result, or that the agent is working. While it
// writes, no step is shown.
func TestAPersonIsShownTheStepOfATurn(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		began := time.Now()
		id := h.send(askerChat, "go", askerMessage("7"))
		want(t, "outcome", h.end(id).Outcome, chat.OutcomeAnswered)
		after(time.Second)
		want(t, "message that the answer replaces", h.asker.sent[0].Progress, "message of "+id)
		var got []string
		for _, p := range h.asker.shown {
			line := fmt.Sprintf("%q", p.Text)
			if p.Step != "" {
				line += fmt.Sprintf(" %s since %.0f s", p.Step, p.Since.Sub(began).Seconds())
			}
			got = append(got, fmt.Sprintf("%s, %d", line, p.Steps))
		}
		wantList(t, "shown", got, []string{
			`"one ", 0`, `"one " go test since 0 s, 1`, `"one " grep since 10 s, 2`, `"one " grep -r since 10 s, 2`, `"one " go test since 0 s, 2`,
			`"one two " go test since 0 s, 2`, `"one two " working since 40 s, 2`, `"one two three", 2`,
		})
		want(t, "replaced", fmt.Sprint(h.asker.replaced), "[true]")
	}, runBy(stepping{}))
}

func TestNoReplyReplacesThePreviewOfAStoppedTurn(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send(askerChat, "go", askerMessage("7"))
		time.Sleep(15 * time.Second)
		h.send(askerChat, "/stop", askerMessage("7"))
		want(t, "outcome", h.end(id).Outcome, chat.OutcomeStopped)
		after(time.Second)
		want(t, "replaced", fmt.Sprint(h.asker.replaced), "[false]")
	}, runBy(stepping{}))
}

// The test reads the mode of sessions without a configured mode.
func TestASessionWithoutAChannelInItsKeyQueuesAsTheWeb(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := open(t, newStore(t), func(c *dispatch.Config) {
			c.Queue = func(_, channel, _ string) scheduler.Settings {
				modes := map[string]scheduler.QueueMode{"web": scheduler.ModeCollect, "hook": scheduler.ModeInterrupt, "box": scheduler.ModeSteer}
				return scheduler.Settings{Mode: modes[channel]}
			}
		})
		defer h.close()
		for session, mode := range map[string]chat.QueueMode{
			"main": chat.ModeCollect, "any name": chat.ModeCollect, "hook:ci": chat.ModeInterrupt, "api:ci": chat.ModeQueue, "box:direct:7": chat.ModeSteer, "cron:job:run": chat.ModeQueue,
		} {
			h.end(h.send(session, "hello"))
			s, err := h.d.Session(t.Context(), h.msg(session, "x").Session, "")
			if err != nil {
				t.Fatal(err)
			}
			want(t, "mode of "+session, s.Mode, mode)
		}
	})
}

// The words of package chat must be those of the scheduler, which imports no other package of this
// module.
func TestTheSchedulerKnowsEveryQueueMode(t *testing.T) {
	t.Parallel()
	var known []chat.QueueMode
	for _, m := range scheduler.QueueModes() {
		known = append(known, chat.QueueMode(m))
	}
	if !slices.Equal(known, chat.QueueModes()) {
		t.Errorf("the scheduler has %v, chat has %v", known, chat.QueueModes())
	}
}
