package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/files"
	"laneway/internal/retry"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/words"
)

const (
	// previewTime is how long the shutdown and the end of a turn wait for previews that are being
	// shown.
	previewTime = 2 * time.Second
	// resetPoll is the interval of the checks whether a reset of the scheduler has cancelled every
	// turn.
	resetPoll = 10 * time.Millisecond
)

// Register registers this process in the store before it serves anything, see
// [ownership.Node.Register]. From then on other replicas send it their events, which it already
// receives.
func (d *Dispatcher) Register(ctx context.Context) error {
	d.publisher.Listen(ctx)
	if err := d.owner.Register(ctx); err != nil {
		return err
	}
	if err := d.store.NameSessions(ctx, d.cfg.Names); err != nil {
		return fmt.Errorf("creating the sessions of hooks: %w", err)
	}
	d.publisher.Announce()
	d.gauges.load(ctx)
	return nil
}

// NodeID returns the id of the current incarnation, or "".
func (d *Dispatcher) NodeID() string { return d.owner.ID() }

// Lease acquires or renews a named lease for this process; a channel polls only while it holds its
// own.
func (d *Dispatcher) Lease(ctx context.Context, name string) (ok bool, err error) {
	return d.owner.Acquire(ctx, name)
}

// Run runs the loops until ctx is done. It returns when they, and the short work beside turns and
// calls, have ended. It does not end the turns: Drain does.
func (d *Dispatcher) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){d.owner.Run, d.sender.Run, d.figures.run, d.publisher.Run, d.meter.Run, d.questions.run, d.trees.run, d.gauges.run, d.stops.runPassing} {
		loops.Go(func() { loop(ctx) })
	}
	loops.Wait()
	d.background.Wait()
	return nil
}

// Reconfigure changes the limits of lanes and the rules of queues while turns run. A larger lane
// takes effect at once, a smaller one as turns end. Waiting messages keep the rules with which they
// were submitted.
func (d *Dispatcher) Reconfigure(lanes []scheduler.Lane, queue func(agent, channel, kind string) scheduler.Settings) error {
	for _, lane := range lanes {
		if err := d.sched.SetLane(lane); err != nil {
			return fmt.Errorf("lane %s: %w", lane.Name, err)
		}
	}
	if queue != nil {
		d.queue.rules.Store(&queue)
	}
	return nil
}

// Restart restarts the scheduler in place. Running turns are cancelled and wait again, waiting
// messages are removed from memory, and a new incarnation of this process takes them over from the
// store, as another process would. Nothing is lost or counted as a crash. It returns when the new
// incarnation is registered, or with the cause of ctx.
func (d *Dispatcher) Restart(ctx context.Context) error {
	return d.owner.Restart(ctx, func(ctx context.Context) error {
		d.sched.ResetAll()
		for d.sched.Stats().Sessions.Undecided > 0 {
			if err := retry.Sleep(ctx, resetPoll); err != nil {
				return err
			}
		}
		return nil
	})
}

// Drain is the shutdown, see the package comment: it ends previews, refuses new messages, lets
// turns finish and stops sending. ctx limits the wait for running turns and for active requests;
// the whole takes at most one grace period more. Channels may run meanwhile; call Leave after they
// have ended.
func (d *Dispatcher) Drain(ctx context.Context) error {
	d.owner.Drain(ctx)
	var previews sync.WaitGroup
	previews.Go(func() { // another replica may send the text that a preview shows
		ctx, cancel := context.WithTimeout(ctx, previewTime)
		defer cancel()
		d.signs.endPreviews(ctx)
	})
	err := d.sched.Drain(ctx)
	previews.Wait()
	d.sender.Drain(ctx)
	return err
}

// Leave removes this process from the table of nodes. It is the last step before the context of Run
// ends, after Drain and after the channels have ended. It takes at most a second.
func (d *Dispatcher) Leave(ctx context.Context) { d.owner.Leave(ctx) }

// Receive takes one message: a chat command is executed at once, any other message is made durable
// and submitted to its lane. When it returns without an error, the message cannot be lost. It never
// waits for a slot or an answer.
func (d *Dispatcher) Receive(ctx context.Context, m chat.Message) (chat.Receipt, error) {
	return d.receiver.receive(ctx, m, nil)
}

