package command

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// maxLine bounds a JSON line. What is longer is text.
const maxLine = 4 << 20

const blanks = " \t\r\n"

// output turns what a program writes into an answer. It belongs to the goroutine of Run.
type output struct {
	mode   Output
	answer *agent.Answer
	emit   func(agent.Event)
	log    *slog.Logger
	line   []byte // the line that is not complete yet
	usage  chat.Usage
	// failed is the failure that the program itself reported; the answer ends with it.
	failed *agent.Error
	// named are the files that the program wants to be sent.
	named []chat.Attachment
}

// write takes raw output. Its errors end the turn.
func (o *output) write(raw []byte) error {
	if o.mode == OutputText {
		return o.answer.AppendBytes(raw)
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
	if _, ok := parseLine(first); ok {
		o.mode = OutputJSON
	}
	return o.mode == OutputJSON
}

// undecided goes on as text as soon as it is certain that the output is no JSON, and waits for more until then.
func (o *output) undecided() error {
	start := bytes.TrimLeft(o.line, blanks)
	if len(start) > 0 && (start[0] != '{' || bytes.IndexByte(start, '\n') >= 0) {
		return o.plain()
	}
	return o.bounded()
}

// plain goes on as text with everything that was held back.
func (o *output) plain() error {
	held := o.line
	o.line, o.mode = nil, OutputText
	return o.answer.AppendBytes(held)
}

// bounded gives up waiting for the end of a line.
func (o *output) bounded() error {
	if len(o.line) <= maxLine {
		return nil
	}
	return o.plain()
}

// close takes the rest when the output has ended.
func (o *output) close() error {
	rest := o.line
	o.line = nil
	if len(rest) > 0 {
		if _, ok := parseLine(rest); ok || o.mode == OutputJSON {
			return o.take(rest)
		}
		if err := o.answer.AppendBytes(rest); err != nil {
			return err
		}
	}
	return o.answer.Flush()
}

// take reads one line; one that is no JSON object is text.
func (o *output) take(raw []byte) error {
	line, ok := parseLine(raw)
	if !ok {
		if len(bytes.TrimSpace(raw)) == 0 {
			return nil
		}
		return o.answer.Append(string(raw))
	}
	if line.usage != nil {
		o.usage = *line.usage
		o.emit(agent.Event{Kind: agent.EventUsage, Usage: o.usage})
	}
	if line.failed != nil {
		o.failed = line.failed
	}
	if line.attach != nil && len(o.named) < maxNamed {
		o.named = append(o.named, *line.attach)
	}
	if err := o.answer.Append(line.delta); err != nil {
		return err
	}
	if line.final == nil {
		return nil
	}
	return o.finish(chat.CleanText(*line.final))
}

// finish adds what the deltas do not contain of the whole text. Deltas cannot be taken back, so a whole text that contains something
// else is only noted.
func (o *output) finish(final string) error {
	rest, ok := strings.CutPrefix(final, o.answer.Text())
	if !ok {
		o.log.Warn("final text of the program is not the sum of its deltas", "bytes", len(final))
		return nil
	}
	return o.answer.Append(rest)
}

// line is one JSON line.
type line struct {
	delta  string
	final  *string
	failed *agent.Error
	usage  *chat.Usage
	attach *chat.Attachment
}

// parseLine reports whether raw is a JSON object with at least one member that means something. A member of the wrong type makes it no
// such line: then it is shown instead of lost.
func parseLine(raw []byte) (line, bool) {
	var members struct {
		Delta  *string         `json:"delta"`
		Final  *string         `json:"final"`
		Error  *string         `json:"error"`
		Reason chat.FailReason `json:"reason"`
		Usage  map[string]any  `json:"usage"`
		Attach *struct {
			Path     string `json:"path"`
			Name     string `json:"name"`
			MIMEType string `json:"mimeType"`
		} `json:"attach"`
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &members) != nil {
		return line{}, false
	}
	out := line{final: members.Final}
	if members.Delta != nil {
		out.delta = *members.Delta
	}
	if members.Error != nil {
		out.failed = reported(*members.Error, members.Reason)
	}
	if members.Usage != nil {
		out.usage = usageOf(members.Usage)
	}
	if a := members.Attach; a != nil {
		out.attach = &chat.Attachment{Path: a.Path, Name: a.Name, MIMEType: a.MIMEType}
	}
	known := members.Delta != nil || members.Final != nil || members.Error != nil || members.Usage != nil || members.Attach != nil
	return out, known
}

// reported is a failure in the program's own words. Its reason counts if it is one of the known ones.
func reported(sentence string, reason chat.FailReason) *agent.Error {
	if !slices.Contains(agent.Reasons(), reason) {
		reason = chat.FailProgram
	}
	sentence = strings.TrimSpace(chat.Cut(chat.CleanText(sentence), maxSentence))
	if sentence == "" {
		sentence = "The program behind this agent reported a failure without saying which."
	}
	return agent.NewError(reason, sentence, nil)
}

// usageOf takes both ways of writing the names.
func usageOf(members map[string]any) *chat.Usage {
	return &chat.Usage{
		InputTokens:  tokens(members, "inputTokens", "input_tokens"),
		OutputTokens: tokens(members, "outputTokens", "output_tokens"),
		Model:        word(members, "model"),
		Provider:     word(members, "provider"),
	}
}

func tokens(members map[string]any, names ...string) int {
	const most = 1_000_000_000
	for _, name := range names {
		if n, ok := members[name].(float64); ok && n > 0 {
			return int(min(n, most))
		}
	}
	return 0
}

func word(members map[string]any, name string) string {
	text, ok := members[name].(string)
	if !ok {
		return ""
	}
	return chat.Cut(chat.CleanText(text), 200)
}
