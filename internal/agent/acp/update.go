package acp

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

const (
	// maxShown bounds arguments and results in events, maxTitle the names of calls, in bytes.
	maxShown = 16 << 10
	maxTitle = 200
	// maxCalls is how many calls of a turn are remembered.
	maxCalls = 1000
)

var errNotCancelled = errors.New("the agent did not end its turn")

// take applies one update of the agent. Its error ends the turn.
func (t *turn) take(u sdk.SessionUpdate) error {
	switch {
	case u.AgentMessageChunk != nil:
		t.besidePiece(u.AgentMessageChunk.Meta)
		return t.text(u.AgentMessageChunk.Content)
	case u.ToolCall != nil:
		t.call(u.ToolCall)
	case u.ToolCallUpdate != nil:
		t.callUpdate(u.ToolCallUpdate)
	}
	return nil
}

// text adds a piece of the answer. A tool call between two pieces starts a new paragraph.
func (t *turn) text(block sdk.ContentBlock) error {
	if block.Text == nil || block.Text.Text == "" {
		return nil
	}
	text := block.Text.Text
	if t.gap {
		t.gap = false
		first, _ := utf8.DecodeRuneInString(text)
		if t.answer.Begun() && !unicode.IsSpace(first) && !strings.HasSuffix(t.answer.Text(), "\n") {
			text = "\n\n" + text
		}
	}
	return t.answer.Append(text)
}

func (t *turn) call(c *sdk.SessionUpdateToolCall) {
	if t.known[c.ToolCallId] {
		t.callUpdate(&sdk.SessionToolCallUpdate{ToolCallId: c.ToolCallId, Title: &c.Title, Status: &c.Status, RawOutput: c.RawOutput, Content: c.Content})
		return
	}
	t.gap = true
	name := chat.Cut(chat.Printable(c.Title), maxTitle)
	if len(t.known) < maxCalls {
		t.calls[c.ToolCallId], t.known[c.ToolCallId] = name, true
	}
	t.tool(chat.ToolEvent{Phase: "start", CallID: string(c.ToolCallId), Name: name, Args: shown(c.RawInput)})
	t.ended(c.ToolCallId, c.Status, c.RawOutput, c.Content)
}

// callUpdate uses the title of an update, because some agents set it only after the call has started. The first update of an unknown call starts it, because some agents
// announce a call only by its permission request.
func (t *turn) callUpdate(c *sdk.SessionToolCallUpdate) {
	title := ""
	if c.Title != nil {
		title = *c.Title
	}
	if !t.known[c.ToolCallId] && len(t.known) < maxCalls {
		t.call(&sdk.SessionUpdateToolCall{ToolCallId: c.ToolCallId, Title: cmp.Or(title, "tool"), RawInput: c.RawInput})
	}
	status := sdk.ToolCallStatus("")
	if c.Status != nil {
		status = *c.Status
	}
	was, open := t.calls[c.ToolCallId]
	name := was
	if open && title != "" {
		name = chat.Cut(chat.Printable(title), maxTitle)
		t.calls[c.ToolCallId] = name
	}
	if t.ended(c.ToolCallId, status, c.RawOutput, c.Content) {
		return
	}
	if open && (status == sdk.ToolCallStatusInProgress || name != was) {
		t.tool(chat.ToolEvent{Phase: "update", CallID: string(c.ToolCallId), Name: name, Result: string(status)})
	}
}

// ended emits the result of a call that has completed or failed.
func (t *turn) ended(id sdk.ToolCallId, status sdk.ToolCallStatus, output any, content []sdk.ToolCallContent) bool {
	name, open := t.calls[id]
	if !open || (status != sdk.ToolCallStatusCompleted && status != sdk.ToolCallStatusFailed) {
		return false
	}
	delete(t.calls, id)
	result := shown(output)
	if output == nil {
		result = shown(textOf(content))
	}
	t.tool(chat.ToolEvent{Phase: "result", CallID: string(id), Name: name, Result: result, IsError: status == sdk.ToolCallStatusFailed})
	return true
}

// endCalls emits a result for each call that is unfinished at the end of the turn.
func (t *turn) endCalls() {
	for _, id := range slices.Sorted(maps.Keys(t.calls)) {
		t.tool(chat.ToolEvent{Phase: "result", CallID: string(id), Name: t.calls[id], Result: `"it was not finished"`, IsError: true})
	}
}

func (t *turn) tool(e chat.ToolEvent) { t.emit(agent.Event{Kind: agent.EventTool, Tool: &e}) }

