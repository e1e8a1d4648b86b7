package model

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/chat"
)

// The parts of a request that endpoints are known to refuse, by the name of the member where they
// have one.
const (
	Tools               = "tools"
	ToolChoice          = "tool_choice"
	ParallelToolCalls   = "parallel_tool_calls"
	User                = "user"
	Temperature         = "temperature"
	TopP                = "top_p"
	Stop                = "stop"
	StreamOptions       = "stream_options"
	MaxTokens           = "max_tokens"
	MaxCompletionTokens = "max_completion_tokens"
	ResponseFormat      = "response_format"
	SystemRole          = "system role"
	Effort              = "reasoning_effort" // also followed by a space and a level: only this one
	ThinkingBudget      = "thinking.enabled"
	ThinkingAdaptive    = "thinking.adaptive"
	OutputConfig        = "output_config"
	// Forms of the rounds, which some endpoints take only as they make them.
	UserAfterTool = "user after tool"         // a message of the person right after results
	CallIDs       = "tool call ids"           // as they came; else in the form of [toolloop.CallID]
	Unsigned      = "calls without signature" // of another model, to Gemini
	Unthought     = "calls without thoughts"  // of another model, to reasoning models
)

// lackTime is how long a part is left out after a refusal.
const lackTime = 10 * time.Minute

// learned remembers what models of an endpoint have refused.
type learned struct {
	log *slog.Logger

	mu        sync.Mutex
	lacks     map[[2]string]agent.Lack // by model and part
	suspected map[string]int           // by model: turns that ended with a refusal that names nothing, while tools were offered
}

// refused returns the parts that a model has refused.
func (l *learned) refused(model string) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out map[string]bool
	for key, lack := range l.lacks {
		switch {
		case time.Now().After(lack.Until):
			delete(l.lacks, key)
		case key[0] == model:
			if out == nil {
				out = map[string]bool{}
			}
			out[key[1]] = true
		}
	}
	return out
}

func (l *learned) list() []agent.Lack {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []agent.Lack
	for _, lack := range l.lacks {
		if time.Now().Before(lack.Until) {
			out = append(out, lack)
		}
	}
	slices.SortFunc(out, func(a, b agent.Lack) int { return strings.Compare(a.Model+" "+a.Part, b.Model+" "+b.Part) })
	return out
}

// accepted forgets that a model refused parts of a request that it has accepted.
func (l *learned) accepted(model string, used []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, part := range used {
		delete(l.lacks, [2]string{model, part})
	}
	if slices.Contains(used, Tools) {
		delete(l.suspected, model)
	}
}

func (l *learned) add(ctx context.Context, model, part, said string) {
	l.mu.Lock()
	key := [2]string{model, part}
	_, known := l.lacks[key]
	l.lacks[key] = agent.Lack{Model: model, Part: part, Said: said, Until: time.Now().Add(lackTime)}
	l.mu.Unlock()
	if !known {
		l.log.WarnContext(ctx, "the model endpoint refuses a part of requests; they continue without it", "model", model, "part", part, "said", said,
			"next_try_in", lackTime.String())
	}
}

// refusal records the part that a refusal names, and reports whether the request may be repeated
// without it.
func (l *learned) refusal(ctx context.Context, d *Draft, err error) bool {
	refused := refusalOf(err)
	if refused == nil {
		return false
	}
	part := named(*refused, d.used)
	if part == "" {
		return false
	}
	l.add(ctx, d.Model, part, refused.Message)
	return true
}

// smallUnknown is the size of a small request, in tokens, if the window is not known.
const smallUnknown = 4_000

// suspect notes a refusal that names nothing, of a small request with tools. Tools are left out
// after two of them.
func (l *learned) suspect(ctx context.Context, d *Draft, window int, err error) {
	small := smallUnknown
	if window > 0 {
		small = window / 4
	}
	if !slices.Contains(d.used, Tools) || len(d.Talk.Tools) == 0 || d.Estimated == 0 || d.Estimated >= small {
		return
	}
	l.mu.Lock()
	l.suspected[d.Model]++
	twice := l.suspected[d.Model] >= 2
	if twice {
		delete(l.suspected, d.Model)
	}
	l.mu.Unlock()
	if refused := refusalOf(err); twice && refused != nil {
		l.add(ctx, d.Model, Tools, refused.Message)
	}
}

// refusalOf returns a refusal that may be about a part of the request. Some servers report that
// with 500 or 501, and routers with 404.
func refusalOf(err error) *modelhttp.StatusError {
	var refused *modelhttp.StatusError
	if !errors.As(err, &refused) || agent.ReasonOf(err) == chat.FailContextLength {
		return nil
	}
	switch refused.Status {
	case 0, http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusNotImplemented:
		return refused
	default:
		return nil
	}
}

