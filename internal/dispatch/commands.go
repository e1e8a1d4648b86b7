package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/store"
)

const (
	// urgentWait is how long an urgent command waits to find out whether it is a repetition. A stop
	// must not wait for a slow database.
	urgentWait = 80 * time.Millisecond
	// commandTime limits a command.
	commandTime = 10 * time.Second
)

// commands executes the chat commands: record, execute, answer, and completion of commands that a
// crash interrupted between these steps.
type commands struct {
	*parts

	table     *command.Table
	needs     map[string]chat.Need
	queue     *queue
	access    *access
	actions   command.Actions
	executing executing
	answered  answerBursts
}

// checkNeeds returns an error for a command with a method that the gateway does not have.
func (c *commands) checkNeeds() error {
	for _, use := range c.table.Uses() {
		if c.needs[use.Method].Scope == "" {
			return fmt.Errorf("the command /%s %s has the method %q, which the gateway does not have", use.Command, use.Verb, use.Method)
		}
	}
	return nil
}

// run records a command, executes it and answers it. It takes no slot and no place in the queue. A
// repetition of an answered command is not executed again. A command without an answer after a
// crash, or after a lost response of the store, is completed, see redo.
func (c *commands) run(ctx context.Context, m chat.Message, cmd command.Command, call command.Call) (chat.Receipt, error) {
	if m.Own { // an urgent command does not wait for the store to record it
		if err := c.access.mayUse(ctx, m.Session, m.Principal); err != nil {
			return chat.Receipt{}, err
		}
	}
	first := c.executing.begin(m.ID)
	if first {
		defer c.executing.end(m.ID)
	}
	receipt := chat.Receipt{RunID: m.ID, Session: m.Session, AcceptedAt: time.Now(), State: store.StateDone, Outcome: chat.OutcomeAnswered, Command: true}
	rec := make(chan recorded, 1)
	c.background.Go(func() { rec <- c.record(context.WithoutCancel(ctx), m) })
	wait := urgentWait
	if !cmd.Urgent {
		wait = commandTime
	}
	r, known := within(wait, rec)
	if !known && !cmd.Urgent {
		return chat.Receipt{}, chat.ErrStoreUnavailable
	}
	if known && r.acc.Duplicate {
		receipt = duplicateReceipt(r.acc.Existing)
		if cmd.Urgent || !first {
			return receipt, nil
		}
		return receipt, c.redo(ctx, m, r.acc.Existing, call, cmd)
	}
	if r.err != nil && !cmd.Urgent {
		return chat.Receipt{}, r.err
	}
	answer := c.exec(ctx, m, cmd, call)
	if cmd.Urgent && c.answered.repeats(m, answer.Text) { // the number of urgent commands is not limited, that of the messages in a chat is
		m.Content.Options.ReplyTo = chat.Target{}
	}
	if !known { // the answer must follow the record in the transcript, but the person does not wait for it
		late := context.WithoutCancel(ctx)
		c.background.Go(func() { <-rec; c.sendAnswerLate(late, m, answer); c.noteAnswer(late, m, answer) })
		return receipt, nil
	}
	receipt.Seq = r.acc.Seq
	return receipt, c.end(ctx, m, cmd, answer)
}

// end answers a command. If the answer cannot be stored, it
// returns an error, so that the command is delivered again. For an urgent command it returns nil:
// the command has acted, and its answer is sent when the store is available again.
func (c *commands) end(ctx context.Context, m chat.Message, cmd command.Command, answer command.Answer) error {
	ctx = context.WithoutCancel(ctx)
	err := c.sendAnswer(ctx, m, answer)
	switch {
	case err == nil:
	case cmd.Urgent:
		c.background.Go(func() { c.sendAnswerLate(ctx, m, answer) })
	default:
		return chat.ErrStoreUnavailable
	}
	c.noteAnswer(ctx, m, answer)
	return nil
}

type recorded struct {
	acc store.Accepted
	err error
}

func (c *commands) record(ctx context.Context, m chat.Message) recorded {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, errors.New("recording the command took too long"))
	defer cancel()
	acc, err := c.access.accept(ctx, store.AcceptParams{Node: c.node.ID(), Message: m, Unqueued: true, Own: m.Own})
	if err != nil {
		c.log.WarnContext(ctx, "a command was not recorded", "session", m.Session.String(), "err", err)
	}
	return recorded{acc: acc, err: err}
}

