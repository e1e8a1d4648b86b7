// Package anthropic is the runner for the Messages API.
//
// This package is the dialect; what a turn does, and what is learned about an endpoint, is in
// package model. One turn is a streaming POST to <base_url>/v1/messages, and one more for each
// round of tool calls. The system prompt is separate from the messages, max_tokens is always sent,
// and usage comes in two halves. A stream is complete with message_stop or after a stop reason.
//
// A level of thinking (low, medium, high) becomes a budget of tokens on top of max_tokens, or
// adaptive thinking with an effort where the model refuses a budget; temperature and top_p are left
// out then, because the API refuses the combination. Thoughts are not shown. The blocks of a round
// with calls go back as they came, because the API requires thoughts with their signatures, and are
// dropped at the end of the turn.
//
// Pictures of the new input come before its text; see [agent.Images] for the bounds. A request that
// is refused because of pictures is sent again without them.
//
// Not supported: prompt caching, batches.
//
//	runner, err := anthropic.New(anthropic.Config{
//		APIKey: secret.New(key),
//		Model:  "some-model",
//	}, nil, log)
//
// The runner holds idle connections until [Runner.Close].
package anthropic

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/model"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
)

// Defaults of [Config].
const (
	DefaultBaseURL       = "https://api.anthropic.com"
	DefaultContextWindow = 200_000
	DefaultMaxTokens     = 8_192
	// apiVersion is the version of the API that this package was written for.
	apiVersion = "2023-06-01"
)

// Config of a [Runner]: BaseURL is everything before /v1/messages, and a /v1 at its end is
// accepted, default [DefaultBaseURL]; Temperature and TopP are 0 to 1.
type Config = model.Config

// Runner answers with a model. It is safe for concurrent use.
type Runner = model.Runner

// New checks cfg; it sends nothing. With a nil transport the runner makes its own; a nil log
// discards.
func New(cfg Config, transport http.RoundTripper, log *slog.Logger) (*Runner, error) {
	return model.New(model.Dialect{
		Name: "anthropic",
		URL: func(base string) string {
			base = cmp.Or(base, DefaultBaseURL)
			return strings.TrimSuffix(base, "/v1") + "/v1/messages"
		},
		Filled: func(cfg Config) Config {
			cfg.ContextWindow = cmp.Or(cfg.ContextWindow, DefaultContextWindow)
			cfg.MaxTokens = cmp.Or(cfg.MaxTokens, min(DefaultMaxTokens, cfg.ContextWindow/2))
			return cfg
		},
		Authorize: func(header http.Header, key string) {
			header.Set("Anthropic-Version", apiVersion)
			if key != "" {
				header.Set("X-Api-Key", key)
			}
		},
		MaxTemperature: 1,
		Body:           body,
		Event:          event,
		Whole:          whole,
	}, cfg, transport, log)
}

// request is the body of a call.
type request struct {
	Model         string    `json:"model"`
	MaxTokens     int       `json:"max_tokens"`
	System        string    `json:"system,omitempty"`
	Messages      []message `json:"messages"`
	Stream        bool      `json:"stream"`
	Temperature   *float64  `json:"temperature,omitempty"`
	TopP          *float64  `json:"top_p,omitempty"`
	StopSequences []string  `json:"stop_sequences,omitempty"`
	Thinking      *thinking `json:"thinking,omitempty"`
	OutputConfig  *output   `json:"output_config,omitempty"`
	Metadata      *metadata `json:"metadata,omitempty"`
	Tools         []tool    `json:"tools,omitempty"`
	ToolChoice    *choice   `json:"tool_choice,omitempty"`
}

// message has a string or a list of blocks as its content.
type message struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type choice struct {
	Type            string `json:"type"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitempty"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type imageBlock struct {
	Type   string      `json:"type"`
	Source imageSource `json:"source"`
}

type imageSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"` // base64
}

