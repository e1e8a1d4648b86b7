// Package events publishes events about runs and sessions: to the subscribers of this process, and
// to the other replicas that share the store.
//
// # One sequence for each run
//
// Every event of a run goes through its [RunLog]. The log assigns the numbers in order, publishes
// one event at a time, and publishes nothing after the end of the run. It outlives the attempts of
// a run, so that the numbers continue when the run is repeated in this process.
//
// # Live runs
//
// A [Run] is a turn that runs in this process, with its text so far. Text and number belong
// together, so the mutex of the log guards both. After a lost lease two turns may have the same run
// id for a moment: only the newer one publishes.
//
// # Cluster events
//
// [Publisher.Publish] is for events about durable changes: an end of a run, a change of a session.
// Other replicas receive them through the [store.Broadcaster] of the store. Long text is not sent:
// a replica that has a subscriber for the event reads it from the transcript. A cluster event may
// be lost; correctness does not depend on one. At the start of a process the order is
// [Publisher.Listen], the registration with the store, [Publisher.Announce], the first client.
//
// # Locks
//
// The mutex of a RunLog is held while subscribers are called, which must not block and must not
// publish. A [Hub] calls subscribers outside of its own mutex. The live runs, the logs and the
// waiters have a mutex each, and no function is called while one is held.
//
// # Goroutines and the end
//
// [Publisher.Run] reads cluster events until its context ends. No other function starts a
// goroutine. [Publisher.Wait] blocks in the goroutine of the caller.
//
// # What it does not do
//
// It writes nothing, decides no outcome, and does not drop slow subscribers: the gateway buffers
// for its connections.
package events

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/store"
)

const (
	// readTime bounds reading the subject of one cluster event.
	readTime = 5 * time.Second
	// maxClusterText is how many bytes of text a cluster event carries. Replicas that need longer
	// text read it from the transcript.
	maxClusterText = 2_000
)

// ReasonDeleted is the reason of the event about a deleted session.
const ReasonDeleted = "delete"

// Config configures a [Publisher].
type Config struct {
	// DefaultAgent completes the session keys of cluster events.
	DefaultAgent string
	// Topics are further kinds of cluster events; the names chat and hello are reserved.
	Topics Topics
	// End reads from the store how a run ended, as the event of its end; false when it has not
	// ended. It is called after events of other replicas may have been lost, for the runs about
	// which this process has published events.
	End func(ctx context.Context, runID string) (chat.Event, bool, error)
}

// Publisher publishes the events of this process. Create it with [New]. It is safe for concurrent
// use.
type Publisher struct {
	cfg     Config
	store   store.Store
	log     *slog.Logger
	hub     Hub[chat.Event]
	logs    logs
	live    live
	waiters waiters
	cluster cluster
	missed  chan struct{} // capacity one: ends of runs may have been missed
}

// New creates a publisher.
func New(cfg Config, st store.Store, peers Peers, log *slog.Logger) *Publisher {
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

// Listen waits until the events of other replicas reach this process, so that its first clients
// receive them. Call it before this process is registered with the store, because replicas send to
// registered ones. A failure is logged, and the store tries again.
func (p *Publisher) Listen(ctx context.Context) {
	if err := p.cluster.listen(ctx); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "events of other replicas do not reach the clients of this process yet; trying again", "err", err)
	}
}

// Announce makes this process known to the other replicas immediately; without it, their heartbeats
// find it later. Call it when the process is registered: a heartbeat that counted before would
// otherwise discard it.
func (p *Publisher) Announce() { p.cluster.announce() }

// Run handles the events of other replicas until ctx ends, and publishes the ends that it missed.
func (p *Publisher) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { p.publishMissed(ctx) })
	p.cluster.run(ctx)
	loops.Wait()
}

// Subscribe calls fn for every event of this process until cancel is called, and for the cluster
// events of other replicas. Of these, one with long text is delivered only if wanted returns true
// for it without that text. Neither may block.
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

