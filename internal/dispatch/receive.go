package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/events"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// Receive takes one message: a chat command is executed at once, everything else is made durable and handed to its lane. When it
// returns without an error the message cannot be lost. It never waits for a slot or an answer.
func (d *Dispatcher) Receive(ctx context.Context, m chat.Message) (chat.Receipt, error) {
	return d.receive(ctx, m, nil)
}

// receive is Receive for a caller of the gateway, whose waiting messages are bounded; nil = of a channel, which has its own bounds.
func (d *Dispatcher) receive(ctx context.Context, m chat.Message, by *chat.Caller) (chat.Receipt, error) {
	if err := d.check(&m); err != nil {
		return chat.Receipt{}, err
	}
	if cmd, name, args, ok := d.commands.Parse(m.Content.Text, m.BotName); ok && !m.Content.System && !m.Content.External {
		return d.runCommand(ctx, m, cmd, name, args)
	}
	if d.node.Draining() {
		return chat.Receipt{}, chat.ErrDraining
	}
	if err := d.diskFault(); err != nil {
		return chat.Receipt{}, err
	}
	if by != nil {
		leave, err := d.admit(by.Principal, by.Own)
		if err != nil && d.accepted(ctx, m) {
			return d.accept(ctx, m) // nothing new will wait: it ends at the message that is there
		}
		if err != nil {
			return chat.Receipt{}, err
		}
		defer leave()
		if err := d.mayName(ctx, m.Session, *by); err != nil {
			return chat.Receipt{}, err
		}
	}
	return d.accept(ctx, m)
}

// accepted reports whether a message with an idempotency key was accepted before, under the id that the key gives it.
func (d *Dispatcher) accepted(ctx context.Context, m chat.Message) bool {
	if m.Dedupe == "" {
		return false
	}
	_, err := d.store.MessageByID(ctx, m.ID)
	return err == nil
}

// check fills what a message needs and refuses what cannot be a message.
func (d *Dispatcher) check(m *chat.Message) error {
	if m.Session.IsZero() {
		return chat.Errorf(chat.CodeInvalid, "the message names no session")
	}
	if _, ok := d.agents[m.Session.Agent]; !ok {
		return chat.Errorf(chat.CodeUnknownAgent, "there is no agent %q here", m.Session.Agent).With("agentId", m.Session.Agent)
	}
	if len(m.Content.Attachments) == 0 || m.Content.Text != "" {
		if err := chat.CheckText("message", m.Content.Text, chat.MaxText); err != nil {
			return err
		}
	}
	if m.ID == "" {
		m.ID = newID()
	}
	if m.Lane == "" {
		m.Lane = scheduler.LaneMain
	}
	return chat.CheckMessageID("message id", chat.ShownRunID(m.ID))
}

// newID is a UUIDv7: sortable by time, unique without asking anybody.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

func (d *Dispatcher) accept(ctx context.Context, m chat.Message) (chat.Receipt, error) {
	node, err := d.node.Alive()
	if err != nil {
		return chat.Receipt{}, err
	}
	s := d.settings(m, "")
	p := store.AcceptParams{
		Node: node, Take: true, Message: m, Cap: s.Cap, Drop: s.Drop, RunLimit: s.MaxConcurrent,
		DropNotice: dropNotice(m, s.Cap), Offset: d.offset(m), Starting: d.starting.of(m.Session),
		Own: m.Own, Mode: m.Content.Options.Mode, Usual: d.usualMode(m),
	}
	p.Joins = d.bursts.joins(m, s.Settings)
	if m.Content.Options.Typed && s.Debounce > 0 {
		p.Hold = s.Debounce
	}
	acc, err := d.store.Accept(ctx, p)
	switch {
	case errors.Is(err, chat.ErrSessionNotFound):
		return chat.Receipt{}, notTheirs(m.Session)
	case errors.Is(err, chat.ErrQueueFull):
		d.refused.Add(1)
		d.obs.Dropped(string(chat.DropNew))
		d.tellRefused(ctx, m, s.Cap)
		return chat.Receipt{}, queueFull(s.Cap)
	case err != nil:
		return chat.Receipt{}, err
	}
	d.obs.Accepted(channelKind(m.Channel), acc.Duplicate)
	if acc.Created && m.Session.Named() {
		d.namings.made(m.Principal)
	}
	if acc.Duplicate {
		d.adopt(ctx, acc, node)
		return duplicateReceipt(acc.Existing), nil
	}
	d.rightful(ctx, m, &acc)
	d.tellDropped(ctx, m.Session, acc)
	receipt := chat.Receipt{RunID: m.ID, Session: m.Session, Seq: acc.Seq, AcceptedAt: acc.AcceptedAt, State: store.StateWaiting}
	d.events.PublishSession(m.Session, acc.Principal, changeReason(acc.Created), m.ID)
	if !acc.Mine {
		d.node.Hint(acc.Owner)
		receipt.Queued = true
		return receipt, nil
	}
	claim := store.Claim{Session: m.Session, Node: node, Epoch: acc.Epoch}
	receipt.Queued, receipt.Position = d.submitNew(ctx, m, acc, claim)
	return receipt, nil
}

