package testmodel

import (
	"encoding/json"
	"strconv"
	"strings"
)

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
