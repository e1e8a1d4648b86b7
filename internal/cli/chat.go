package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/client"
	"laneway/internal/wire"
)

type chatCmd struct {
	clientFlags
	Session string `help:"Session key." default:"main" placeholder:"KEY" complete:"sessions"`
	Agent   string `help:"Agent that answers; default the gateway's." placeholder:"ID" complete:"agents"`
	History int    `help:"How many earlier messages to show first, on a terminal." default:"6"`
}

// Run opens the conversation.
func (c *chatCmd) Run(ctx context.Context, env *environment) error {
	if c.History < 0 || c.History > 1000 {
		return usageError("--history must be between 0 and 1000")
	}
	talk := &conversation{
		dial:    func(ctx context.Context) (gatewayConn, error) { return c.connect(ctx, env) },
		session: sessionKey(c.Session, c.Agent), agent: c.Agent,
	}
	talk.follows = env.terminal != nil // answers of a pipe belong to its lines
	if err := talk.open(ctx); err != nil {
		return err
	}
	defer talk.close()
	loop := newChatLoop(talk, env)
	if env.terminal == nil {
		loop.screen = pipe{lines: bufio.NewReader(env.stdin), Writer: env.stdout}
		return loop.run(ctx)
	}
	return c.onTerminal(ctx, env, loop)
}

func (c *chatCmd) onTerminal(ctx context.Context, env *environment, loop *chatLoop) error {
	words := loop.commandWords(ctx)
	editor, err := newEditor(env.terminal, c.lineHistory(env), env.style(stylePrompt, "> "), func() []string { return words })
	if err != nil {
		return err
	}
	loop.screen, loop.interactive = editor, true
	if env.colours() {
		loop.styled = &markdown{}
	}
	if err := loop.greet(ctx, c.banner(env, loop.talk.session), c.History); err != nil {
		return errors.Join(err, editor.close())
	}
	return errors.Join(loop.run(ctx), editor.close())
}

func (c *chatCmd) lineHistory(env *environment) *lineHistory {
	data := dataDirectory(c.Data, env)
	if data == "" {
		return &lineHistory{}
	}
	return openHistory(filepath.Join(data, "chat_history"))
}

// banner returns the address of the conversation and the use of the keys.
func (c *chatCmd) banner(env *environment, session string) string {
	where := "laneway " + env.version.Version + ", session " + cell(session, 100)
	if addresses, err := c.addresses(env); err == nil {
		where += " on " + oneLine(strings.Join(addresses, ", "))
	}
	return where + "\n/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves\n"
}

// colours reports whether the terminal may show colours.
func (env *environment) colours() bool {
	noColour, _ := env.lookupEnv("NO_COLOR")
	kind, _ := env.lookupEnv("TERM")
	return env.terminal != nil && noColour == "" && kind != "dumb"
}

// style returns text in a style, if the terminal may show colours.
func (env *environment) style(style, s string) string {
	if !env.colours() {
		return s
	}
	return style + s + styleReset
}

// chatLoop is one conversation: it sends lines to the gateway and shows the pieces of answers. A
// second goroutine reads lines.
type chatLoop struct {
	talk        *conversation
	env         *environment
	screen      screen
	interactive bool

	styled *markdown // nil = answers are shown unchanged

	asked   asked             // open questions of the agent
	open    []pending         // sent messages that have not ended, oldest first
	shown   map[string]string // the part that has been shown of each answer that has not ended
	writing string            // the run whose answer was shown last
	midLine bool              // the last line on the screen has no end
	stopped bool              // Stopped was said since the last line or interrupt
	failed  bool
	leaving bool // the input has ended: the loop ends after the last answer

	menus  []string         // the questions that were shown
	own    map[string]bool  // the runs of the messages of this client, which are shown by their events
	cursor string           // the position in the transcript up to which its entries have been shown
	later  <-chan time.Time // when to read the entries after it; nil = nothing has happened
}

// newChatLoop returns a conversation without a screen.
func newChatLoop(talk *conversation, env *environment) *chatLoop {
	return &chatLoop{talk: talk, env: env, own: map[string]bool{}, shown: map[string]string{}}
}

type pending struct {
	key, text string
	stopping  bool // its stop was requested
}

type typed struct {
	text string
	err  error
}

