// Package openai is the runner for every endpoint that speaks the chat completions API: OpenAI,
// Ollama, vLLM, llama.cpp, OpenRouter and many others.
//
// One turn is a streaming POST to <base_url>/chat/completions, and one more for each round of tool
// calls (the loop is in package toolloop). The conversation is made by [agent.Conversation]: a
// system prompt, alternating lines, history cut to the context window. Text is emitted as it
// arrives; the thoughts of reasoning models are not shown.
//
// This package is the dialect; what a turn does, and what is learned about an endpoint, is in
// package model.
//
// # Endpoints differ
//
// An endpoint may answer with one JSON document instead of a stream. A stream is complete with a
// finish reason, or with `[DONE]` after text or a call. Any other end is an error, so that a
// partial answer is never taken for a complete one. An error is recognised anywhere: as the status,
// in a body with status 200, in the middle of a stream, in a list.
//
// Content is a string, a list of parts, or both in turn; parts that are not text are not shown.
// Tool calls arrive in pieces or whole, with or without index and id, with their arguments as a
// string or as JSON. What else comes with a message or a call goes back with it within the turn, to
// the same endpoint and model.
//
// # Pictures
//
// Pictures of the new input are sent as data URLs with its text; see [agent.Images] for the bounds.
// If an endpoint refuses a request because of them, the request is repeated without them.
//
// # Promises
//
// Those of package agent. Deadlines for the first line and between lines free the slot when a model
// hangs; the total is the deadline of the turn. 429, 5xx and broken connections are retried, at
// most three times, only before any text was shown. No error carries the URL or the key.
//
// # Not supported
//
// No images in answers, no choice among several models, no health checks.
//
//	runner, err := openai.New(openai.Config{
//		BaseURL: "http://127.0.0.1:11434/v1",
//		Model:   "some-model",
//	}, nil, log)
//
// The runner holds idle connections until [Runner.Close].
package openai

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/model"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
)

// Defaults of [Config].
const (
	DefaultBaseURL       = "https://api.openai.com/v1"
	DefaultContextWindow = 32_768
)

// Config of a [Runner]: BaseURL is everything before /chat/completions, default [DefaultBaseURL];
// Temperature is 0 to 2, TopP 0 to 1.
type Config = model.Config

// Runner answers with a model. It is safe for concurrent use.
type Runner = model.Runner

// New checks cfg; it sends nothing. With a nil transport the runner makes its own; a nil log
// discards.
func New(cfg Config, transport http.RoundTripper, log *slog.Logger) (*Runner, error) {
	return model.New(model.Dialect{
		Name: "openai",
		URL: func(base string) string {
			base = cmp.Or(base, DefaultBaseURL)
			return base + "/chat/completions"
		},
		Filled: func(cfg Config) Config {
			cfg.ContextWindow = cmp.Or(cfg.ContextWindow, max(DefaultContextWindow, 2*cfg.MaxTokens))
			return cfg
		},
		Authorize: func(header http.Header, key string) {
			if key != "" {
				header.Set("Authorization", "Bearer "+key)
			}
		},
		MaxTemperature: 2,
		Body:           body,
		Event: func(a *model.Answer, event model.Object) (bool, error) {
			_, err := take(a, event)
			return false, err
		},
		Whole: take,
	}, cfg, transport, log)
}

// request is the body of a call.
type request struct {
	Model               string         `json:"model"`
	Messages            []message      `json:"messages"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options,omitempty"`
	Temperature         *float64       `json:"temperature,omitempty"`
	TopP                *float64       `json:"top_p,omitempty"`
	MaxTokens           *int           `json:"max_tokens,omitempty"`
	MaxCompletionTokens *int           `json:"max_completion_tokens,omitempty"`
	Stop                []string       `json:"stop,omitempty"`
	ReasoningEffort     string         `json:"reasoning_effort,omitempty"`
	User                string         `json:"user,omitempty"`
	Tools               []tool         `json:"tools,omitempty"`
	ToolChoice          string         `json:"tool_choice,omitempty"`
	ParallelToolCalls   *bool          `json:"parallel_tool_calls,omitempty"`
	ResponseFormat      map[string]any `json:"response_format,omitempty"`
}

// message is a map, because members return as they came.
type message = model.Object

