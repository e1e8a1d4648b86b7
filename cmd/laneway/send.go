package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// maxMessage is the longest message in bytes that a gateway takes.
const maxMessage = 262_144

type sendCmd struct {
	clientFlags
	Text    string        `arg:"" help:"The message; - reads it from standard input."`
	Session string        `help:"Session key." default:"main" placeholder:"KEY" complete:"sessions"`
	Agent   string        `help:"Agent that answers; default the gateway's." placeholder:"ID" complete:"agents"`
	Timeout time.Duration `help:"How long to wait for the answer; then the message is stopped." default:"10m"`
	JSON    bool          `help:"Print the answer, its run id and how it ended as JSON."`
}

// Help is the long help of the command.
func (*sendCmd) Help() string {
	return `Prints the answer on standard output. Exit status 0 means answered; 1 that it was not, with the reason on standard error. A lost
connection is taken up again; the message is never sent twice.

Examples:

    laneway send "What is on today?"
    git diff | laneway send - --session review --timeout 5m`
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
	limit := c.Timeout.Milliseconds()
	talk := &conversation{
		dial:    func(ctx context.Context) (gatewayConn, error) { return c.connect(ctx, env) },
		session: sessionKey(c.Session, c.Agent), agent: c.Agent, timeout: &limit,
	}
	began := env.now()
	end, err := c.exchange(ctx, talk, text)
	if err != nil {
		return err
	}
	end.DurationMs = env.now().Sub(began).Milliseconds()
	return c.print(env, end)
}

var errNoAnswer = errors.New("no answer in time")

// exchange is one question within the time limit. A command that gives up stops the run: an answer that is not read only costs.
func (c *sendCmd) exchange(ctx context.Context, talk *conversation, text string) (turnEnd, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, errNoAnswer)
	defer cancel()
	if err := talk.open(ctx); err != nil {
		return turnEnd{}, err
	}
	defer talk.close()
	run := newKey()
	end, err := talk.ask(ctx, run, text, nil)
	if ctx.Err() == nil || err == nil {
		return end, err
	}
	stopped := "it was stopped"
	if talk.conn == nil || talk.abort(ctx, run) != nil {
		stopped = "it may still be answered"
	}
	if errors.Is(context.Cause(ctx), errNoAnswer) {
		return turnEnd{}, fmt.Errorf("no answer within %s; %s", c.Timeout, stopped)
	}
	return turnEnd{}, errors.New("interrupted; " + stopped)
}

// message is the argument, or standard input for a single dash. It is checked here, so that a long upload is not refused at its end.
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
		if _, err := fmt.Fprintln(env.stdout, strings.TrimSuffix(text, "\n")); err != nil {
			return fmt.Errorf("writing the answer: %w", err)
		}
	}
	return end.err()
}

// sessionKey completes a short key with the agent, when one was named. Without an agent the gateway does it.
func sessionKey(session, agent string) string {
	if agent == "" || strings.HasPrefix(session, "agent:") {
		return session
	}
	return "agent:" + agent + ":" + session
}
