package openai

import (
	"encoding/json"

	"laneway/internal/agent/internal/model"
	"laneway/internal/agent/internal/toolloop"
)

// take reads one event of a stream, or a whole answer, and reports whether it has an answer.
func take(a *model.Answer, chunk model.Object) (bool, error) {
	a.Named(chunk.String("model"))
	count(a, chunk.Object("usage"))
	count(a, chunk.Object("x_groq").Object("usage"))
	answered := false
	for _, choice := range chunk.List("choices") {
		if choice.Index("index") > 0 {
			continue // the request asks for one answer
		}
		answered = true
		count(a, choice.Object("usage"))
		a.Ended(choice.String("finish_reason"))
		for _, name := range []string{"delta", "message"} {
			if err := piece(a, choice.Object(name)); err != nil {
				return true, err
			}
		}
	}
	return answered, nil
}

// piece takes a part of the message. Members that are not known return with the calls of the message; those that are left out are no part of a
// conversation.
func piece(a *model.Answer, p model.Object) error {
	if len(p) == 0 {
		return nil
	}
	kept := p.Without("role", "index", "refusal", "annotations", "logprobs", "function_call", "tool_calls", "content")
	if content, ok := parts(a, p["content"]); ok {
		kept["content"] = content
	}
	a.Keep(kept)
	a.Refused += len(p.String("refusal"))
	calls(a, p)
	return text(a, p["content"])
}

// parts returns what of a content returns in its own form: all of it from the first list on, since a plain string returns as the text of its round.
func parts(a *model.Answer, content any) (any, bool) {
	_, listed := a.Message["content"]
	switch c := content.(type) {
	case []any:
		return c, listed || len(c) > 0
	case map[string]any:
		return []any{c}, true
	case string:
		return []any{map[string]any{"type": "text", "text": c}}, listed && c != ""
	default:
		return nil, false
	}
}

// text shows the text of a content: a string, a part, or a list of both. Thoughts and parts that are not known are not shown.
func text(a *model.Answer, content any) error {
	switch c := content.(type) {
	case string:
		return a.Text(c)
	case []any:
		for _, part := range c {
			if err := text(a, part); err != nil {
				return err
			}
		}
	case map[string]any:
		part := model.Object(c)
		switch part.String("type") {
		case "text", "output_text", "":
			return a.Text(part.String("text"))
		case "refusal":
			a.Refused += max(1, len(part.String("refusal")))
		}
	}
	return nil
}

// calls takes the calls of a piece, and the single call of the form before tool calls.
func calls(a *model.Answer, p model.Object) {
	var pieces []toolloop.Piece
	for _, call := range p.List("tool_calls") {
		function := call.Object("function")
		members := call.Without("id", "type", "index", "function")
		if inner := function.Without("name", "arguments"); len(inner) > 0 {
			members["function"] = map[string]any(inner)
		}
		pieces = append(pieces, toolloop.Piece{
			Index: call.Index("index"), ID: call.String("id"), Name: function.String("name"), Args: arguments(function["arguments"]), Members: members,
		})
	}
	if call := p.Object("function_call"); len(call) > 0 {
		pieces = append(pieces, toolloop.Piece{Index: 0, Name: call.String("name"), Args: arguments(call["arguments"])})
	}
	a.Calls.Add(pieces, model.MergeMembers)
}

// arguments returns a piece of the arguments: a string, or their JSON.
func arguments(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			return "" // decoded JSON marshals
		}
		return string(raw)
	}
}

// count takes the usage so far. Some endpoints count thoughts, or what their cache has served, outside of the prompt and the completion: only the total has
// them.
func count(a *model.Answer, usage model.Object) {
	if len(usage) == 0 {
		return
	}
	in, out, total := usage.Int("prompt_tokens", "input_tokens"), usage.Int("completion_tokens", "output_tokens"), usage.Int("total_tokens")
	details := usage.Object("prompt_tokens_details")
	cached := max(details.Int("cached_tokens"), usage.Int("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"))
	written := max(details.Int("cache_write_tokens", "cache_creation_tokens"), usage.Int("cache_creation_input_tokens"))
	thoughts := usage.Object("completion_tokens_details").Int("reasoning_tokens")
	switch left := total - in - out; {
	case left > 0 && left != thoughts && (left == cached || left == written || left == cached+written):
		in += left
	case left > 0:
		out += left
	case total == 0 && thoughts > out:
		out += thoughts
	}
	a.Input, a.Output, a.Cached = max(a.Input, in), max(a.Output, out), max(a.Cached, min(cached, in))
}
