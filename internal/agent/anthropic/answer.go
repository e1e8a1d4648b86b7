package anthropic

import (
	"encoding/json"
	"errors"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/agent/internal/sse"
	"laneway/internal/chat"
)

// answer reads one answer. It implements [modelhttp.Reader] and belongs to the goroutine of Run.
type answer struct {
	client *modelhttp.Client
	text   *agent.Answer
	model  string
	input  int
	output int
	finish string
}

// reset drops the state of an attempt that failed before its first text.
func (a *answer) reset() { a.model, a.input, a.output, a.finish = "", 0, 0, "" }

// Begun implements [modelhttp.Reader].
func (a *answer) Begun() bool { return a.text.Begun() }

// Event implements [modelhttp.Reader]. Unknown events are passed over: the API adds some now and then.
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
		return false, a.appendBlock(e.Block.Type, e.Block.Text)
	case "content_block_delta":
		return false, a.appendBlock(e.Delta.Type, e.Delta.Text)
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

// appendBlock adds text and leaves out thoughts and tools.
func (a *answer) appendBlock(kind, text string) error {
	if kind != "text" && kind != "text_delta" {
		return nil
	}
	return a.text.Append(text)
}

// count takes the larger figure: the input is reported at the start, the output so far with each change, and a field that
// is not repeated is zero.
func (a *answer) count(u usage) {
	a.input = max(a.input, u.InputTokens+u.CacheCreationInputTokens+u.CacheReadInputTokens)
	a.output = max(a.output, u.OutputTokens)
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
	for _, b := range w.Content {
		if err := a.appendBlock(b.Type, b.Text); err != nil {
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
	return chat.Usage{InputTokens: a.input, OutputTokens: a.output, Model: chat.Cut(chat.CleanText(model), 200), Provider: "anthropic"}
}
