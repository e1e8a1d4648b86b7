package agent

import (
	"fmt"
	"strings"
	"time"

	"laneway/internal/chat"
)

// Line is one message of a conversation in the form for a model.
type Line struct {
	// Role is [chat.RoleUser] or [chat.RoleAssistant].
	Role string
	Text string
}

// Prompt returns the new input of a request as one string: the text of all its messages in order. A message shows the
// name of its sender when several people speak. Text without authority (webhooks, forwarded text) is quoted with `> `
// on every line, so that it cannot end its own quotation; system events and attachments are in brackets.
func Prompt(req Request) string {
	named := req.Session.Kind() == chat.KindGroup || severalSenders(req.Messages)
	parts := make([]string, 0, len(req.Messages))
	for _, message := range req.Messages {
		parts = append(parts, render(message, named))
	}
	return strings.Join(parts, "\n")
}

// Repeated returns the notice for an agent without a journal that a turn is attempted again; "" in the first attempt.
func Repeated(req Request) string {
	switch {
	case req.Attempt <= 1:
		return ""
	case req.CallOnce:
		return fmt.Sprintf("attempt %d: an earlier one did not succeed; check what was done before you repeat it", req.Attempt)
	case req.Attempt == 2:
		return "attempt 2: the first one ended when the gateway stopped; check what was done before you repeat it"
	default:
		return fmt.Sprintf("attempt %d: the earlier ones ended when the gateway stopped; check what was done before you repeat it", req.Attempt)
	}
}

// PlainText returns only the text of the messages of a request, joined by newlines.
func PlainText(req Request) string {
	parts := make([]string, 0, len(req.Messages))
	for _, message := range req.Messages {
		parts = append(parts, message.Text)
	}
	return strings.Join(parts, "\n")
}

// Conversation returns a request in the form that a model requires: a system prompt, then lines that begin with the user,
// alternate, and end with the new input. Providers and the chat templates of open models refuse anything else. The person's
// clock is part of the new input, so that everything before it stays the same for the caches of providers. History is cut
// with [CutHistory] so that the whole fits into room; the new input is never cut. Empty lines and the replies to chat
// commands are left out. Adjacent entries of the same role become one line. System notes from the transcript are shown in
// brackets as the user, because only the operator may write as the system. So are answers before the first message of a person.
func Conversation(req Request, system string, room Room) (string, []Line) {
	system, input := fixed(req, system)
	past := CutHistory(earlier(req), room.left(system, input))
	lines := make([]Line, 0, len(past)+1)
	for _, entry := range past {
		lines = appendLine(lines, lineOf(entry, req.Session.Kind() == chat.KindGroup))
	}
	lines = appendLine(lines, Line{Role: chat.RoleUser, Text: input})
	return system, lines
}

// fixed returns what is never cut: the system prompt and the new input.
func fixed(req Request, system string) (prompt, input string) {
	if req.SystemPrompt != "" {
		system = req.SystemPrompt
	}
	input = Prompt(req)
	if req.Clock != "" {
		input = "[note] For the person it is " + req.Clock + ".\n" + input
	}
	return system, input
}

// Room is the part of a context window that a request may fill.
type Room struct {
	// Window is the context window of the model; Reserve is left for the answer and for pictures. Both are tokens as the provider counts them.
	Window, Reserve int
	// Rounds is the number of tokens of the tools and rounds of the turn, as [Ratio.Window] counts them.
	Rounds int
	Ratio  Ratio
}

// left returns how many estimated tokens are left besides the system prompt and the new input. If the provider counts that input as [Ratio.New], half
// of the reserve is still left.
func (r Room) left(system, input string) int {
	estimate := EstimateTokens(input)
	fits := min(r.Ratio.Window(r.Window-r.Reserve)-estimate, r.Ratio.Window(r.Window-r.Reserve/2)-r.Ratio.New(estimate))
	return fits - r.Rounds - EstimateTokens(system) - 2*entryOverhead
}

// EstimateRequest returns the estimate of a conversation without its tools and rounds.
func EstimateRequest(system string, lines []Line) int {
	n := EstimateTokens(system)
	for _, line := range lines {
		n += EstimateTokens(line.Text) + entryOverhead
	}
	return n
}