type part struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// body returns the JSON of a request.
func body(d *model.Draft) any {
	out := request{
		Model: d.Model, Stream: true, ReasoningEffort: effort(d), Tools: toolsOf(d.Talk), User: d.User,
	}
	if p := d.Params; p.Temperature != nil && d.Can(model.Temperature) {
		out.Temperature = p.Temperature
	}
	if d.Params.TopP != nil && d.Can(model.TopP) {
		out.TopP = d.Params.TopP
	}
	if len(d.Params.Stop) > 0 && d.Can(model.Stop) {
		out.Stop = d.Params.Stop
	}
	if d.Params.ResponseFormat != nil && d.Can(model.ResponseFormat) {
		out.ResponseFormat = d.Params.ResponseFormat
	}
	if d.Talk.NoCalls && len(out.Tools) > 0 && d.Can(model.ToolChoice) {
		out.ToolChoice = "none"
	}
	if d.Talk.OneCall && len(out.Tools) > 0 && d.Can(model.ParallelToolCalls) {
		out.ParallelToolCalls = new(bool)
	}
	switch {
	case d.Params.MaxTokens == nil:
	case d.Can(model.MaxTokens):
		out.MaxTokens = d.Params.MaxTokens
	case d.Can(model.MaxCompletionTokens):
		out.MaxCompletionTokens = d.Params.MaxTokens
	}
	if d.Can(model.StreamOptions) {
		out.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	out.Messages = messages(d)
	return out
}

// messages returns the conversation. A model without a system role reads the system prompt at the
// beginning of the first message.
func messages(d *model.Draft) []message {
	var all []message
	before := ""
	switch {
	case d.System == "":
	case d.Can(model.SystemRole):
		all = append(all, message{"role": "system", "content": d.System})
	default:
		before = d.System + "\n\n"
	}
	for i, line := range d.Lines {
		var said any = before + line.Text
		if i == len(d.Lines)-1 {
			said = content(before+line.Text, d.Images)
		}
		all = append(all, message{"role": line.Role, "content": said})
		before = ""
	}
	for _, round := range d.Talk.Rounds {
		all = appendRound(all, d, round)
	}
	return all
}

// content returns the new input: a string, or text with pictures.
func content(text string, images []agent.Image) any {
	if len(images) == 0 {
		return text
	}
	parts := []part{{Type: "text", Text: text}}
	for _, image := range images {
		parts = append(parts, part{Type: "image_url", ImageURL: &imageURL{"data:" + image.MIMEType + ";base64," + base64.StdEncoding.EncodeToString(image.Data)}})
	}
	return parts
}

// unsigned is what Gemini takes in place of the signature of a call that it did not make.
func unsigned() model.Object {
	return model.Object{"google": model.Object{"thought_signature": "skip_thought_signature_validator"}}
}

func toolsOf(talk toolloop.Conversation) []tool {
	var all []tool
	for _, spec := range talk.Tools {
		all = append(all, tool{Type: "function", Function: function{Name: spec.Name, Description: spec.Description, Parameters: spec.Schema}})
	}
	return all
}

// appendRound adds the calls of the model with the members that came with them, their results, and
// the messages that arrived meanwhile.
func appendRound(messages []message, d *model.Draft, round agent.Round) []message {
	members := d.Members(round, func(raw json.RawMessage) model.Object {
		var thoughts string
		if json.Unmarshal(raw, &thoughts) != nil || thoughts == "" {
			return nil // another kind of runner recorded it
		}
		return model.Object{"reasoning_content": thoughts}
	})
	asked := message{"role": chat.RoleAssistant, "content": round.Text}
	maps.Copy(asked, members.Message)
	if asked["reasoning_content"] == nil && !d.Can(model.Unthought) {
		asked["reasoning_content"] = " " // some endpoints refuse an empty one
	}
	var calls []model.Object
	for i, call := range round.Calls {
		made := model.Object{}
		maps.Copy(made, members.Of(i))
		if i == 0 && made.Object("extra_content") == nil && !d.Can(model.Unsigned) {
			made["extra_content"] = unsigned()
		}
		function := model.Object{"name": call.Name, "arguments": string(toolloop.Object(call.Args))}
		maps.Copy(function, made.Object("function"))
		made["id"], made["type"], made["function"] = d.CallID(round, i), "function", function
		calls = append(calls, made)
	}
	if len(calls) > 0 {
		asked["tool_calls"] = calls
	}
	messages = append(messages, asked)
	for i := range round.Calls {
		messages = append(messages, message{"role": "tool", "tool_call_id": d.CallID(round, i), "content": d.Result(round, i)})
	}
	if input := d.Input(round); input != "" {
		if len(calls) > 0 && !d.Can(model.UserAfterTool) {
			messages = append(messages, message{"role": chat.RoleAssistant, "content": "I have the results."})
		}
		messages = append(messages, message{"role": chat.RoleUser, "content": input})
	}
	return messages
}

// efforts are the levels that the API defines, from the least. Other words, such as off, leave the
// choice to the endpoint.
func efforts() []string {
	return []string{"minimal", "low", "medium", "high"}
}

// effort returns the level that is asked for, or the next one that the model has not refused; "" if
// it refuses all of them.
func effort(d *model.Draft) string {
	if at := slices.Index(efforts(), d.Thinking); at >= 0 && d.Can(model.Effort) {
		for _, level := range efforts()[at:] {
			if d.Can(model.Effort + " " + level) {
				return level
			}
		}
	}
	return ""
}

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
		said := choice.Object("delta")
		if len(said) > 0 {
			a.Pieces = true
		} else if !a.Pieces || !a.Begun() && a.Calls.Len() == 0 {
			said = choice.Object("message")
		}
		if err := piece(a, said); err != nil {
			return true, err
		}
	}
	return answered, nil
}

