package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
)

// program is a branching runner that makes its calls like a program: it opens its tools and calls what was opened.
type program struct {
	branching

	opened chan agent.Toolbox
}

func (p *program) Open(_ context.Context, box agent.Toolbox) (agent.ToolAccess, func()) {
	p.opened <- box
	return agent.ToolAccess{}, func() {}
}

func (p *program) OpenKept(ctx context.Context, _ string, box agent.Toolbox) (agent.ToolAccess, func()) {
	return p.Open(ctx, box)
}

func (p *program) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	if strings.HasPrefix(joined(req), "[") {
		_, end := req.OpenTools(ctx)
		defer end()
		req.Tools = <-p.opened
	}
	return p.branching.Run(ctx, req, emit)
}

// A program makes more concurrent calls than run in parallel, and each waits longer than the time limit of other calls.
func TestAProgramWaitsForTasksAsLongAsItsTurn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := &program{opened: make(chan agent.Toolbox, 1)}
		h := open(t, newStore(t), team(&p.branching), func(c *dispatch.Config) {
			c.Access = p
			for i := range c.Agents {
				c.Agents[i].Program, c.Agents[i].Runner = true, p
			}
		})
		defer h.close()
		const calls = 6
		var all []asked
		for range calls {
			all = append(all, delegated("sleep 2m"))
		}
		begin := time.Now()
		e := h.end(h.send("agent:main:own", calling(all...)))
		want(t, "outcome", e.Outcome, chat.OutcomeAnswered)
		want(t, "answer", e.Text, strings.Repeat("begun+", calls-1)+"begun")
		if took := time.Since(begin); took > 3*time.Minute {
			t.Errorf("%d tasks of two minutes beside each other took %v", calls, took)
		}
		h.wantSlots()
	})
}