// unnamed reports a 400 whose cause is not known.
func unnamed(err error) bool {
	refused := refusalOf(err)
	return refused != nil && refused.Status == http.StatusBadRequest && agent.ReasonOf(err) == chat.FailBadRequest
}

// refusing are words of a sentence that refuses what it names, in contrast to one that misses it or
// states its range.
func refusing() []string {
	return []string{
		"not support", "n't support", "unsupported", "not permitted", "not allowed", "unexpected", "unknown", "unrecognized", "unrecognised", "not recognized",
		"extra input", "extra field", "extra_forbidden", "additional propert", "not available", "not enabled", "disabled", "cannot be used", "can't be used",
		"requires --", "no endpoints found", "not implemented", "only the default", "deprecated", "not accept", "is not a valid parameter", "support tool use", "only 1 is allowed",
		"may only be set to", "unsupported_parameter", "unsupported_value",
	}
}

// demands are the words of sentences, all of one list, that want a part in another form or without
// another one.
func demands() map[string][][]string {
	return map[string][][]string{
		UserAfterTool: {{"role", "user", "after role", "tool"}, {"roles must alternate"}, {"role", "user", "must not follow", "tool"}},
		CallIDs: {
			{"tool call id", "length of 9"},
			{"tool_calls", "].id", "too long"},
			{"tool_call_id", "too long"},
			{"tool_use.id", "pattern"},
			{"tool_use_id", "pattern"},
			{"tool_call_id", "pattern"},
			{"tool call id", "invalid"},
			{"toolu", "pattern"},
		},
		TopP:      {{"temperature", "top_p", "both"}},
		Unsigned:  {{"missing", "thought_signature"}, {"missing", "thought signature"}, {"missing", "thoughtsignature"}},
		Unthought: {{"reasoning_content", "must be passed back"}, {"reasoning_content", "missing"}},
	}
}

// ranged are words that state which values a part may have: a level of thinking is left out then.
func ranged() []string {
	return []string{"must be one of", "supported values", "should be one of", "input should be", "expected one of", "invalid value", "invalid think value"}
}

// names are further words for a part; every part is also named by its own name.
func names() map[string][]string {
	return map[string][]string{
		Tools:            {"tool use", "tool calling", "tool calls", "tool choice", "function calling", "function calls", "functions", "tool-call-parser"},
		ToolChoice:       {"disable_parallel_tool_use"},
		StreamOptions:    {"include_usage"},
		SystemRole:       {"system role", "role system", "role 'system'", "does not support 'system'", "role \"system\"", "developer instruction"},
		MaxTokens:        {"max_completion_tokens"},
		ThinkingBudget:   {"thinking.type.enabled", "budget_tokens", "thinking", "adaptive"},
		ThinkingAdaptive: {"thinking.type.adaptive", "adaptive", "thinking"},
		OutputConfig:     {"output_config.effort", "effort"},
		Effort:           {"reasoning.effort", "reasoning effort", "thinking", "think value"},
	}
}

// named returns the part that a refusal names; "" if it names none of those that were used. The
// longest name counts: `max_tokens` is a part of many sentences about another member.
func named(refused modelhttp.StatusError, used []string) string {
	words := strings.ToLower(refused.Message + " " + refused.Code + " " + refused.Param)
	for _, part := range used {
		for _, signs := range demands()[part] {
			if !slices.ContainsFunc(signs, func(sign string) bool { return !strings.Contains(words, sign) }) {
				return part
			}
		}
	}
	says := func(signs []string) bool {
		return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(words, sign) })
	}
	refuses := strings.Contains(words, "instead") || says(refusing())
	if !refuses && !says(ranged()) || strings.Contains(words, "tools[") || strings.Contains(words, "tools.0") {
		return ""
	}
	best, length := "", 0
	for _, part := range used {
		name, level, _ := strings.Cut(part, " ")
		if !refuses && name != Effort {
			continue
		}
		if part == SystemRole || name != Effort {
			name, level = part, ""
		} else if level != "" && !hasWord(words, level) {
			continue
		}
		for _, word := range append([]string{name, strings.ReplaceAll(name, "_", "")}, names()[name]...) {
			if n := len(word) + len(level); n > length && hasWord(words, word) {
				best, length = part, n
			}
		}
	}
	return best
}

// hasWord reports whether a word stands alone: neither before nor after it is a letter, a digit or
// a low line.
func hasWord(text, word string) bool {
	within := func(b byte) bool {
		return b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z'
	}
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		start := from + i
		end := start + len(word)
		if (start == 0 || !within(text[start-1])) && (end == len(text) || !within(text[end])) {
			return true
		}
		from = start + 1
	}
}
