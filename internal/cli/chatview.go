package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"laneway/internal/client"
	"laneway/internal/wire"
)

// newsDelay is the time from an event to the read of what is new: several events cause one.
const newsDelay = 100 * time.Millisecond

// happened handles one event of the gateway.
func (l *chatLoop) happened(ctx context.Context, event client.Event) error {
	if e, ok := decodeChat(event); ok && l.mine(e.RunID) {
		l.show(e)
		return nil
	}
	var of struct {
		SessionKey string         `json:"sessionKey"`
		Reason     string         `json:"reason"`
		State      wire.ChatState `json:"state"`
	}
	if json.Unmarshal(event.Payload, &of) != nil {
		return nil
	}
	key, err := l.talk.key(ctx)
	if err != nil || of.SessionKey != key {
		return err
	}
	switch event.Name {
	case wire.EventQuestions:
		return l.refreshQuestions(ctx, of.Reason)
	case wire.EventChat, wire.EventSessions:
		if l.interactive && l.later == nil && (event.Name == wire.EventSessions || of.State.Ends()) {
			l.later = time.After(newsDelay)
		}
	}
	return nil
}

// catchUp shows the new entries of the transcript that the events of this client's messages have not shown.
func (l *chatLoop) catchUp(ctx context.Context) error {
	const fromStart = "m:0"
	for l.interactive {
		var news wire.HistoryDelta[wire.HistoryMessage]
		params := wire.ChatHistoryParams{SessionKey: l.talk.session, Cursor: &l.cursor, MaxChars: new(int64(500_000))}
		if err := l.talk.conn.Call(ctx, "chat.history", params, &news); err != nil {
			return err
		}
		switch {
		case news.Kind == "reset" && l.cursor != fromStart: // another transcript has begun
			l.cursor = fromStart
			continue
		case len(news.Messages) == 0:
			return nil
		}
		l.cursor = news.DeltaCursor
		for _, m := range news.Messages {
			if err := l.news(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// news shows an entry of the transcript unless it is shown otherwise: a message of this client and its answer by their events, a question as
// a menu.
func (l *chatLoop) news(ctx context.Context, m wire.HistoryMessage) error {
	if l.own[m.RunID] {
		return nil
	}
	if i := strings.LastIndexByte(m.Text(), '\n'); i >= 0 && strings.HasPrefix(m.Text()[i+1:], "Write /") {
		if err := l.refreshQuestions(ctx, ""); err != nil {
			return err
		}
		asks := func(id string) bool { return strings.Contains(m.Text()[i+1:], " "+id) }
		if slices.ContainsFunc(l.menus, asks) {
			return nil
		}
	}
	l.insert(l.entry(m))
	return nil
}

// entry formats an entry of the transcript.
func (l *chatLoop) entry(m wire.HistoryMessage) string {
	text := plain(m.Text())
	if l.styled != nil {
		styled := &markdown{}
		text = styled.write(text) + styled.end()
	}
	return l.env.style(styleBold, cell(writerOf(m), 40)+": ") + strings.TrimSuffix(text, "\n")
}

// insert shows lines above the line that is being typed, and between the pieces of an answer that is being written.
func (l *chatLoop) insert(lines string) {
	if len(l.open) == 0 {
		l.screen.above(lines + "\n")
		return
	}
	l.pause()
	l.writing = ""
	l.write(lines + "\n")
}

// pause ends the line of an answer that is being written.
func (l *chatLoop) pause() {
	l.write(l.cleanEnd())
	if l.midLine {
		l.write("\n")
	}
}

// refreshQuestions reads the open questions of the session, shows those that are new, and says when one has closed.
func (l *chatLoop) refreshQuestions(ctx context.Context, reason string) error {
	list, err := l.talk.questions(ctx)
	if errors.Is(err, client.ErrClosed) || ctx.Err() != nil {
		return err
	}
	if err != nil { // the conversation goes on without them
		if reason != "" {
			l.complain("the questions of the agent cannot be read: " + err.Error())
		}
		return nil
	}
	fresh, closed := l.asked.update(list)
	if len(closed) > 0 {
		l.insert(l.env.style(styleDim, inWords(reason)))
	}
	for _, q := range fresh {
		l.menus = append(l.menus, q.ID)
		if l.interactive {
			l.insert(l.env.style(styleBold, menu(q)) + "\nWrite the number of an answer.")
		} else {
			l.env.complainLines(menu(q) + "\nAnswer it on the dashboard, or with: laneway questions answer " + q.ID + " 1")
		}
	}
	return nil
}

// answerQuestion answers a question and shows the next one that waits.
func (l *chatLoop) answerQuestion(ctx context.Context, q wire.Question, option int64) error {
	l.asked.remove(q.ID) // it can be answered only once
	said, err := l.talk.answer(ctx, q.ID, option)
	switch {
	case errors.Is(err, client.ErrClosed) || ctx.Err() != nil:
		return err
	case err != nil:
		l.complain(err.Error())
	default:
		l.write(l.env.style(styleDim, plain(said)) + "\n")
	}
	if next, waits := l.asked.current(); waits {
		l.write(l.env.style(styleBold, menu(next)) + "\nWrite the number of an answer.\n")
	}
	l.readyAgain()
	return nil
}

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
	text := e.Message.Text()
	if text == "" && e.State == wire.ChatDelta && e.DeltaText != nil && !e.Replace {
		text = l.shown[e.RunID] + *e.DeltaText
	}
	l.grow(e.RunID, text)
	if e.State.Ends() {
		l.end(e)
	}
}

// grow writes the part of an answer that is not on the screen yet; an answer that has restarted is written again.
func (l *chatLoop) grow(run, text string) {
	shown := l.shown[run]
	if text == "" || text == shown {
		return
	}
	if l.writing != run {
		l.pause()
		l.writing = run
	}
	more, goesOn := strings.CutPrefix(text, shown)
	if !goesOn {
		l.write(l.cleanEnd() + "\n")
		more = text
	}
	l.write(l.clean(more))
	l.shown[run] = text
}

func (l *chatLoop) end(e wire.ChatEvent) {
	if l.writing == e.RunID {
		l.pause()
		l.writing = ""
	}
	delete(l.shown, e.RunID)
	l.settle(e.RunID)
	switch end := endOf(e); end.Status {
	case "aborted":
		l.sayStopped(e.StopReason)
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

// sayStopped says once that answers were stopped: one request may stop several.
func (l *chatLoop) sayStopped(reason string) {
	switch {
	case !l.interactive:
		l.complain("the message was not answered: it was stopped (" + cell(reason, 40) + ")")
	case !l.stopped:
		l.stopped = true
		l.remark("Stopped.")
	}
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
	if s == "" {
		return
	}
	l.midLine = !strings.HasSuffix(s, "\n")
	_, _ = io.WriteString(l.screen, s) //nolint:errcheck // a closed output ends the next read as well
}

// complain prints a failure: on a terminal in the conversation, otherwise on standard error.
func (l *chatLoop) complain(sentence string) {
	l.failed = true
	if l.midLine {
		l.pause()
	}
	if l.interactive {
		l.write(l.env.style(styleFault, "laneway: "+oneLine(sentence)) + "\n")
		return
	}
	_, _ = fmt.Fprintln(l.env.stderr, "laneway: "+oneLine(sentence))
}