// Publish publishes an event about a durable change: here, and on the other replicas. It returns
// false when the event is of a run that has ended; nothing was then published.
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

// Send sends a cluster event of one of [Config.Topics] to the other replicas, if any exist. e
// points to plain data; shorten shortens it first when it is too long.
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

// Hub passes events of one kind to subscribers. The zero value is ready. Publish reads the list
// under the mutex and calls subscribers outside of it.
type Hub[E any] struct {
	mu   sync.Mutex
	last int             // id of the newest subscriber
	subs []subscriber[E] // replaced, never changed
}

type subscriber[E any] struct {
	id     int
	fn     func(E)
	wanted func(E) bool
}

// Subscribe calls fn for every event until cancel is called. wanted reports whether fn needs an
// event of another replica that is costly to complete. Neither may block; after cancel has
// returned, no new call of fn begins.
func (h *Hub[E]) Subscribe(fn func(E), wanted func(E) bool) (cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	id := h.last
	h.subs = append(slices.Clone(h.subs), subscriber[E]{id: id, fn: fn, wanted: wanted})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.subs = slices.DeleteFunc(slices.Clone(h.subs), func(s subscriber[E]) bool { return s.id == id })
	}
}

// Publish calls every subscriber.
func (h *Hub[E]) Publish(e E) {
	for _, s := range h.all() {
		s.fn(e)
	}
}

// Wanted reports whether a subscriber needs the event.
func (h *Hub[E]) Wanted(e E) bool {
	return slices.ContainsFunc(h.all(), func(s subscriber[E]) bool { return s.wanted(e) })
}

func (h *Hub[E]) all() []subscriber[E] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.subs
}

const (
	// topicHello is the topic with which a replica announces itself.
	topicHello = "hello"
	topicChat  = "chat"
	// listenTime bounds the wait for the events of other replicas at the start.
	listenTime = 5 * time.Second
)

// Topics maps the kinds of cluster events to the functions that handle those of other replicas. A
// function is called on the goroutine of [Publisher.Run]; a slow one delays the others.
type Topics map[string]func(ctx context.Context, text string)

// Peers reports whether other replicas share the store.
type Peers interface {
	HasPeers() bool
	// SawPeer records a sign of another replica.
	SawPeer()
}

// cluster sends cluster events to the other replicas, and handles theirs.
type cluster struct {
	b      store.Broadcaster // nil when no other process can share the store
	peers  Peers
	topics Topics
	missed func() // events of other replicas may have been lost; it does not block
}

// active reports whether another replica exists.
func (c *cluster) active() bool { return c.b != nil && c.peers.HasPeers() }

// send sends an event to the other replicas, if any exist. e points to plain data; shorten shortens
// it first when it is too long.
func (c *cluster) send(topic string, e any, shorten func()) {
	if !c.active() {
		return
	}
	prefix := topic + " "
	text, err := json.Marshal(e)
	if err == nil && len(prefix)+len(text) > store.MaxBroadcast {
		shorten()
		text, err = json.Marshal(e)
	}
	if err == nil { // plain data can always be encoded
		c.b.Broadcast(prefix + string(text))
	}
}

// listen waits until the events of other replicas reach this process, for listenTime at most.
func (c *cluster) listen(ctx context.Context) error {
	if c.b == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, listenTime, errors.New("listening for the events of other replicas took too long"))
	defer cancel()
	return c.b.Listen(ctx)
}

// announce makes the other replicas send to this one, and this one to them until a heartbeat has
// counted them.
func (c *cluster) announce() {
	if c.b == nil {
		return
	}
	c.peers.SawPeer()
	c.b.Broadcast(topicHello)
}

// run handles the events of other replicas.
func (c *cluster) run(ctx context.Context) {
	if c.b == nil {
		return
	}
	texts := c.b.Broadcasts()
	for {
		select {
		case <-ctx.Done():
			return
		case text := <-texts:
			if text == "" {
				c.missed()
				continue
			}
			c.peers.SawPeer()
			topic, text, _ := strings.Cut(text, " ")
			if handle := c.topics[topic]; handle != nil {
				handle(ctx, text)
			}
		}
	}
}