// ReceiveFrom is Receive for a caller of the gateway. The caller may be restricted to its own
// sessions, a command requires one of its scopes, and the number of its waiting messages is limited
// (chat.CodeRateLimited).
func (d *Dispatcher) ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error) {
	return d.receiver.receiveFrom(ctx, m, by)
}

// Defer makes a system text durable that the next turn of its session reads before its message. It
// starts nothing. A call with the same Dedupe adds no second text; it completes what a crash left
// unfinished.
func (d *Dispatcher) Defer(ctx context.Context, m chat.Message, by chat.Caller) error {
	return d.receiver.deferText(ctx, m, by)
}

// Stop stops what p names and returns the ids of the runs and messages that it ended. It signals
// the turns of this process before it calls the store. The durable part ensures that stopped work
// never runs again, and reaches turns of other processes. It takes no slot and waits for no turn.
func (d *Dispatcher) Stop(ctx context.Context, p store.StopParams) ([]string, error) {
	met, err := d.stops.stop(ctx, p)
	return append(met.running, met.waiting...), err
}

// Reset stops all work of a session and begins an empty transcript; it returns the id of the new
// one. A repetition, identified by once, stops nothing and returns the id of the first call. A
// caller whom [chat.Caller.MayChange] refuses receives chat.CodeForbidden, and nothing was done.
func (d *Dispatcher) Reset(ctx context.Context, key chat.SessionKey, by chat.Caller, once *chat.IdempotencyKey) (string, error) {
	return d.stops.reset(ctx, key, by, once)
}

// Delete stops all work of a session and removes it, with its transcripts unless they are to be
// kept. A repetition stops and removes nothing. It sets the caller in p.
func (d *Dispatcher) Delete(ctx context.Context, p store.DeleteParams, by chat.Caller) (store.Deleted, error) {
	return d.stops.remove(ctx, p, by)
}

// Wait returns when the message has ended, or when ctx is done (then with its cause). It holds no
// slot and no lock.
func (d *Dispatcher) Wait(ctx context.Context, messageID string) (chat.RunEnd, error) {
	return d.publisher.Wait(store.OnBehalfOf(ctx, ""), messageID, d.endOf) // the end of one run is no list
}

// DefaultAgent returns the id of the agent that answers when no other is named.
func (d *Dispatcher) DefaultAgent() string { return d.cfg.Agents[0].Info.ID }

// agentIDs lists the names of the agents, the default one first.
func (p *parts) agentIDs() []string {
	ids := make([]string, 0, len(p.cfg.Agents))
	for _, a := range p.cfg.Agents {
		ids = append(ids, a.Info.ID)
	}
	return ids
}

// checkAgent returns chat.CodeUnknownAgent when no live process has an agent.
func (p *parts) checkAgent(ctx context.Context, id string) error {
	if _, ours := p.agents[id]; ours {
		return nil
	}
	cluster, err := p.store.Cluster(ctx)
	if err != nil {
		return fmt.Errorf("looking for a gateway with the agent: %w", err)
	}
	if slices.ContainsFunc(cluster.Nodes, func(n chat.NodeStatus) bool { return n.Has(id) }) {
		return nil
	}
	shown, known := chat.Cut(chat.Printable(id), 64), p.agentNames(cluster)
	return chat.Errorf(chat.CodeUnknownAgent, "no running gateway has the agent %q; the agents are %s; for another one, start a gateway that has it in its configuration%s",
		shown, strings.Join(known, ", "), words.Meant(shown, known)).With("agentId", shown)
}