// piece takes a part of the message. Members that are not known return with the calls of the
// message; those that are left out are no part of a conversation.
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

// parts returns what of a content returns in its own form: all of it from the first list on, since
// a plain string returns as the text of its round.
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

// text shows the text of a content: a string, a part, or a list of both. Thoughts and parts that
// are not known are not shown.
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
		members := call.Without("id", "type", "index", "function", "name", "arguments")
		if function == nil { // some endpoints put its members into the call
			function = model.Object{"name": call["name"], "arguments": call["arguments"]}
		} else if inner := function.Without("name", "arguments"); len(inner) > 0 {
			members["function"] = map[string]any(inner)
		}
		args := function["arguments"]
		for _, name := range []string{"parameters", "input"} { // names of it in older models
			if args == nil {
				args = function[name]
			}
		}
		pieces = append(pieces, toolloop.Piece{
			Index: call.Index("index"), ID: call.String("id"), Name: function.String("name"), Args: arguments(args), Members: members,
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

// count takes the usage so far. Some endpoints count thoughts, or what their cache has served,
// outside of the prompt and the completion: only the total has them, or the detail is larger than
// the count that it would be a part of.
func count(a *model.Answer, usage model.Object) {
	if len(usage) == 0 {
		return
	}
	in, out, total := usage.Int("prompt_tokens", "input_tokens"), usage.Int("completion_tokens", "output_tokens"), usage.Int("total_tokens")
	detail := func(of string, names ...string) (n int) {
		for _, side := range []string{"prompt_", "input_", "completion_", "output_"} {
			if strings.Contains(of, side) {
				n = max(n, usage.Object(side+"tokens_details").Int(names...))
			}
		}
		return n
	}
	cached := max(detail("prompt_ input_", "cached_tokens"), usage.Int("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"))
	written := max(detail("prompt_ input_", "cache_write_tokens", "cache_creation_tokens"), usage.Int("cache_creation_input_tokens"))
	thoughts := max(detail("completion_ output_", "reasoning_tokens"), usage.Int("reasoning_tokens"))
	left := total - in - out
	switch beside := left - thoughts; {
	case left > 0 && left != thoughts && (left == cached || left == written || left == cached+written):
		in += left
	case beside > 0 && thoughts > 0 && (beside == cached || beside == written || beside == cached+written):
		in, out = in+beside, out+thoughts
	case left > 0:
		out += left
	default:
		if total == 0 && thoughts > out {
			out += thoughts
		}
		if cached > in {
			in += cached + written
		}
	}
	a.Input, a.Output, a.Cached = max(a.Input, in), max(a.Output, out), max(a.Cached, min(cached, in))
}