// pollInterval is how often a waiter reads a message from the store that another replica may be
// running.
const pollInterval = time.Second

// waiters are callers that wait for the end of a message, by its id.
type waiters struct {
	mu   sync.Mutex
	byID map[string][]chan chat.RunEnd
}

func (w *waiters) add(id string) chan chat.RunEnd {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID == nil {
		w.byID = map[string][]chan chat.RunEnd{}
	}
	c := make(chan chat.RunEnd, 1)
	w.byID[id] = append(w.byID[id], c)
	return c
}

func (w *waiters) remove(id string, c chan chat.RunEnd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(w.byID[id], func(o chan chat.RunEnd) bool { return o == c })
	if len(left) == 0 {
		delete(w.byID, id)
		return
	}
	w.byID[id] = left
}

// Ended wakes the callers that wait for a message.
func (p *Publisher) Ended(e chat.RunEnd) {
	w := &p.waiters
	w.mu.Lock()
	waiting := w.byID[e.RunID]
	delete(w.byID, e.RunID)
	w.mu.Unlock()
	for _, c := range waiting {
		c <- e // never blocks: capacity 1 and one end per message
	}
}

// Wait returns when the message has ended, or when ctx ends (then with its cause). read reads the
// end from the store, for a message that another replica runs; it is called first, and then each
// second. Wait holds no slot and no lock.
func (p *Publisher) Wait(ctx context.Context, id string, read func(ctx context.Context, id string) (end chat.RunEnd, done bool, err error)) (chat.RunEnd, error) {
	c := p.waiters.add(id)
	defer p.waiters.remove(id, c)
	for {
		end, done, err := read(ctx, id)
		if done || (err != nil && !errors.Is(err, chat.ErrStoreUnavailable)) {
			return end, err
		}
		t := time.NewTimer(pollInterval)
		select {
		case end := <-c:
			t.Stop()
			return end, nil
		case <-ctx.Done():
			t.Stop()
			return chat.RunEnd{}, context.Cause(ctx)
		case <-t.C:
		}
	}
}

// settle is the time between reading an end and publishing it. A run that this process itself ends
// in that moment publishes its own event first.
const settle = 200 * time.Millisecond

// noteMissed starts reading the ends whose events may have been lost.
func (p *Publisher) noteMissed() {
	select {
	case p.missed <- struct{}{}:
	default:
	}
}

// publishMissed publishes missed ends whenever events of other replicas may have been lost: it
// reads how the runs ended for which clients of this process may wait. Otherwise a client would
// wait forever for an end on another replica. It returns with ctx.
func (p *Publisher) publishMissed(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.missed:
		}
		var ends []chat.Event
		for _, run := range p.logs.open() {
			end, ended, err := p.readEnd(ctx, run)
			if err != nil && ctx.Err() == nil {
				p.log.WarnContext(ctx, "the end of a run that may have been missed was not read", "run_id", run, "err", err)
			}
			if ended {
				ends = append(ends, end)
			}
		}
		if len(ends) > 0 && retry.Sleep(ctx, settle) != nil {
			return
		}
		for i := range ends {
			p.publishHere(&ends[i])
		}
	}
}

// readEnd reads how a run ended, and waits while the store is unavailable. A run that does not
// exist was deleted.
func (p *Publisher) readEnd(ctx context.Context, run string) (end chat.Event, ended bool, err error) {
	for {
		end, ended, err = p.cfg.End(ctx, run)
		if errors.Is(err, chat.ErrNotFound) {
			return end, false, nil
		}
		if !errors.Is(err, chat.ErrStoreUnavailable) || retry.Sleep(ctx, pollInterval) != nil {
			return end, ended, err
		}
	}
}
