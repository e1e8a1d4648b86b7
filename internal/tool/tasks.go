package tool

import (
	"context"
	"fmt"
	"strings"

	"laneway/internal/chat"
)

// Tasks starts sub-turns for one turn, and waits for them.
type Tasks interface {
	// Start accepts a sub-turn. It does nothing if the id was accepted before.
	Start(ctx context.Context, t NewTask) error
	// Wait returns when a sub-turn has ended, or with the cause of ctx. The turn holds no slot meanwhile.
	Wait(ctx context.Context, id string) (chat.RunEnd, error)
	// Colleagues returns the other agents.
	Colleagues() []string
}

// NewTask is a sub-turn.
type NewTask struct {
	// ID is the id of its message.
	ID string
	// Agent that works on it; "" means the agent of the turn. Text is its prompt.
	Agent, Text string
	// Lane in which it runs.
	Lane string
	// Announce means that the turn does not wait, and the end is announced in its session.
	Announce bool
}

// The lanes of sub-turns.
const (
	laneSubagent = "subagent"
	laneTeam     = "team"
)

// maxAnswer bounds the part of a sub-turn's answer that its parent receives, in bytes.
const maxAnswer = 48 << 10

func (t *Table) spawn() Tool {
	return Tool{
		Name: "spawn", Scope: chat.ScopeWrite, Idempotent: true, Waits: true,
		Description: "Starts a separate turn of yourself, with an empty conversation of its own, for a piece of work that can be done alone. " +
			"Without wait you go on at once, and its answer comes into this conversation later; with wait its answer is the result.",
		Schema: `{"type":"object","additionalProperties":false,"required":["task"],"properties":{
			"task":{"type":"string","description":"All that is needed to do the work; the turn reads nothing else."},
			"wait":{"type":"boolean","description":"Wait for the answer. Default: false."}}}`,
		Offer: func(turn Turn, _ *Tool) bool { return turn.Tasks != nil },
		Run: func(ctx context.Context, turn Turn, key string, args []byte) (string, error) {
			a, err := read[struct {
				Task string `json:"task"`
				Wait bool   `json:"wait"`
			}](args)
			if err != nil {
				return "", err
			}
			task := NewTask{ID: idOf(key), Text: a.Task, Lane: laneSubagent, Announce: !a.Wait}
			if err := startTask(ctx, turn, task); err != nil {
				return "", err
			}
			if a.Wait {
				return waitFor(ctx, turn, task)
			}
			return "The task " + task.ID + " works on it; its answer comes into this conversation.", nil
		},
	}
}

func (t *Table) delegate() Tool {
	return Tool{
		Name: "delegate", Scope: chat.ScopeWrite, Idempotent: true, Waits: true,
		Description: "Asks another agent to do something and waits for its answer. It reads nothing but the task.",
		Offer: func(turn Turn, one *Tool) bool {
			if turn.Tasks == nil || len(turn.Tasks.Colleagues()) == 0 {
				return false
			}
			one.Schema = `{"type":"object","additionalProperties":false,"required":["agent","task"],"properties":{
			"agent":{"type":"string","enum":["` + strings.Join(turn.Tasks.Colleagues(), `","`) + `"]},
			"task":{"type":"string","description":"All that is needed to do the work."}}}`
			return true
		},
		Schema: `{"type":"object","additionalProperties":false,"required":["agent","task"],"properties":{"agent":{"type":"string"},"task":{"type":"string"}}}`,
		Run: func(ctx context.Context, turn Turn, key string, args []byte) (string, error) {
			a, err := read[struct {
				Agent string `json:"agent"`
				Task  string `json:"task"`
			}](args)
			if err != nil {
				return "", err
			}
			if a.Agent == "" {
				return "", chat.Errorf(chat.CodeInvalid, "the argument agent is missing; there are %s", strings.Join(turn.Tasks.Colleagues(), ", "))
			}
			task := NewTask{ID: idOf(key), Agent: a.Agent, Text: a.Task, Lane: laneTeam}
			if err := startTask(ctx, turn, task); err != nil {
				return "", err
			}
			return waitFor(ctx, turn, task)
		},
	}
}

func startTask(ctx context.Context, turn Turn, task NewTask) error {
	if err := chat.CheckText("task", task.Text, chat.MaxText); err != nil {
		return err
	}
	return turn.Tasks.Start(ctx, task)
}

// waitFor waits for a sub-turn and returns its answer, or an error with the reason why it has none. A sub-turn works for the same person, so its
// answer is external text only if it has read some.
func waitFor(ctx context.Context, turn Turn, task NewTask) (string, error) {
	end, err := turn.Tasks.Wait(ctx, task.ID)
	if end.Foreign {
		turn.markForeign()
	}
	switch {
	case err != nil:
		return "", err
	case end.Outcome != chat.OutcomeAnswered:
		return "", chat.Errorf(chat.CodeConflict, "the task ended without an answer (%s): %s", end.Outcome, end.Message)
	}
	return Answer(end.Text), nil
}

// Answer returns the answer of a sub-turn as its parent receives it.
func Answer(text string) string {
	switch {
	case strings.TrimSpace(text) == "":
		return "The task has ended and has no answer."
	case len(text) > maxAnswer:
		return chat.Cut(text, maxAnswer) + fmt.Sprintf("\n[the answer has %d bytes; this is its begin]", len(text))
	default:
		return text
	}
}