// adopt hands a message over that was accepted before and waits in a session of this process. Usually the scheduler knows it and nothing
// happens; but if the answer of its acceptance was lost on the way from the database, nobody has handed it over yet.
func (d *Dispatcher) adopt(ctx context.Context, acc store.Accepted, node string) {
	w := acc.Existing
	if !acc.Mine || w.State != store.StateHeld && w.State != store.StateWaiting {
		return
	}
	claim := store.Claim{Session: w.Session, Node: node, Epoch: acc.Epoch}
	m := chat.Message{Session: w.Session, Channel: w.Channel, Content: w.Content}
	it := d.item(work{claim: claim, rows: []store.Waiting{w}}, d.settings(m, acc.Mode))
	if w.RunID != "" {
		it.ID, it.RunID, it.NoMerge = w.RunID, w.RunID, true
	}
	d.offer(ctx, it, false) // never before those that a takeover is about to hand over
}

func changeReason(created bool) string {
	if created {
		return "created"
	}
	return "message"
}

// submitNew hands a message that was just accepted to the scheduler.
func (d *Dispatcher) submitNew(ctx context.Context, m chat.Message, acc store.Accepted, claim store.Claim) (queued bool, position int) {
	s := d.settings(m, acc.Mode)
	row := store.Waiting{
		Session: m.Session, Seq: acc.Seq, MessageID: m.ID, State: store.StateWaiting, Lane: m.Lane, Principal: acc.Principal,
		Channel: m.Channel, ExternalID: m.ExternalID, Content: m.Content, AcceptedAt: acc.AcceptedAt,
	}
	it := d.item(work{claim: claim, rows: []store.Waiting{row}}, s)
	it.Typed, it.Principal, it.Bounded = m.Content.Options.Typed, m.Principal, m.Own || d.bounded(m.Principal)
	return d.offer(ctx, it, acc.Behind == 0)
}

// item makes a scheduler item of inbox rows; the last row leads, and the first says whose it is.
func (d *Dispatcher) item(w work, rules QueueRules) scheduler.Item[work] {
	lead := w.rows[len(w.rows)-1]
	w.log = d.events.Log(lead.Session, lead.MessageID)
	size := 0
	for _, r := range w.rows {
		size += len(r.Content.Text)
	}
	return scheduler.Item[work]{
		Session: lead.Session.String(), Lane: lead.Lane, ID: lead.MessageID, Seq: lead.Seq,
		Sender: lead.Content.Sender.ID, Thread: lead.Content.Thread, Size: size, Payload: w, Settings: &rules.Settings,
		NoMerge:   lead.Content.Options.NoMerge || len(lead.Content.Attachments) > 0 || len(w.rows) > 1,
		Principal: w.rows[0].Principal, Bounded: d.bounded(w.rows[0].Principal),
	}
}

// offer hands a message that was just accepted over and says whether it has to wait.
func (d *Dispatcher) offer(ctx context.Context, it scheduler.Item[work], first bool) (queued bool, position int) {
	lead := it.Payload.rows[len(it.Payload.rows)-1]
	d.starting.add(lead.Session, []int64{lead.Seq})
	queued = true
	for _, s := range d.handover.offer(d.sched, it, first) {
		waits, place := d.settle(ctx, s)
		if s.item.Seq == it.Seq {
			queued, position = waits, place
		}
	}
	return queued, position
}

// settle writes down what handing an item over ended. A refusal is an outcome: stale messages end here, those that a drain refuses
// stay waiting in the store for whoever comes next.
func (d *Dispatcher) settle(ctx context.Context, s submitted) (queued bool, position int) {
	it := s.item
	lead := it.Payload.rows[len(it.Payload.rows)-1]
	if s.err != nil || !s.res.Running {
		d.starting.remove(lead.Session, []int64{lead.Seq})
	}
	d.writeEnded(ctx, s.res.Ended)
	switch {
	case errors.Is(s.err, scheduler.ErrMessageStale):
		d.endWaiting(ctx, it.Payload.rows, chat.OutcomeStale, "stale")
		return false, 0
	case errors.Is(s.err, scheduler.ErrGatewayDraining):
		return true, 0
	case s.err != nil:
		d.log.ErrorContext(ctx, "the scheduler refused a message", "session", it.Session, "run_id", it.ID, "err", s.err)
		d.endWaiting(ctx, it.Payload.rows, chat.OutcomeFailed, string(chat.FailUnknown))
		return false, 0
	}
	if !s.res.Running && !s.res.Duplicate {
		it.Payload.log.Publish(&chat.Event{
			Kind: chat.EventQueued, Session: lead.Session, Principal: lead.Principal, RunID: lead.MessageID, Lane: lead.Lane, At: time.Now(),
		})
		d.showQueued(ctx, lead, heldFor(it))
	}
	return !s.res.Running, s.res.Position
}