// within returns the result of recording, or false after wait.
func within(wait time.Duration, c <-chan recorded) (recorded, bool) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case r := <-c:
		return r, true
	case <-t.C:
		return recorded{}, false
	}
}

// exec executes a command and ends the debounce window, because messages before and after a command
// are not combined. call has its name and arguments.
func (c *commands) exec(ctx context.Context, m chat.Message, cmd command.Command, call command.Call) command.Answer {
	answer, ok := c.call(ctx, m, cmd, call)
	c.counters.commandRun(cmd.Name, ok)
	c.sched.Cut(m.Session.String())
	return answer
}

// call runs the function of the table and converts its error to a sentence for the person.
func (c *commands) call(ctx context.Context, m chat.Message, cmd command.Command, call command.Call) (answer command.Answer, ok bool) {
	if need := c.needs[cmd.MethodOf(call.Args)]; !mayCommand(m, need) {
		return command.Answer{Text: "You may not use /" + cmd.Name + ": it needs the scope " + need.Scope + "."}, false
	}
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, errors.New("the command took too long"))
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			c.log.ErrorContext(ctx, "a command panicked", "command", cmd.Name, "panic", p)
			answer, ok = command.Answer{Text: "/" + cmd.Name + " failed: internal error."}, false
		}
	}()
	call.ID, call.Session, call.Principal, call.Scope = m.ID, m.Session, m.Principal, m.Scope
	call.Peer, call.RequestID = cmp.Or(m.Peer, m.Channel), cmp.Or(m.RequestID, m.Dedupe, m.ID)
	call.Own = m.Own
	call.Sender, call.OwnOnly = m.Content.Sender, m.Content.Options.StopOwn
	if m.Content.Answered != nil {
		call.Answered = m.Content.Answered.Message
	}
	call.Channel, call.Target = chat.ChannelKind(m.Channel), m.Content.Options.ReplyTo
	call.Audience = chat.AudienceOf(m.Principal, m.Session, m.Principal)
	reader := m.Principal
	if cmd.Urgent { // a stop never waits for the lists of its caller
		reader = ""
	}
	answer, err := cmd.Run(store.OnBehalfOf(ctx, reader), c.actions, call)
	if err != nil {
		c.log.InfoContext(ctx, "a command failed", "command", cmd.Name, "err", err)
		return command.Answer{Text: "/" + cmd.Name + " failed: " + chat.SentenceOf(err) + "."}, false
	}
	return answer, true
}

// mayCommand returns whether the caller may use a command. A person in a chat, who has no
// credential, may change what they own: commands only affect their own jobs, and a change of a
// session checks its owner.
func mayCommand(m chat.Message, need chat.Need) bool {
	if (chat.Caller{Principal: m.Principal}).InChat() && need.Scope != "" {
		need.Owner = true
	}
	return need.Passes(m.Scope)
}

// callerOf returns the caller of a command.
func callerOf(c command.Call) chat.Caller {
	return chat.Caller{Principal: c.Principal, Scopes: []string{c.Scope}, Peer: c.Peer, RequestID: c.RequestID}
}

// redo handles a command that was already recorded. Usually it was answered then, and nothing
// happens. But the process may have ended before the answer, or the store's response about the
// record may have been lost. Then the sender delivers the command again, and it is executed under
// the id of the record. Its effects happen once under that id (onceOf), and its answer is sent
// once. Urgent commands act before they are recorded and are not redone.
func (c *commands) redo(ctx context.Context, m chat.Message, was store.Waiting, call command.Call, cmd command.Command) error {
	if was.State != store.StateDone || was.Outcome != chat.OutcomeAnswered || was.RunID != "" {
		return nil // it was not a command then
	}
	if was.MessageID != m.ID { // a new delivery has a new id
		if !c.executing.begin(was.MessageID) {
			return nil
		}
		defer c.executing.end(was.MessageID)
	}
	m.ID, m.Session = was.MessageID, was.Session
	if done, err := c.wasAnswered(ctx, was); err != nil || done {
		return err
	}
	c.log.InfoContext(ctx, "a command that was recorded and not answered is executed", "command", cmd.Name, "run_id", m.ID)
	call.Again = true
	return c.end(ctx, m, cmd, c.exec(ctx, m, cmd, call))
}

