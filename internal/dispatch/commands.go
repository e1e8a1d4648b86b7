package dispatch

import (
	"cmp"
	"context"
	"errors"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/ownership"
	"laneway/internal/store"
)

const (
	// urgentWait is how long an urgent command waits to learn whether it is a repetition. A stop must not wait for a slow database.
	urgentWait = 80 * time.Millisecond
	// commandTime bounds a command.
	commandTime = 10 * time.Second
)

// runCommand records a command, executes it and answers it. It takes no slot and no place in the queue. A repetition of one that was answered
// is not executed again; one that a crash or a lost answer of the store left between its record and its answer is completed: see redo.
func (d *Dispatcher) runCommand(ctx context.Context, m chat.Message, cmd command.Command, name, args string) (chat.Receipt, error) {
	if m.Own { // an urgent one does not wait for the store's word about its record
		if err := d.mayUse(ctx, m.Session, m.Principal); err != nil {
			return chat.Receipt{}, err
		}
	}
	first := d.executing.begin(m.ID)
	if first {
		defer d.executing.end(m.ID)
	}
	receipt := chat.Receipt{RunID: m.ID, Session: m.Session, AcceptedAt: time.Now(), State: store.StateDone, Outcome: chat.OutcomeAnswered, Command: true}
	rec := make(chan recorded, 1)
	d.small.Go(func() { rec <- d.record(context.WithoutCancel(ctx), m) })
	wait := urgentWait
	if !cmd.Urgent {
		wait = commandTime
	}
	r, known := soon(rec, wait)
	if !known && !cmd.Urgent {
		return chat.Receipt{}, chat.ErrStoreUnavailable
	}
	if known && r.acc.Duplicate {
		if cmd.Urgent || !first {
			return duplicateReceipt(r.acc.Existing), nil
		}
		return d.redo(ctx, m, r.acc, command.Call{Name: name, Args: args}, cmd)
	}
	if r.err != nil && !cmd.Urgent {
		return chat.Receipt{}, r.err
	}
	answer := d.execCommand(ctx, m, cmd, command.Call{Name: name, Args: args})
	if !known { // the answer belongs behind the record, but a person does not wait for it
		late := context.WithoutCancel(ctx)
		d.small.Go(func() { <-rec; d.sendAnswerLate(late, m, answer); d.noteAnswer(late, m, answer) })
		return receipt, nil
	}
	receipt.Seq = r.acc.Seq
	return receipt, d.endCommand(ctx, m, cmd, r.acc.Seq, answer)
}

// endCommand gives way to what was accepted behind a command, and answers it. A command whose answer could not be kept is an error, so that it
// is offered again. An urgent one is none: it has acted, and its answer is sent when the store is back.
func (d *Dispatcher) endCommand(ctx context.Context, m chat.Message, cmd command.Command, seq int64, answer command.Answer) error {
	for _, s := range d.handover.pass(d.sched, m.Session, seq) {
		d.settle(ctx, s)
	}
	ctx = context.WithoutCancel(ctx)
	err := d.sendAnswer(ctx, m, answer)
	switch {
	case err == nil:
	case cmd.Urgent:
		d.small.Go(func() { d.sendAnswerLate(ctx, m, answer) })
	default:
		return chat.ErrStoreUnavailable
	}
	d.noteAnswer(ctx, m, answer)
	return nil
}

type recorded struct {
	acc store.Accepted
	err error
}

func (d *Dispatcher) record(ctx context.Context, m chat.Message) recorded {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, errors.New("recording the command took too long"))
	defer cancel()
	acc, err := d.store.Accept(ctx, store.AcceptParams{Node: d.NodeID(), Message: m, Unqueued: true, Offset: d.offset(m), Own: m.Own})
	if err != nil {
		d.log.WarnContext(ctx, "a command was not recorded", "session", m.Session.String(), "err", err)
	} else if !acc.Duplicate {
		d.rightful(ctx, m, &acc)
	}
	return recorded{acc: acc, err: err}
}

func soon(c <-chan recorded, wait time.Duration) (recorded, bool) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case r := <-c:
		return r, true
	case <-t.C:
		return recorded{}, false
	}
}

// execCommand executes a command; what was typed before it and after it does not belong together. The call has its name and arguments.
func (d *Dispatcher) execCommand(ctx context.Context, m chat.Message, cmd command.Command, call command.Call) command.Answer {
	answer, ok := d.callCommand(ctx, m, cmd, call)
	d.obs.CommandRun(cmd.Name, ok)
	d.bursts.cut(m.Session)
	d.sched.Cut(m.Session.String())
	return answer
}

