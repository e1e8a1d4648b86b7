package program

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// Memory records what an agent that keeps a conversation itself has seen of it. In the zero value it has seen nothing.
type Memory struct { //nolint:recvcheck // UsedBy changes it, the other methods only read it
	// Runs are the latest turns, the last one at the end. Seen is the number of the last entry of the transcript.
	Runs []string
	Seen int64
	// Used is the usage of the whole session, for an agent that reports this instead of the usage of a turn.
	Used chat.Usage
}

// Remembered returns the memory of a stored session.
func Remembered(s chat.AgentSession) Memory { return Memory{Runs: s.Runs, Seen: s.Seen, Used: s.Used} }

// UsedBy returns the usage of a turn from the usage that the agent reports for the whole session after it, and stores the latter.
func (m *Memory) UsedBy(reported chat.Usage) chat.Usage {
	before := m.Used
	m.Used = reported
	return chat.Usage{
		InputTokens: reported.InputTokens - before.InputTokens, OutputTokens: reported.OutputTokens - before.OutputTokens,
		CachedTokens: reported.CachedTokens - before.CachedTokens, Provider: reported.Provider,
	}.Clamped()
}

// With returns the memory after a turn.
func (m Memory) With(req agent.Request) Memory {
	const kept = 64
	if n := len(m.Runs); n == 0 || m.Runs[n-1] != req.RunID { // not a later attempt of the same turn
		m.Runs = append(slices.Clone(m.Runs), req.RunID)
	}
	m.Runs = slices.Delete(m.Runs, 0, max(0, len(m.Runs)-kept))
	for _, e := range req.History {
		m.Seen = max(m.Seen, e.Seq)
	}
	return m
}

// Forgot reports whether the conversation was restarted since the last turn. The last turn may be an earlier attempt of this one.
func (m Memory) Forgot(req agent.Request) bool {
	if len(m.Runs) == 0 {
		return false
	}
	last := m.Runs[len(m.Runs)-1]
	return last != req.RunID && !slices.ContainsFunc(req.History, func(e chat.TranscriptEntry) bool { return e.RunID == last })
}

// Before returns the paragraphs that precede the message: the system prompt and the history if the agent has seen nothing, otherwise what others have
// added; then the notice that the turn runs again, and dir, its directory for files ("" if none).
func (m Memory) Before(req agent.Request, dir string) ([]string, error) {
	var parts []string
	intro := "Added to the conversation meanwhile, as JSON:\n"
	if len(m.Runs) == 0 {
		intro = "The conversation before this message, as JSON:\n"
		if req.SystemPrompt != "" {
			parts = append(parts, req.SystemPrompt)
		}
	}
	if unseen := m.unseen(req.History); len(unseen) > 0 {
		raw, err := json.Marshal(unseen)
		if err != nil {
			return nil, fmt.Errorf("encoding the history: %w", err)
		}
		parts = append(parts, intro+string(raw))
	}
	if again := agent.Repeated(req); again != "" {
		parts = append(parts, again)
	}
	if dir != "" {
		parts = append(parts, "Files that the person is to get with this answer: write them to the directory "+dir)
	}
	return parts, nil
}

// line is an entry of the transcript in the form for the agent. In JSON the content cannot end its own entry.
type line struct {
	Role string `json:"role"`
	From string `json:"from,omitempty"`
	Text string `json:"text"`
}

// unseen returns the entries that the agent has not seen: those after Seen, without its own turns, chat commands and questions.
func (m Memory) unseen(history []chat.TranscriptEntry) (list []line) {
	for _, e := range history {
		if (e.Seq <= m.Seen && m.Seen > 0) || slices.Contains(m.Runs, e.RunID) || e.Text == "" || e.Command || asks(e) {
			continue
		}
		from := e.Sender.Name
		if e.Origin != nil {
			e.Role, from = chat.RoleSystem, e.Origin.Who()
		}
		list = append(list, line{e.Role, from, e.Text})
	}
	return list
}

// asks reports whether an entry is a question to the person: its last line has the commands that answer it. The question ended with its turn, and an
// agent could take the commands for messages of the person.
func asks(e chat.TranscriptEntry) bool {
	last := e.Text[strings.LastIndexByte(e.Text, '\n')+1:]
	return e.Role != chat.RoleUser && (strings.HasPrefix(last, "Write /allow ") || strings.HasPrefix(last, "Write /deny ") || strings.HasPrefix(last, "Write /answer "))
}
