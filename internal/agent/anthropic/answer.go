package anthropic

import (
	"encoding/json"
	"strconv"

	"laneway/internal/agent/internal/model"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
)

// event reads one event of a stream. Unknown events are skipped: the API adds new kinds over time.
func event(a *model.Answer, e model.Object) (bool, error) {
	switch e.String("type") {
	case "message_start":
		a.Named(e.Object("message").String("model"))
		count(a, e.Object("message").Object("usage"))
	case "content_block_start":
		return false, begin(a, e.Index("index"), e.Object("content_block"))
	case "content_block_delta":
		return false, grow(a, e.Index("index"), e.Object("delta"))
	case "message_delta":
		count(a, e.Object("usage"))
		a.Ended(e.Object("delta").String("stop_reason"))
	case "message_stop":
		return true, nil
	}
	return false, nil
}

// whole reads the answer of a server that does not stream.
func whole(a *model.Answer, message model.Object) (bool, error) {
	if message.String("type") != "message" {
		return false, nil
	}
	a.Named(message.String("model"))
	a.Ended(message.String("stop_reason"))
	count(a, message.Object("usage"))
	if text, ok := message["content"].(string); ok {
		return true, a.Text(text)
	}
	for i, block := range message.List("content") {
		if err := begin(a, i, block); err != nil {
			return true, err
		}
	}
	return true, nil
}

// begin takes a new block. The input of a call follows in pieces, or comes with the block from some proxies. All blocks are kept in their order, because
// they return as they came; what the journal has (text, calls) is kept without its content.
func begin(a *model.Answer, index int, block model.Object) error {
	kept := block.Without()
	switch block.String("type") {
	case "text":
		a.Keep(entry(index, kept))
		return a.Text(block.String("text"))
	case "tool_use":
		kept = model.Object{"type": "tool_use"}
		args := ""
		if input, ok := block["input"]; ok && input != nil {
			raw, err := json.Marshal(input)
			if err == nil && string(raw) != "{}" {
				args = string(raw)
			}
		}
		a.Calls.Add([]toolloop.Piece{{
			Index: index, ID: block.String("id"), Name: block.String("name"), Args: args, Members: block.Without("type", "id", "name", "input"),
		}}, model.MergeMembers)
	case "refusal":
		a.Refused += max(1, len(block.String("refusal")))
	case "":
		return nil
	}
	a.Keep(entry(index, kept))
	return nil
}

// grow adds a piece to the block with its index.
func grow(a *model.Answer, index int, delta model.Object) error {
	switch delta.String("type") {
	case "text_delta":
		a.Keep(entry(index, model.Object{"text": delta.String("text")}))
		return a.Text(delta.String("text"))
	case "input_json_delta":
		a.Calls.Add([]toolloop.Piece{{Index: index, Args: delta.String("partial_json")}}, model.MergeMembers)
	case "citations_delta":
		if citation := delta.Object("citation"); citation != nil {
			a.Keep(entry(index, model.Object{"citations": []any{map[string]any(citation)}}))
		}
	case "signature_delta": // the only string in pieces that is not added under its name elsewhere
		a.Keep(entry(index, model.Object{"signature": a.Message.Object(place(index)).String("signature") + delta.String("signature")}))
	case "thinking_delta":
		a.Keep(entry(index, model.Object{"thinking": delta.String("thinking")}))
	default:
		a.Keep(entry(index, delta.Without("type")))
	}
	return nil
}

// entry is a piece of the message: the blocks by their place, which sorts as a name.
func entry(index int, block model.Object) model.Object {
	return model.Object{place(index): block}
}

func place(index int) string { return strconv.Itoa(1_000_000 + max(0, index)) }

// count takes the usage so far: the input is reported at the start, the output so far with each change, and a field that is not repeated is zero.
func count(a *model.Answer, usage model.Object) {
	read := usage.Int("cache_read_input_tokens")
	a.Input = max(a.Input, chat.Tokens(usage.Int("input_tokens"), usage.Int("cache_creation_input_tokens"), read))
	a.Output = max(a.Output, usage.Int("output_tokens"))
	a.Cached = max(a.Cached, read)
}