type resultBlock struct {
	Type    string `json:"type"`
	UseID   string `json:"tool_use_id"`
	Content string `json:"content"`
	IsError bool   `json:"is_error,omitempty"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens,omitempty"`
}

type output struct {
	Effort string `json:"effort"`
}

type metadata struct {
	UserID string `json:"user_id"`
}

// body returns the JSON of a request.
func body(d *model.Draft) any {
	out := request{Model: d.Model, MaxTokens: *d.Params.MaxTokens, System: d.System, Stream: true}
	if d.Params.Temperature != nil && d.Can(model.Temperature) {
		out.Temperature = d.Params.Temperature
	}
	if d.Params.TopP != nil && d.Can(model.TopP) {
		out.TopP = d.Params.TopP
	}
	if len(d.Params.Stop) > 0 && d.Can(model.Stop) {
		out.StopSequences = d.Params.Stop
	}
	for i, line := range d.Lines {
		said := any(line.Text)
		if i == len(d.Lines)-1 {
			said = content(line.Text, d.Images)
		}
		out.Messages = append(out.Messages, message{Role: line.Role, Content: said})
	}
	for _, round := range d.Talk.Rounds {
		out.Messages = appendRound(out.Messages, d, round)
	}
	for _, spec := range d.Talk.Tools {
		out.Tools = append(out.Tools, tool{Name: spec.Name, Description: spec.Description, InputSchema: spec.Schema})
	}
	switch {
	case len(out.Tools) == 0 || !d.Talk.NoCalls && !d.Talk.OneCall || !d.Can(model.ToolChoice):
	case d.Talk.NoCalls:
		out.ToolChoice = &choice{Type: "none"}
	default:
		out.ToolChoice = &choice{Type: "auto", DisableParallel: true}
	}
	think(d, &out)
	if d.User != "" {
		out.Metadata = &metadata{UserID: d.User}
	}
	return out
}

// think asks for thoughts in the form that the model takes: with a budget, or adaptive with an
// effort. Temperature and top_p are left out then, because the API refuses the combination.
func think(d *model.Draft, out *request) {
	tokens := budget(d.Thinking)
	switch {
	case tokens == 0:
		return
	case d.Can(model.ThinkingBudget):
		if !thoughtful(d, out.Messages) {
			return
		}
		out.Thinking = &thinking{Type: "enabled", BudgetTokens: tokens}
		out.MaxTokens += tokens
	case d.Can(model.ThinkingAdaptive):
		out.Thinking = &thinking{Type: "adaptive"}
		if d.Can(model.OutputConfig) {
			out.OutputConfig = &output{Effort: strings.Replace(d.Thinking, "minimal", "low", 1)}
		}
	default:
		return
	}
	out.Temperature, out.TopP = nil, nil
}

// thoughtful reports whether the rounds of the turn have thoughts. The API refuses to think on
// after calls without any, which another model made or whose thoughts are not kept.
func thoughtful(d *model.Draft, messages []message) bool {
	if len(d.Talk.Rounds) == 0 {
		return true
	}
	return slices.ContainsFunc(messages, func(m message) bool {
		blocks, _ := m.Content.([]any) // a string has none
		return slices.ContainsFunc(blocks, func(block any) bool {
			b, ok := block.(model.Object)
			return ok && strings.HasSuffix(b.String("type"), "thinking")
		})
	})
}

// content returns the new input: a string, or pictures followed by text, as the API recommends.
func content(text string, images []agent.Image) any {
	if len(images) == 0 {
		return text
	}
	blocks := make([]any, 0, len(images)+1)
	for _, image := range images {
		blocks = append(blocks, imageBlock{Type: "image", Source: imageSource{Type: "base64", MediaType: image.MIMEType, Data: image.Data}})
	}
	return append(blocks, textBlock{Type: "text", Text: text})
}

