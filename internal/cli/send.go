package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"laneway/internal/chat"
	"laneway/internal/client"
	"laneway/internal/wire"
)

// maxMessage is the maximum length of a message in bytes.
const maxMessage = 262_144

type sendCmd struct {
	clientFlags
	Text    string        `arg:"" help:"The message; - reads it from standard input."`
	Session string        `help:"Session key." default:"main" placeholder:"KEY" complete:"sessions"`
	Agent   string        `help:"Agent that answers; default the gateway's." placeholder:"ID" complete:"agents"`
	File    []string      `help:"Attach a file, at most 20 MB; may be repeated." placeholder:"PATH" type:"path" sep:"none"`
	Timeout time.Duration `help:"Stop the message if there is no answer after this time." default:"10m"`
	NoWait  bool          `help:"Fail instead of waiting when the agent asks for permission."`
	JSON    bool          `help:"Print the answer, its run id and its outcome as JSON."`
}

// Run sends the message and waits for its end.
func (c *sendCmd) Run(ctx context.Context, env *environment) error {
	text, err := c.message(env)
	if err != nil {
		return err
	}
	if c.Timeout < time.Second || c.Timeout > 24*time.Hour {
		return usageError("--timeout must be between 1s and 24h")
	}
	files, err := c.upload(ctx, env)
	if err != nil {
		return err
	}
	limit := c.Timeout.Milliseconds()
	talk := &conversation{
		dial:    func(ctx context.Context) (gatewayConn, error) { return c.connect(ctx, env) },
		session: sessionKey(c.Session, c.Agent), agent: c.Agent, timeout: &limit, files: files,
	}
	done := c.listen(env, talk)
	defer done()
	began := env.now()
	end, err := c.exchange(ctx, talk, text)
	if err != nil {
		return err
	}
	end.DurationMs = env.now().Sub(began).Milliseconds()
	return c.print(env, end)
}

// maxFile is the maximum size of a file in bytes, maxFiles the maximum number of files of one
// message.
const (
	maxFile  = 20 << 20
	maxFiles = 16
)

// upload uploads the files of the message before the message. It checks all of them first, so that
// a wrong name leaves no uploaded files behind.
func (c *sendCmd) upload(ctx context.Context, env *environment) ([]wire.Attachment, error) {
	if len(c.File) == 0 {
		return nil, nil
	}
	if len(c.File) > maxFiles {
		return nil, usageError(fmt.Sprintf("a message has at most %d files", maxFiles))
	}
	for _, path := range c.File {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, usageError(fmt.Sprintf("the file %s cannot be read: %v", path, errors.Unwrap(err)))
		case !info.Mode().IsRegular():
			return nil, usageError(path + " is no file")
		case info.Size() > maxFile:
			return nil, usageError(fmt.Sprintf("%s has %d bytes; a file may have %d", path, info.Size(), maxFile))
		}
	}
	to, err := c.serving(ctx, env)
	if err != nil {
		return nil, err
	}
	sent := make([]wire.Attachment, 0, len(c.File))
	for _, path := range c.File {
		id, err := uploadPath(ctx, env, to, path)
		if err != nil {
			return nil, err
		}
		sent = append(sent, wire.Attachment{FileID: id})
	}
	return sent, nil
}

func uploadPath(ctx context.Context, env *environment, to target, path string) (id string, err error) {
	f, err := os.Open(path) // the file that the user names
	if err != nil {
		return "", fmt.Errorf("opening a file to send: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("opening a file to send: %w", err)
	}
	return env.upload(ctx, to, filepath.Base(path), f, info.Size())
}

// asksError is a question of the agent for which the command does not wait.
type asksError string

func (e asksError) Error() string { return string(e) }

// listen shows the questions of the agent while the message waits, and reads their answers from a
// terminal until done is called.
func (c *sendCmd) listen(env *environment, talk *conversation) (done func()) {
	lines, wanted, ended := make(chan typed), make(chan struct{}, 1), make(chan struct{})
	if env.fromTerminal {
		in := pipe{lines: bufio.NewReader(env.stdin)}
		go readLines(in.readLine, lines, wanted, ended)
	}
	var open asked
	show := func(q wire.Question) {
		env.complainLines(menu(q))
		if !env.fromTerminal {
			env.complainLines("Answer it in laneway chat, on the dashboard, or with: laneway questions answer " + q.ID + " 1")
			return
		}
		env.complainLines("Write the number of an answer.")
		hint(wanted)
	}
	talk.asked = func(ctx context.Context, reason string) error {
		list, err := talk.questions(ctx)
		if errors.Is(err, client.ErrClosed) || ctx.Err() != nil {
			return err
		}
		if err != nil { // the message is answered nevertheless
			if reason != "" {
				env.complain("the questions of the agent cannot be read: " + err.Error())
			}
			return nil
		}
		fresh, closed := open.update(list)
		if len(closed) > 0 {
			env.complain(inWords(reason))
		}
		for _, q := range fresh {
			if c.NoWait {
				return asksError(oneLine(asks(q)))
			}
			show(q)
		}
		return nil
	}
	talk.typed = lines
	talk.answered = func(ctx context.Context, line typed) error {
		if line.err != nil {
			return nil // the terminal is closed; the question can be answered elsewhere
		}
		defer hint(wanted)
		q, waits := open.current()
		text := strings.TrimSpace(line.text)
		if !waits || text == "" {
			return nil
		}
		option, err := choose(q, text)
		if err == nil && option == 0 {
			err = fmt.Errorf("write the number of an answer, 1 to %d", len(q.Options))
		}
		if err != nil {
			env.complain(err.Error())
			return nil
		}
		open.remove(q.ID)
		said, err := talk.answer(ctx, q.ID, option)
		switch {
		case errors.Is(err, client.ErrClosed) || ctx.Err() != nil:
			return err
		case err != nil:
			env.complain(err.Error())
			return nil
		}
		env.complainLines(plain(said))
		if q, waits := open.current(); waits {
			show(q)
		}
		return nil
	}
	return func() { close(ended) }
}

var errNoAnswer = errors.New("no answer in time")

// exchange sends one message and waits for its end within the time limit. A command that times out
// stops the run, because an unread answer only costs money. If there was nothing to stop, the run
// has ended meanwhile, and its answer is read.
func (c *sendCmd) exchange(ctx context.Context, talk *conversation, text string) (turnEnd, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, errNoAnswer)
	defer cancel()
	if err := talk.open(ctx); err != nil {
		return turnEnd{}, err
	}
	defer talk.close()
	run := newKey()
	end, err := talk.ask(ctx, run, text, nil)
	var question asksError
	if asked := errors.As(err, &question); err == nil || (ctx.Err() == nil && !asked) {
		return end, err
	}
	known, stopped := talk.giveUp(ctx, run, text)
	if known != nil {
		return *known, nil
	}
	if question != "" {
		return turnEnd{}, fmt.Errorf("the agent asks for a permission, and --no-wait was given; %s. %s", stopped, string(question))
	}
	if errors.Is(context.Cause(ctx), errNoAnswer) {
		return turnEnd{}, fmt.Errorf("no answer within %s; %s", c.Timeout, stopped)
	}
	return turnEnd{}, errors.New("interrupted; " + stopped)
}