// greet shows the banner, the end of the transcript and the open questions.
func (l *chatLoop) greet(ctx context.Context, banner string, limit int) error {
	l.write(l.env.style(styleDim, banner))
	var history wire.HistoryPage[wire.HistoryMessage]
	params := wire.ChatHistoryParams{SessionKey: l.talk.session, Limit: new(int64(max(1, limit))), MaxChars: new(int64(2000))}
	if err := l.talk.conn.Call(ctx, "chat.history", params, &history); err != nil {
		return err
	}
	l.talk.full, l.cursor = history.SessionKey, history.DeltaCursor
	for _, m := range history.Messages[:min(limit, len(history.Messages))] {
		l.write(l.entry(m) + "\n")
		if m.NextChar > 0 {
			l.notice("the whole message: laneway sessions show " + chat.ShellWord(oneLine(l.talk.full)))
		}
	}
	return l.refreshQuestions(ctx, "")
}

// commandWords returns the commands of the gateway and of this client, for completion. It omits
// those of a gateway that does not list them.
func (l *chatLoop) commandWords(ctx context.Context) []string {
	var list struct {
		Commands []struct {
			TextAliases []string `json:"textAliases"`
		} `json:"commands"`
	}
	words := []string{"/quit"}
	if err := l.talk.conn.Call(ctx, "commands.list", map[string]any{}, &list); err != nil {
		return words
	}
	for _, command := range list.Commands {
		words = append(words, command.TextAliases...)
	}
	return words
}

// run handles lines and events until the input has ended and every sent message has ended.
func (l *chatLoop) run(ctx context.Context) error {
	lines, ask, done := make(chan typed), make(chan struct{}, 1), make(chan struct{})
	defer close(done)
	go readLines(l.screen.readLine, lines, ask, done)
	hint(ask)
	l.screen.ready()
	for {
		again, err := l.step(ctx, lines, ask)
		switch {
		case err != nil:
			return err
		case !again && l.failed && !l.interactive:
			return errQuiet
		case !again:
			return nil
		}
	}
}

// readLines reads a line each time that one is requested, so that nothing is read after the
// conversation has ended. A read that has started cannot be interrupted: when a signal ends the
// conversation during a read, this goroutine ends with the process.
func readLines(read func() (string, error), lines chan<- typed, ask, done <-chan struct{}) {
	for {
		select {
		case <-ask:
		case <-done:
			return
		}
		text, err := read()
		select {
		case lines <- typed{text, err}:
		case <-done:
			return
		}
	}
}

// step handles one line or one event. While a message is unanswered, no further line of a pipe is
// read, so that answers follow their questions.
func (l *chatLoop) step(ctx context.Context, lines <-chan typed, ask chan<- struct{}) (again bool, err error) {
	if !l.interactive && len(l.open) > 0 {
		lines = nil
	}
	select {
	case <-ctx.Done():
		return false, errors.New("interrupted; what was sent may still be answered")
	case line := <-lines:
		again, err := l.line(ctx, line)
		if again && !l.leaving {
			hint(ask)
		}
		return again, err
	case <-l.screen.interrupts():
		return l.interrupt(ctx)
	case <-l.later:
		l.later = nil
		return true, l.unlessClosed(l.catchUp(ctx))
	case event, open := <-l.talk.conn.Events():
		if !open || event.Gap {
			return l.reattach(ctx, open)
		}
		if err := l.unlessClosed(l.happened(ctx, event)); err != nil {
			return false, err
		}
		return !l.leaving || len(l.open) > 0, nil
	}
}

// unlessClosed passes an error on, except that of a connection that has ended: the closed channel
// of events comes next, and with it a new connection, after which everything is read again.
func (l *chatLoop) unlessClosed(err error) error {
	if errors.Is(err, client.ErrClosed) {
		return nil
	}
	return err
}

func (l *chatLoop) line(ctx context.Context, line typed) (again bool, err error) {
	if line.err != nil && (!errors.Is(line.err, io.EOF) || !l.interactive) {
		if text := strings.TrimSpace(line.text); text != "" && errors.Is(line.err, io.EOF) {
			return true, l.send(ctx, text)
		}
		if errors.Is(line.err, io.EOF) {
			return false, nil
		}
		return false, line.err
	}
	if line.err != nil { // Ctrl-D
		l.leaving = true
		l.write("\n")
		return len(l.open) > 0, nil //nolint:nilerr // the end of the input is no failure
	}
	switch text := strings.TrimSpace(line.text); text {
	case "":
		l.readyAgain()
		return true, nil
	case "/quit", "/exit":
		return false, nil
	default:
		if q, waits := l.asked.current(); waits {
			option, err := choose(q, text)
			if err != nil {
				l.complain(err.Error())
				l.readyAgain()
				return true, nil
			}
			if option > 0 {
				return true, l.unlessClosed(l.answerQuestion(ctx, q, option))
			}
		}
		return true, l.send(ctx, text)
	}
}