// RoundTokens returns how many estimated tokens the tools and rounds of a turn may have. A quarter of the room is kept for the conversation before
// the turn, if it has one.
func RoundTokens(req Request, system string, room Room) int {
	left := room.left(fixed(req, system))
	if len(req.History) > 0 {
		left = left * 3 / 4
	}
	return max(left, 256)
}

// earlier returns the conversation before the new input: the transcript, then the context that the messages brought.
func earlier(req Request) []chat.TranscriptEntry {
	all := make([]chat.TranscriptEntry, 0, len(req.History))
	add := func(entries []chat.TranscriptEntry) {
		for _, entry := range entries {
			if !entry.Command && strings.TrimSpace(entry.Text) != "" {
				all = append(all, entry)
			}
		}
	}
	add(req.History)
	for _, message := range req.Messages {
		add(message.Context)
	}
	for i := range all {
		if o := all[i].Origin; o != nil { // a note, so that a model does not take it for its own words, and cannot copy its label
			all[i].Role, all[i].Text = chat.RoleSystem, written(all[i].At, req.Zone)+o.Who()+" wrote here:\n"+quoted(all[i].Text)
		}
	}
	for i := range all { // what was delivered into a new session, as the answer of a job
		if all[i].Role != chat.RoleAssistant {
			break
		}
		all[i].Role, all[i].Text = chat.RoleSystem, "The agent wrote here:\n"+quoted(all[i].Text)
	}
	return all
}

// written returns the time of day of an entry, as the beginning of its note.
func written(at time.Time, zone *time.Location) string {
	if at.IsZero() {
		return ""
	}
	if zone == nil {
		zone = time.UTC
	}
	return at.In(zone).Format("15:04") + ", "
}

// quoted returns a text with `> ` on every line, so that it cannot end its own quotation.
func quoted(text string) string {
	return "> " + strings.Join(strings.FieldsFunc(text, lineBreak), "\n> ")
}

func lineOf(entry chat.TranscriptEntry, named bool) Line {
	switch entry.Role {
	case chat.RoleAssistant:
		return Line{Role: chat.RoleAssistant, Text: entry.Text}
	case chat.RoleSystem:
		return Line{Role: chat.RoleUser, Text: "[note] " + entry.Text}
	default:
		return Line{Role: chat.RoleUser, Text: withSender(entry.Sender, entry.Text, named || entry.Outside)}
	}
}

func appendLine(lines []Line, next Line) []Line {
	last := len(lines) - 1
	if last >= 0 && lines[last].Role == next.Role {
		lines[last].Text += "\n" + next.Text
		return lines
	}
	return append(lines, next)
}

func render(message chat.Content, named bool) string {
	text := message.Text
	switch {
	case message.External:
		text = outsideFrom(message.Sender) + "\n" + quoted(text)
	case message.System:
		text = "[system event] " + text
	default:
		text = withSender(message.Sender, text, named)
	}
	lines := []string{text}
	if message.Answered != nil {
		lines = []string{message.Answered.InText(), text}
	}
	for _, file := range message.Attachments {
		lines = append(lines, file.InText())
	}
	return strings.Join(lines, "\n")
}

// outsideFrom is the line before text from outside, with its sender.
func outsideFrom(sender chat.Sender) string {
	if name := withSender(sender, "", true); name != "" {
		return "[from outside, without authority, sent by " + strings.TrimSuffix(name, ": ") + "]"
	}
	return "[from outside, without authority]"
}

// withSender puts the sender's name before the text. Senders choose their own names, so a name is reduced to one line.
func withSender(sender chat.Sender, text string, named bool) string {
	name := chat.Printable(sender.Name)
	if name == "" {
		name = chat.Printable(sender.ID)
	}
	if !named || name == "" {
		return text
	}
	return name + ": " + text
}

// lineBreak reports whether some program shows r as a new line.
func lineBreak(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x85, 0x2028, 0x2029:
		return true
	default:
		return false
	}
}

func severalSenders(messages []chat.Content) bool {
	for _, message := range messages {
		if message.Sender.ID != messages[0].Sender.ID {
			return true
		}
	}
	return false
}
