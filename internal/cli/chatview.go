package cli

import (
	"fmt"
	"io"
	"strings"

	"laneway/internal/wire"
)

// answer is the part of the current answer that has been shown.
type answer struct{ run, text string }

// conclude shows the end of a run that ended while the client was not connected.
func (l *chatLoop) conclude(end turnEnd) {
	e := wire.ChatEvent{RunID: end.RunID, State: wire.ChatFinal, StopReason: end.StopReason}
	if end.Error != "" {
		e.State, e.ErrorMessage = wire.ChatError, end.Error
	}
	if end.Text != "" {
		e.Message = &wire.ChatMessage{Content: []wire.TextPart{{Type: "text", Text: end.Text}}}
	} else if end.Note != "" {
		e.Message = &wire.ChatMessage{Note: end.Note}
	}
	l.show(e)
}

// show writes the new part of the answer to a message of this client.
func (l *chatLoop) show(e wire.ChatEvent) {
	if !l.mine(e.RunID) {
		l.ask(e)
		return
	}
	if l.shown.run != e.RunID {
		if l.shown.text != "" {
			l.write(l.cleanEnd() + "\n")
		}
		l.shown = answer{run: e.RunID}
	}
	text := e.Message.Text()
	if text == "" && e.State == wire.ChatDelta && e.DeltaText != nil && !e.Replace {
		text = l.shown.text + *e.DeltaText
	}
	l.grow(text)
	if e.State.Ends() {
		l.end(e)
	}
}

// ask shows a question of the agent as a menu.
func (l *chatLoop) ask(e wire.ChatEvent) {
	q, ok := questionOf(e)
	if !ok || !inSession(e.SessionKey, l.talk.session) {
		return
	}
	l.asked = q
	l.write(l.cleanEnd())
	if l.shown.text != "" && !strings.HasSuffix(l.shown.text, "\n") {
		l.write("\n")
	}
	l.write(l.env.style(styleBold, q.menu()) + "\nWrite the number of an answer.\n")
	l.screen.ready()
}

// grow writes the part of the answer that is not on the screen yet; an answer that has restarted is written again.
func (l *chatLoop) grow(text string) {
	more, goesOn := strings.CutPrefix(text, l.shown.text)
	switch {
	case text == "":
	case goesOn:
		l.write(l.clean(more))
		l.shown.text = text
	default:
		l.write(l.cleanEnd() + "\n" + l.clean(text))
		l.shown.text = text
	}
}

func (l *chatLoop) end(e wire.ChatEvent) {
	l.write(l.cleanEnd())
	if l.shown.text != "" && !strings.HasSuffix(l.shown.text, "\n") {
		l.write("\n")
	}
	l.shown = answer{}
	l.settle(e.RunID)
	switch end := endOf(e); end.Status {
	case "aborted":
		l.complain("stopped: " + cell(e.StopReason, 40))
	case "error":
		l.complain(e.ErrorMessage)
	case "merged":
		l.complain("another message of the session took this one along")
	default:
		if end.Note != "" {
			l.remark(end.Note)
		}
	}
	l.readyAgain()
}

// readyAgain shows the prompt unless an answer is being written.
func (l *chatLoop) readyAgain() {
	if len(l.open) == 0 {
		l.screen.ready()
	}
}

func (l *chatLoop) mine(run string) bool {
	for _, p := range l.open {
		if p.key == run {
			return true
		}
	}
	return false
}

func (l *chatLoop) settle(run string) {
	var rest []pending
	for _, p := range l.open {
		if p.key != run {
			rest = append(rest, p)
		}
	}
	l.open = rest
}

// clean returns text of an agent in a form that is safe for the screen.
func (l *chatLoop) clean(s string) string {
	switch {
	case l.styled != nil:
		return l.styled.write(plain(s))
	case l.interactive:
		return plain(s)
	default:
		return s
	}
}

// cleanEnd returns what clean has held back of an answer that has ended.
func (l *chatLoop) cleanEnd() string {
	if l.styled == nil {
		return ""
	}
	return l.styled.end()
}

// notice prints a line about the connection.
func (l *chatLoop) notice(sentence string) {
	l.write(l.env.style(styleDim, "laneway: "+sentence) + "\n")
}

// remark prints a sentence in place of an answer: on a terminal in the conversation, otherwise on standard error.
func (l *chatLoop) remark(sentence string) {
	if l.interactive {
		l.write(l.env.style(styleDim, oneLine(sentence)) + "\n")
		return
	}
	l.env.note(sentence)
}

func (l *chatLoop) write(s string) {
	_, _ = io.WriteString(l.screen, s) //nolint:errcheck // a closed output ends the next read as well
}

// complain prints a failure: on a terminal in the conversation, otherwise on standard error.
func (l *chatLoop) complain(sentence string) {
	l.failed = true
	if l.interactive {
		l.write(l.env.style(styleFault, "laneway: "+oneLine(sentence)) + "\n")
		return
	}
	_, _ = fmt.Fprintln(l.env.stderr, "laneway: "+oneLine(sentence))
}
