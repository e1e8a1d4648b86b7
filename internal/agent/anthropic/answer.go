package anthropic

import (
	"encoding/json"
	"errors"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/agent/internal/sse"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
)

// answer reads one answer. It implements [modelhttp.Reader] and belongs to the goroutine of Run.
type answer struct {
	client   *modelhttp.Client
	text     *toolloop.Text
	model    string
	input    int
	output   int
	cached   int
	finish   string
	calls    toolloop.Calls
	thoughts []*thought
}

// thought is a block of thinking that is being received.
type thought struct {
	index           int
	kind, data      string
	text, signature toolloop.Bounded
}

// reset drops the state of an attempt that failed before its first text.
func (a *answer) reset() { *a = answer{client: a.client, text: a.text} }

// Begun implements [modelhttp.Reader].
func (a *answer) Begun() bool { return a.text.Begun() }

// Event implements [modelhttp.Reader]. Unknown events are skipped: the API adds new kinds over time.
func (a *answer) Event(raw sse.Event) (bool, error) {
	if len(raw.Data) == 0 {
		return false, nil
	}
	var e event
	if err := json.Unmarshal(raw.Data, &e); err != nil {
		return false, modelhttp.Garbled(raw, err)
	}
	switch e.Type {
	case "message_start":
		a.model = e.Message.Model
		a.count(e.Message.Usage)
	case "content_block_start":
		return false, a.begin(e.Index, e.Block)
	case "content_block_delta":
		return false, a.grow(e.Index, e.Delta)
	case "message_delta":
		a.count(e.Usage)
		a.finish = e.Delta.StopReason
	case "message_stop":
		return true, a.judge()
	case "error":
		return false, a.client.Refusal(modelhttp.RefusalOf(e.Error))
	}
	return false, nil
}

// begin takes a new block. The input of a call follows in pieces, or comes with the block from some proxies.
func (a *answer) begin(index int, b block) error {
	switch b.Type {
	case "text":
		return a.text.Append(b.Text)
	case "tool_use":
		a.calls.Piece(index, b.ID, b.Name, "")
		if input := string(b.Input); input != "" && input != "{}" && input != "null" {
			a.calls.Piece(index, "", "", input)
		}
	case "thinking", "redacted_thinking":
		t := &thought{index: index, kind: b.Type, data: b.Data}
		t.text.Append(b.Thinking)
		t.signature.Append(b.Signature)
		a.thoughts = append(a.thoughts, t)
	}
	return nil
}

// grow adds a piece to the block with its index.
func (a *answer) grow(index int, d delta) error {
	switch d.Type {
	case "text_delta":
		return a.text.Append(d.Text)
	case "input_json_delta":
		a.calls.Piece(index, "", "", d.PartialJSON)
	case "thinking_delta", "signature_delta":
		for _, t := range a.thoughts {
			if t.index == index {
				t.text.Append(d.Thinking)
				t.signature.Append(d.Signature)
			}
		}
	}
	return nil
}

// reply returns the answer for the loop. Thoughts are returned only with calls, because then the turn continues.
func (a *answer) reply(asked string) toolloop.Reply {
	out := toolloop.Reply{Calls: a.calls.List(), Usage: a.used(asked), StopReason: a.stopReason()}
	if len(out.Calls) == 0 || len(a.thoughts) == 0 {
		return out
	}
	blocks := make([]thoughtBlock, 0, len(a.thoughts))
	for _, t := range a.thoughts {
		b := thoughtBlock{Type: t.kind, Signature: t.signature.String(), Data: t.data}
		if text := t.text.String(); t.kind == "thinking" {
			b.Thinking = &text
		}
		blocks = append(blocks, b)
	}
	out.Extra, _ = json.Marshal(blocks) //nolint:errcheck,errchkjson // strings always marshal
	return out
}

// count takes the larger figure of each field: the input is reported at the start, the output so far with each change,
// and a field that is not repeated is zero.
func (a *answer) count(u usage) {
	a.input = max(a.input, chat.Tokens(u.InputTokens, u.CacheCreationInputTokens, u.CacheReadInputTokens))
	a.output = max(a.output, u.OutputTokens)
	a.cached = max(a.cached, u.CacheReadInputTokens)
}

// Whole implements [modelhttp.Reader].
func (a *answer) Whole(body []byte) error {
	var w whole
	if err := json.Unmarshal(body, &w); err != nil {
		return modelhttp.Garbled(sse.Event{Data: body}, err)
	}
	switch w.Type {
	case "error":
		return a.client.Refusal(modelhttp.RefusalOf(w.Error))
	case "message":
	default:
		return modelhttp.Fail(chat.FailBadResponse, errors.New("the answer is not a message"))
	}
	a.model, a.finish = w.Model, w.StopReason
	a.count(w.Usage)
	for i, b := range w.Content {
		if err := a.begin(i, b); err != nil {
			return err
		}
	}
	return a.judge()
}

// End implements [modelhttp.Reader]: without message_stop the answer is not complete.
func (a *answer) End() error {
	if a.Begun() || a.model != "" {
		return modelhttp.BrokeOff()
	}
	return modelhttp.Fail(chat.FailBadResponse, errors.New("the stream has no events"))
}

// judge checks a complete answer.
func (a *answer) judge() error {
	switch a.finish {
	case "refusal":
		return modelhttp.Fail(chat.FailRefusal, errors.New("stop_reason refusal"))
	case "model_context_window_exceeded":
		if !a.Begun() {
			return modelhttp.Fail(chat.FailContextLength, errors.New("stop_reason model_context_window_exceeded"))
		}
	}
	return nil
}

func (a *answer) stopReason() string {
	if a.finish == "max_tokens" || a.finish == "model_context_window_exceeded" {
		return agent.StopLength
	}
	return agent.StopNormal
}

func (a *answer) used(asked string) chat.Usage {
	model := a.model
	if model == "" {
		model = asked
	}
	return chat.Usage{InputTokens: a.input, OutputTokens: a.output, CachedTokens: a.cached, Model: chat.Cut(chat.CleanText(model), 200), Provider: "anthropic"}
}