func textOf(content []sdk.ToolCallContent) string {
	var parts []string
	for _, c := range content {
		if c.Content != nil && c.Content.Content.Text != nil {
			parts = append(parts, c.Content.Content.Text.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// shown returns a value as JSON, cut at maxShown, and "" for nil.
func shown(value any) string {
	if value == nil {
		return ""
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return chat.Cut(string(raw), maxShown)
}

// reads finds out whether a call shows the agent text from outside, see [agent.Request.Outside]. Calls that fetch, search or execute do, calls that read a file outside
// of the directory, and calls of a kind that is not known, except those of the gateway's own tools. Agents describe a call in several updates: one that does not say
// enough yet is judged by its last one. The goroutines of the connection use it.
type reads struct {
	found func()
	own   *regexp.Regexp // the names that agents give to the gateway's tools
	dir   string         // of the session

	mu    sync.Mutex
	calls map[sdk.ToolCallId]readCall // those that are not judged
	done  map[sdk.ToolCallId]bool
}

// readCall is what is known of a call.
type readCall struct {
	kind  sdk.ToolKind
	title string
	paths []string
}

func newReads(req agent.Request) *reads {
	r := &reads{found: req.ReadsOutside, calls: map[sdk.ToolCallId]readCall{}, done: map[sdk.ToolCallId]bool{}}
	if req.Tools == nil {
		return r
	}
	var names []string
	for _, spec := range req.Tools.Specs() {
		names = append(names, regexp.QuoteMeta(spec.Name))
	}
	// `mcp__laneway__laneway_remind`, `Tool: laneway/laneway_remind`, `laneway_remind (laneway MCP Server)`: the name is at the beginning, where arguments cannot be.
	r.own = regexp.MustCompile(`(?i)^(?:tool: *)?(?:mcp[_-]+)?(?:laneway[^a-z0-9]+)+(?:` + strings.Join(names, "|") + `)(?:$|[^a-z0-9_]|__)`)
	return r
}

// see applies an update.
func (r *reads) see(u sdk.SessionUpdate) {
	switch {
	case u.ToolCall != nil:
		c := u.ToolCall
		r.add(c.ToolCallId, readCall{c.Kind, c.Title, readPaths(c.Locations, c.RawInput)}, c.Status)
	case u.ToolCallUpdate != nil:
		c := u.ToolCallUpdate
		r.add(c.ToolCallId, readCall{deref(c.Kind), deref(c.Title), readPaths(c.Locations, c.RawInput)}, deref(c.Status))
	}
}

func (r *reads) add(id sdk.ToolCallId, more readCall, status sdk.ToolCallStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[id] {
		return
	}
	c := r.calls[id]
	c.kind, c.title, c.paths = cmp.Or(more.kind, c.kind), cmp.Or(more.title, c.title), append(c.paths, more.paths...)
	outside, judged := r.judge(id, c, status == sdk.ToolCallStatusCompleted || status == sdk.ToolCallStatusFailed)
	switch {
	case outside:
		r.found()
		fallthrough
	case judged && len(r.done) < maxCalls:
		delete(r.calls, id)
		r.done[id] = true
	case len(r.calls) < maxCalls:
		r.calls[id] = c
	default:
		r.found() // too many calls to remember
	}
}

// judge decides about a call; ended means that nothing more will be known about it.
func (r *reads) judge(id sdk.ToolCallId, c readCall, ended bool) (outside, judged bool) {
	switch c.kind {
	case sdk.ToolKindEdit, sdk.ToolKindDelete, sdk.ToolKindMove, sdk.ToolKindThink, sdk.ToolKindSwitchMode:
		return false, ended // a later update may have another kind
	case sdk.ToolKindFetch, sdk.ToolKindSearch, sdk.ToolKindExecute:
		return true, true
	case sdk.ToolKindRead:
		away := slices.ContainsFunc(c.paths, func(path string) bool { return !within(r.dir, path) })
		return away || ended && len(c.paths) == 0, away || ended
	}
	if r.own != nil && (r.own.MatchString(c.title) || r.own.MatchString(string(id))) {
		return false, true
	}
	return c.title != "" || ended, c.title != "" || ended
}

// end judges the calls that are left at the end of the turn.
func (r *reads) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, c := range r.calls {
		if outside, _ := r.judge(id, c, true); outside {
			r.found()
		}
	}
}

// readPaths returns the files that a call names.
func readPaths(locations []sdk.ToolCallLocation, input any) (paths []string) {
	for _, at := range locations {
		paths = append(paths, at.Path)
	}
	if path := arguments(input).take("file_path", "filePath", "path", "abs_path", "absolute_path"); path != "" {
		paths = append(paths, path)
	}
	return paths
}

// within reports whether a path is in a directory. Links are not followed.
func within(dir, path string) bool {
	path = strings.TrimPrefix(path, "file://")
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
