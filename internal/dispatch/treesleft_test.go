package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/store"
)

// losesAnnouncements is a store that loses announcements.
type losesAnnouncements struct {
	cronStore

	lost *atomic.Bool
}

func (s losesAnnouncements) Accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	if s.lost.Load() && p.Message.Content.Options.Task != nil {
		return store.Accepted{}, errors.New("lost")
	}
	return s.cronStore.Accept(ctx, p)
}

// The announcement cannot be stored when the task ends, as if the process had ended in between.
func TestAnAnnouncementThatWasLostIsMadeLater(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, lost := &branching{}, &atomic.Bool{}
		lost.Store(true)
		h := open(t, losesAnnouncements{newStore(t), lost}, team(b))
		defer h.close()
		h.end(h.send("agent:main:own", calling(spawns("sleep 1s", false))))
		time.Sleep(time.Minute)
		want(t, "turns of the session before", len(b.textsOf("agent:main:own")), 1)
		lost.Store(false)
		time.Sleep(10 * time.Second)
		want(t, "announcements", strings.Count(strings.Join(b.textsOf("agent:main:own"), "\n"), "The task "), 1)
		time.Sleep(time.Hour)
		want(t, "turns of the session at last", len(b.textsOf("agent:main:own")), 2)
	})
}

// The root of a tree is marked as stopped, and its process is disconnected before it reads that.
// The next process ends the root as stopped, and the rest of the tree with it, including background
// tasks.
func TestATreeWhoseStopWasCutOffIsStoppedLater(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, st := &branching{}, newStore(t)
		c, off := cord(st)
		h := open(t, c, team(b))
		id := h.send("agent:main:own", calling(delegated(calling(spawns("sleep 1h", true))), spawns("sleep 1h", false)))
		time.Sleep(10 * time.Second)
		off.Store(true)
		_, err := st.Stop(t.Context(), store.StopParams{Session: chat.SessionKey{Agent: "main", Rest: "own"}, Scope: store.StopOne, By: "stop anna", Reason: "stop"})
		want(t, "stop", err, nil)
		next := open(t, st, team(b))
		defer next.close()
		want(t, "outcome of the root", next.end(id).Outcome, chat.OutcomeStopped)
		time.Sleep(30 * time.Second)
		tasks := next.tasks(store.TaskFilter{})
		want(t, "sub-turns", len(tasks), 3)
		for _, task := range tasks {
			want(t, "outcome of "+task.Text, task.Outcome, chat.OutcomeStopped)
		}
		h.abandon()
	})
}

// The turn waits for a long sub-turn and has started a short one in the background.
func TestASubTurnEndsWithAParentThatRanOutOfTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b), lanes(1))
		defer h.close()
		id := h.send("agent:main:own", calling(delegated("sleep 1h"), spawns("sleep 1m", false)), func(m *chat.Message) { m.Content.Options.TimeoutMs = 11_000 })
		want(t, "outcome", h.end(id).Outcome, chat.OutcomeFailed)
		time.Sleep(100 * time.Millisecond) // before the next search for remaining work
		outcomes := map[string]chat.Outcome{}
		for _, task := range h.tasks(store.TaskFilter{}) {
			outcomes[task.Text] = task.Outcome
		}
		want(t, "the one that it waited for", outcomes["sleep 1h"], chat.OutcomeStopped)
		want(t, "the one in the background", outcomes["sleep 1m"], "")
		time.Sleep(2 * time.Minute)
		want(t, "announcements", strings.Count(strings.Join(b.textsOf("agent:main:own"), "\n"), "The task "), 1)
		h.wantSlots()
	})
}

// Many requests have left background tasks in the session, most of which wait for a slot.
func TestAStopOfASessionEndsAllOfItsTasks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b), lanes(2))
		defer h.close()
		const requests, each = 15, 8
		var calls []asked
		for range each {
			calls = append(calls, spawns("sleep 1h", false))
		}
		for range requests {
			h.end(h.send("agent:main:own", calling(calls...)))
		}
		all := store.TaskFilter{Open: true, Limit: 2 * requests * each}
		want(t, "tasks before", len(h.tasks(all)), requests*each)
		h.send("agent:main:own", "/stopall")
		time.Sleep(3500 * time.Millisecond)
		want(t, "tasks after", len(h.tasks(all)), 0)
		h.wantSlots()
	})
}

