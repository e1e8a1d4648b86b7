package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/retry"
	"laneway/internal/store"
	"laneway/internal/tool"
)

const (
	// orphansEvery is how often allowed calls are looked for whose process has ended before it made them.
	orphansEvery = 5 * time.Second
	orphansBatch = 20
)

// questions asks persons whether a tool may act, and makes the calls that they allow. A question is a row and a message with buttons; it holds no turn and no
// slot. Crash points: before the row is there the call has no result and is repeated with its turn; after it the question is sent once, under an id that
// follows from its key; after the answer the call belongs to this process, and to another one when this process ends before the result is recorded.
type questions struct {
	*parts

	tools *tool.Table
}

var _ tool.Questions = (*questions)(nil)

// Ask implements [tool.Questions].
func (q *questions) Ask(ctx context.Context, p tool.Pending) error {
	call, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding a call: %w", err)
	}
	err = q.node.WhileAlive(ctx, func(ctx context.Context) error {
		return q.store.PutQuestion(ctx, store.Question{ID: p.ID(), Owner: p.Asked.Principal, Call: call})
	})
	if err != nil {
		return fmt.Errorf("asking a person: %w", err)
	}
	return q.send(ctx, p, "question", asking(p))
}

// asking is the message of a question.
func asking(p tool.Pending) store.Outgoing {
	allow, deny := "/"+command.Allow+" "+p.ID(), "/"+command.Deny+" "+p.ID()
	return store.Outgoing{
		Text: "The agent " + p.Session.Agent + " wants to do this for you: " + p.Words() + "\nAllow it?",
		Choice: &chat.Choice{
			For: p.Asked.ID, Rows: [][]chat.Button{{{Label: "Allow", Text: allow}, {Label: "Deny", Text: deny}}},
			Typed: "Write " + allow + " or " + deny + " within 10 minutes.",
		},
	}
}

// send puts a message about a question into the outbox, once.
func (q *questions) send(ctx context.Context, p tool.Pending, what string, o store.Outgoing) error {
	o.RunID, o.N = uuid.NewSHA1(uuid.NameSpaceURL, []byte("laneway:"+what+":"+p.Key)).String(), 1
	o.Session, o.Principal, o.Target, o.Kind, o.Count = p.Session, p.Asked.Principal, p.Asked.Target, store.KindReply, 1
	err := q.node.WhileAlive(ctx, func(ctx context.Context) error { return q.store.Enqueue(ctx, []store.Outgoing{o}) })
	if err != nil {
		return fmt.Errorf("sending a question: %w", err)
	}
	q.outbox.Wake()
	return nil
}

// answer is /allow and /deny: it returns what the person reads.
func (q *questions) answer(ctx context.Context, by, id string, allow bool) (string, error) {
	node, err := q.node.Alive()
	if err != nil {
		return "", err
	}
	asked, err := q.store.AnswerQuestion(ctx, store.AnswerQuestion{ID: id, By: by, Allow: allow, Node: node})
	switch {
	case errors.Is(err, chat.ErrNotFound):
		return "", chat.Errorf(chat.CodeNotFound, "there is no open question like this; it was answered, it is too old, or it is for another person")
	case err != nil:
		return "", err
	case !allow:
		return "It is not done.", nil
	case asked.Result != nil:
		return asked.Result.Text, nil
	}
	_, result, err := q.work(ctx, asked)
	return result.Text, err
}

// work makes an allowed call and records its result.
func (q *questions) work(ctx context.Context, asked store.Question) (tool.Pending, chat.ToolResult, error) {
	var p tool.Pending
	if err := json.Unmarshal(asked.Call, &p); err != nil {
		return p, chat.ToolResult{}, fmt.Errorf("reading an allowed call: %w", err)
	}
	result := q.tools.Make(ctx, p)
	first := false
	err := q.node.Final(ctx, "recording the result of an allowed call", func(ctx context.Context) (err error) {
		first, err = q.store.EndQuestion(ctx, asked.ID, result)
		return err
	})
	if err != nil {
		return p, result, fmt.Errorf("recording the result of an allowed call: %w", err)
	}
	if first {
		q.note(ctx, p, result)
	}
	return p, result, nil
}

// note is the line of the call in the transcript, which later turns of the session read.
func (q *questions) note(ctx context.Context, p tool.Pending, result chat.ToolResult) {
	text := callNote(chat.ToolCall{Name: p.Tool, Args: p.Args}, &result)
	_, err := q.store.AppendTranscript(ctx, p.Session, p.Asked.Principal, []chat.TranscriptEntry{{
		Role: chat.RoleSystem, Text: text, Tokens: agent.EstimateTokens(text), StopReason: "tool",
	}})
	if err != nil {
		q.log.WarnContext(ctx, "an allowed call is not in the transcript", "session", p.Session.String(), "err", err)
	}
}

// run makes allowed calls whose process has ended, until ctx is over.
func (q *questions) run(ctx context.Context) {
	for retry.Sleep(ctx, orphansEvery) == nil {
		if node, err := q.node.Alive(); err == nil {
			q.adopt(ctx, node)
		}
	}
}

func (q *questions) adopt(ctx context.Context, node string) {
	list, err := q.store.TakeQuestions(ctx, node, orphansBatch)
	if err != nil {
		q.log.DebugContext(ctx, "allowed calls of ended processes were not read", "err", err)
		return
	}
	for _, asked := range list {
		p, result, err := q.work(ctx, asked)
		if err == nil {
			err = q.send(ctx, p, "answer", store.Outgoing{Text: result.Text})
		}
		if err != nil {
			q.log.WarnContext(ctx, "an allowed call of an ended process failed", "question", asked.ID, "err", err)
		}
	}
}

// personOf is whom a turn asks, and where: its sender, else the owner of its session, who reads it alone. The zero value is no person.
func (p *parts) personOf(lead fromWhom, owner string) tool.Person {
	who := p.reach(lead.sender, lead)
	if who.Principal == "" && lead.Session.Kind() != chat.KindGroup {
		who = p.reach(owner, lead)
	}
	return who
}

// reach finds out how a principal can be asked in a turn: a person in a chat by buttons there, a credential in the transcript, where it writes the answer.
func (p *parts) reach(principal string, lead fromWhom) tool.Person {
	to := lead.Content.Options.ReplyTo
	if principal == "" || lead.Channel == apiRoute {
		return tool.Person{}
	}
	if OperatorOwner(principal) {
		if to.IsZero() || to.Channel == channel.Web {
			return tool.Person{Principal: principal, Target: channel.WebTarget(lead.Session)}
		}
		return tool.Person{}
	}
	at := strings.LastIndexByte(principal, ':')
	name := principal[:at]
	if _, asks := p.channels[name].(channel.Asker); !asks || chat.ChannelKind(to.Channel) != chat.ChannelKind(name) {
		return tool.Person{}
	}
	to.Channel = name
	return tool.Person{Principal: principal, ID: principal[at+1:], Target: to}
}
