package command

import (
	"bytes"

	"laneway/internal/agent/internal/jsonline"
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

// undecided switches to text once it is certain that the output is not JSON, and waits for more until then.
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
