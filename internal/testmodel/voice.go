package testmodel

import (
	"encoding/json"
)

// voice renders answers in the format of one protocol.
type voice interface {
	begin() string
	piece(text string) string
	thoughts(text string) string
	use(index int, call ToolCall) string
	failure(kind string) string
	end() string
	whole() string
}

type object = map[string]any

// completions renders the chat completions API of OpenAI.
type completions struct{ script }

func (c completions) chunk(members object) string {
	members["id"], members["object"], members["model"] = "chatcmpl-1", "chat.completion.chunk", c.call.Model
	return "data: " + jsonText(members) + "\n\n"
}

func (c completions) choice(delta object, finish any) object {
	return object{"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}}}
}

func (c completions) begin() string {
	return ": processing\n\n" + c.chunk(c.choice(object{"role": "assistant", "content": ""}, nil))
}

func (c completions) piece(text string) string {
	return c.chunk(c.choice(object{"content": text}, nil))
}

func (c completions) thoughts(text string) string {
	return c.chunk(c.choice(object{"reasoning_content": text}, nil))
}

// use begins with the name and continues with the arguments in two pieces.
func (c completions) use(index int, call ToolCall) string {
	half := len(call.Args) / 2
	out := c.chunk(c.choice(object{"tool_calls": []object{{
		"index": index, "id": call.ID, "type": "function", "function": object{"name": call.Name, "arguments": ""},
	}}}, nil))
	piece := func(text string) string {
		return c.chunk(c.choice(object{"tool_calls": []object{{"index": index, "function": object{"arguments": text}}}}, nil))
	}
	return out + piece(call.Args[:half]) + piece(call.Args[half:])
}

func (c completions) failure(kind string) string {
	return "data: " + jsonText(object{"error": object{"message": "in the middle", "type": kind}}) + "\n\n"
}

func (c completions) end() string {
	out := c.chunk(c.choice(object{}, c.finishReason("stop", "tool_calls")))
	if c.wantsUsage() {
		out += c.chunk(object{"choices": []object{}, "usage": c.usage()})
	}
	if c.reply.NoDone {
		return out
	}
	out += "data: [DONE]\n\n"
	if c.reply.TwiceDone {
		out += "data: [DONE]\n\n"
	}
	return out
}

// wantsUsage reports whether the client requested usage, as with the real API.
func (c completions) wantsUsage() bool {
	options, ok := c.call.Field("stream_options").(map[string]any)
	return ok && options["include_usage"] == true && !c.reply.NoUsage
}

func (c completions) usage() object {
	return object{"prompt_tokens": c.reply.InputTokens, "completion_tokens": c.reply.OutputTokens}
}

func (c completions) whole() string {
	message := object{"role": "assistant", "content": c.text()}
	var calls []object
	for _, call := range c.reply.Calls {
		calls = append(calls, object{"id": call.ID, "type": "function", "function": object{"name": call.Name, "arguments": call.Args}})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	out := object{"object": "chat.completion", "model": c.call.Model, "choices": []object{{
		"index": 0, "message": message, "finish_reason": c.finishReason("stop", "tool_calls"),
	}}}
	if !c.reply.NoUsage {
		out["usage"] = c.usage()
	}
	return jsonText(out)
}

// messages renders the Messages API of Anthropic.
type messages struct{ script }

func (m messages) event(name string, members object) string {
	members["type"] = name
	return "event: " + name + "\ndata: " + jsonText(members) + "\n\n"
}

func (m messages) begin() string {
	message := object{
		"id": "msg_1", "type": "message", "role": "assistant", "content": []object{}, "model": m.call.Model, "stop_reason": nil, "stop_sequence": nil,
		"usage": m.usage(m.reply.InputTokens, 0),
	}
	return m.event("message_start", object{"message": message}) +
		m.event("content_block_start", object{"index": textBlock, "content_block": object{"type": "text", "text": ""}}) +
		m.event("ping", object{})
}

func (m messages) piece(text string) string {
	return m.event("content_block_delta", object{"index": textBlock, "delta": object{"type": "text_delta", "text": text}})
}

// The blocks of an answer: thoughts, text, then calls. Blocks need not come in the order of their numbers.
const (
	firstThought = 0
	textBlock    = 1
)

func (m messages) thoughts(text string) string {
	return m.event("content_block_start", object{"index": firstThought, "content_block": object{"type": "thinking", "thinking": "", "signature": ""}}) +
		m.event("content_block_delta", object{"index": firstThought, "delta": object{"type": "thinking_delta", "thinking": text}}) +
		m.event("content_block_delta", object{"index": firstThought, "delta": object{"type": "signature_delta", "signature": "signed"}}) +
		m.event("content_block_stop", object{"index": firstThought})
}

// use begins with the name and continues with the input in two pieces.
func (m messages) use(index int, call ToolCall) string {
	half := len(call.Args) / 2
	out := m.event("content_block_start", object{"index": index + 2, "content_block": object{"type": "tool_use", "id": call.ID, "name": call.Name, "input": object{}}})
	piece := func(text string) string {
		return m.event("content_block_delta", object{"index": index + 2, "delta": object{"type": "input_json_delta", "partial_json": text}})
	}
	return out + piece(call.Args[:half]) + piece(call.Args[half:]) + m.event("content_block_stop", object{"index": index + 2})
}

func (m messages) failure(kind string) string {
	return m.event("error", object{"error": object{"type": kind, "message": "in the middle"}})
}

func (m messages) end() string {
	out := m.event("content_block_stop", object{"index": textBlock}) +
		m.event("message_delta", object{"delta": object{"stop_reason": m.finishReason("end_turn", "tool_use")}, "usage": m.usage(0, m.reply.OutputTokens)})
	if m.reply.NoDone {
		return out
	}
	return out + m.event("message_stop", object{})
}

func (m messages) usage(input, output int) object {
	if m.reply.NoUsage {
		return object{}
	}
	return object{"input_tokens": input, "output_tokens": output}
}

func (m messages) whole() string {
	content := []object{{"type": "text", "text": m.text()}}
	for _, call := range m.reply.Calls {
		content = append(content, object{"type": "tool_use", "id": call.ID, "name": call.Name, "input": json.RawMessage(call.Args)})
	}
	return jsonText(object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": m.call.Model, "stop_reason": m.finishReason("end_turn", "tool_use"),
		"content": content,
		"usage":   m.usage(m.reply.InputTokens, m.reply.OutputTokens),
	})
}
