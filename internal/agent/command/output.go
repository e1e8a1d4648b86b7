package command

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/jsonline"
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
)

// maxLine bounds a JSON line. A longer line is text.
const maxLine = 4 << 20

const blanks = " \t\r\n"

// output turns what a program writes into an answer. It belongs to the goroutine of Run.
type output struct {
	mode   Output
	answer *jsonline.Answer
	line   []byte  // the line that is not complete yet
	known  *stream // nil means that the program is not a known one
}

// write takes raw output. An error of it ends the turn.
func (o *output) write(raw []byte) error {
	if o.mode == OutputText {
		return o.answer.Text.AppendBytes(raw)
	}
	o.line = append(o.line, raw...)
	if o.mode == OutputAuto && !o.decide() {
		return o.undecided()
	}
	for {
		end := bytes.IndexByte(o.line, '\n')
		if end < 0 {
			return o.bounded()
		}
		if err := o.take(o.line[:end+1]); err != nil {
			return err
		}
		o.line = o.line[end+1:]
	}
}

// decide looks at the first line that is not blank and reports whether the output is JSON lines.
func (o *output) decide() bool {
	first, _, complete := bytes.Cut(bytes.TrimLeft(o.line, blanks), []byte("\n"))
	if !complete {
		return false
	}
	if _, ok := jsonline.Parse(first); ok {
		o.mode = OutputJSON
	}
	return o.mode == OutputJSON
}

// undecided switches to text once it is certain that the output is not JSON, and waits for more
// until then.
func (o *output) undecided() error {
	start := bytes.TrimLeft(o.line, blanks)
	if len(start) > 0 && (start[0] != '{' || bytes.IndexByte(start, '\n') >= 0) {
		return o.plain()
	}
	return o.bounded()
}

// plain switches to text, including everything that was held back.
func (o *output) plain() error {
	held := o.line
	o.line, o.mode = nil, OutputText
	return o.answer.Text.AppendBytes(held)
}

// bounded stops waiting for the end of a line that is too long.
func (o *output) bounded() error {
	if len(o.line) <= maxLine {
		return nil
	}
	if o.known != nil {
		o.line = nil
		return nil
	}
	return o.plain()
}

// close takes the rest when the output has ended.
func (o *output) close() error {
	rest := o.line
	o.line = nil
	if len(rest) > 0 {
		if _, ok := jsonline.Parse(rest); ok || o.mode == OutputJSON || o.known != nil {
			return o.take(rest)
		}
		if err := o.answer.Text.AppendBytes(rest); err != nil {
			return err
		}
	}
	return o.answer.Text.Flush()
}

// take reads one line; a line that is not a JSON object is text.
func (o *output) take(raw []byte) error {
	if o.known != nil {
		return o.known.take(raw)
	}
	line, ok := jsonline.Parse(raw)
	if ok {
		return o.answer.Take(line)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	return o.answer.Text.Append(string(raw))
}

// maxShown bounds arguments and results of events in bytes; maxWords bounds what a program reports
// about its failure.
const (
	maxShown = 16 << 10
	maxWords = 300
)

// stream reads the JSON lines of a known program: Claude Code
// (`claude -p --output-format stream-json --verbose`) or Codex (`codex exec --json`). Lines of
// other kinds, and lines that are not JSON, are skipped.
type stream struct {
	out  *output
	emit func(agent.Event)
	// outside is called when the program may have read text from outside, see
	// [agent.Request.Outside].
	outside func()
	// session is called with the id of the session that the program reports; may be nil.
	session func(id string)
	// ofTurn computes the usage of the turn from what Codex reports for its session; nil means that
	// the session has only this turn.
	ofTurn func(reported chat.Usage) chat.Usage
	// calls are the names of the calls without a result, by their ids.
	calls map[string]string
	// gap is true when a call came between the text and what follows, pieces when the text came in
	// pieces before the whole message.
	gap, pieces bool
}

// streamLine has the members used from the lines of both programs.
type streamLine struct {
	Type string `json:"type"`
	// Claude Code.
	Subtype   string   `json:"subtype"`
	SessionID string   `json:"session_id"`
	Errors    []string `json:"errors"`
	Message   struct {
		Content json.RawMessage `json:"content"`
	} `json:"message"`
	Event struct {
		Delta struct {
			Text string `json:"text"`
		} `json:"delta"`
	} `json:"event"`
	Result  string       `json:"result"`
	IsError bool         `json:"is_error"`
	Usage   *streamUsage `json:"usage"`
	// Codex.
	ThreadID string     `json:"thread_id"`
	Item     streamItem `json:"item"`
	Error    struct {
		Message string `json:"message"`
	} `json:"error"`
}

type streamUsage struct {
	Input       int `json:"input_tokens"`
	Output      int `json:"output_tokens"`
	CacheRead   int `json:"cache_read_input_tokens"`
	CacheWrite  int `json:"cache_creation_input_tokens"`
	CachedInput int `json:"cached_input_tokens"`
}

// streamItem is a step of Codex.
type streamItem struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Text    string `json:"text"`
	Command string `json:"command"`
	Tool    string `json:"tool"`
	Output  string `json:"aggregated_output"`
	Status  string `json:"status"`
}

