package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/agent/internal/sse"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
)

// answer reads one answer. It implements [modelhttp.Reader] and belongs to the goroutine of Run.
type answer struct {
	client  *modelhttp.Client
	text    *toolloop.Text
	model   string
	used    usage
	finish  string
	refused int // bytes of a refusal
	calls   toolloop.Calls
	thought toolloop.Bounded
}

// reset drops the state of an attempt that failed before its first text.
func (a *answer) reset() { *a = answer{client: a.client, text: a.text} }

// Begun implements [modelhttp.Reader].
func (a *answer) Begun() bool { return a.text.Begun() }

// Event implements [modelhttp.Reader].
func (a *answer) Event(event sse.Event) (bool, error) {
	data := bytes.TrimSpace(event.Data)
	if len(data) == 0 {
		return false, nil
	}
	if bytes.Equal(data, []byte("[DONE]")) {
		return true, a.judge()
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return false, modelhttp.Garbled(event, err)
	}
	return false, a.take(c)
}

func (a *answer) take(c chunk) error {
	if len(c.Error) > 0 && !bytes.Equal(c.Error, []byte("null")) {
		return a.client.Refusal(modelhttp.RefusalOf(c.Error))
	}
	if c.Model != "" {
		a.model = c.Model
	}
	if c.Usage != nil {
		a.used = *c.Usage
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // the request asks for one answer
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
		a.refused += len(choice.Delta.Refusal) + len(choice.Message.Refusal)
		a.thought.Append(choice.Delta.Reasoning + choice.Message.Reasoning)
		a.takeCalls(choice.Delta.ToolCalls)
		for i, call := range choice.Message.ToolCalls {
			call.Index = i
			a.takeCalls([]toolCall{call})
		}
		if err := a.text.Append(choice.Delta.Content + choice.Message.Content); err != nil {
			return err
		}
	}
	return nil
}

// takeCalls adds pieces of calls. A piece belongs to the call of its index, except that some endpoints number nothing and only
// change the id.
func (a *answer) takeCalls(pieces []toolCall) {
	for _, p := range pieces {
		a.calls.Piece(p.Index, p.ID, p.Function.Name, p.Function.Arguments)
	}
}

// reply returns the answer for the loop. Thoughts are returned only with calls, because then the turn continues.
func (a *answer) reply(asked string) toolloop.Reply {
	out := toolloop.Reply{Calls: a.calls.List(), Usage: a.usage(asked), StopReason: a.stopReason()}
	if text := a.thought.String(); text != "" && len(out.Calls) > 0 {
		out.Extra, _ = json.Marshal(text) //nolint:errcheck,errchkjson // a string always marshals
	}
	return out
}

// Whole implements [modelhttp.Reader].
func (a *answer) Whole(body []byte) error {
	var c chunk
	if err := json.Unmarshal(body, &c); err != nil {
		return modelhttp.Garbled(sse.Event{Data: body}, err)
	}
	if err := a.take(c); err != nil {
		return err
	}
	if len(c.Choices) == 0 {
		return modelhttp.Fail(chat.FailBadResponse, errors.New("the answer has no choices"))
	}
	return a.judge()
}

// End implements [modelhttp.Reader]: some servers close the stream without [DONE].
func (a *answer) End() error {
	switch {
	case a.finish != "":
		return a.judge()
	case a.Begun() || a.model != "":
		return modelhttp.BrokeOff()
	default:
		return modelhttp.Fail(chat.FailBadResponse, errors.New("the stream has no events"))
	}
}

// judge checks a complete answer.
func (a *answer) judge() error {
	switch {
	case a.finish == "content_filter":
		return modelhttp.Fail(chat.FailRefusal, errors.New("content filter"))
	case a.refused > 0 && !a.Begun():
		return modelhttp.Fail(chat.FailRefusal, fmt.Errorf("the model refused in %d bytes", a.refused))
	case a.finish == "error":
		return modelhttp.Fail(chat.FailServer, errors.New("finish_reason error"))
	default:
		return nil
	}
}

func (a *answer) stopReason() string {
	if a.finish == "length" {
		return agent.StopLength
	}
	return agent.StopNormal
}

// usage returns what the endpoint counted, with the model even if nothing was counted.
func (a *answer) usage(asked string) chat.Usage {
	model := a.model
	if model == "" {
		model = asked
	}
	return chat.Usage{
		InputTokens: a.used.PromptTokens, OutputTokens: a.used.CompletionTokens, CachedTokens: a.used.Details.CachedTokens,
		Model: chat.Cut(chat.CleanText(model), 200), Provider: "openai",
	}
}
