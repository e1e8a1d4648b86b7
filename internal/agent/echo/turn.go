package echo

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

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