// interrupt handles Ctrl-C: it stops the answer that is being written. Without one, or when its
// stop was already requested, it ends the conversation.
func (l *chatLoop) interrupt(ctx context.Context) (again bool, err error) {
	if len(l.open) == 0 || l.open[0].stopping {
		l.write("\n")
		return false, nil
	}
	l.open[0].stopping, l.stopped = true, false
	_, err = l.talk.abort(ctx, l.open[0].key)
	return true, err
}

// send submits one message. It prints a refusal and does not end the conversation.
func (l *chatLoop) send(ctx context.Context, text string) error {
	p := pending{key: newKey(), text: text}
	l.open, l.stopped = append(l.open, p), false
	l.own[p.key] = true
	_, err := l.talk.submit(ctx, p.key, text)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return err
	case errors.Is(err, client.ErrClosed):
		return nil // the channel of events is closed next, which leads to a new connection
	}
	l.settle(p.key)
	l.complain(err.Error())
	return nil
}

// reattach connects again after a lost connection, or reads the state again after missed events
// (connected).
func (l *chatLoop) reattach(ctx context.Context, connected bool) (again bool, err error) {
	if connected || !l.interactive {
		return true, l.reconnect(ctx)
	}
	l.notice("the gateway is away; connecting again (Ctrl-C leaves)")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	left := make(chan struct{})
	go func() { // ends with this function
		defer close(left)
		select {
		case <-l.screen.interrupts():
			cancel(errLeft)
		case <-ctx.Done():
		}
	}()
	err = l.reconnect(ctx)
	byKey := errors.Is(context.Cause(ctx), errLeft)
	cancel(nil)
	<-left
	switch {
	case byKey:
		l.write("\n")
		return false, nil
	case err == nil:
		l.notice("connected again")
		l.readyAgain()
	}
	return true, err
}

// errLeft is the cause of a context that Ctrl-C ended while the gateway was unavailable.
var errLeft = errors.New("left")

// reconnect dials again and attaches to all messages that have not ended.
func (l *chatLoop) reconnect(ctx context.Context) error {
	var results []wire.ChatSendResult
	err := l.talk.redial(ctx, func() error {
		results = nil
		for _, p := range l.open {
			result, err := l.talk.submit(ctx, p.key, p.text)
			if err != nil {
				return err
			}
			results = append(results, result)
		}
		return nil
	})
	if err != nil {
		return err
	}
	waiting := l.open
	for i, result := range results {
		if result.Status == "started" || result.Status == "in_flight" {
			continue
		}
		end, err := l.talk.recorded(ctx, waiting[i].key, result.Status)
		if err != nil {
			return err
		}
		l.conclude(end)
	}
	return l.unlessClosed(errors.Join(l.catchUp(ctx), l.refreshQuestions(ctx, "")))
}

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
		return nil //nolint:nilerr // an event of another version
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
			l.later = time.After(newsDelay) //nolint:forbidigo // at most one is pending
		}
	}
	return nil
}

// catchUp shows the new entries of the transcript that the events of this client's messages have
// not shown.
func (l *chatLoop) catchUp(ctx context.Context) error {
	const fromStart = "m:0"
	for l.interactive {
		var news wire.HistoryDelta[wire.HistoryMessage]
		params := wire.ChatHistoryParams{SessionKey: l.talk.session, Cursor: &l.cursor, MaxChars: new(int64(mostChars))}
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
			if err := completeMessage(ctx, l.talk.conn, l.talk.session, &m); err != nil {
				return err
			}
			if err := l.news(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// news shows an entry of the transcript unless it is shown otherwise: a message of this client and
// its answer by their events, a question as a menu.
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

// insert shows lines above the line that is being typed, and between the pieces of an answer that
// is being written.
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

// refreshQuestions reads the open questions of the session, shows those that are new, and says when
// one has closed.
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

// grow writes the part of an answer that is not on the screen yet; an answer that has restarted is
// written again.
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
	return slices.ContainsFunc(l.open, func(p pending) bool { return p.key == run })
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

// remark prints a sentence in place of an answer: on a terminal in the conversation, otherwise on
// standard error.
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
	_, _ = io.WriteString(l.screen, s) // a closed output ends the next read as well
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