// message returns the argument, or standard input for a single dash. It is checked here, before the
// upload of files.
func (c *sendCmd) message(env *environment) (string, error) {
	text := c.Text
	if text == "-" {
		read, err := io.ReadAll(io.LimitReader(env.stdin, maxMessage+1))
		if err != nil {
			return "", fmt.Errorf("reading standard input: %w", err)
		}
		text = string(read)
	}
	switch {
	case len(text) > maxMessage:
		return "", usageError(fmt.Sprintf("the message is longer than %d bytes; send a part of it", maxMessage))
	case !utf8.ValidString(text):
		return "", usageError("the message is not UTF-8; convert it first, with iconv for example")
	case strings.TrimSpace(text) == "":
		return "", usageError("the message is empty; give a text, or - to read it from standard input")
	}
	return text, nil
}

func (c *sendCmd) print(env *environment, end turnEnd) error {
	if c.JSON {
		if err := printJSON(env.stdout, end); err != nil {
			return err
		}
		if end.err() != nil {
			return errQuiet
		}
		return nil
	}
	if end.Status == "merged" {
		env.note("another message of the session took this one along; its answer is in laneway sessions show " + c.Session)
	}
	if end.Text != "" {
		text := end.Text
		if env.terminal != nil {
			text = plain(text)
		}
		if err := env.printLine(strings.TrimSuffix(text, "\n")); err != nil {
			return fmt.Errorf("writing the answer: %w", err)
		}
	}
	if end.Note != "" { // not on standard output: for a program that reads it the answer is empty
		env.note(end.Note)
	}
	return end.err()
}

// sessionKey adds the agent to a short key, if one was named. Otherwise the gateway does it.
func sessionKey(session, agent string) string {
	if agent == "" || strings.HasPrefix(session, "agent:") {
		return session
	}
	return "agent:" + agent + ":" + session
}

type filesCmd struct {
	Get filesGetCmd `cmd:"" help:"Download a file that an agent created or a client uploaded."`
}

type filesGetCmd struct {
	clientFlags
	ID     string `arg:"" help:"The file's id: the last word of its line in the answer."`
	Output string `help:"Where to write it; - is standard output. Default: its own name, in this directory." short:"o" placeholder:"PATH"`
}

var fileID = regexp.MustCompile(`^file-[0-9a-f]{1,100}$`)

// Run saves the file.
func (c *filesGetCmd) Run(ctx context.Context, env *environment) error {
	if !fileID.MatchString(c.ID) {
		return usageError(fmt.Sprintf("%q is not the id of a file; it begins with file- and stands at the end of the file's line in the answer", c.ID))
	}
	to, err := c.serving(ctx, env)
	if err != nil {
		return err
	}
	if c.Output == "-" {
		return downloadFile(ctx, to, c.ID, func(string) (io.Writer, error) { return env.stdout, nil })
	}
	path, made := c.Output, (*os.File)(nil)
	err = downloadFile(ctx, to, c.ID, func(name string) (io.Writer, error) {
		path = cmp.Or(path, chat.FileName(name))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // the path that the user names
		if errors.Is(err, os.ErrExist) {
			return nil, usageError(path + " exists; choose another name with -o")
		}
		made = f
		return f, err
	})
	if made == nil {
		return err
	}
	if err = errors.Join(err, made.Close()); err != nil {
		return errors.Join(err, os.Remove(path)) // an incomplete file must not look complete
	}
	return env.printLine(filepath.Clean(path))
}
