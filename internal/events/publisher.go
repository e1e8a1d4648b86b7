package events

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	// readTime bounds reading the subject of one cluster event.
	readTime = 5 * time.Second
	// maxClusterText is how many bytes of text a cluster event carries. Replicas that need longer text read it from the transcript.
	maxClusterText = 2_000
)

// ReasonDeleted is the reason of the event about a deleted session.
const ReasonDeleted = "delete"

// Store is the persistent side. A [store.Broadcaster] connects the replicas; without one, this process is the only one.
type Store interface {
	Transcript(ctx context.Context, q store.TranscriptQuery) (store.Transcript, error)
}

// Config configures a [Publisher].
type Config struct {
	// DefaultAgent completes the session keys of cluster events.
	DefaultAgent string
	// Topics are further kinds of cluster events; the names chat and hello are reserved.
	Topics Topics
	// End reads from the store how a run ended, as the event of its end; false when it has not ended. It is called after events of other replicas may have been
	// lost, for the runs about which this process has published events.
	End func(ctx context.Context, runID string) (chat.Event, bool, error)
}

// Publisher publishes the events of this process. Create it with [New]. It is safe for concurrent use.
type Publisher struct {
	cfg     Config
	store   Store
	log     *slog.Logger
	hub     Hub[chat.Event]
	logs    logs
	live    live
	waiters waiters
	cluster cluster
	missed  chan struct{} // capacity one: ends of runs may have been missed
}

// New creates a publisher.
func New(cfg Config, st Store, peers Peers, log *slog.Logger) *Publisher {
	p := &Publisher{cfg: cfg, store: st, log: log, missed: make(chan struct{}, 1)}
	p.logs.hub = &p.hub
	topics := Topics{topicChat: p.receive}
	maps.Copy(topics, cfg.Topics)
	p.cluster = cluster{peers: peers, topics: topics, missed: p.noteMissed}
	if b, ok := st.(store.Broadcaster); ok {
		p.cluster.b = b
	}
	return p
}

// Listen waits until the events of other replicas reach this process, so that its first clients receive them. Call it before this process is registered with
// the store, because replicas send to registered ones. A failure is logged, and the store tries again.
func (p *Publisher) Listen(ctx context.Context) {
	if err := p.cluster.listen(ctx); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "events of other replicas do not reach the clients of this process yet; trying again", "err", err)
	}
}

// Announce makes this process known to the other replicas immediately; without it, their heartbeats find it later. Call it when the process is registered: a
// heartbeat that counted before would otherwise discard it.
func (p *Publisher) Announce() { p.cluster.announce() }

// Run handles the events of other replicas until ctx ends, and publishes the ends that it missed.
func (p *Publisher) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { p.publishMissed(ctx) })
	p.cluster.run(ctx)
	loops.Wait()
}

// Subscribe calls fn for every event of this process until cancel is called, and for the cluster events of other replicas. Of these, one with long text is
// delivered only if wanted returns true for it without that text. Neither may block.
func (p *Publisher) Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) (cancel func()) {
	return p.hub.Subscribe(fn, wanted)
}

// Log is the event sequence of a run; the first use creates it.
func (p *Publisher) Log(session chat.SessionKey, id string) *RunLog { return p.logs.of(session, id) }

// Known reports whether a run has published events in this process.
func (p *Publisher) Known(session chat.SessionKey, id string) bool { return p.logs.known(session, id) }

// Start makes a run live and publishes that it has begun. [Publisher.Stop] ends that.
func (p *Publisher) Start(info RunInfo) *Run {
	r := &Run{RunInfo: info, log: p.logs.of(info.Session, info.RunID), replace: info.Replace}
	p.live.add(r)
	r.begin()
	return r
}

// Stop ends a live run: its turn has returned. It publishes nothing.
func (p *Publisher) Stop(r *Run) { p.live.remove(r) }

// InFlight is the oldest running turn of a session in this process.
func (p *Publisher) InFlight(key chat.SessionKey) (chat.InFlight, bool) {
	r := p.live.oldest(key)
	if r == nil {
		return chat.InFlight{}, false
	}
	return r.inFlight()
}

// RunsOf lists the live runs of a session that a sender leads, oldest first.
func (p *Publisher) RunsOf(key chat.SessionKey, sender string) []string {
	return p.live.of(key, sender)
}