// heldFor is how long an item may wait only because its person may go on typing.
func heldFor(it scheduler.Item[work]) time.Duration {
	if !it.Typed || it.Settings == nil {
		return 0
	}
	return max(it.Settings.Debounce, 0)
}

// writeEnded writes the outcomes of items that the scheduler ended while they waited.
func (d *Dispatcher) writeEnded(ctx context.Context, ended []scheduler.Ended[work]) {
	for _, e := range ended {
		switch e.Outcome {
		case scheduler.OutcomeSuperseded:
			d.endWaiting(ctx, e.Item.Payload.rows, chat.OutcomeSuperseded, store.ReasonSuperseded)
		case scheduler.OutcomeStopped:
			d.endWaiting(ctx, e.Item.Payload.rows, chat.OutcomeStopped, "stop")
		case scheduler.OutcomeDropped:
			d.endWaiting(ctx, e.Item.Payload.rows, chat.OutcomeDropped, string(chat.FailQueueFull))
		default: // handed back undecided: the row is the message, the sweep or the next process runs it
		}
	}
}

// endWaiting gives rows an outcome and tells the watchers. It is a final write: it survives the caller's context.
func (d *Dispatcher) endWaiting(ctx context.Context, rows []store.Waiting, outcome chat.Outcome, reason string) int {
	if len(rows) == 0 {
		return 0
	}
	seqs := make([]int64, 0, len(rows))
	for _, r := range rows {
		seqs = append(seqs, r.Seq)
	}
	lead := rows[len(rows)-1]
	p := store.EndParams{Session: lead.Session, Seqs: seqs, Outcome: outcome, Reason: reason}
	if n := notice(lead, outcome, reason, ""); n != nil {
		p.Notice = n
	}
	var ended []store.Waiting
	err := d.node.Final(ctx, "ending waiting messages", func(ctx context.Context) (err error) {
		ended, err = d.store.EndWaiting(ctx, p)
		return err
	})
	if err != nil {
		d.log.ErrorContext(ctx, "waiting messages keep no outcome until they are swept", "session", lead.Session.String(), "err", err)
		return 0
	}
	d.outbox.Wake()
	for _, r := range ended {
		d.tellEnded(ctx, r, outcome, reason)
	}
	return len(ended)
}

// tellEnded publishes the end of a message that never became a turn.
func (d *Dispatcher) tellEnded(ctx context.Context, r store.Waiting, outcome chat.Outcome, reason string) {
	e := chat.Event{Session: r.Session, Principal: r.Principal, RunID: r.MessageID, Seq: events.FirstOfTurn, Lane: r.Lane, Reason: abortReason(reason), Kind: chat.EventAborted}
	if outcome == chat.OutcomeDropped || outcome == chat.OutcomeFailed {
		e.Kind, e.Reason, e.Message = chat.EventFailed, reason, sentence(outcome, reason)
	}
	d.events.Publish(e)
	d.obs.Ended(r.Lane, outcome, reason)
	d.events.Ended(chat.RunEnd{RunID: r.MessageID, Session: r.Session, Outcome: outcome, Reason: reason, Message: sentence(outcome, reason)})
	d.cronMessageEnded(ctx, r)
}

// tellDropped removes what the store dropped, or ended for a message that interrupts, from the scheduler and tells the watchers.
func (d *Dispatcher) tellDropped(ctx context.Context, key chat.SessionKey, acc store.Accepted) {
	for _, r := range acc.Superseded {
		d.sched.Drop(key.String(), r.Seq)
		d.tellEnded(ctx, r, chat.OutcomeSuperseded, store.ReasonSuperseded)
	}
	for _, r := range acc.Dropped {
		d.sched.Drop(key.String(), r.Seq)
		d.obs.Dropped(string(chat.DropOld))
		d.tellEnded(ctx, r, chat.OutcomeDropped, string(chat.FailQueueFull))
	}
	if len(acc.Dropped) > 0 {
		d.outbox.Wake()
	}
}

func duplicateReceipt(w store.Waiting) chat.Receipt {
	return chat.Receipt{
		RunID: w.MessageID, Session: w.Session, Seq: w.Seq, AcceptedAt: w.AcceptedAt, Duplicate: true,
		State: w.State, Outcome: w.Outcome, Queued: w.State == store.StateHeld || w.State == store.StateWaiting,
	}
}

// offset is the position of a polled channel that moves in the transaction of the message.
func (d *Dispatcher) offset(m chat.Message) *store.Lease {
	if m.ExternalID == 0 {
		return nil
	}
	l, ok := d.node.Held(m.Channel)
	if !ok {
		return nil
	}
	l.NextOffset = m.ExternalID + 1
	return &l
}