// appendRound adds the blocks of the model, then the results of its calls with the messages that
// arrived meanwhile.
func appendRound(messages []message, d *model.Draft, round agent.Round) []message {
	members := d.Members(round, func(raw json.RawMessage) model.Object {
		var thoughts []model.Object
		if json.Unmarshal(raw, &thoughts) != nil {
			return nil // another kind of runner recorded it
		}
		out := model.Object{}
		for i, thought := range thoughts {
			out[place(i)] = thought
		}
		return out
	})
	var asked, given []any
	said, called := false, 0
	call := func(members model.Object) {
		if called < len(round.Calls) {
			c := round.Calls[called]
			block := model.Object{}
			maps.Copy(block, members.Without(model.Carried)) // which is of the other API
			block["type"], block["id"], block["name"], block["input"] = "tool_use", callID(d, round, called), c.Name, toolloop.Object(c.Args)
			asked = append(asked, block)
			called++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members.Message)) {
		switch block := members.Message.Object(name); block.String("type") {
		case "":
		case "tool_use":
			call(members.Of(called))
		case "text":
			said = true
			if strings.TrimSpace(block.String("text")) != "" { // the API refuses blank text
				asked = append(asked, block)
			}
		default:
			asked = append(asked, complete(block))
		}
	}
	if !said && strings.TrimSpace(round.Text) != "" {
		asked = append(asked, textBlock{Type: "text", Text: round.Text})
	}
	for called < len(round.Calls) {
		call(members.Of(called))
	}
	for i := range round.Calls {
		given = append(given, resultBlock{Type: "tool_result", UseID: callID(d, round, i), Content: d.Result(round, i), IsError: round.Results[i].IsError})
	}
	if input := d.Input(round); input != "" {
		given = append(given, textBlock{Type: "text", Text: input})
	}
	return append(messages, message{Role: chat.RoleAssistant, Content: asked}, message{Role: chat.RoleUser, Content: given})
}

// callID returns the id of a call. The API takes only its characters, and a round may be one of
// another endpoint.
func callID(d *model.Draft, round agent.Round, call int) string {
	id := d.CallID(round, call)
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return toolloop.CallID(round.Number, call)
	}
	return id
}

// budget returns how many tokens a level of thinking may cost, 0 for an unknown level. The API's
// minimum is 1024.
func budget(level string) int {
	switch level {
	case "minimal":
		return 1_024
	case "low":
		return 2_048
	case "medium":
		return 8_192
	case "high":
		return 16_384
	default:
		return 0
	}
}

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

// begin takes a new block. The input of a call follows in pieces, or comes with the block from some
// proxies. All blocks are kept in their order, because they return as they came; what the journal
// has (text, calls) is kept without its content.
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
		if kind := a.Message.Object(place(index)).String("type"); kind != "" && kind != "tool_use" { // a call that the endpoint itself makes
			a.Keep(entry(index, model.Object{pieces: delta.String("partial_json")}))
			return nil
		}
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

// pieces is the member of a block that has the pieces of its input.
const pieces = "arguments"

// complete returns a block with its input, which came in pieces.
func complete(block model.Object) model.Object {
	text := block.String(pieces)
	if text == "" {
		return block
	}
	block = block.Without(pieces)
	if input := json.RawMessage(text); json.Valid(input) {
		block["input"] = input
	}
	return block
}

// entry is a piece of the message: the blocks by their place, which sorts as a name.
func entry(index int, block model.Object) model.Object {
	return model.Object{place(index): block}
}

func place(index int) string { return strconv.Itoa(1_000_000 + max(0, index)) }

// count takes the usage so far: the input is reported at the start, the output so far with each
// change, and a field that is not repeated is zero.
func count(a *model.Answer, usage model.Object) {
	read := usage.Int("cache_read_input_tokens")
	a.Input = max(a.Input, chat.Tokens(usage.Int("input_tokens"), usage.Int("cache_creation_input_tokens"), read))
	a.Output = max(a.Output, usage.Int("output_tokens"))
	a.Cached = max(a.Cached, read)
}