// wasAnswered reports whether a recorded command has its entries in the transcript. When that is
// unknown, it counts as answered: the transcript may have been archived since, or the results under
// the id may have expired.
func (c *commands) wasAnswered(ctx context.Context, was store.Waiting) (bool, error) {
	if time.Since(was.AcceptedAt) >= store.IdempotencyTTL {
		return true, nil
	}
	own, err := c.store.Transcript(ctx, store.TranscriptQuery{Session: was.Session, RunID: was.MessageID, Limit: 1, MaxChars: 1})
	if err != nil || len(own.Entries) > 0 {
		return true, err
	}
	all, err := c.store.Transcript(ctx, store.TranscriptQuery{Session: was.Session, FromStart: true, Limit: 1, MaxChars: 1})
	return err != nil || (len(all.Entries) > 0 && all.Entries[0].At.After(was.AcceptedAt)), err
}

// onceOf returns the idempotency key of a command's effect.
func onceOf(c command.Call) *chat.IdempotencyKey {
	if c.ID == "" {
		return nil
	}
	return &chat.IdempotencyKey{Owner: c.Principal, Method: "command", Key: c.ID, Hash: chat.StateHash(c.Name + " " + c.Args)}
}

// executing holds the ids of the commands that this process is executing, so that a repetition does
// not complete a command that is still running.
type executing struct {
	mu  sync.Mutex
	ids map[string]bool
}

// begin returns false when id is already being executed.
func (e *executing) begin(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ids[id] {
		return false
	}
	if e.ids == nil {
		e.ids = map[string]bool{}
	}
	e.ids[id] = true
	return true
}

func (e *executing) end(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.ids, id)
}

// sendAnswer puts the answer of a command into the outbox, once for any number of calls. A choice
// is for the person who gave the command. It returns an error when the store is unavailable.
func (c *commands) sendAnswer(ctx context.Context, m chat.Message, answer command.Answer) error {
	if m.Content.Options.ReplyTo.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, errors.New("keeping the answer of a command took too long"))
	defer cancel()
	err := c.store.Enqueue(ctx, []store.Outgoing{commandAnswer(m, answer)})
	if err != nil {
		c.log.WarnContext(ctx, "the answer of a command was not sent", "session", m.Session.String(), "err", err)
	}
	c.outbox.Wake()
	if store.CommitUnknown(err) {
		return err
	}
	return nil
}

// sendAnswerLate calls sendAnswer until the store is available.
func (c *commands) sendAnswerLate(ctx context.Context, m chat.Message, answer command.Answer) {
	err := c.node.Final(ctx, "sending the answer of a command", func(ctx context.Context) error { return c.sendAnswer(ctx, m, answer) })
	if err != nil {
		c.log.WarnContext(ctx, "the answer of a command is lost", "session", m.Session.String(), "err", err)
	}
}

// noteAnswer adds command and answer to the transcript, marked so that agents do not read them as
// conversation, and publishes the answer. Subscribers see a choice in words. The entries show that
// the command is complete, so they are written last.
func (c *commands) noteAnswer(ctx context.Context, m chat.Message, answer command.Answer) {
	text := channel.InWords(answer.Text, answer.Choice)
	entries, err := c.store.AppendTranscript(ctx, m.Session, m.Principal, []chat.TranscriptEntry{
		{RunID: m.ID, Role: chat.RoleUser, Text: m.Content.Text, Sender: m.Content.Sender, Command: true},
		{RunID: m.ID, Role: chat.RoleAssistant, Text: text, Command: true, StopReason: "stop"},
	})
	if err != nil {
		c.log.WarnContext(ctx, "the answer of a command is not in the transcript", "session", m.Session.String(), "err", err)
	}
	e := chat.Event{Kind: chat.EventFinal, Session: m.Session, Principal: m.Principal, RunID: m.ID, Text: text, Command: true, Reason: "stop"}
	if len(entries) > 0 {
		e.EntrySeq = entries[len(entries)-1].Seq
	}
	c.events.Publish(e)
	c.events.Ended(chat.RunEnd{RunID: m.ID, Session: m.Session, Outcome: chat.OutcomeAnswered, Text: text})
}

// commandAnswer returns the outbox row of a command's answer. A choice is for the person who gave
// the command.
func commandAnswer(m chat.Message, answer command.Answer) store.Outgoing {
	o := store.Outgoing{
		ID: newID(), RunID: m.ID, Session: m.Session, Principal: m.Principal, Target: m.Content.Options.ReplyTo, Kind: store.KindCommand, Text: answer.Text, Count: 1,
	}
	if answer.Choice != nil {
		choice := *answer.Choice
		choice.For, o.Choice = m.Content.Sender.ID, &choice
	}
	return o
}
