package testmodel

import (
	"encoding/json"
	"strconv"
	"strings"
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

// The blocks of an answer: thoughts, text, then calls. Blocks need not come in the order of their
// numbers.
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

// responses renders OpenAI's Responses API.
type responses struct{ script }

func (responses) event(name string, members object) string {
	members["type"] = name
	return "event: " + name + "\ndata: " + jsonText(members) + "\n\n"
}

// response returns the answer in a state with these items.
func (r responses) response(status string, items []object) object {
	return object{
		"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": r.call.Model, "output": items,
		"usage": object{
			"input_tokens": r.reply.InputTokens, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens": r.reply.OutputTokens,
			"output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": r.reply.InputTokens + r.reply.OutputTokens,
		},
	}
}

func (responses) message(status string, content []object) object {
	return object{"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": content}
}

func (r responses) answered() object {
	return r.message("completed", []object{{"type": "output_text", "text": r.text(), "annotations": []object{}}})
}

func (responses) item(call ToolCall) object {
	item := object{"id": "fc_" + call.ID, "type": "function_call", "status": "completed", "call_id": call.ID, "name": call.Name, "arguments": call.Args}
	if namespace, name, found := strings.Cut(call.Name, namespaceEnd); found {
		item["namespace"], item["name"] = namespace, name
	}
	return item
}

func (r responses) begin() string {
	return r.event("response.created", object{"response": r.response("in_progress", []object{})}) +
		r.event("response.output_item.added", object{"output_index": 0, "item": r.message("in_progress", []object{})})
}

func (r responses) piece(text string) string {
	return r.event("response.output_text.delta", object{"item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": text})
}

func (r responses) thoughts(text string) string {
	return r.event("response.reasoning_summary_text.delta", object{"item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": text})
}

func (r responses) use(index int, call ToolCall) string {
	return r.event("response.output_item.added", object{"output_index": index + 1, "item": r.item(call)}) +
		r.event("response.output_item.done", object{"output_index": index + 1, "item": r.item(call)})
}

func (r responses) failure(kind string) string {
	failed := r.response("failed", []object{})
	failed["error"] = object{"code": kind, "message": "in the middle"}
	return r.event("response.failed", object{"response": failed})
}

func (r responses) items() []object {
	items := []object{r.answered()}
	for _, call := range r.reply.Calls {
		items = append(items, r.item(call))
	}
	return items
}

func (r responses) end() string {
	return r.event("response.output_item.done", object{"output_index": 0, "item": r.answered()}) +
		r.event("response.completed", object{"response": r.response("completed", r.items())})
}

func (r responses) whole() string { return jsonText(r.response("completed", r.items())) }

// gemini renders the Gemini API of Google.
type gemini struct{ script }

func (g gemini) parts(parts []object, finish string) object {
	candidate := object{"content": object{"role": "model", "parts": parts}, "index": 0}
	if finish != "" {
		candidate["finishReason"] = finish
	}
	return object{"candidates": []object{candidate}, "modelVersion": g.call.Model}
}

func (gemini) chunk(members object) string { return "data: " + jsonText(members) + "\n\n" }

func (gemini) begin() string { return "" }

func (g gemini) piece(text string) string { return g.chunk(g.parts([]object{{"text": text}}, "")) }

func (g gemini) thoughts(text string) string {
	return g.chunk(g.parts([]object{{"text": text, "thought": true}}, ""))
}

func (gemini) called(index int, call ToolCall) object {
	return object{"functionCall": object{"id": call.ID + strconv.Itoa(index), "name": call.Name, "args": json.RawMessage(call.Args)}}
}

func (g gemini) use(index int, call ToolCall) string {
	return g.chunk(g.parts([]object{g.called(index, call)}, ""))
}

func (g gemini) failure(kind string) string {
	return g.chunk(object{"error": object{"code": 500, "message": "in the middle", "status": kind}})
}

func (g gemini) ended(parts []object) object {
	out := g.parts(parts, g.finishReason("STOP", "STOP"))
	out["usageMetadata"] = object{
		"promptTokenCount": g.reply.InputTokens, "candidatesTokenCount": g.reply.OutputTokens, "totalTokenCount": g.reply.InputTokens + g.reply.OutputTokens,
	}
	return out
}

func (g gemini) end() string { return g.chunk(g.ended([]object{{"text": ""}})) }

func (g gemini) whole() string {
	parts := []object{{"text": g.text()}}
	for i, call := range g.reply.Calls {
		parts = append(parts, g.called(i, call))
	}
	return jsonText(g.ended(parts))
}
