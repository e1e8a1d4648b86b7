package jsonline

import (
	"log/slog"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// maxNamed bounds how many files are remembered; the gateway takes fewer.
const maxNamed = 1000

// Answer is an answer that arrives as lines. It belongs to the goroutine of Run. Make it with NewAnswer.
type Answer struct {
	// Text is the text so far. A runner may append to it what is not a line of the protocol.
	Text *agent.Answer
	// Usage is that of the last line with usage.
	Usage chat.Usage
	// Failed is the failure that the agent reported; nil if none.
	Failed *agent.Error
	// Named are the files that the agent names to be sent.
	Named []chat.Attachment
	// Complete is true when a line has marked the answer as complete.
	Complete bool

	emit func(agent.Event)
	log  *slog.Logger
}

// NewAnswer makes an empty answer of at most limit bytes, see [agent.NewAnswer].
func NewAnswer(limit int, emit func(agent.Event), log *slog.Logger) *Answer {
	return &Answer{Text: agent.NewAnswer(limit, emit), emit: emit, log: log}
}

// Take applies a line. It returns the error of [agent.Answer.Append]; a failure that the line reports is in Failed.
func (a *Answer) Take(line Line) error {
	if line.Usage != nil {
		a.Usage = *line.Usage
		a.emit(agent.Event{Kind: agent.EventUsage, Usage: a.Usage})
	}
	if line.Failed != nil {
		a.Failed = line.Failed
	}
	if line.Attach != nil && len(a.Named) < maxNamed {
		a.Named = append(a.Named, *line.Attach)
	}
	a.Complete = a.Complete || line.Done || line.Final != nil
	if err := a.Text.Append(line.Delta); err != nil {
		return err
	}
	if line.Final == nil {
		return nil
	}
	return a.finish(chat.CleanText(*line.Final))
}

// finish adds the part of the final text that the deltas do not contain. Deltas cannot be taken back, so a final text that
// contradicts them is only logged.
func (a *Answer) finish(final string) error {
	rest, ok := strings.CutPrefix(final, a.Text.Text())
	if !ok {
		a.log.Warn("final text of the agent is not the sum of its deltas", "bytes", len(final))
		return nil
	}
	return a.Text.Append(rest)
}
