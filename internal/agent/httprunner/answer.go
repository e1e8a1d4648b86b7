package httprunner

import (
	"bytes"
	"fmt"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/jsonline"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/agent/internal/sse"
	"laneway/internal/chat"
)

// Media types of a streamed answer besides server-sent events.
const (
	plainText = "text/plain"
	lines     = "application/x-ndjson"
)

// maxLine bounds a line, in bytes.
const maxLine = 4 << 20

// answer reads one response. It implements [modelhttp.PieceReader] and belongs to the goroutine of Run.
type answer struct {
	*jsonline.Answer

	plain bool   // the body is plain text, the answer itself
	line  []byte // the line that is not complete yet
}

var _ modelhttp.PieceReader = (*answer)(nil)

// Begun implements [modelhttp.Reader].
func (a *answer) Begun() bool { return a.Text.Begun() }

// Event implements [modelhttp.Reader].
func (a *answer) Event(event sse.Event) (bool, error) {
	if len(bytes.TrimSpace(event.Data)) == 0 {
		return false, nil
	}
	if event.Partial && !a.Complete {
		if _, ok := jsonline.Parse(event.Data); !ok {
			return false, modelhttp.BrokeOff()
		}
	}
	return a.take(event.Data)
}

// Whole implements [modelhttp.Reader].
func (a *answer) Whole(body []byte) error {
	_, err := a.take(body)
	return err
}

// Piece implements [modelhttp.PieceReader].
func (a *answer) Piece(kind string, piece []byte) (bool, error) {
	switch kind {
	case plainText:
		a.plain = true
		return false, a.Text.AppendBytes(piece)
	case lines, "application/jsonl", "application/json-lines":
		return a.lines(piece)
	default:
		return false, noAnswer(fmt.Errorf("the media type %q is not one of application/json, %s, text/event-stream, %s", chat.Cut(kind, 100), lines, plainText))
	}
}

func (a *answer) lines(piece []byte) (bool, error) {
	a.line = append(a.line, piece...)
	for {
		line, rest, whole := bytes.Cut(a.line, []byte("\n"))
		if !whole {
			if len(a.line) > maxLine {
				return false, noAnswer(fmt.Errorf("a line is longer than %d bytes", maxLine))
			}
			return false, nil
		}
		a.line = rest
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if done, err := a.take(line); done || err != nil {
			return done, err
		}
	}
}

// take applies one object of the protocol and reports whether the answer is complete.
func (a *answer) take(raw []byte) (bool, error) {
	line, ok := jsonline.Parse(raw)
	if !ok {
		return false, noAnswer(fmt.Errorf("%d bytes are no object with delta, final, error, usage or done", len(raw)))
	}
	if err := a.Take(line); err != nil {
		return false, err
	}
	if a.Failed != nil {
		return false, a.Failed
	}
	return a.Complete, nil
}

// End implements [modelhttp.Reader]: the stream has ended without a line that completes it.
func (a *answer) End() error {
	if a.plain {
		return a.Text.Flush()
	}
	if rest := bytes.TrimSpace(a.line); len(rest) > 0 { // the last line may have no end
		a.line = nil
		if _, ok := jsonline.Parse(rest); !ok {
			return modelhttp.BrokeOff()
		}
		if _, err := a.take(rest); err != nil {
			return err
		}
	}
	if a.Complete {
		return nil
	}
	return modelhttp.BrokeOff()
}

func noAnswer(cause error) *agent.Error {
	return modelhttp.Fail(chat.FailBadResponse, cause)
}