// Publish publishes an event about a durable change: here, and on the other replicas. It returns false when the event is of a run that has ended; nothing was
// then published.
func (p *Publisher) Publish(e chat.Event) bool {
	if !p.publishHere(&e) {
		return false
	}
	if !p.cluster.active() {
		return true
	}
	c := clusterEvent{
		Kind: e.Kind, Session: e.Session.String(), Principal: e.Principal, RunID: e.RunID, Seq: e.Seq, Lane: e.Lane, At: e.At.UnixMilli(), Text: e.Text,
		Reason: e.Reason, Message: chat.Cut(e.Message, maxClusterText), Detail: chat.Cut(e.Detail, maxClusterText), MergedInto: e.MergedInto, Command: e.Command, EntrySeq: e.EntrySeq,
	}
	if e.Usage != (chat.Usage{}) {
		c.Usage = &e.Usage
	}
	if len(c.Text) > maxClusterText {
		c.Text, c.Cut = "", true
	}
	p.cluster.send(topicChat, &c, func() {
		c.Message, c.Detail = chat.Cut(c.Message, maxClusterText/10), ""
		c.Text, c.Cut = "", c.Cut || c.Text != ""
	})
	return true
}

// PublishSession publishes a change of a session.
func (p *Publisher) PublishSession(key chat.SessionKey, principal, reason, runID string) {
	p.Publish(chat.Event{Kind: chat.EventSession, Session: key, Principal: principal, Reason: reason, RunID: runID})
}

// Send sends a cluster event of one of [Config.Topics] to the other replicas, if any exist. e points to plain data; shorten shortens it first when it is too
// long.
func (p *Publisher) Send(topic string, e any, shorten func()) { p.cluster.send(topic, e, shorten) }

// publishHere publishes an event in this process; false when it is of a run that has ended.
func (p *Publisher) publishHere(e *chat.Event) bool {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	if e.Kind == chat.EventSession || e.Kind == chat.EventQuestions {
		if e.Reason == ReasonDeleted {
			p.logs.forget(e.Session)
		}
		p.hub.Publish(*e)
		return true
	}
	return p.logs.of(e.Session, e.RunID).Publish(e)
}

// clusterEvent is the end of a run, or a change of a session, for another replica.
type clusterEvent struct {
	Kind       chat.EventKind `json:"k"`
	Session    string         `json:"s"`
	Principal  string         `json:"p,omitempty"`
	RunID      string         `json:"r,omitempty"`
	Seq        int64          `json:"n,omitempty"`
	Lane       string         `json:"l,omitempty"`
	At         int64          `json:"t"` // Unix milliseconds
	Text       string         `json:"x,omitempty"`
	Cut        bool           `json:"c,omitempty"` // the text is in the transcript
	Reason     string         `json:"w,omitempty"`
	Message    string         `json:"m,omitempty"`
	Detail     string         `json:"d,omitempty"`
	MergedInto string         `json:"i,omitempty"`
	Command    bool           `json:"o,omitempty"`
	EntrySeq   int64          `json:"e,omitempty"`
	Usage      *chat.Usage    `json:"u,omitempty"`
}

// receive publishes an event of another replica here.
func (p *Publisher) receive(ctx context.Context, text string) {
	var c clusterEvent
	err := json.Unmarshal([]byte(text), &c)
	key, keyErr := chat.ParseSessionKey(c.Session, p.cfg.DefaultAgent)
	if err = errors.Join(err, keyErr); err != nil {
		p.log.DebugContext(ctx, "a cluster event cannot be parsed; another version may have sent it", "err", err)
		return
	}
	e := chat.Event{
		Kind: c.Kind, Session: key, Principal: c.Principal, RunID: c.RunID, Seq: c.Seq, Lane: c.Lane, At: time.UnixMilli(c.At), Text: c.Text,
		Reason: c.Reason, Message: c.Message, Detail: c.Detail, MergedInto: c.MergedInto, Command: c.Command, EntrySeq: c.EntrySeq,
	}
	if c.Usage != nil {
		e.Usage = *c.Usage
	}
	if c.Cut && p.hub.Wanted(e) {
		if e.Text, err = p.entryText(ctx, key, c.RunID, c.EntrySeq); err != nil {
			p.log.DebugContext(ctx, "the text of a cluster event cannot be read", "run_id", c.RunID, "err", err)
		}
		if err != nil && e.Kind == chat.EventFinal { // an answer without its text would be a different one; the history has it
			return
		}
	}
	p.publishHere(&e)
}

// entryText is the text of the transcript entry of a run.
func (p *Publisher) entryText(ctx context.Context, key chat.SessionKey, runID string, seq int64) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTime, errors.New("reading the text of a cluster event took too long"))
	defer cancel()
	tr, err := p.store.Transcript(ctx, store.TranscriptQuery{Session: key, RunID: runID, After: seq - 1, FromStart: true, Limit: 1})
	if err != nil {
		return "", err
	}
	for _, entry := range tr.Entries {
		if entry.Seq == seq {
			return entry.Text, nil
		}
	}
	return "", chat.ErrNotFound
}
