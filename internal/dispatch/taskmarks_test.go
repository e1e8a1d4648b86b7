package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
)

// withTeam configures two agents that make the calls of their messages and may use the tools of the server mail.
func withTeam(c *dispatch.Config) {
	c.Agents = nil
	for _, id := range []string{"main", "coder"} {
		c.Agents = append(c.Agents, dispatch.Agent{Info: agent.Info{ID: id, Runner: "script"}, Runner: obeying{}, Tools: dispatch.Tools{Default: true, Servers: []string{"mail"}}})
	}
	c.External = &outside{}
}

// The answer of a sub-turn counts as the person's own words, unless the sub-turn has read text from outside, at any depth.
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

// askingTwice makes one call twice under its key, as a turn that runs again, and answers whether the second result was marked. In a
// sub-turn it does the same as obeying.
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
