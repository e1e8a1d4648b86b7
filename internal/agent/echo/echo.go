// Package echo is the runner that repeats its input. A gateway without configuration answers with it, so that everything
// around an agent can be tried. Its name and model show that it is not an assistant.
//
// The answer is the text of all messages of the turn, joined by newlines, emitted in chunks. Delays make it behave like
// a slow model, FailWith like a broken one. Messages that arrive during the turn are repeated as well. Usage is the
// estimate of package agent, so that usage reports are not empty.
//
// # Instructions in the text
//
// With [Config.Script] on, a line of a message that is one of these instructions is executed instead of repeated:
//
//	sleep 2s          wait (any Go duration)
//	hang              wait until the turn is stopped
//	say 5000          answer with so many characters
//	fail              fail as unknown
//	fail rate_limit   fail for this reason
//	panic             panic, as a defect would
//
// It is off by default: with it, each person who may write to the agent can make its turns fail or occupy their slots.
//
// # Promises
//
// Those of package agent. It starts no goroutine and ends at once with its context.
//
//	runner, err := echo.New(echo.Config{Chunk: 8, ChunkDelay: 30 * time.Millisecond})
package echo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// Model is the model name in usage.
const Model = "echo"

// Config of a [Runner]. The zero value repeats at once and in one piece.
type Config struct {
	// Delay before the answer begins; at most a day.
	Delay time.Duration
	// Chunk is how many characters are emitted at once; 0 means the whole line.
	Chunk int
	// ChunkDelay is the pause between chunks; at most a day.
	ChunkDelay time.Duration
	// FailWith ends every turn with this failure, after the answer; "" means no failure.
	FailWith chat.FailReason
	// Script enables the instructions that the package comment lists.
	Script bool
	// MaxAnswer in bytes; default [agent.DefaultMaxAnswer].
	MaxAnswer int
}

const longestDelay = 24 * time.Hour

// Validate reports every fault with the name of its field.
func (c Config) Validate() error {
	var faults []error
	if c.Delay < 0 || c.Delay > longestDelay {
		faults = append(faults, fmt.Errorf("delay: %s is not between 0 and %s", c.Delay, longestDelay))
	}
	if c.ChunkDelay < 0 || c.ChunkDelay > longestDelay {
		faults = append(faults, fmt.Errorf("chunk_delay: %s is not between 0 and %s", c.ChunkDelay, longestDelay))
	}
	if c.FailWith != "" && !slices.Contains(agent.Reasons(), c.FailWith) {
		faults = append(faults, fmt.Errorf("fail_with: %q is not one of %v", c.FailWith, agent.Reasons()))
	}
	if c.Chunk < 0 || c.MaxAnswer < 0 {
		faults = append(faults, errors.New("chunk and max_answer must not be negative"))
	}
	return errors.Join(faults...)
}

// Runner repeats its input. It is safe for concurrent use.
type Runner struct{ cfg Config }

var _ agent.Runner = (*Runner)(nil)

// New checks cfg.
func New(cfg Config) (*Runner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the echo runner: %w", err)
	}
	return &Runner{cfg: cfg}, nil
}

// Run implements [agent.Runner].
func (r *Runner) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	t := &turn{cfg: r.cfg, answer: agent.NewAnswer(r.cfg.MaxAnswer, emit)}
	err := t.run(ctx, req)
	used := chat.Usage{
		InputTokens: t.input, OutputTokens: agent.EstimateTokens(t.answer.Text()),
		Model: Model, Provider: "laneway",
	}
	if err == nil {
		emit(agent.Event{Kind: agent.EventUsage, Usage: used})
	}
	return agent.Result{Text: t.answer.Text(), Usage: used, StopReason: agent.StopNormal}, err
}
