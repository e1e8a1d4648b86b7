package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// receiver accepts messages: it checks them, makes them durable, and passes them to their queue or
// to the commands.
type receiver struct {
	*parts

	queue     *queue
	admission *admission
	access    *access
	commands  *commands
	refused   atomic.Int64 // messages that a full queue refused
	writes    writeRecord
}

// receive implements Receive. by is the caller of the gateway, whose waiting messages are limited,
// or nil for a channel, which has its own limits.
func (r *receiver) receive(ctx context.Context, m chat.Message, by *chat.Caller) (chat.Receipt, error) {
	if err := r.check(ctx, &m); err != nil {
		return chat.Receipt{}, err
	}
	if err := r.holdFault(m, by); err != nil {
		return chat.Receipt{}, err
	}
	if err := r.address(ctx, &m); err != nil {
		return chat.Receipt{}, err
	}
	if cmd, name, args, ok := r.commands.table.Parse(m.Content.Text, m.BotName); ok && !m.Content.System && !m.Content.External {
		return r.commands.run(ctx, m, cmd, command.Call{Name: name, Args: args})
	}
	if r.node.Draining() {
		return chat.Receipt{}, chat.ErrDraining
	}
	if err := r.attribute(ctx, &m, by); err != nil {
		return chat.Receipt{}, err
	}
	done, err := r.admission.admitMessage(ctx, m, by)
	if err != nil {
		return chat.Receipt{}, err
	}
	created := false
	defer func() { done(created) }()
	receipt, created, err := r.accept(ctx, m)
	return receipt, err
}

// attribute marks what a credential that administers nothing writes into the session of another
// principal: it is text from outside, and the credential is its sender. Tools act with the rights
// of the owner, whose words it is not. This includes instructions, events and the earlier
// conversation that come with the message. Members of a chat have their own rules.
func (r *receiver) attribute(ctx context.Context, m *chat.Message, by *chat.Caller) error {
	if by == nil || by.InChat() || m.Scope == chat.ScopeAdmin {
		return nil
	}
	s, err := r.store.Session(ctx, m.Session, "")
	absent := errors.Is(err, chat.ErrSessionNotFound)
	switch {
	case err != nil && !absent:
		return err
	case !absent && s.Principal == by.Principal, absent && m.Owner() == by.Principal && (m.Session.RightOf(by.Principal) != chat.RightNone || m.Session.Rest == "main"):
		return nil // their own session, or one that becomes theirs
	}
	c := &m.Content
	c.External, c.System, c.Sender = true, false, chat.Sender{ID: by.Principal, Name: "the credential " + by.Principal}
	if c.Options.SystemPrompt != "" {
		c.Text, c.Options.SystemPrompt = joinNonEmpty("\n\n", c.Options.SystemPrompt, c.Text), ""
		if err := chat.CheckText("message", c.Text, chat.MaxText); err != nil {
			return err
		}
	}
	c.Context = slices.Clone(c.Context)
	for i := range c.Context { // not even as words of the agent
		e := &c.Context[i]
		e.Role, e.Outside, e.Sender = chat.RoleUser, true, c.Sender
		e.Sender.Outside = true
	}
	return nil
}

// address completes the target of a reply that does not name the account: one that was derived from
// a session key has the account of the session's owner, every other the one that jobs would use.
func (r *receiver) address(ctx context.Context, m *chat.Message) (err error) {
	to := &m.Content.Options.ReplyTo
	switch {
	case to.IsZero():
		return nil
	case *to == m.Session.Target():
	case to.Channel == channel.Web || to.Channel != chat.ChannelKind(to.Channel):
		return nil
	default:
		*to, err = r.jobs.Address(ctx, *to)
		return err
	}
	s, err := r.store.Session(ctx, m.Session, "")
	if err != nil && !errors.Is(err, chat.ErrSessionNotFound) {
		return err
	}
	*to, err = r.jobs.Address(ctx, m.Session.TargetFor(s.Principal))
	return err
}

// receiveFrom is Receive for a caller of the gateway. The caller may be restricted to its own
// sessions, a command requires one of its scopes, and the number of its waiting messages is limited
// (chat.CodeRateLimited).
func (r *receiver) receiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error) {
	m.Principal, m.Scope, m.Own = by.Principal, highest(by.Scopes), by.Own
	m.Peer, m.RequestID = by.Peer, by.RequestID
	if err := notMade(m.Session, by); err != nil {
		return chat.Receipt{}, err
	}
	if by.Own {
		r.admission.restrain(&m)
	}
	return r.receive(ctx, m, &by)
}

