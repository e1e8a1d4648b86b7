package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"laneway/internal/client"
	"laneway/internal/wire"
)

type chatCmd struct {
	clientFlags
	Session string `help:"Session key." default:"main" placeholder:"KEY"`
	Agent   string `help:"Agent that answers; default the gateway's." placeholder:"ID"`
	History int    `help:"How many earlier messages to show at the beginning, on a terminal." default:"6"`
}

// Help is the long help of the command.
func (*chatCmd) Help() string {
	return `Answers appear while they are written. Lines that begin with / are commands: /help lists them, /stop stops the answer. Ctrl-C
stops the answer, too; without one, Ctrl-C, Ctrl-D or /quit leave. Arrow keys walk through earlier lines, Tab completes commands.

Lines of a pipe are sent one after the other, each after the answer to the last.

Examples:

    laneway chat --session work
    printf 'hello\nwhat did I say?\n' | laneway chat`
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
	if err := talk.open(ctx); err != nil {
		return err
	}
	defer talk.close()
	loop := &chatLoop{talk: talk, env: env}
	if env.terminal == nil {
		loop.screen = pipe{lines: bufio.NewReader(env.stdin), Writer: env.stdout}
		return loop.run(ctx)
	}
	return c.onTerminal(ctx, env, loop)
}

func (c *chatCmd) onTerminal(ctx context.Context, env *environment, loop *chatLoop) error {
	words := loop.commandWords(ctx)
	editor, err := newEditor(env.terminal, c.lineHistory(env), env.bold("> "), func() []string { return words })
	if err != nil {
		return err
	}
	loop.screen, loop.interactive = editor, true
	if err := loop.greet(ctx, c.History); err != nil {
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

// bold is text that stands out on a terminal that may have colours.
func (env *environment) bold(s string) string {
	if noColour, _ := env.lookupEnv("NO_COLOR"); env.terminal == nil || noColour != "" {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

// chatLoop is one conversation: lines go to the gateway, pieces of answers come back. One goroutine besides it reads lines.
type chatLoop struct {
	talk        *conversation
	env         *environment
	screen      screen
	interactive bool

	open   []pending // sent and not ended, oldest first
	shown  answer
	failed bool
}

type pending struct{ key, text string }

// answer is what has been shown of the answer that is being written.
type answer struct{ run, text string }

type typed struct {
	text string
	err  error
}

// greet shows the end of the transcript.
func (l *chatLoop) greet(ctx context.Context, limit int) error {
	if limit == 0 {
		return nil
	}
	var history wire.HistoryPage[wire.HistoryMessage]
	if err := l.talk.conn.Call(ctx, "chat.history", wire.ChatHistoryParams{SessionKey: l.talk.session, Limit: new(int64(limit)), MaxChars: new(int64(2000))}, &history); err != nil {
		return err
	}
	for _, m := range history.Messages {
		l.write(l.env.bold(cell(m.Role, 12)+": ") + plain(m.Text()) + "\n")
	}
	return nil
}

// commandWords are the commands of the gateway and our own, for completion. A gateway that does not list them has none.
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

// run serves lines and events until the input has ended and everything sent has its end.
func (l *chatLoop) run(ctx context.Context) error {
	lines, ask, done := make(chan typed), make(chan struct{}, 1), make(chan struct{})
	defer close(done)
	go l.readLines(lines, ask, done)
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

// readLines reads a line each time that one is asked for, so that nothing is read after the conversation has ended. A read that has
// begun cannot be interrupted: when a signal ends the conversation in the middle of one, this goroutine ends with the process.
func (l *chatLoop) readLines(lines chan<- typed, ask, done <-chan struct{}) {
	for {
		select {
		case <-ask:
		case <-done:
			return
		}
		text, err := l.screen.readLine()
		select {
		case lines <- typed{text, err}:
		case <-done:
			return
		}
	}
}

// step serves one line or one event. A pipe is not read on while a message is unanswered, so that answers follow their questions.
func (l *chatLoop) step(ctx context.Context, lines <-chan typed, ask chan<- struct{}) (again bool, err error) {
	if !l.interactive && len(l.open) > 0 {
		lines = nil
	}
	select {
	case <-ctx.Done():
		return false, errors.New("interrupted; what was sent may still be answered")
	case line := <-lines:
		again, err := l.line(ctx, line)
		if again {
			hint(ask)
		}
		return again, err
	case event, open := <-l.talk.conn.Events():
		if !open || event.Gap {
			return true, l.reconnect(ctx)
		}
		if chat, ok := decodeChat(event); ok {
			l.show(chat)
		}
		return true, nil
	}
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
	if line.err != nil { // Ctrl-C or Ctrl-D
		return l.leaveOrStop(ctx)
	}
	switch text := strings.TrimSpace(line.text); text {
	case "":
		l.readyAgain()
		return true, nil
	case "/quit", "/exit":
		return false, nil
	default:
		return true, l.send(ctx, text)
	}
}

// leaveOrStop ends the conversation, or the answer that is being written.
func (l *chatLoop) leaveOrStop(ctx context.Context) (again bool, err error) {
	if len(l.open) == 0 {
		l.write("\n")
		return false, nil
	}
	return true, l.talk.abort(ctx, l.open[0].key)
}

// send submits one message. It prints a refusal and does not end the conversation.
func (l *chatLoop) send(ctx context.Context, text string) error {
	p := pending{key: newKey(), text: text}
	l.open = append(l.open, p)
	_, err := l.talk.submit(ctx, p.key, text)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return err
	case errors.Is(err, client.ErrClosed):
		return nil // the closed channel of events comes next, and with it the new connection
	}
	l.settle(p.key)
	l.complain(err.Error())
	return nil
}

// reconnect dials again and attaches to everything that has not ended.
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
	}
	l.show(e)
}

// show writes what is new in the answer of one of our own messages.
func (l *chatLoop) show(e wire.ChatEvent) {
	if !l.mine(e.RunID) {
		return
	}
	if l.shown.run != e.RunID {
		if l.shown.text != "" {
			l.write("\n")
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

// grow writes the part of the answer that is not on the screen yet; an answer that began anew is written anew.
func (l *chatLoop) grow(text string) {
	more, goesOn := strings.CutPrefix(text, l.shown.text)
	switch {
	case text == "":
	case goesOn:
		l.write(l.clean(more))
		l.shown.text = text
	default:
		l.write("\n" + l.clean(text))
		l.shown.text = text
	}
}

func (l *chatLoop) end(e wire.ChatEvent) {
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
	}
	l.readyAgain()
}

// readyAgain shows the prompt when nothing is being written.
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

func (l *chatLoop) clean(s string) string {
	if l.interactive {
		return plain(s)
	}
	return s
}

func (l *chatLoop) write(s string) {
	_, _ = io.WriteString(l.screen, s) //nolint:errcheck // a closed output ends the next read as well
}

// complain prints a failure: on the terminal in the conversation, else on standard error.
func (l *chatLoop) complain(sentence string) {
	l.failed = true
	if l.interactive {
		l.write("laneway: " + oneLine(sentence) + "\n")
		return
	}
	_, _ = fmt.Fprintln(l.env.stderr, "laneway: "+oneLine(sentence))
}
