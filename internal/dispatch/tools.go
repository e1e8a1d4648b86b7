package dispatch

import (
	"context"
	"fmt"
	"slices"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/tool"
)

// Tools are which tools of the gateway an agent gets. The zero value is none.
type Tools struct {
	// Default: all of them, except in turns of the OpenAI interface and of hooks.
	Default bool
	// Names are the tools that the agent gets in every turn; they count instead of Default where there are any.
	Names []string
}

// offered are the names of the tools of a turn; ok is false when it gets none.
func (a Tools) offered(channel string) (names []string, ok bool) {
	if len(a.Names) > 0 {
		return a.Names, true
	}
	return nil, a.Default && channel != apiRoute && channel != hookRoute
}

// toolbox is what the model of a turn may call; nil = nothing.
func (ts *turns) toolbox(t *turn) agent.Toolbox {
	texts := t.journal.messages()
	lead := texts[len(texts)-1]
	names, ok := t.agent.Tools.offered(lead.Channel)
	if !ok {
		return nil
	}
	return ts.tools.For(tool.Turn{
		Owner: lead.sender, Session: lead.Session, Sender: lead.Content.Sender, Channel: lead.Channel, Target: lead.Content.Options.ReplyTo,
		NoActs: func() string { return noActs(t.attempt, t.journal.messages()) },
	}, names)
}

// noActs is why the tools that create or send are refused in a turn; "" = they may run. What is created belongs to the owner of the turn, so it has to
// be their own words that asked for it.
func noActs(a attempt, texts []fromWhom) string {
	lead := texts[0]
	external := func(m fromWhom) bool { return m.Content.External || m.Channel == hookRoute }
	other := func(m fromWhom) bool { return m.sender != lead.sender }
	switch {
	case a.Unattended():
		return "this is not possible in the turn of a job"
	case lead.Session.Kind() == chat.KindGroup:
		return "this is not possible in a group without a confirmation; the person can use the commands, such as /remind"
	case slices.ContainsFunc(texts, external):
		return "this is not possible in a turn that text from outside has caused; the person has to ask for it in words of their own"
	case slices.ContainsFunc(texts, other):
		return "this is not possible in a turn of several people; each of them has to ask separately"
	default:
		return ""
	}
}

// toolSessions is what the tools read and write of conversations.
type toolSessions struct{ *Dispatcher }

var _ tool.Sessions = toolSessions{}

// Send puts a message into the outbox.
func (s toolSessions) Send(ctx context.Context, o store.Outgoing) error {
	if _, ok := s.channels[o.Target.Channel]; !ok {
		return chat.Errorf(chat.CodeInvalid, "the channel of that session sends nothing here")
	}
	err := s.node.WhileAlive(ctx, func(ctx context.Context) error { return s.store.Enqueue(ctx, []store.Outgoing{o}) })
	if err != nil {
		return fmt.Errorf("sending a text of a tool: %w", err)
	}
	s.outbox.Wake()
	return nil
}
