package cli

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"laneway/internal/wire"
)

// question is a question of an agent to the person of a running turn. It arrives as a separate message in the session, whose last line has
// the commands that answer it.
type question struct {
	text    string
	options []questionOption
}

type questionOption struct{ command, label string }

// answerCommand matches one way to answer, with its label if the command does not imply it.
var answerCommand = regexp.MustCompile(`/(allow|deny|answer) [0-9a-f]{12}(?: [0-9]+)?(?: \(([^)]*)\))?`)

// questionOf parses a question from an event of the session; ok reports whether it is one.
func questionOf(e wire.ChatEvent) (q question, ok bool) {
	text := e.Message.Text()
	at := strings.LastIndexByte(text, '\n')
	if e.State != wire.ChatFinal || at < 0 {
		return question{}, false
	}
	last := text[at+1:]
	if !strings.HasPrefix(last, "Write /") {
		return question{}, false
	}
	for _, found := range answerCommand.FindAllStringSubmatch(last, -1) {
		command, _, _ := strings.Cut(found[0], " (")
		label := found[2]
		if label == "" {
			label = strings.ToUpper(found[1][:1]) + found[1][1:]
		}
		q.options = append(q.options, questionOption{command, label})
	}
	q.text = text[:at]
	return q, len(q.options) > 0
}

// menu returns the question with a number for each option.
func (q question) menu() string {
	var b strings.Builder
	b.WriteString(plain(q.text))
	for i, o := range q.options {
		fmt.Fprintf(&b, "\n  %d  %s", i+1, plain(o.label))
	}
	return b.String()
}

// command returns the command for the number of an option; any other line is returned unchanged.
func (q question) command(line string) string {
	if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(q.options) {
		return q.options[n-1].command
	}
	return line
}

// inSession reports whether a full session key belongs to the session that the user has named.
func inSession(key, named string) bool { return key == named || strings.HasSuffix(key, ":"+named) }