// callCommand runs the function of the table and turns its error into the sentence that the person gets.
func (d *Dispatcher) callCommand(ctx context.Context, m chat.Message, cmd command.Command, call command.Call) (answer command.Answer, ok bool) {
	if need := d.needs[cmd.MethodOf(call.Args)]; !mayCommand(m, need) {
		return command.Answer{Text: "You may not use /" + cmd.Name + ": it needs the scope " + need.Scope + "."}, false
	}
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, errors.New("the command took too long"))
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "a command panicked", "command", cmd.Name, "panic", p)
			answer, ok = command.Answer{Text: "/" + cmd.Name + " failed: internal error."}, false
		}
	}()
	call.ID, call.Session, call.Principal, call.Scope = m.ID, m.Session, m.Principal, m.Scope
	call.Peer, call.RequestID = cmp.Or(m.Peer, m.Channel), cmp.Or(m.RequestID, m.Dedupe, m.ID)
	call.Own = m.Own
	call.Sender, call.OwnOnly = m.Content.Sender, m.Content.Options.StopOwn
	call.Channel, call.Target = channelKind(m.Channel), m.Content.Options.ReplyTo
	answer, err := cmd.Run(ctx, actions{d}, call)
	if err != nil {
		d.log.InfoContext(ctx, "a command failed", "command", cmd.Name, "err", err)
		return command.Answer{Text: "/" + cmd.Name + " failed: " + sentenceOf(err) + "."}, false
	}
	return answer, true
}

// mayCommand lets a command through that the caller may use at all. A person in a chat, who holds no credential, may change what is theirs: what a
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

// sendAnswer puts the answer of a command into the outbox, once however often it is called. A choice is for the person who gave the command.
// An error: the store did not answer.
func (d *Dispatcher) sendAnswer(ctx context.Context, m chat.Message, answer command.Answer) error {
	to := m.Content.Options.ReplyTo
	if to.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, errors.New("keeping the answer of a command took too long"))
	defer cancel()
	o := store.Outgoing{ID: newID(), RunID: m.ID, Session: m.Session, Principal: m.Principal, Target: to, Kind: store.KindCommand, Text: answer.Text, Count: 1}
	if answer.Choice != nil {
		choice := *answer.Choice
		choice.For, o.Choice = m.Content.Sender.ID, &choice
	}
	err := d.store.Enqueue(ctx, []store.Outgoing{o})
	if err != nil {
		d.log.WarnContext(ctx, "the answer of a command was not sent", "session", m.Session.String(), "err", err)
	}
	d.outbox.Wake()
	if ownership.Unanswered(err) {
		return err
	}
	return nil
}

// sendAnswerLate does so as soon as the store answers.
func (d *Dispatcher) sendAnswerLate(ctx context.Context, m chat.Message, answer command.Answer) {
	err := d.node.Final(ctx, "sending the answer of a command", func(ctx context.Context) error { return d.sendAnswer(ctx, m, answer) })
	if err != nil {
		d.log.WarnContext(ctx, "the answer of a command is lost", "session", m.Session.String(), "err", err)
	}
}

// noteAnswer keeps question and answer in the transcript, marked so that no agent takes them for conversation, and tells those who watch, who
// read a choice in words. The lines say that the command needs nothing more, so they come after everything else.
func (d *Dispatcher) noteAnswer(ctx context.Context, m chat.Message, answer command.Answer) {
	text := channel.InWords(answer.Text, answer.Choice)
	entries, err := d.store.AppendTranscript(ctx, m.Session, m.Principal, []chat.TranscriptEntry{
		{RunID: m.ID, Role: chat.RoleUser, Text: m.Content.Text, Sender: m.Content.Sender, Command: true},
		{RunID: m.ID, Role: chat.RoleAssistant, Text: text, Command: true, StopReason: "stop"},
	})
	if err != nil {
		d.log.WarnContext(ctx, "the answer of a command is not in the transcript", "session", m.Session.String(), "err", err)
	}
	e := chat.Event{Kind: chat.EventFinal, Session: m.Session, Principal: m.Principal, RunID: m.ID, Text: text, Command: true, Reason: "stop"}
	if len(entries) > 0 {
		e.EntrySeq = entries[len(entries)-1].Seq
	}
	d.events.Publish(e)
	d.events.Ended(chat.RunEnd{RunID: m.ID, Session: m.Session, Outcome: chat.OutcomeAnswered, Text: text})
}

