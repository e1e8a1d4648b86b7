package acp

import (
	"context"
	"math"
	"testing"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

func TestUsageIsClampedAndWhole(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in   counts
		want chat.Usage
	}{
		"cached within the input":      {counts{Input: 10, Output: 4, Read: 6, Total: 14}, chat.Usage{InputTokens: 10, OutputTokens: 4, CachedTokens: 6}},
		"cached beside the input":      {counts{Input: 10, Output: 4, Read: 6, Write: 2, Total: 22}, chat.Usage{InputTokens: 18, OutputTokens: 4, CachedTokens: 6}},
		"thoughts beside the output":   {counts{Input: 10, Output: 4, Think: 5, Total: 19}, chat.Usage{InputTokens: 10, OutputTokens: 9}},
		"thoughts within the output":   {counts{Input: 10, Output: 9, Think: 5, Total: 19}, chat.Usage{InputTokens: 10, OutputTokens: 9}},
		"without a total":              {counts{Input: 10, Output: 4, Read: 6, Think: 2}, chat.Usage{InputTokens: 10, OutputTokens: 4, CachedTokens: 6}},
		"other names":                  {counts{InputTokens: 3, OutputTokens: 4}, chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"negative":                     {counts{Input: -1, Output: math.MinInt, Read: -5, Total: -1}, chat.Usage{}},
		"more than any model":          {counts{Input: math.MaxInt, Output: math.MaxInt, Read: math.MaxInt, Total: math.MaxInt}, chat.Usage{InputTokens: chat.MaxTokens, OutputTokens: chat.MaxTokens, CachedTokens: chat.MaxTokens}},
		"more cached tokens than read": {counts{Input: 3, Output: 4, Read: 9, Total: 7}, chat.Usage{InputTokens: 3, OutputTokens: 4, CachedTokens: 3}},
	} {
		tt.want.Provider = "acp"
		if got := usageOf(tt.in); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}

// namedTools are tools that are not called.
type namedTools []string

func (n namedTools) Specs() (specs []agent.ToolSpec) {
	for _, name := range n {
		specs = append(specs, agent.ToolSpec{Name: name})
	}
	return specs
}

func (namedTools) Call(context.Context, string, chat.ToolCall) chat.ToolResult {
	return chat.ToolResult{}
}

func TestCallsThatReadFromOutside(t *testing.T) {
	t.Parallel()
	start := func(title string, opts ...sdk.ToolCallStartOpt) sdk.SessionUpdate {
		return sdk.StartToolCall("c", title, opts...)
	}
	update := func(opts ...sdk.ToolCallUpdateOpt) sdk.SessionUpdate { return sdk.UpdateToolCall("c", opts...) }
	kind, done := sdk.WithStartKind, sdk.WithUpdateStatus(sdk.ToolCallStatusCompleted)
	at := func(path string) sdk.ToolCallStartOpt {
		return sdk.WithStartLocations([]sdk.ToolCallLocation{{Path: path}})
	}
	const read, other = sdk.ToolKindRead, sdk.ToolKindOther
	for name, c := range map[string]struct {
		updates []sdk.SessionUpdate
		want    bool
	}{
		"fetch":                           {[]sdk.SessionUpdate{start("https://a.example", kind(sdk.ToolKindFetch))}, true},
		"fetch named as an own tool":      {[]sdk.SessionUpdate{start("laneway_remind", kind(sdk.ToolKindFetch))}, true},
		"search":                          {[]sdk.SessionUpdate{start("words", kind(sdk.ToolKindSearch))}, true},
		"execute":                         {[]sdk.SessionUpdate{start("curl", kind(sdk.ToolKindExecute))}, true},
		"a kind that the protocol gained": {[]sdk.SessionUpdate{start("x", kind("browse"))}, true},
		"no kind":                         {[]sdk.SessionUpdate{start("exec: command: cat")}, true},
		"neither kind nor title":          {[]sdk.SessionUpdate{start("")}, true},
		"only its end":                    {[]sdk.SessionUpdate{update(done)}, true},
		"kind in a later update":          {[]sdk.SessionUpdate{start(""), update(sdk.WithUpdateKind(sdk.ToolKindFetch))}, true},
		"an edit that becomes a fetch":    {[]sdk.SessionUpdate{start("x", kind(sdk.ToolKindEdit)), update(sdk.WithUpdateKind(sdk.ToolKindFetch), done)}, true},
		"read outside":                    {[]sdk.SessionUpdate{start("Read", kind(read), at("/etc/passwd")), update(done)}, true},
		"read beside the directory":       {[]sdk.SessionUpdate{start("Read", kind(read), at("/home/work2/a")), update(done)}, true},
		"read above the directory":        {[]sdk.SessionUpdate{start("Read", kind(read), at("../a")), update(done)}, true},
		"read outside by its arguments":   {[]sdk.SessionUpdate{start("Read", kind(read), sdk.WithStartRawInput(map[string]any{"file_path": "/tmp/a"}))}, true},
		"read of an unknown file":         {[]sdk.SessionUpdate{start("Read", kind(read)), update(done)}, true},
		"read inside":                     {[]sdk.SessionUpdate{start("Read", kind(read), at("/home/work/a")), update(done)}, false},
		"read inside, named later": {[]sdk.SessionUpdate{
			start("Read", kind(read)), update(sdk.WithUpdateLocations([]sdk.ToolCallLocation{{Path: "sub/a"}})), update(done),
		}, false},
		"edit":                  {[]sdk.SessionUpdate{start("Edit", kind(sdk.ToolKindEdit), at("/tmp/a")), update(done)}, false},
		"think":                 {[]sdk.SessionUpdate{start("Plan", kind(sdk.ToolKindThink)), update(done)}, false},
		"own tool of Claude":    {[]sdk.SessionUpdate{start("mcp__laneway__laneway_remind", kind(other)), update(done)}, false},
		"own tool of Codex":     {[]sdk.SessionUpdate{start("Tool: laneway/laneway_remind"), update(done)}, false},
		"own tool of Gemini":    {[]sdk.SessionUpdate{start("laneway_remind (laneway MCP Server)", kind(other)), update(done)}, false},
		"own tool with no kind": {[]sdk.SessionUpdate{start("laneway_laneway_remind"), update(done)}, false},
		"own name in arguments": {[]sdk.SessionUpdate{start("browse: laneway_remind", kind(other))}, true},
		"another tool there":    {[]sdk.SessionUpdate{start("mcp__laneway__laneway_reminder", kind(other))}, true},
		"another server":        {[]sdk.SessionUpdate{start("mcp__web__remind", kind(other))}, true},
	} {
		found := false
		r := newReads(agent.Request{Tools: namedTools{"remind", "cron"}, Outside: func() { found = true }})
		r.dir = "/home/work"
		for _, u := range c.updates {
			r.see(u)
		}
		r.end()
		if found != c.want {
			t.Errorf("%s: outside is %v, want %v", name, found, c.want)
		}
	}
}