// agentNames are the agents of the live processes.
func (p *parts) agentNames(cluster store.Cluster) []string {
	names := slices.Collect(maps.Keys(p.agents))
	for _, n := range cluster.Nodes {
		names = append(names, n.Agents...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Agents lists the agents, the default one first.
func (d *Dispatcher) Agents() []agent.Info {
	infos := make([]agent.Info, 0, len(d.cfg.Agents))
	for _, a := range d.cfg.Agents {
		if runner, ok := a.Runner.(interface{ Lacks() []agent.Lack }); ok {
			a.Info.Lacks = runner.Lacks()
		}
		infos = append(infos, a.Info)
	}
	return infos
}

// Commands lists the chat commands.
func (d *Dispatcher) Commands() []chat.CommandInfo { return d.commands.table.Infos() }

// Subscribe calls fn for every event of this process until cancel is called, and for events of
// other processes of the store about durable changes: ends of runs and changes of sessions. Of
// these, an event with a long text is loaded only if wanted returns true for it without that text.
// Neither function may block. After cancel has returned, fn is not called again, but a call may
// still be running.
func (d *Dispatcher) Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) (cancel func()) {
	return d.publisher.Subscribe(fn, wanted)
}

// InFlight returns the oldest running turn of a session on this process.
func (d *Dispatcher) InFlight(key chat.SessionKey) (chat.InFlight, bool) {
	return d.publisher.InFlight(key)
}

// DeleteWhole deletes the session of a run that is its whole conversation, and reports whether it
// did: no other message was accepted, and its transcript has no entry of something else.
func (d *Dispatcher) DeleteWhole(ctx context.Context, at chat.Place, by chat.Caller) (bool, error) {
	if !at.First || !at.Newest {
		return false, nil
	}
	s, err := d.store.Session(ctx, at.Session, "")
	if err != nil {
		return false, fmt.Errorf("looking for the session of a run: %w", err)
	}
	if !by.MayChange(at.Session, s.Principal, true) {
		return false, chat.Errorf(chat.CodeForbidden, "only the token that made the conversation, or one with the scope admin, deletes it")
	}
	tr, err := d.store.Transcript(ctx, store.TranscriptQuery{Session: at.Session, Limit: 1, MaxChars: 1, NoCount: true})
	if err != nil {
		return false, fmt.Errorf("reading the transcript of a run: %w", err)
	}
	if last := tr.Entries; len(last) > 0 && last[0].RunID != at.RunID {
		return false, nil
	}
	_, err = d.stops.remove(ctx, store.DeleteParams{Session: at.Session, ExpectID: s.SessionID}, by)
	return err == nil, err
}

// shown publishes an entry that a delivery has added to a conversation.
func (d *Dispatcher) shown(_ context.Context, e *store.ShownEntry) {
	run := e.RunID
	if d.events.Known(e.Session, run) { // as in AppendReply
		run = newID()
	}
	d.events.Publish(chat.Event{
		Kind: chat.EventFinal, Session: e.Session, Principal: e.Principal, RunID: run, Text: e.Text, Reason: "stop", EntrySeq: e.Seq,
	})
}

// AppendReply adds a reply to the transcript of a session and publishes it. The store keeps the
// reply's id with the entry, so that a repeated reply is added once. It is published again, because
// an interrupted attempt may not have published it. A chat user's reply is added only to their own
// sessions, and what the tools of a credential send only to a session that it owns.
func (d *Dispatcher) AppendReply(ctx context.Context, key chat.SessionKey, r chat.Reply) (seq int64, err error) {
	if err := d.checkAgent(ctx, key.Agent); err != nil {
		return 0, err
	}
	run := r.RunID
	if run == "" {
		run = r.ID
	}
	role := chat.RoleAssistant
	if r.Kind == store.KindNotice && r.RunID == "" {
		role = chat.RoleSystem // about the session, not an answer of its agent
	}
	_, job, _, _ := cron.ParseRunID(cron.RunOfMessage(r.RunID)) // "" for the reply of another run
	origin := r.Origin
	if origin != nil && origin.By == key.String() {
		origin = nil
	}
	appended, err := d.store.AppendReply(ctx, store.ReplyParams{
		ID: r.ID, Session: key, Principal: r.Principal, Job: job, Own: !OperatorOwner(r.Principal) || key.RightOf(r.Principal) == chat.RightMine,
		Entry: chat.TranscriptEntry{RunID: run, Role: role, Text: r.Text, Tokens: agent.EstimateTokens(r.Text), StopReason: "stop", Origin: origin, Outside: r.Origin != nil && r.Origin.Outside},
	})
	if err != nil {
		return 0, err
	}
	if d.events.Known(key, run) { // the run publishes its own end here, and a run has only one: the delivery is published without the run
		run = r.ID
	}
	d.events.Publish(chat.Event{
		Kind: chat.EventFinal, Session: key, Principal: appended.Principal, RunID: run, Text: r.Text, Reason: "stop", EntrySeq: appended.Entry.Seq,
	})
	return appended.Entry.Seq, nil
}

// Uploads are the files that clients upload: the directory, and what this process knows besides.
type Uploads struct {
	*files.Dir

	space func() error
	inUse func(context.Context) ([]string, error)
}

// NewUploads returns the files of a directory. space returns an error while nothing more may be
// stored, inUse the files that unfinished work names.
func NewUploads(dir *files.Dir, space func() error, inUse func(context.Context) ([]string, error)) *Uploads {
	return &Uploads{dir, space, inUse}
}

// SaveFile stores a file that a principal uploads, of at most [chat.MaxUpload] bytes; see
// [files.Dir.Save]. It is refused while a disk has too little free space.
func (u *Uploads) SaveFile(principal string, about chat.Upload, content io.Reader) (chat.Upload, error) {
	if err := u.space(); err != nil {
		return chat.Upload{}, err
	}
	return u.Save(principal, about, content, chat.MaxUpload)
}

// DeleteFile removes an uploaded file by its id; with own, only one of this principal.
// chat.ErrNotFound; chat.CodeConflict while unfinished work names it. Messages that have ended keep
// its name.
func (u *Uploads) DeleteFile(ctx context.Context, principal string, own bool, id string) error {
	up, err := u.Find(principal, own, id)
	if err != nil {
		return err
	}
	used, err := u.inUse(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(used, up.Path) {
		return chat.Errorf(chat.CodeConflict, "the file %s belongs to a message that has not ended; delete it afterwards", id)
	}
	return u.DropUpload(up.Attachment)
}

// welcome is the message to a person after the operator has granted them access.
const welcome = "You can now use this bot. Write to me."

// errNoPairing is the error when no open request matches.
var errNoPairing = chat.Errorf(chat.CodeNotFound, "there is no open request like this: it was used, dismissed, or is older than an hour; see laneway pair list")

// Pairings let people into channels, and out. Requests and grants are in the store; the codes of
// requests are secrets of the people who made them: callers must not show them.
type Pairings struct {
	Store

	wake func()
	log  *slog.Logger
}

// NewPairings returns the pairings of a store. wake makes the outbox send.
func NewPairings(st Store, wake func(), log *slog.Logger) *Pairings { return &Pairings{st, wake, log} }

// ApprovePairing grants a person access and, with notify, sends them a notice through the outbox.
// chat.ErrNotFound: no such open request exists. noticed is false when the notice could not be
// stored; access is granted nevertheless.
func (p *Pairings) ApprovePairing(ctx context.Context, ref channel.PairingRef, notify bool, by chat.Caller) (made channel.Pairing, noticed bool, err error) {
	made, err = p.Store.ApprovePairing(ctx, ref, changedBy(by))
	switch {
	case errors.Is(err, channel.ErrPairingUnknown):
		return made, false, errNoPairing
	case err != nil:
		return made, false, err
	case !notify:
		return made, false, nil
	}
	err = p.Enqueue(ctx, []store.Outgoing{{
		ID: newID(), Target: chat.Target{Channel: made.Channel, ChatID: strconv.FormatInt(made.ChatID, 10)}, Kind: store.KindNotice, Text: welcome,
		Count: 1, ExpiresAt: time.Now().Add(noticeLife),
	}})
	if err != nil {
		p.log.WarnContext(ctx, "the notice of an approved pairing was not stored", "channel", chat.ChannelKind(made.Channel), "err", err)
		return made, false, nil
	}
	p.wake()
	return made, true, nil
}

// DismissPairing ends a request without granting access. chat.ErrNotFound: no such open request
// exists.
func (p *Pairings) DismissPairing(ctx context.Context, ref channel.PairingRef, by chat.Caller) (channel.Pairing, error) {
	made, err := p.Store.DismissPairing(ctx, ref, changedBy(by))
	if errors.Is(err, channel.ErrPairingUnknown) {
		return made, errNoPairing
	}
	return made, err
}

// RevokePairing revokes the access of a person; it reports whether they had access.
func (p *Pairings) RevokePairing(ctx context.Context, who channel.Peer, by chat.Caller) (bool, error) {
	return p.Store.RevokePairing(ctx, who, changedBy(by))
}

func changedBy(c chat.Caller) chat.ChangedBy {
	return chat.ChangedBy{Who: c.Principal, Peer: c.Peer, RequestID: c.RequestID}
}
