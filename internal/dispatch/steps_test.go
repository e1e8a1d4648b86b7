package dispatch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/retry"
)

// stepping is a runner that makes two tool calls, the second one while the first one runs, with text around them.
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

// The step is the last started call without a result, or that the agent is working. While it writes, no step is shown.
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