// holdRetry is the retry delay for senders while the gateway is held.
const holdRetry = 10 * time.Second

// holdFault refuses messages while the gateway is held, except those of administrators who are not
// users of a channel. A channel keeps its message and offers it again.
func (r *receiver) holdFault(m chat.Message, by *chat.Caller) error {
	h := r.node.Hold()
	if h == nil || by != nil && m.Scope == chat.ScopeAdmin {
		return nil
	}
	return &chat.Error{
		Code: chat.CodeStoreUnavailable, Retryable: true, RetryAfter: holdRetry, Details: map[string]any{"check": string(chat.CheckHold)},
		Message: "the gateway is held, and only administrators may write; nothing was stored",
	}
}

// highest returns the highest of a list of scopes.
func highest(scopes []string) string {
	best := ""
	for _, s := range scopes {
		if chat.ScopeLevel(s) > chat.ScopeLevel(best) {
			best = s
		}
	}
	return best
}

// check completes a message and refuses an invalid one.
func (r *receiver) check(ctx context.Context, m *chat.Message) error {
	if m.Session.IsZero() {
		return chat.Errorf(chat.CodeInvalid, "the message names no session")
	}
	if err := r.checkAgent(ctx, m.Session.Agent); err != nil {
		return err
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

// accept makes a message durable and passes it to its queue, or sends a hint to the replica that
// owns its session. created reports whether the message created its session.
func (r *receiver) accept(ctx context.Context, m chat.Message) (receipt chat.Receipt, created bool, err error) {
	node, err := r.node.Alive()
	if err != nil {
		return chat.Receipt{}, false, err
	}
	p := r.queue.params(m)
	p.Node = node
	asked := time.Now()
	acc, err := r.access.accept(ctx, p)
	r.counters.stored("accept", time.Since(asked))
	r.writes.note(err)
	switch {
	case errors.Is(err, chat.ErrQueueFull):
		return chat.Receipt{}, false, r.refuse(ctx, m, p.Queue.Cap)
	case err != nil:
		return chat.Receipt{}, false, err
	}
	r.counters.accepted(chat.ChannelKind(m.Channel), acc.Duplicate)
	if !acc.Duplicate {
		r.node.Acknowledged(m.ID, time.Time{})
	}
	receipt = chat.Receipt{RunID: m.ID, Session: m.Session, Seq: acc.Seq, AcceptedAt: acc.AcceptedAt, State: store.StateWaiting}
	receipt.Queued, receipt.Position = r.queue.take(ctx, m, acc)
	if acc.Duplicate {
		receipt = duplicateReceipt(acc.Existing)
	}
	if receipt.State != store.StateDone {
		r.events.Log(receipt.Session, receipt.RunID) // another replica may end it, and that event may be lost
	}
	return receipt, acc.Created, nil
}

// acceptOwn is accept for a message of the gateway itself, without the limits of a caller.
func (r *receiver) acceptOwn(ctx context.Context, m chat.Message) error {
	if err := r.check(ctx, &m); err != nil {
		return err
	}
	if r.node.Draining() {
		return chat.ErrDraining
	}
	_, _, err := r.accept(ctx, m)
	return err
}

// refuse counts a message that a full queue refused, puts a notice for a person of a channel into
// the outbox, and returns the error for the sender.
func (r *receiver) refuse(ctx context.Context, m chat.Message, limit int) error {
	r.refused.Add(1)
	r.counters.dropped(chat.DropNew)
	notices, refused := refusal(m, limit)
	if len(notices) == 0 {
		return refused
	}
	if err := r.store.Enqueue(ctx, notices); err != nil {
		r.log.WarnContext(ctx, "the notice of a refused message was not stored", "session", m.Session.String(), "err", err)
	}
	r.outbox.Wake()
	return refused
}

func duplicateReceipt(w store.Waiting) chat.Receipt {
	return chat.Receipt{
		RunID: w.MessageID, Session: w.Session, Seq: w.Seq, AcceptedAt: w.AcceptedAt, Duplicate: true,
		State: w.State, Outcome: w.Outcome, Queued: w.State == store.StateWaiting,
	}
}

// deferText makes a system text durable that the next turn of its session reads before its message.
// It starts nothing. A call with the same Dedupe adds no second text; it completes what a crash
// left unfinished.
func (r *receiver) deferText(ctx context.Context, m chat.Message, by chat.Caller) error {
	m.Principal, m.Scope = by.Principal, highest(by.Scopes)
	if err := notMade(m.Session, by); err != nil {
		return err
	}
	if err := r.check(ctx, &m); err != nil {
		return err
	}
	if err := r.attribute(ctx, &m, &by); err != nil {
		return err
	}
	if err := r.admission.diskFault(); err != nil {
		return err
	}
	if err := r.admission.mayName(ctx, &m, by); err != nil {
		return err
	}
	acc, err := r.store.Accept(ctx, store.AcceptParams{Node: r.node.ID(), Message: m, Unqueued: true, Own: by.Own})
	if errors.Is(err, chat.ErrSessionNotFound) {
		return notTheirs(m.Session)
	}
	if err != nil {
		return err
	}
	id := m.ID
	if acc.Duplicate {
		id = acc.Existing.MessageID
		tr, err := r.store.Transcript(ctx, store.TranscriptQuery{Session: m.Session, RunID: id, Limit: 1, MaxChars: 1})
		if err != nil || len(tr.Entries) > 0 {
			return err
		}
	}
	_, err = r.store.AppendTranscript(ctx, m.Session, m.Principal, []chat.TranscriptEntry{entryOf(store.Waiting{Channel: m.Channel, Content: m.Content}, id)})
	return err
}

// access decides which sessions a caller may use and change.
type access struct{ *parts }

// notTheirs returns the error for a session of another principal. It is the same as for a session
// that does not exist.
func notTheirs(key chat.SessionKey) error {
	return chat.Errorf(chat.CodeSessionNotFound, "session not found: %s", key).With("key", key.String())
}

// notMade refuses, without a query, to create a session whose key contains the identity of another
// principal.
func notMade(key chat.SessionKey, by chat.Caller) error {
	if by.Own && key.RightOf(by.Principal) == chat.RightNone {
		return notTheirs(key)
	}
	return nil
}

// mayUse returns an error for a session that the principal may not use, see
// [chat.SessionKey.UsableBy].
func (a *access) mayUse(ctx context.Context, key chat.SessionKey, principal string) error {
	s, err := a.store.Session(ctx, key, "")
	absent := errors.Is(err, chat.ErrSessionNotFound)
	switch {
	case err != nil && !absent:
		return err
	case !key.UsableBy(principal, s.Principal, !absent):
		return notTheirs(key)
	}
	return nil
}

// mayChange returns an error for a caller who may not change the whole session, see
// [chat.Caller.MayChange].
func (a *access) mayChange(ctx context.Context, key chat.SessionKey, by chat.Caller) error {
	s, err := a.store.Session(ctx, key, "")
	absent := errors.Is(err, chat.ErrSessionNotFound)
	switch {
	case err != nil && !absent:
		return err
	case !by.MayChange(key, s.Principal, !absent):
		return chat.MissingScope(chat.ScopeAdmin)
	}
	return nil
}

// accept makes a message durable, see [store.Store], and corrects the owner of its session.
func (a *access) accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	p.Named = a.cfg.Names[p.Message.Principal] == p.Message.Session
	acc, err := a.store.Accept(ctx, p)
	if errors.Is(err, chat.ErrSessionNotFound) {
		if p.Named {
			a.log.ErrorContext(ctx, "session_taken: another principal has made a session since the configuration named it; nothing was written there",
				"session", p.Message.Session.String(), "principal", p.Message.Principal)
		}
		return acc, notTheirs(p.Message.Session)
	}
	if err == nil && !acc.Duplicate {
		a.correctOwner(ctx, p.Message, &acc)
	}
	return acc, err
}

// correctOwner transfers a session to the principal in its key when another one created it earlier.
// That was an operator, who still sees it, or a principal that used the name first, which receives
// no further events of it.
func (a *access) correctOwner(ctx context.Context, m chat.Message, acc *store.Accepted) {
	was := acc.Principal
	if was == m.Principal || m.Session.RightOf(m.Principal) != chat.RightMine || m.Session.RightOf(was) == chat.RightMine {
		return
	}
	acc.Principal = m.Principal // even when the write fails: the other principal must not receive the events of this message
	err := a.store.GiveSession(ctx, m.Session, was, m.Principal)
	if err != nil {
		a.log.ErrorContext(ctx, "a session is owned by another principal than the one in its key, until the next message",
			"session", m.Session.String(), "owner", was, "named", m.Principal, "err", err)
		return
	}
	a.log.WarnContext(ctx, "a session was made by another principal than the one in its key, which owns it now",
		"session", m.Session.String(), "made_by", was, "owner", m.Principal)
}
