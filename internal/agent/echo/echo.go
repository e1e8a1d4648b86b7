// Package echo is the runner that repeats its input. A gateway without configuration answers with
// it, so that everything around an agent can be tried. Its name and model show that it is not an
// assistant.
//
// The answer is the text of all messages of the turn, joined by newlines, emitted in chunks. Delays
// make it behave like a slow model, FailWith like a broken one. Messages that arrive during the
// turn are repeated as well. Usage is the estimate of package agent, so that usage reports are not
// empty.
//
// # Instructions in the text
//
// With [Config.Script] on, a line of a message that is one of these instructions is executed
// instead of repeated:
//
//	sleep 2s          wait (any Go duration)
//	hang              wait until the turn is stopped
//	say 5000          answer with so many characters
//	fail              fail as unknown
//	fail rate_limit   fail for this reason
//	panic             panic, as a defect would
//
// It is off by default: with it, each person who may write to the agent can make its turns fail or
// occupy their slots.
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
	"strconv"
	"strings"
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

// turn is one run.
type turn struct {
	cfg    Config
	answer *agent.Answer
	input  int
	// spoke is true after the first line; the next line then begins with a newline.
	spoke bool
}

func (t *turn) run(ctx context.Context, req agent.Request) error {
	if err := wait(ctx, t.cfg.Delay); err != nil {
		return err
	}
	text := agent.PlainText(req)
	for {
		t.input += agent.EstimateTokens(text)
		if err := t.respond(ctx, text); err != nil {
			return err
		}
		more, ok := taken(req)
		if !ok {
			return t.end()
		}
		text = more
	}
}

// taken returns the input that has arrived since, if any.
func taken(req agent.Request) (string, bool) {
	if req.TakeInput == nil {
		return "", false
	}
	more := req.TakeInput()
	return agent.PlainText(agent.Request{Messages: more}), len(more) > 0
}

func (t *turn) end() error {
	if t.cfg.FailWith == "" {
		return nil
	}
	return failure(t.cfg.FailWith)
}

func failure(reason chat.FailReason) error {
	return agent.NewError(reason, "The echo agent was told to fail ("+string(reason)+").", nil)
}

func (t *turn) respond(ctx context.Context, text string) error {
	if !t.cfg.Script {
		return t.repeat(ctx, text)
	}
	for line := range strings.SplitSeq(text, "\n") {
		known, err := t.obey(ctx, strings.TrimSpace(line))
		if !known {
			err = t.repeat(ctx, line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// obey executes an instruction and reports whether line was one.
func (t *turn) obey(ctx context.Context, line string) (bool, error) {
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case line == "hang":
		<-ctx.Done()
		return true, agent.Ended(ctx)
	case line == "panic":
		panic("the echo agent was told to panic")
	case line == "fail":
		return true, failure(chat.FailUnknown)
	case word == "fail" && slices.Contains(agent.Reasons(), chat.FailReason(rest)):
		return true, failure(chat.FailReason(rest))
	case word == "sleep":
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 || d > longestDelay {
			return false, nil //nolint:nilerr // no instruction then, so it is repeated
		}
		return true, wait(ctx, d)
	case word == "say":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 || n > 16<<20 {
			return false, nil //nolint:nilerr // no instruction then, so it is repeated
		}
		return true, t.repeat(ctx, strings.Repeat("x", n))
	default:
		return false, nil
	}
}

func (t *turn) repeat(ctx context.Context, text string) error {
	if t.spoke {
		text = "\n" + text
	}
	t.spoke = true
	for first := true; text != ""; first = false {
		pause := t.cfg.ChunkDelay
		if first {
			pause = 0
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
		chunk := t.chunk(text)
		text = text[len(chunk):]
		if err := t.answer.Append(chunk); err != nil {
			return err
		}
	}
	return nil
}

// chunk returns the start of text that is emitted at once.
func (t *turn) chunk(text string) string {
	if t.cfg.Chunk == 0 {
		return text
	}
	count := 0
	for i := range text {
		if count == t.cfg.Chunk {
			return text[:i]
		}
		count++
	}
	return text
}

func wait(ctx context.Context, d time.Duration) error {
	if err := agent.Ended(ctx); err != nil || d == 0 {
		return err // the cause of the context
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return agent.Ended(ctx) // the cause of the context
	}
}