// Two people of a group have background tasks. A stop by one of them that is restricted to their
// own work ends only their tasks.
func TestAPersonWhoMayStopTheirOwnStopsTheirTasks(t *testing.T) {
	for _, command := range []string{"/stop", "/stopall"} {
		t.Run(command, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := &branching{}
				h := open(t, newStore(t), team(b))
				defer h.close()
				const session = "agent:main:box:group:5"
				by := func(name string) func(*chat.Message) {
					return func(m *chat.Message) {
						m.Principal, m.Content.Sender.ID, m.Content.Options.StopOwn = "box:"+name, name, true
					}
				}
				for _, name := range []string{"otto", "anna"} {
					h.end(h.send(session, calling(spawns("sleep 1h", false)), replyTo("5"), by(name)))
				}
				h.end(h.send(session, command, replyTo("5"), by("anna")))
				time.Sleep(time.Second)
				for _, task := range h.tasks(store.TaskFilter{}) {
					outcome := chat.Outcome("")
					if task.Principal == "box:anna" {
						outcome = chat.OutcomeStopped
					}
					want(t, "the task of "+task.Principal, task.Outcome, outcome)
				}
			})
		})
	}
}

// withTeam configures two agents that make the calls of their messages and may use the tools of the
// server mail.
func withTeam(c *dispatch.Config) {
	c.Agents = nil
	for _, id := range []string{"main", "coder"} {
		c.Agents = append(c.Agents, dispatch.Agent{Info: agent.Info{ID: id, Runner: "script"}, Runner: obeying{}, Tools: dispatch.Tools{Default: true, Servers: []string{"mail"}}})
	}
	c.External = &outside{}
}

// The answer of a sub-turn counts as the person's own words, unless the sub-turn has read text from
// outside, at any depth.
func TestATaskThatHasReadNothingFromOutsideLeavesToolsFree(t *testing.T) {
	const (
		spawnReads    = `spawn {"wait":true,"task":"mail_read {}"}`
		delegateReads = `delegate {"agent":"coder","task":"history_search {\"query\":\"tea\"}"}`
		deepReads     = `spawn {"wait":true,"task":"delegate {\"agent\":\"coder\",\"task\":\"mail_read {}\"}"}`
	)
	for name, tt := range map[string]struct {
		text string
		asks bool
	}{
		"spawned, waited":      {`spawn {"wait":true,"task":"count the files"}`, false},
		"spawned":              {`spawn {"task":"count the files"}`, false},
		"delegated":            {`delegate {"agent":"coder","task":"count the files"}`, false},
		"deep":                 {`spawn {"wait":true,"task":"delegate {\"agent\":\"coder\",\"task\":\"count\"}"}`, false},
		"spawned, has read":    {spawnReads, true},
		"delegated, has read":  {delegateReads, true},
		"deep, has read":       {deepReads, true},
		"one of two, has read": {`spawn {"wait":true,"task":"count"}` + "\n" + spawnReads, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				st := newStore(t)
				h := openCron(t, st, withTeam)
				defer h.close()
				e := h.end(h.send("agent:main:asker:direct:7", tt.text+"\n"+remindTea, member("7")))
				time.Sleep(time.Second)
				asked := strings.Contains(e.Text, "is asked whether this may be done, because it was asked for in a turn that has read text from outside")
				if asked != tt.asks || (jobsOf(t, st, "asker:7") == 1) == tt.asks {
					t.Errorf("got %q and %d jobs, want a question: %t", e.Text, jobsOf(t, st, "asker:7"), tt.asks)
				}
			})
		})
	}
}

// askingTwice makes one call twice under its key, as a turn that runs again, and answers whether
// the second result was marked. In a sub-turn it does the same as obeying.
type askingTwice struct{ obeying }

func (r askingTwice) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	text := req.Messages[len(req.Messages)-1].Text
	args, twice := strings.CutPrefix(text, "twice ")
	if !twice {
		return r.obeying.Run(ctx, req, emit)
	}
	var result chat.ToolResult
	for range 2 {
		result = req.Tools.Call(ctx, req.IdempotencyKey+"/1/1", chat.ToolCall{ID: "a", Name: "spawn", Args: args})
	}
	return agent.Result{Text: fmt.Sprintf("%t %s", result.Foreign, result.Text)}, nil
}

// The sub-turn ends before its parent waits for it.
func TestTheMarkOfATaskIsInTheStore(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		want(t, "one that has read", h.end(h.send("agent:main:own", `twice {"wait":true,"task":"mail_read {}"}`)).Text, "true done by the server")
		want(t, "one that has not", h.end(h.send("agent:main:own", `twice {"wait":true,"task":"count"}`)).Text, "false there is no tool count")
	}, withTeam, func(c *dispatch.Config) { c.Agents[0].Runner = askingTwice{} })
}
