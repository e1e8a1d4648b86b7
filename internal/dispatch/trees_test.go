package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// branching is a runner whose messages request concurrent tool calls; for a message without calls
// it does the same as script. Its answer is the results.
type branching struct {
	script

	mu      sync.Mutex
	results map[string][]string // by session
}

type asked struct {
	Tool string         `json:"tool"`
	Args map[string]any `json:"args"`
	// Within is the timeout of the call, if it has one.
	Within time.Duration `json:"within,omitempty"`
}

// calling returns the text that makes a turn call tools.
func calling(calls ...asked) string {
	text, err := json.Marshal(calls)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func delegated(task string) asked {
	return asked{Tool: "delegate", Args: map[string]any{"agent": "coder", "task": task}}
}

func delegatedBack(task string) asked {
	return asked{Tool: "delegate", Args: map[string]any{"agent": "main", "task": task}}
}

func spawns(task string, wait bool) asked {
	return asked{Tool: "spawn", Args: map[string]any{"task": task, "wait": wait}}
}

func (b *branching) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	var calls []asked
	if json.Unmarshal([]byte(joined(req)), &calls) != nil {
		return b.script.Run(ctx, req, emit)
	}
	defer b.enter(ctx, req)()
	results := make([]string, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		args, err := json.Marshal(call.Args)
		if err != nil {
			return agent.Result{}, err
		}
		all.Go(func() {
			ctx := ctx
			if call.Within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, call.Within)
				defer cancel()
			}
			results[i] = req.Tools.Call(ctx, fmt.Sprintf("%s/1/%d", req.IdempotencyKey, i+1), chat.ToolCall{ID: "a", Name: call.Tool, Args: string(args)}).Text
		})
	}
	all.Wait()
	b.mu.Lock()
	if b.results == nil {
		b.results = map[string][]string{}
	}
	b.results[req.Session.String()] = results
	b.mu.Unlock()
	if ctx.Err() != nil {
		return agent.Result{}, context.Cause(ctx)
	}
	return agent.Result{Text: strings.Join(results, "+")}, nil
}

// team configures two agents that may call each other.
func team(b *branching) option {
	return func(c *dispatch.Config) {
		c.Agents = nil
		for _, id := range []string{"main", "coder"} {
			c.Agents = append(c.Agents, dispatch.Agent{Info: agent.Info{ID: id, Runner: "script"}, Runner: b, Tools: dispatch.Tools{Default: true}})
		}
	}
}

func (h *harness) tasks(f store.TaskFilter) []store.Task {
	h.t.Helper()
	list, err := h.st.Tasks(h.t.Context(), f)
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

func (h *harness) wantSlots() {
	h.t.Helper()
	synctest.Wait() // the end of a turn is published before its goroutine returns
	for _, l := range h.d.Lanes().Lanes {
		if l.Active != 0 || l.Waiting != 0 {
			h.t.Errorf("lane %s has %d active and %d waiting turns at rest", l.Name, l.Active, l.Waiting)
		}
	}
}

func TestAColleaguesAnswerIsTheResultOfTheCall(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b))
		defer h.close()
		e := h.end(h.send("agent:main:own", calling(delegated("ready"), spawns("done", true), delegated("fail"))))
		want(t, "outcome", e.Outcome, chat.OutcomeAnswered)
		want(t, "answer", e.Text, "ready+done+the task ended without an answer (failed): the model is overloaded; try again")
		lanes := map[string]string{}
		for _, task := range h.tasks(store.TaskFilter{}) {
			lanes[task.Text] = task.Agent + " " + task.Lane + " " + task.Principal
		}
		want(t, "delegated", lanes["ready"], "coder team tester")
		want(t, "spawned", lanes["done"], "main subagent tester")
		h.wantSlots()
	})
}

// The tree has three levels below its root, in both lanes, and there is a second tree.
func TestATreeFinishesWithOneSlotInEveryLane(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b), lanes(1))
		defer h.close()
		leaf := calling(delegatedBack("sleep 1s"), spawns("sleep 1s", true))
		middle := calling(spawns(leaf, true), delegatedBack("sleep 1s"))
		root := calling(delegated(middle), delegated("sleep 1s"))
		var ids []string
		for i := range 2 {
			ids = append(ids, h.send(fmt.Sprintf("agent:main:s%d", i), root))
		}
		for _, id := range ids {
			e := h.end(id)
			want(t, "outcome", e.Outcome, chat.OutcomeAnswered)
			want(t, "answers", strings.Count(e.Text, "begun"), 4)
		}
		want(t, "sub-turns", len(h.tasks(store.TaskFilter{})), 12)
		h.wantSlots()
	})
}

func TestTreesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b))
		defer h.close()
		deep := "leaf"
		for range 4 {
			deep = calling(spawns(deep, true))
		}
		e := h.end(h.send("agent:main:own", deep))
		want(t, "too deep", e.Text, "tasks of tasks are possible to a depth of 3; do this here")
		var many []asked
		for range 9 {
			many = append(many, spawns("x", true))
		}
		e = h.end(h.send("agent:main:own", calling(many...)))
		want(t, "refused", strings.Count(e.Text, "has started 8 tasks"), 1)
		var wide []asked
		for range 8 {
			wide = append(wide, spawns(calling(many[:8]...), true))
		}
		id := h.send("agent:main:own", calling(wide...))
		want(t, "a tree that is too large ends well", h.end(id).Outcome, chat.OutcomeAnswered)
		all := slices.DeleteFunc(h.tasks(store.TaskFilter{Limit: 200}), func(task store.Task) bool { return task.Root != id })
		want(t, "sub-turns in one tree", len(all), 32)
		e = h.end(h.send("agent:main:own", calling(asked{Tool: "delegate", Args: map[string]any{"agent": "absent", "task": "x"}})))
		want(t, "unknown agent", e.Text, `there is no agent "absent" here; the agents are coder, main`)
	})
}

// Three background tasks end while their session is busy and its queue is full.
func TestAnnouncementsShareATurn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b), queue(scheduler.Settings{Cap: 1}))
		defer h.close()
		const session = "agent:main:box:direct:7"
		e := h.end(h.send(session, calling(spawns("sleep 1s", false), spawns("sleep 2s", false), spawns("sleep 3s", false)), replyTo("7")))
		want(t, "answers with ids", strings.Count(e.Text, "works on it"), 3)
		h.send(session, "sleep 5s")
		waits := h.send(session, "waits")
		time.Sleep(20 * time.Second)
		want(t, "the message that waited", h.end(waits).Outcome, chat.OutcomeAnswered)
		announced := slices.DeleteFunc(b.textsOf(session), func(text string) bool { return !strings.HasPrefix(text, "The task ") })
		want(t, "turns", len(announced), 1)
		want(t, "announcements", strings.Count(strings.Join(announced, "\n"), "has ended. Its answer:\n\nbegun"), 3)
		h.end(h.send(session, calling(spawns("fail", false)), replyTo("7")))
		time.Sleep(10 * time.Second)
		want(t, "of a failure", strings.Count(strings.Join(b.textsOf(session), "\n"), "without an answer (failed): the model is overloaded"), 1)
		if sent := h.box.texts("7"); !slices.ContainsFunc(sent, func(text string) bool { return strings.Contains(text, "The task ") }) {
			t.Errorf("the answer to an announcement did not go to the chat: %q", sent)
		}
		left, err := h.st.Tasks(t.Context(), store.TaskFilter{Left: true, Limit: 10})
		if err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// The root of the tree has running, waiting and background sub-turns.
func TestAStopReachesTheWholeTree(t *testing.T) {
	for _, command := range []string{"/stop", "/stopall"} {
		t.Run(command, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := &branching{}
				h := open(t, newStore(t), team(b), lanes(2))
				defer h.close()
				root := calling(delegated(calling(spawns("sleep 1h", true), spawns("deaf 1h", true))), delegated("sleep 1h"), delegated("sleep 1h"), spawns("sleep 1h", false))
				id := h.send("agent:main:own", root)
				time.Sleep(10 * time.Second)
				if open := len(h.tasks(store.TaskFilter{Open: true})); open < 4 { // the branch may still wait for a slot
					t.Errorf("%d tasks are open, want at least 4", open)
				}
				begin := time.Now()
				h.send("agent:main:own", command)
				want(t, "outcome", h.end(id).Outcome, chat.OutcomeStopped)
				if took := time.Since(begin); took > 3500*time.Millisecond {
					t.Errorf("the root ended after %v", took)
				}
				time.Sleep(3500*time.Millisecond - time.Since(begin))
				for _, task := range h.tasks(store.TaskFilter{}) {
					want(t, "outcome of "+task.Text, task.Outcome, chat.OutcomeStopped)
				}
				b.script.mu.Lock()
				for i, e := range b.ends {
					if e == nil {
						t.Errorf("call %d was not cancelled", i)
					}
				}
				b.script.mu.Unlock()
				time.Sleep(time.Hour)
				want(t, "sub-turns after it", len(h.tasks(store.TaskFilter{Open: true})), 0)
				want(t, "texts", strings.Count(strings.Join(b.texts(), "\n"), "The task "), 0)
			})
		})
	}
}

// The background tasks belong to a turn that has ended.
func TestAStopWithoutARunningTurnStopsBackgroundTasks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b))
		defer h.close()
		h.end(h.send("agent:main:own", calling(spawns("sleep 1h", false))))
		time.Sleep(time.Second)
		e := h.end(h.send("agent:main:own", "/stop"))
		want(t, "answer", e.Text, "Stopped the running turn.")
		time.Sleep(time.Second)
		want(t, "outcome", h.tasks(store.TaskFilter{})[0].Outcome, chat.OutcomeStopped)
	})
}

