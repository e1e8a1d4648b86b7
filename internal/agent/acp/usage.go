package acp

import (
	"encoding/json"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/chat"
)

// counts are token counts, with all field names that agents use.
type counts struct {
	Input  int `json:"inputTokens"`
	Output int `json:"outputTokens"`
	Read   int `json:"cachedReadTokens"`
	Write  int `json:"cachedWriteTokens"`
	Think  int `json:"thoughtTokens"`
	Total  int `json:"totalTokens"`
	// Gemini CLI uses these names.
	InputTokens  int `json:"input_tokens"`  //nolint:tagliatelle // a foreign wire
	OutputTokens int `json:"output_tokens"` //nolint:tagliatelle // a foreign wire
}

// reported returns the usage of a turn: from the field of the protocol in its response, else from the response's metadata, else the sum over its pieces of text.
func (p *peer) reported(t *turn, response sdk.PromptResponse) chat.Usage {
	switch beside := besideResponse(response.Meta); {
	case response.Usage != nil:
		return p.ofTurn(usageOf(protocolCounts(*response.Usage)))
	case beside != (counts{}):
		return usageOf(beside)
	default:
		return t.pieces
	}
}

// ofTurn returns the usage of the turn, also for an agent that reports the total of its session.
func (p *peer) ofTurn(reported chat.Usage) chat.Usage {
	if !p.cfg.UsageOfSession {
		return reported
	}
	return p.memory.UsedBy(reported)
}

func protocolCounts(u sdk.Usage) counts {
	value := func(n *int) int {
		if n == nil {
			return 0
		}
		return *n
	}
	return counts{
		Input: u.InputTokens, Output: u.OutputTokens, Total: u.TotalTokens, Read: value(u.CachedReadTokens), Write: value(u.CachedWriteTokens), Think: value(u.ThoughtTokens),
	}
}

// besideResponse returns the counts that Gemini CLI reports in the metadata.
func besideResponse(meta map[string]any) counts {
	var beside struct {
		Quota struct {
			Count counts `json:"token_count"` //nolint:tagliatelle // a foreign wire
		} `json:"quota"`
	}
	decode(meta, &beside)
	return beside.Quota.Count
}

// besidePiece adds the counts of one model request, which Qwen Code reports in the metadata of an empty piece of text.
func (t *turn) besidePiece(meta map[string]any) {
	var beside struct {
		Usage counts `json:"usage"`
	}
	if decode(meta, &beside); beside.Usage != (counts{}) {
		t.pieces.Add(usageOf(beside.Usage))
		t.pieces.Provider = "acp"
	}
}

// decode leaves out fields of other types.
func decode(meta map[string]any, into any) {
	if len(meta) == 0 {
		return
	}
	raw, err := json.Marshal(meta)
	if err == nil {
		_ = json.Unmarshal(raw, into) //nolint:errcheck // see above
	}
}

// usageOf returns clamped counts. Some agents include cached tokens in the input and thoughts in the output, others count them separately; the total shows which.
func usageOf(c counts) chat.Usage {
	u := chat.Usage{InputTokens: chat.Tokens(c.Input, c.InputTokens), OutputTokens: chat.Tokens(c.Output, c.OutputTokens), CachedTokens: chat.Tokens(c.Read), Provider: "acp"}
	if cached := chat.Tokens(c.Read, c.Write); c.Total >= chat.Tokens(u.InputTokens, u.OutputTokens, cached) {
		u.InputTokens = chat.Tokens(u.InputTokens, cached)
	}
	if c.Total >= chat.Tokens(u.InputTokens, u.OutputTokens, c.Think) {
		u.OutputTokens = chat.Tokens(u.OutputTokens, c.Think)
	}
	return u.Clamped()
}
