package testmodel

import "cmp"

// voice renders answers in the frames of one protocol.
type voice interface {
	begin() string
	piece(text string) string
	failure(kind string) string
	end() string
	whole() string
}

type object = map[string]any

// completions is the voice of OpenAI.
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

func (c completions) failure(kind string) string {
	return "data: " + jsonText(object{"error": object{"message": "in the middle", "type": kind}}) + "\n\n"
}

func (c completions) end() string {
	out := c.chunk(c.choice(object{}, cmp.Or(c.reply.Finish, "stop")))
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

// wantsUsage is true when the client asked, as with the real one.
func (c completions) wantsUsage() bool {
	options, ok := c.call.Field("stream_options").(map[string]any)
	return ok && options["include_usage"] == true && !c.reply.NoUsage
}

func (c completions) usage() object {
	return object{"prompt_tokens": c.reply.InputTokens, "completion_tokens": c.reply.OutputTokens}
}

func (c completions) whole() string {
	out := object{"object": "chat.completion", "model": c.call.Model, "choices": []object{{
		"index": 0, "message": object{"role": "assistant", "content": c.text()}, "finish_reason": cmp.Or(c.reply.Finish, "stop"),
	}}}
	if !c.reply.NoUsage {
		out["usage"] = c.usage()
	}
	return jsonText(out)
}

// messages is the voice of Anthropic.
type messages struct{ script }

func (m messages) event(name string, members object) string {
	members["type"] = name
	return "event: " + name + "\ndata: " + jsonText(members) + "\n\n"
}

func (m messages) begin() string {
	return m.event("message_start", object{"message": object{"model": m.call.Model, "usage": m.usage(m.reply.InputTokens, 0)}}) +
		m.event("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}}) +
		m.event("ping", object{})
}

func (m messages) piece(text string) string {
	return m.event("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": text}})
}

func (m messages) failure(kind string) string {
	return m.event("error", object{"error": object{"type": kind, "message": "in the middle"}})
}

func (m messages) end() string {
	out := m.event("content_block_stop", object{"index": 0}) +
		m.event("message_delta", object{"delta": object{"stop_reason": cmp.Or(m.reply.Finish, "end_turn")}, "usage": m.usage(0, m.reply.OutputTokens)})
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
	return jsonText(object{
		"type": "message", "model": m.call.Model, "stop_reason": cmp.Or(m.reply.Finish, "end_turn"),
		"content": []object{{"type": "text", "text": m.text()}},
		"usage":   m.usage(m.reply.InputTokens, m.reply.OutputTokens),
	})
}
