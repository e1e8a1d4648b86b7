package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/store"
)

// topicAnswer is the cluster event of an answer that another replica waits for.
const topicAnswer = "answer"

// permissions asks persons what the agents of running turns may do ([agent.Asker]). A question belongs to its turn, which waits for the answer in this process, so it
// is kept in memory: when the process ends, the turn runs again and asks again. The person answers with a command, usually by a button that sends it; the
// command may come to another replica, which passes it on. No lock is held while anything is waited for.
type permissions struct {
	*parts

	mu   sync.Mutex
	open map[string]*permission
}

// permission is an open question.
type permission struct {
	session   chat.SessionKey
	principal string // the only one who may answer
	options   []string
	answer    chan int // has room for the answer
}

// personAsker asks the person of one turn.
type personAsker struct {
	*permissions

	session   chat.SessionKey
	principal string
	sender    string // in the words of the channel
	target    chat.Target
}

// asker is who can be asked in a turn: the sender of its last message, where they get the answer. nil = no person can: in turns of jobs, of programs, and in channels
// that have no buttons.
func (ps *permissions) asker(t *turn) agent.Asker {
	texts := t.journal.messages()
	lead := texts[len(texts)-1]
	to := lead.Content.Options.ReplyTo
	if t.attempt.Unattended() || lead.sender == "" || lead.Channel == apiRoute || lead.Channel == hookRoute {
		return nil
	}
	if to.IsZero() {
		to = channel.WebTarget(lead.Session)
	}
	if _, buttons := ps.channels[to.Channel].(channel.Asker); !buttons && to.Channel != channel.Web {
		return nil
	}
	return &personAsker{permissions: ps, session: lead.Session, principal: lead.sender, sender: lead.Content.Sender.ID, target: to}
}

// Ask implements [agent.Asker].
func (a *personAsker) Ask(ctx context.Context, q agent.Question) (int, error) {
	id := questionID()
	p := &permission{session: a.session, principal: a.principal, options: q.Options, answer: make(chan int, 1)}
	a.mu.Lock()
	a.open[id] = p
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.open, id)
		a.mu.Unlock()
	}()
	if err := a.send(ctx, id, q); err != nil {
		return 0, err
	}
	select {
	case n := <-p.answer:
		return n, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// send puts the question into the outbox.
func (a *personAsker) send(ctx context.Context, id string, q agent.Question) error {
	choice := &chat.Choice{For: a.sender}
	var typed []string
	for i, option := range q.Options {
		text := fmt.Sprintf("/%s %s %d", command.Answers, id, i+1)
		choice.Rows = append(choice.Rows, []chat.Button{{Label: option, Text: text}})
		typed = append(typed, text+" ("+option+")")
	}
	choice.Typed = "Write " + strings.Join(typed, ", or ")
	o := store.Outgoing{
		RunID: newID(), N: 1, Session: a.session, Principal: a.principal, Target: a.target, Kind: store.KindReply, Text: q.Text, Choice: choice, Count: 1,
	}
	if until, ok := ctx.Deadline(); ok {
		o.ExpiresAt = until
		choice.Typed += " within " + time.Until(until).Round(time.Second).String()
	}
	choice.Typed += "."
	err := a.node.WhileAlive(ctx, func(ctx context.Context) error { return a.store.Enqueue(ctx, []store.Outgoing{o}) })
	if err != nil {
		return fmt.Errorf("asking a person: %w", err)
	}
	a.outbox.Wake()
	return nil
}

// answered is the answer of a person, as replicas pass it on.
type answered struct {
	ID        string `json:"id"`
	Session   string `json:"session"`
	Principal string `json:"principal"`
	Option    int    `json:"option"` // from 1
}

// reply answers an open question. A second answer, one of another person and one from another conversation find no question.
func (ps *permissions) reply(a answered) (option string, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.open[a.ID]
	switch {
	case p == nil || p.principal != a.Principal || p.session.String() != a.Session:
		return "", chat.Errorf(chat.CodeNotFound, "there is no open question like this; it was answered, its time is over, or it is for another person")
	case a.Option < 1 || a.Option > len(p.options):
		return "", chat.Errorf(chat.CodeInvalid, "the question has the options 1 to %d", len(p.options))
	}
	delete(ps.open, a.ID)
	p.answer <- a.Option - 1
	return p.options[a.Option-1], nil
}

// receive takes an answer that came to another replica.
func (ps *permissions) receive(_ context.Context, text string) {
	var a answered
	if json.Unmarshal([]byte(text), &a) == nil {
		_, _ = ps.reply(a) // the question may be of a third replica
	}
}

// answer is /answer.
func (ps *permissions) answer(c command.Call, id string, option int, peers bool) (string, error) {
	a := answered{ID: id, Session: c.Session.String(), Principal: c.Principal, Option: option}
	label, err := ps.reply(a)
	if err == nil {
		return "The answer is: " + label + ".", nil
	}
	if peers && chat.CodeOf(err) == chat.CodeNotFound {
		ps.events.Send(topicAnswer, &a, func() {})
		return "The answer was passed on. If the question is not open any more, nothing happens.", nil
	}
	return "", err
}

// questionID is what an answer names: short enough to be typed, and of no use to another person.
func questionID() string {
	var raw [5]byte
	_, _ = rand.Read(raw[:]) // never fails
	return strings.ToLower(base32.StdEncoding.EncodeToString(raw[:]))
}
