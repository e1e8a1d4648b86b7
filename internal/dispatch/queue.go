package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
	"laneway/internal/events"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// queue handles messages between their acceptance and their turn: it wakes their sessions, and
// writes the outcome of those that never become a turn.
type queue struct {
	*parts

	signs *signs
	drops atomic.Int64 // messages that a full queue has dropped
	stale atomic.Int64 // messages that a stop covered
	rules atomic.Pointer[func(agent, channel, kind string) scheduler.Settings]
}

// configured returns the settings for a message's session, without the modes that the session and
// the message choose.
func (q *queue) configured(key chat.SessionKey, channel string, c *chat.Content) scheduler.Settings {
	return q.settings(key, store.ChannelOf(channel, c))
}

// settings are those of a session for messages of a channel.
func (q *queue) settings(key chat.SessionKey, channel string) scheduler.Settings {
	return (*q.rules.Load())(key.Agent, chat.ChannelKind(channel), key.Kind()).Over(scheduler.DefaultSettings())
}

// params returns how a message of its session is accepted: what waits, what a full queue does, and
// which mode applies.
func (q *queue) params(m chat.Message) store.AcceptParams {
	s := q.configured(m.Session, m.Channel, &m.Content)
	return store.AcceptParams{
		Take: true, Message: m, Queue: s, DropNotice: dropNotice(m, s.Cap), Own: m.Own,
	}
}

// take wakes the session of an accepted message when this process owns it, and sends a hint to the
// owner otherwise. It reports whether the message has to wait, and after how many
// others.
func (q *queue) take(ctx context.Context, m chat.Message, acc store.Accepted) (queued bool, position int) {
	if acc.Duplicate {
		if w := acc.Existing; acc.Mine && w.State == store.StateWaiting { // the response to its acceptance may have been lost
			q.sched.Wake(q.front(w.Front(acc.Mode, 0, 0)))
		}
		return true, 0
	}
	q.publishDisplaced(ctx, acc)
	q.events.PublishSession(m.Session, acc.Principal, changeReason(acc.Created), m.ID)
	if !acc.Mine {
		q.node.Hint(acc.Owner, m.Session)
		q.showWaits(ctx, &m, q.configured(m.Session, m.Channel, &m.Content))
		return true, 0
	}
	return q.submitNew(ctx, m, acc)
}

func changeReason(created bool) string {
	if created {
		return "created"
	}
	return "message"
}

// submitNew wakes the session of a message that was just accepted, and reports whether the message
// has to wait. Messages that come during a drain stay waiting in the store for the next owner.
func (q *queue) submitNew(ctx context.Context, m chat.Message, acc store.Accepted) (queued bool, position int) {
	row := store.Waiting{
		Session: m.Session, Seq: acc.Seq, MessageID: m.ID, Lane: m.Lane, Principal: m.Principal, Channel: m.Channel, Content: m.Content, AcceptedAt: acc.AcceptedAt,
	}
	w := q.front(row.Front(acc.Mode, 0, 0))
	w.Bounded = w.Bounded || m.Own
	started, position := q.sched.Wake(w)
	if started {
		return false, position
	}
	if q.node.Draining() {
		q.counters.refused(refusedDraining)
		return true, 0
	}
	q.publishQueued(m.Session, m.ID, acc.Principal, m.Lane)
	q.showWaits(ctx, &m, w.Settings)
	return true, position
}

// wakeFront wakes a session of this process. The first message may be one that another process
// accepted.
func (q *queue) wakeFront(f *store.Front) {
	started, _ := q.sched.Wake(q.front(f))
	if !started && !q.node.Draining() && !q.events.Known(f.Session, f.ID) {
		q.publishQueued(f.Session, f.ID, f.Principal, f.Row.Lane)
	}
}

func (q *queue) publishQueued(key chat.SessionKey, id, principal, lane string) {
	q.events.Log(key, id).Publish(&chat.Event{Kind: chat.EventQueued, Session: key, Principal: principal, RunID: id, Lane: lane, At: time.Now()})
}

// showWaits shows the person that their message waits, unless it may do so only because they may
// still be typing.
func (q *queue) showWaits(ctx context.Context, m *chat.Message, s scheduler.Settings) {
	hold := time.Duration(0)
	if m.Content.Options.Typed {
		hold = max(s.Debounce, 0)
	}
	q.signs.showQueued(ctx, m, hold)
}

// front is what the scheduler knows of what waits in a session.
func (q *queue) front(f *store.Front) scheduler.Wake {
	return scheduler.Wake{
		Session: f.Session.String(), ID: f.ID, Row: f.Row, Principal: f.Principal, Bounded: q.bounded(f.Principal), Waiting: f.Waiting, Last: f.Last,
		Settings: q.settings(f.Session, f.Channel).For(&f.Row, scheduler.QueueMode(f.Mode)),
	}
}

// left is what waits in a session; nil = nothing waits.
func (q *queue) left(f *store.Front) *scheduler.Wake {
	if f == nil {
		return nil
	}
	w := q.front(f)
	return &w
}