// The sub-turn of a turn that text from outside caused calls a tool that creates.
func TestASubTurnHasTheRightsOfItsParent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b))
		defer h.close()
		remind := asked{Tool: "remind", Args: map[string]any{"when": "in 5h", "text": "tea"}}
		text := calling(delegated(calling(remind)))
		e := h.end(h.send("agent:main:own", text))
		if !strings.Contains(e.Text, "is set at") {
			t.Errorf("in a person's own turn: %q", e.Text)
		}
		e = h.end(h.send("agent:main:own", text, external))
		if !strings.Contains(e.Text, "text from outside") {
			t.Errorf("below text from outside: %q", e.Text)
		}
		e = h.end(h.send("agent:main:box:group:5", calling(spawns(text, true))))
		if !strings.Contains(e.Text, "in a group") {
			t.Errorf("below a group: %q", e.Text)
		}
		h.end(h.send("agent:main:own", calling(spawns("x", false))))
		time.Sleep(5 * time.Second)
		for _, task := range h.tasks(store.TaskFilter{}) {
			want(t, "principal of a sub-turn", task.Principal, "tester")
		}
	})
}

// A process is disconnected while a parent waits for two sub-turns, one of which has ended. The
// next process runs the parent again, which finds the existing answer and waits for the other one.
func TestATurnThatWaitsIsTakenOverWithItsSubTurns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, st := &branching{}, newStore(t)
		c, off := cord(st)
		h := open(t, c, team(b))
		id := h.send("agent:main:own", calling(delegated("quick"), delegated("sleep 1m"), spawns("sleep 2m", false)))
		time.Sleep(10 * time.Second)
		off.Store(true)
		next := open(t, st, team(b))
		defer next.close()
		e := next.end(id)
		want(t, "outcome", e.Outcome, chat.OutcomeAnswered)
		if !strings.HasPrefix(e.Text, "quick+begun+The task ") {
			t.Errorf("answer: %q", e.Text)
		}
		run, err := st.RunByID(t.Context(), id)
		if err != nil || run.Attempt != 2 || run.Crashes != 0 {
			t.Errorf("run: %+v, %v; want attempt 2 without a crash", run, err)
		}
		time.Sleep(5 * time.Minute)
		want(t, "sub-turns", len(next.tasks(store.TaskFilter{})), 3)
		quick := slices.DeleteFunc(b.texts(), func(text string) bool { return text != "quick" })
		want(t, "turns of the one that had ended", len(quick), 1)
		want(t, "announcements", strings.Count(strings.Join(b.textsOf("agent:main:own"), "\n"), "The task "), 1)
		h.abandon()
	})
}

// A sub-turn that a call waits for must not wait for what its parent holds. The parent, a sub-turn
// that runs in the background, and the announcement of its result may.
func TestASubTurnKnowsThatItIsAwaited(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b))
		defer h.close()
		h.end(h.send("agent:main:own", calling(delegated("delegated"), spawns("spawned", true), spawns("beside", false))))
		after(10 * time.Second)
		got := map[string]bool{}
		for i, text := range b.texts() {
			req, _, _ := b.call(i)
			got[text] = req.Awaited
		}
		awaited := 0
		for text, is := range got {
			if is {
				awaited++
			}
			if is != (text == "delegated" || text == "spawned") {
				t.Errorf("the turn of %q: awaited %v", text, is)
			}
		}
		if _, ran := got["beside"]; awaited != 2 || !ran || len(got) < 4 {
			t.Errorf("turns %v", got)
		}
	})
}

// The process drains while turns wait for sub-turns, in lanes with one slot. A turn whose sub-turn
// runs ends normally. Turns whose sub-turns wait for the slot, directly or one level below, are
// left for the next process at once.
func TestADrainLeavesATurnWhoseSubTurnsMayNotStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, st := &branching{}, newStore(t)
		h := open(t, st, team(b), lanes(1))
		runs := h.send("agent:main:runs", calling(delegated("sleep 5s")))
		time.Sleep(time.Second)
		waits := h.send("agent:main:waits", calling(delegated("quick")))
		below := h.send("agent:main:below", calling(spawns(calling(delegated("quick too")), true)))
		time.Sleep(time.Second)

		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := h.d.Drain(ctx); err != nil {
			t.Errorf("Drain: %v", err)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the drain took %s, want the 3s of the sub-turn that runs and a moment more", took)
		}
		want(t, "the turn whose sub-turn runs", h.end(runs).Outcome, chat.OutcomeAnswered)
		h.d.Leave(t.Context())
		h.cancel()
		<-h.ended

		next := open(t, st, team(b), lanes(1))
		defer next.close()
		want(t, "the turn whose sub-turn waited", next.end(waits).Text, "quick")
		want(t, "the turn above one whose sub-turn waited", next.end(below).Text, "quick too")
		for _, id := range []string{waits, below} {
			run, err := st.RunByID(t.Context(), id)
			if err != nil || run.Attempt != 2 || run.Crashes != 0 {
				t.Errorf("run: %+v, %v; want attempt 2 without a crash", run, err)
			}
		}
	})
}

