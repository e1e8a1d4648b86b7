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
	// urgentWait is how long an urgent command waits for the answer whether it is a repetition. A stop must not wait for a slow database.
	urgentWait = 80 * time.Millisecond
	// commandTime bounds a command.
	commandTime = 10 * time.Second
)

// commands executes the chat commands: record, execute, answer, and complete what a crash left between two of these.
type commands struct {
	*parts

	table     *command.Table
	needs     map[string]chat.Need
	queue     *queue
	access    *access
	actions   command.Actions
	executing executing
}

// checkNeeds refuses a command that stands for a method which the gateway does not have.
func (c *commands) checkNeeds() error {
	for _, use := range c.table.Uses() {
		if c.needs[use.Method].Scope == "" {
			return fmt.Errorf("the command /%s %s stands for %q, which is no method of the gateway", use.Command, use.Verb, use.Method)
		}
	}
	return nil
}

// run records a command, executes it and answers it. It takes no slot and no place in the queue. A repetition of one that was answered
// is not executed again; one that a crash or a lost answer of the store left between its record and its answer is completed: see redo.
func (c *commands) run(ctx context.Context, m chat.Message, cmd command.Command, call command.Call) (chat.Receipt, error) {
	if m.Own { // an urgent one does not wait for the answer of the store about its record
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
	if !known { // the answer belongs behind the record, but a person does not wait for it
		late := context.WithoutCancel(ctx)
		c.background.Go(func() { <-rec; c.sendAnswerLate(late, m, answer); c.noteAnswer(late, m, answer) })
		return receipt, nil
	}
	receipt.Seq = r.acc.Seq
	return receipt, c.end(ctx, m, cmd, r.acc.Seq, answer)
}

// end lets the messages behind a command start, and answers it. A command whose answer could not be kept is an error, so that it
// is offered again. An urgent one is none: it has acted, and its answer is sent when the store is back.
func (c *commands) end(ctx context.Context, m chat.Message, cmd command.Command, seq int64, answer command.Answer) error {
	c.queue.pass(ctx, m.Session, seq)
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

// within returns what was recorded, or false when that takes longer than wait.
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

// exec executes a command; what was typed before it and after it does not belong together. The call has its name and arguments.
func (c *commands) exec(ctx context.Context, m chat.Message, cmd command.Command, call command.Call) command.Answer {
	answer, ok := c.call(ctx, m, cmd, call)
	c.obs.CommandRun(cmd.Name, ok)
	c.queue.cut(m.Session)
	return answer
}

// call runs the function of the table and turns its error into the sentence that the person gets.
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
	call.Channel, call.Target = chat.ChannelKind(m.Channel), m.Content.Options.ReplyTo
	call.Audience = chat.AudienceOf(m.Principal, m.Session, m.Principal)
	answer, err := cmd.Run(ctx, c.actions, call)
	if err != nil {
		c.log.InfoContext(ctx, "a command failed", "command", cmd.Name, "err", err)
		return command.Answer{Text: "/" + cmd.Name + " failed: " + chat.SentenceOf(err) + "."}, false
	}
	return answer, true
}

// mayCommand refuses a command that the caller may not use. A person in a chat, who holds no credential, may change what is theirs: what a
// command does reaches their own jobs only, and what changes a session asks for its owner.
func mayCommand(m chat.Message, need chat.Need) bool {
	if (chat.Caller{Principal: m.Principal}).InChat() && need.Scope != "" {
		need.Owner = true
	}
	return need.Passes(m.Scope)
}

// callerOf is who gave a command.
func callerOf(c command.Call) chat.Caller {
	return chat.Caller{Principal: c.Principal, Scopes: []string{c.Scope}, Peer: c.Peer, RequestID: c.RequestID}
}

// redo settles a command whose record was there already. Usually it was answered then, and nothing happens. But the process may have died, or
// the answer of the store about the record may have been lost, before that: then its sender delivers it again, and the command is executed
// under the id of the record. What it does under that id it does once (onceOf), and its answer goes out once. Urgent commands act before they
// are recorded and need none of this.
func (c *commands) redo(ctx context.Context, m chat.Message, was store.Waiting, call command.Call, cmd command.Command) error {
	if was.State != store.StateDone || was.Outcome != chat.OutcomeAnswered || was.RunID != "" {
		return nil // no command then
	}
	if was.MessageID != m.ID { // delivered anew, it has a new id
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
	return c.end(ctx, m, cmd, was.Seq, c.exec(ctx, m, cmd, call))
}

// wasAnswered reports whether a recorded command has its lines in the transcript. Where that is unknown (the transcript has been archived since, or
// what was done under the id is no longer kept) it counts as answered.
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

// onceOf is the name of what a command does.
func onceOf(c command.Call) *chat.IdempotencyKey {
	if c.ID == "" {
		return nil
	}
	return &chat.IdempotencyKey{Owner: c.Principal, Method: "command", Key: c.ID, Hash: chat.StateHash(c.Name + " " + c.Args)}
}

// executing is the ids of the commands that this process executes at the moment, so that a repetition does not complete what is not over.
type executing struct {
	mu  sync.Mutex
	ids map[string]bool
}

// begin is false when id is executed already.
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

// sendAnswer puts the answer of a command into the outbox, once however often it is called. A choice is for the person who gave the command.
// An error: the store did not answer.
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

// sendAnswerLate does so as soon as the store answers.
func (c *commands) sendAnswerLate(ctx context.Context, m chat.Message, answer command.Answer) {
	err := c.node.Final(ctx, "sending the answer of a command", func(ctx context.Context) error { return c.sendAnswer(ctx, m, answer) })
	if err != nil {
		c.log.WarnContext(ctx, "the answer of a command is lost", "session", m.Session.String(), "err", err)
	}
}

// noteAnswer keeps question and answer in the transcript, marked so that no agent takes them for conversation, and publishes the answer; subscribers
// read a choice in words. The lines show that the command needs nothing more, so they come after everything else.
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

// commandAnswer is the row of a command's answer. A choice is for the person who gave the command.
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