// refresh tells the scheduler what waits first in a session after messages that waited have ended.
func (q *queue) refresh(ctx context.Context, key chat.SessionKey) {
	s, err := q.store.Session(ctx, key, "")
	if err != nil {
		return // the next turn of the session finds out
	}
	waiting, total, err := q.store.PendingInputs(ctx, key, 0, 1)
	switch {
	case err != nil:
	case len(waiting) == 0:
		q.sched.Front(key.String(), s.LastSeq, nil)
	default:
		q.sched.Front(key.String(), s.LastSeq, q.left(waiting[0].Front(s.Mode, total, s.LastSeq)))
	}
}

// endWaiting gives rows an outcome and publishes it. It is a final write and does not end with the
// caller's context.
func (q *queue) endWaiting(ctx context.Context, rows []store.Waiting, outcome chat.Outcome, reason string) int {
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
	err := q.node.Final(ctx, "ending waiting messages", func(ctx context.Context) (err error) {
		ended, err = q.store.EndWaiting(ctx, p)
		p.Again = true // for the next attempt: this one may be committed although its response was lost
		return err
	})
	if err != nil {
		q.log.ErrorContext(ctx, "waiting messages keep no outcome until they are swept", "session", lead.Session.String(), "err", err)
		return 0
	}
	q.outbox.Wake()
	for _, r := range ended {
		q.publishEnded(ctx, r, outcome, reason)
	}
	return len(ended)
}

// publishEnded publishes the end of a message that never became a turn, once, even if a repeated
// write returns it again.
func (q *queue) publishEnded(ctx context.Context, r store.Waiting, outcome chat.Outcome, reason string) {
	e, end := endOfWaiting(r, outcome, reason)
	if !q.events.Publish(e) {
		return
	}
	q.sched.Ended(r.Session.String())
	q.counters.ended(r.Lane, outcome, reason)
	q.events.Ended(end)
	q.jobs.MessageEnded(ctx, r)
	q.trees.MessageEnded(r, end)
}

// publishDisplaced publishes the end of the messages that the store dropped, or ended for a message
// that interrupts.
func (q *queue) publishDisplaced(ctx context.Context, acc store.Accepted) {
	for _, r := range acc.Superseded {
		q.publishEnded(ctx, r, chat.OutcomeSuperseded, store.ReasonSuperseded)
	}
	for _, r := range acc.Dropped {
		q.drops.Add(1)
		q.counters.dropped(chat.DropOld)
		q.publishEnded(ctx, r, chat.OutcomeDropped, string(chat.FailQueueFull))
	}
	if len(acc.Dropped) > 0 {
		q.outbox.Wake()
		q.refresh(ctx, acc.Dropped[0].Session)
	}
}

// OperatorOwner reports whether an owner is a credential of the gateway, not a chat user, whose
// name begins with the channel.
func OperatorOwner(owner string) bool { return !chat.Caller{Principal: owner}.InChat() }

// sentence returns what a person reads about a message without an answer.
func sentence(outcome chat.Outcome, reason string) string {
	switch outcome {
	case chat.OutcomeDropped:
		return "queue full: the message was dropped because too many were waiting; send it again if it still matters"
	case chat.OutcomeInterrupted:
		return "interrupted: the gateway restarted while this was being answered; send it again"
	case chat.OutcomeDead:
		return "interrupted: answering this ended the gateway three times; it will not be tried again"
	case chat.OutcomeStopped:
		return "stopped"
	case chat.OutcomeSuperseded:
		return "superseded by a newer message"
	case chat.OutcomeStale:
		return "the message is older than the last /stopall"
	case chat.OutcomeFailed:
		return "this could not be answered (" + reason + "); try again"
	default:
		return ""
	}
}

// endKind returns the event of an outcome.
func endKind(outcome chat.Outcome) chat.EventKind {
	switch outcome {
	case chat.OutcomeAnswered, chat.OutcomeMerged:
		return chat.EventFinal
	case chat.OutcomeFailed, chat.OutcomeDead, chat.OutcomeInterrupted, chat.OutcomeDropped:
		return chat.EventFailed
	default:
		return chat.EventAborted
	}
}

// endOfWaiting returns the event, and the end for waiting callers, of a message that never became a
// turn.
func endOfWaiting(r store.Waiting, outcome chat.Outcome, reason string) (chat.Event, chat.RunEnd) {
	text := sentence(outcome, reason)
	e := chat.Event{
		Kind: endKind(outcome), Session: r.Session, Principal: r.Principal, RunID: r.MessageID, Seq: events.FirstOfTurn, Lane: r.Lane, Reason: abortReason(reason),
	}
	if e.Kind == chat.EventFailed {
		e.Reason, e.Message = reason, text
	}
	return e, chat.RunEnd{RunID: r.MessageID, Session: r.Session, Outcome: outcome, Reason: reason, Message: text}
}

// abortReason returns the reason of an end for subscribers: a closed set, in which every
// cancellation of a job's run is a stop.
func abortReason(reason string) string {
	switch reason {
	case reasonStopAll, reasonReset, store.ReasonSuperseded, "stale", "cleared", "draining":
		return reason
	default:
		return reasonStop
	}
}