// streamBlock is a part of a message of Claude Code.
type streamBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// take applies one line.
func (s *stream) take(raw []byte) error {
	var line streamLine
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || json.Unmarshal(raw, &line) != nil {
		return nil //nolint:nilerr // a line of another kind
	}
	switch line.Type {
	case "system", "thread.started":
		if s.session != nil && (line.Subtype == "init" || line.Subtype == "") {
			s.session(cmp.Or(line.SessionID, line.ThreadID))
		}
	case "stream_event":
		s.pieces = s.pieces || line.Event.Delta.Text != ""
		return s.text(line.Event.Delta.Text)
	case "assistant", "user":
		return s.message(line)
	case "result":
		return s.result(line)
	case "item.started", "item.completed":
		return s.item(line.Item, line.Type == "item.completed")
	case "turn.completed":
		s.usage(line.Usage, "openai", s.ofTurn)
	case "turn.failed":
		s.fail(line.Error.Message)
	}
	return nil
}

func (s *stream) message(line streamLine) error {
	var blocks []streamBlock
	if json.Unmarshal(line.Message.Content, &blocks) != nil {
		return nil //nolint:nilerr // the words of a user
	}
	for _, b := range blocks {
		switch {
		case b.Type == "text" && line.Type == "assistant" && !s.pieces:
			if err := s.text(b.Text); err != nil {
				return err
			}
		case b.Type == "tool_use":
			s.call(b.ID, b.Name, string(b.Input))
		case b.Type == "tool_result":
			s.callEnded(b.ToolUseID, string(b.Content), b.IsError)
		}
	}
	return nil
}

// result handles the end of a turn of Claude Code.
func (s *stream) result(line streamLine) error {
	s.usage(line.Usage, "anthropic", nil)
	switch {
	case line.IsError:
		s.fail(cmp.Or(line.Result, strings.Join(line.Errors, " / ")))
	case !s.out.answer.Text.Begun():
		return s.text(line.Result)
	}
	return nil
}

func (s *stream) item(item streamItem, ended bool) error {
	switch item.Type {
	case "agent_message":
		if !ended {
			return nil
		}
		s.gap = true
		return s.text(item.Text)
	case "command_execution", "mcp_tool_call", "file_change", "web_search":
		if s.calls[item.ID] == "" {
			s.call(item.ID, cmp.Or(item.Tool, item.Type), shownJSON(item.Command))
		}
		if ended {
			s.callEnded(item.ID, shownJSON(item.Output), item.Status == "failed")
		}
	}
	return nil
}

// text adds to the answer. Text after a call, and another message, starts a new paragraph.
func (s *stream) text(text string) error {
	if text == "" {
		return nil
	}
	if s.gap && s.out.answer.Text.Begun() {
		text = "\n\n" + text
	}
	s.gap = false
	return s.out.answer.Text.Append(text)
}

func (s *stream) call(id, name, args string) {
	s.gap = true
	name = chat.Cut(chat.Printable(name), maxWords)
	s.calls[id] = name
	if !harmless(name) {
		s.outside()
	}
	s.emit(agent.Event{Kind: agent.EventTool, Tool: &chat.ToolEvent{Phase: "start", CallID: id, Name: name, Args: chat.Cut(args, maxShown)}})
}

// harmless reports whether a call of a known program shows it no text from outside: it changes
// files, plans, or uses a tool of the gateway, which reports that itself.
func harmless(name string) bool {
	switch name {
	case "Edit", "MultiEdit", "NotebookEdit", "Write", "TodoWrite", "ExitPlanMode", "file_change":
		return true
	}
	return strings.HasPrefix(name, "mcp__laneway__") || strings.HasPrefix(name, "laneway_")
}

func (s *stream) callEnded(id, result string, failed bool) {
	name, open := s.calls[id]
	if !open {
		return
	}
	delete(s.calls, id)
	s.emit(agent.Event{Kind: agent.EventTool, Tool: &chat.ToolEvent{Phase: "result", CallID: id, Name: name, Result: chat.Cut(result, maxShown), IsError: failed}})
}

// endCalls ends the calls without a result.
func (s *stream) endCalls() {
	for _, id := range slices.Sorted(maps.Keys(s.calls)) {
		s.callEnded(id, `"it was not finished"`, true)
	}
}

func (s *stream) usage(u *streamUsage, provider string, ofTurn func(chat.Usage) chat.Usage) {
	if u == nil {
		return
	}
	used := chat.Usage{
		InputTokens: chat.Tokens(u.Input, u.CacheRead, u.CacheWrite), OutputTokens: chat.Tokens(u.Output), CachedTokens: chat.Tokens(u.CacheRead, u.CachedInput),
		Provider: provider,
	}.Clamped()
	if ofTurn != nil {
		used = ofTurn(used)
	}
	s.out.answer.Usage = used
	s.emit(agent.Event{Kind: agent.EventUsage, Usage: s.out.answer.Usage})
}

func (s *stream) fail(words string) {
	words = chat.Cut(chat.Printable(chat.CleanText(words)), maxWords)
	s.out.answer.Failed = agent.NewError(chat.FailProgram, "The agent reported a failure: "+cmp.Or(words, "it gave no reason"), nil)
}

// shownJSON encodes a string as JSON; "" stays empty.
func shownJSON(s string) string {
	if s == "" {
		return ""
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	return string(raw)
}

// files returns the files to send: those that its JSON lines have named, or, when it answered in
// plain text, every regular file in the directory, in the order of names.
func (o *output) files(dir string) ([]chat.Attachment, error) {
	if dir == "" || o.mode == OutputJSON || len(o.answer.Named) > 0 {
		return o.answer.Named, nil
	}
	return program.Files(dir)
}