// actions is what commands may do to the house.
type actions struct{ d *Dispatcher }

var _ command.Actions = actions{}

func (a actions) stop(ctx context.Context, c command.Call, scope store.StopScope) (command.StopReport, error) {
	p := store.StopParams{Session: c.Session, Scope: scope, By: c.Principal}
	if c.OwnOnly {
		m, err := a.d.stopOwn(ctx, p, c.Sender.ID)
		return command.StopReport{Running: len(m.running), Waiting: len(m.waiting)}, err
	}
	m, err := a.d.stop(ctx, p)
	return command.StopReport{Running: len(m.running), Waiting: len(m.waiting)}, err
}

// StopOne is /stop.
func (a actions) StopOne(ctx context.Context, c command.Call) (command.StopReport, error) {
	return a.stop(ctx, c, store.StopOne)
}

// StopAll is /stopall.
func (a actions) StopAll(ctx context.Context, c command.Call) (command.StopReport, error) {
	return a.stop(ctx, c, store.StopAll)
}

// NewSession is /new.
func (a actions) NewSession(ctx context.Context, c command.Call) error {
	_, err := a.d.Reset(ctx, c.Session, callerOf(c), onceOf(c))
	if chat.CodeOf(err) == chat.CodeForbidden {
		return chat.Errorf(chat.CodeForbidden, "this conversation is not yours; to reset it needs the scope %s", chat.ScopeAdmin)
	}
	return err
}

// Queue is /queue.
func (a actions) Queue(ctx context.Context, c command.Call) (command.QueueReport, error) {
	s := a.d.settings(chat.Message{Session: c.Session, Channel: c.Channel}, "")
	r := command.QueueReport{Mode: s.mode(), Cap: s.Cap, Lane: "main"}
	st, err := a.d.store.Session(ctx, c.Session, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if st.Mode != "" {
		r.Mode = st.Mode
	}
	r.Running, r.Waiting = len(st.ActiveRuns), st.Waiting
	return r, nil
}

// SetMode is /queue MODE.
func (a actions) SetMode(ctx context.Context, c command.Call, mode chat.QueueMode) error {
	return a.d.store.SetSessionMode(ctx, c.Session, c.Principal, mode)
}

// ClearQueue is /queue clear.
func (a actions) ClearQueue(ctx context.Context, c command.Call) (int, error) {
	cleared := 0
	for after := int64(0); ; {
		waiting, _, err := a.d.store.PendingInputs(ctx, c.Session, after, 1000)
		if err != nil || len(waiting) == 0 {
			return cleared, err
		}
		after = waiting[len(waiting)-1].Seq
		for _, w := range waiting {
			a.d.sched.Drop(c.Session.String(), w.Seq)
		}
		cleared += a.d.endWaiting(ctx, waiting, chat.OutcomeStopped, "cleared")
	}
}

// SetModel is /model NAME.
func (a actions) SetModel(ctx context.Context, c command.Call, model string) error {
	return a.d.store.SetNote(ctx, c.Session, c.Principal, noteModel, model)
}

// Agents is /agent.
func (a actions) Agents() []agent.Info { return a.d.Agents() }

// Overview is /status.
func (a actions) Overview(ctx context.Context, c command.Call) (command.Overview, error) {
	st := a.d.Status(ctx)
	ag := a.d.agents[c.Session.Agent]
	o := command.Overview{
		Version: st.Version, Store: st.Store, Agent: ag.Info.ID + " (" + ag.Info.Runner + ")", Model: ag.Info.Model,
		Uptime: time.Since(st.StartedAt).Round(time.Second).String(), Lanes: st.Lanes.Lanes, ContextWindow: ag.ContextWindow,
	}
	if c.Own {
		o.Lanes = nil
	}
	if st.StoreError != "" {
		o.Problems = append(o.Problems, "database: "+st.StoreError)
		return o, nil
	}
	var err error
	if o.Queue, err = a.Queue(ctx, c); err != nil {
		return o, err
	}
	s, err := a.d.store.Session(ctx, c.Session, "")
	if err == nil && s.Notes[noteModel] != "" {
		o.Model = s.Notes[noteModel]
	}
	tr, err := a.d.store.Transcript(ctx, store.TranscriptQuery{Session: c.Session, Limit: 1, MaxChars: 1})
	if err != nil {
		return o, err
	}
	o.Messages = tr.Total
	o.Tokens, _ = a.d.estimate(ctx, c.Session.String())
	return o, nil
}