// Each turn of the jobs starts a background task.
func TestTheEndOfATaskOfAJobGoesWhereTheAnswersOfTheJobGo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := openCron(t, st, team(&branching{}))
		defer h.close()
		text := func(report string) string { return calling(spawns(report, false)) }
		h.put(once("chat", text("for the chat"), time.Second), deliverTo(cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "9"}))
		h.put(once("web", text("for the notes"), time.Second), toWeb("agent:main:notes"))
		h.put(once("unnamed", text("for the main session"), time.Second), deliverTo(cron.Delivery{Mode: cron.DeliverAnnounce}))
		h.put(once("none", text("for no person"), time.Second), deliverTo(cron.Delivery{Mode: cron.DeliverNone}))
		after(30 * time.Second)
		var everywhere []string
		for report, read := range map[string][]string{
			"for the chat": h.box.texts("9"), "for the notes": lines(t, st, "notes"), "for the main session": lines(t, st, "main"),
		} {
			ends := slices.DeleteFunc(slices.Clone(read), func(line string) bool { return !strings.Contains(line, "has ended. Its answer:\n\n"+report) })
			want(t, report, len(ends), 1)
			everywhere = append(everywhere, read...)
		}
		if all := strings.Join(everywhere, "\n"); strings.Contains(all, "for no person") || strings.Count(all, "has ended") != 3 {
			t.Errorf("persons read\n%s", all)
		}
	})
}

// A task ends while messages wait in a group of a channel with its own rules: one turn at a time,
// and waiting messages are collected.
func TestAnAnnouncementChangesNoRuleOfItsSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b), func(c *dispatch.Config) {
			c.Queue = func(_, channel, _ string) scheduler.Settings {
				if channel == "box" {
					return scheduler.Settings{MaxConcurrent: 1, Mode: scheduler.ModeCollect}
				}
				return scheduler.Settings{MaxConcurrent: 3}
			}
		})
		defer h.close()
		const session = "agent:main:box:group:5"
		h.end(h.send(session, calling(spawns("sleep 5s", false)), replyTo("5")))
		h.send(session, "sleep 20s", replyTo("5"))
		time.Sleep(time.Second)
		h.send(session, "one", replyTo("5"))
		last := h.send(session, "two", replyTo("5"))
		want(t, "outcome", h.end(last).Outcome, chat.OutcomeAnswered)
		time.Sleep(10 * time.Second)
		texts := b.textsOf(session)
		want(t, "turns", len(texts), 4)
		want(t, "what was collected", texts[2], "one\ntwo")
		want(t, "the announcement", strings.HasPrefix(texts[3], "The task "), true)
		want(t, "turns at once", b.most[session], 1)
	})
}

// A task ends while a turn of its session runs.
func TestAnAnnouncementWaitsInAnyMode(t *testing.T) {
	for _, mode := range scheduler.QueueModes() {
		t.Run(string(mode), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := &branching{}
				h := open(t, newStore(t), team(b), queue(scheduler.Settings{Mode: mode}))
				defer h.close()
				const session = "agent:main:own"
				h.end(h.send(session, calling(spawns("sleep 5s", false))))
				want(t, "the turn that runs meanwhile", h.end(h.send(session, "sleep 20s")).Outcome, chat.OutcomeAnswered)
				time.Sleep(10 * time.Second)
				texts := b.textsOf(session)
				if len(texts) != 3 || !slices.ContainsFunc(texts[2:], func(text string) bool { return strings.HasPrefix(text, "The task ") }) {
					t.Errorf("turns: %q", texts)
				}
			})
		})
	}
}

// A call that waits for a task ends before the task, while another turn has the slot of its turn.
func TestATurnWhoseCallEndsEarlyGoesOnWithASlot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b), lanes(1))
		defer h.close()
		call := delegated("sleep 5m")
		call.Within = 10 * time.Second
		begin := time.Now()
		id := h.send("agent:main:own", calling(call))
		time.Sleep(time.Second)
		other := h.send("agent:main:other", "sleep 1m")
		want(t, "the turn", h.end(id).Outcome, chat.OutcomeAnswered)
		if took := time.Since(begin); took < time.Minute {
			t.Errorf("the turn continued after %v, while the only slot of its lane was used", took)
		}
		want(t, "the other turn", h.end(other).Outcome, chat.OutcomeAnswered)
		h.wantSlots()
	})
}
