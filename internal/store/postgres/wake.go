package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

const (
	// wakeChannel is the NOTIFY channel of hints. A payload is the id of the node that should read
	// again, then one key of a session per line; none = any session.
	wakeChannel = "laneway_wake"
	// wakeEvery is the minimum time between two hints to one node.
	wakeEvery = 100 * time.Millisecond
	// maxTargets bounds the hints that wait to be sent; there are far fewer nodes.
	maxTargets = 1024
	// listenAgain is how long the listener waits before it connects again.
	listenAgain = time.Second
)

// waker sends and receives hints. Both of its goroutines start at the first use and end with close.
type waker struct {
	pool *pgxpool.Pool
	cfg  *pgx.ConnConfig
	log  *slog.Logger

	ctx    context.Context //nolint:containedctx // the life of the two goroutines
	cancel context.CancelFunc
	done   sync.WaitGroup
	look   chan struct{} // capacity one: hints or messages are to be sent
	tried  chan struct{} // closed after the first attempt to listen
	failed error         // the result of that attempt; written before tried is closed

	mu                 sync.Mutex
	sending, listening bool
	targets            map[string]*store.HintedSessions
	local              map[string]*ear
	texts              []string    // to be sent
	hinted             func()      // is called before a hint is delivered
	received           chan string // broadcasts of other processes; nil while no reader exists
	missed             bool        // messages may have been lost, and the reader was not informed yet

	from string // identifies this process in its broadcasts, so that it skips its own
}

// ear receives the hints for a node of this process.
type ear struct {
	ch    chan struct{} // capacity one
	heard store.HintedSessions
}

func newWaker(pool *pgxpool.Pool, cfg *pgx.ConnConfig, log *slog.Logger) *waker {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // a store lives until Close
	return &waker{
		pool: pool, cfg: cfg.Copy(), log: log, ctx: ctx, cancel: cancel, look: make(chan struct{}, 1), tried: make(chan struct{}),
		hinted: func() {}, targets: map[string]*store.HintedSessions{}, local: map[string]*ear{}, from: uuid.NewString(),
	}
}

func (w *waker) close() {
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.done.Wait()
}

// Notify sends a hint to a node, see store.Waker. The first call starts the sender.
func (s *Store) Notify(node string, h store.Hint, session string) {
	s.wake.notify(node+string(h), session)
}

// Hinted takes the sessions about which hints came, see store.Waker.
func (s *Store) Hinted(node string, h store.Hint) (heard store.HintedSessions) {
	s.wake.mu.Lock()
	defer s.wake.mu.Unlock()
	if e := s.wake.local[node+string(h)]; e != nil {
		heard, e.heard = e.heard, heard
	}
	return heard
}

// Wakeups delivers the hints for a node of this process, see store.Waker. The first call starts the
// listener.
func (s *Store) Wakeups(node string, h store.Hint) <-chan struct{} {
	return s.wake.wakeups(node + string(h))
}

func (w *waker) notify(node, session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || len(w.targets) >= maxTargets {
		return
	}
	if w.targets[node] == nil {
		w.targets[node] = &store.HintedSessions{}
	}
	w.targets[node].Add(session)
	w.startSender()
}

// startSender wakes the sender; the caller holds w.mu.
func (w *waker) startSender() {
	if !w.sending {
		w.sending = true
		w.done.Go(w.send)
	}
	signal(w.look)
}

// startListener starts the listener unless it runs or the store is closed; the caller holds w.mu.
func (w *waker) startListener() {
	if !w.listening && w.ctx.Err() == nil {
		w.listening = true
		w.done.Go(w.listen)
	}
}

func (w *waker) wakeups(node string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.local[node]
	if !ok {
		e = &ear{ch: make(chan struct{}, 1)}
		w.local[node] = e
	}
	w.startListener()
	return e.ch
}

func (w *waker) forget(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.local, node)
	delete(w.local, node+string(store.HintStop))
}

// signal leaves one hint in a channel of capacity one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// send takes all targets and messages at once, sends them outside of any transaction, and then
// rests: further ones are collected meanwhile and sent together.
func (w *waker) send() {
	rest := time.NewTicker(wakeEvery)
	defer rest.Stop()
	for {
		select {
		case <-w.look:
		case <-w.ctx.Done():
			return
		}
		w.sendAll()
		rest.Reset(wakeEvery)
		select {
		case <-rest.C:
		case <-w.ctx.Done():
			return
		}
	}
}

func (w *waker) sendAll() {
	w.mu.Lock()
	hints := make([]string, 0, len(w.targets))
	for node, about := range w.targets {
		hint := strings.Join(append([]string{node}, about.Keys...), "\n")
		if len(hint) > maxPayload {
			hint = node
		}
		hints = append(hints, hint)
	}
	clear(w.targets)
	texts := w.texts
	w.texts = nil
	w.mu.Unlock()
	_, err := w.pool.Exec(w.ctx, `SELECT pg_notify($1, hint) FROM unnest($2::text[]) AS hint UNION ALL SELECT pg_notify($3, news) FROM unnest($4::text[]) AS news`,
		wakeChannel, hints, eventChannel, w.payloads(texts))
	if err != nil && w.ctx.Err() == nil {
		w.log.DebugContext(w.ctx, "wake-up hints and broadcasts are lost", "err", translate(err))
	}
}

// listen receives until close. After a reconnect it sends every local channel a hint, because hints
// may have been missed.
func (w *waker) listen() {
	again := time.NewTicker(listenAgain)
	defer again.Stop()
	for w.ctx.Err() == nil {
		if err := w.receive(); err != nil && w.ctx.Err() == nil {
			w.log.WarnContext(w.ctx, "listening for wake-up hints is tried again", "err", translate(err))
		}
		select {
		case <-again.C:
		case <-w.ctx.Done():
		}
	}
}

func (w *waker) receive() error {
	conn, err := w.connect()
	if !w.noteAttempt(err) && err == nil {
		w.noteMissed()
	}
	if err != nil {
		return err
	}
	defer w.closeConn(conn)
	w.wakeAll()
	for {
		hint, err := conn.WaitForNotification(w.ctx)
		if err != nil {
			return err
		}
		if hint.Channel == eventChannel {
			w.receiveTexts(hint.Payload)
			continue
		}
		w.wakeLocal(hint.Payload)
	}
}

// connect opens a connection that receives notifications.
func (w *waker) connect() (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(w.ctx, w.cfg)
	if err != nil {
		return nil, err
	}
	for _, channel := range []string{wakeChannel, eventChannel} {
		if _, err := conn.Exec(w.ctx, "LISTEN "+channel); err != nil {
			w.closeConn(conn)
			return nil, err
		}
	}
	return conn, nil
}

// noteAttempt stores the result of the first attempt to listen, and reports whether this is the
// first. Only the listener calls it.
func (w *waker) noteAttempt(err error) (first bool) {
	select {
	case <-w.tried:
		return false
	default:
		w.failed = err
		close(w.tried)
		return true
	}
}

func (w *waker) closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), time.Second)
	defer cancel()
	if err := conn.Close(ctx); err != nil {
		w.log.DebugContext(ctx, "closing the listener", "err", translate(err))
	}
}

func (w *waker) wakeLocal(hint string) {
	w.hinted()
	node, keys, _ := strings.Cut(hint, "\n")
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.local[node]; ok {
		for key := range strings.SplitSeq(keys, "\n") {
			e.heard.Add(key)
		}
		signal(e.ch)
	}
}

func (w *waker) wakeAll() {
	w.hinted()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.local {
		e.heard.Add("")
		signal(e.ch)
	}
}

var _ store.Broadcaster = (*Store)(nil)

const (
	// eventChannel is the NOTIFY channel of broadcasts. A payload is the id of the sending process,
	// then one message per line.
	eventChannel = "laneway_news"
	// maxPayload is the size of one notification, slightly below the server's limit of 8000 bytes.
	maxPayload = 7_900
	// maxTexts bounds the messages that wait to be sent, and those that wait to be read.
	maxTexts = 4_096
)

// Broadcast sends a message to every other process, see store.Broadcaster. The first call starts
// the sender.
func (s *Store) Broadcast(text string) { s.wake.broadcast(text) }

// Listen starts receiving messages and waits for the first attempt, see store.Broadcaster. The
// first call starts the listener.
func (s *Store) Listen(ctx context.Context) error {
	s.wake.broadcasts()
	select {
	case <-s.wake.tried:
		return translate(s.wake.failed)
	case <-s.wake.ctx.Done():
		return fmt.Errorf("listening: %w", chat.ErrStoreUnavailable)
	case <-ctx.Done():
		return fmt.Errorf("listening: %w", context.Cause(ctx))
	}
}

// Broadcasts delivers the messages of other processes, see store.Broadcaster. The first call starts
// the listener.
func (s *Store) Broadcasts() <-chan string { return s.wake.broadcasts() }

func (w *waker) broadcast(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || len(w.texts) >= maxTexts || len(text) > store.MaxBroadcast || strings.Contains(text, "\n") {
		return
	}
	w.texts = append(w.texts, chat.CleanText(text))
	w.startSender()
}

func (w *waker) broadcasts() <-chan string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.received == nil {
		w.received = make(chan string, maxTexts)
	}
	w.startListener()
	return w.received
}

// payloads packs messages into as few notifications as possible.
func (w *waker) payloads(texts []string) []string {
	var out []string
	var b strings.Builder
	for _, text := range texts {
		if b.Len() > 0 && b.Len()+1+len(text) > maxPayload {
			out = append(out, b.String())
			b.Reset()
		}
		if b.Len() == 0 {
			b.WriteString(w.from)
		}
		b.WriteByte('\n')
		b.WriteString(text)
	}
	if b.Len() > 0 {
		out = append(out, b.String())
	}
	return out
}

// receiveTexts queues the messages of a notification from another process.
func (w *waker) receiveTexts(payload string) {
	from, texts, _ := strings.Cut(payload, "\n")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.received == nil || from == w.from {
		return
	}
	w.informMissed()
	for text := range strings.SplitSeq(texts, "\n") {
		select {
		case w.received <- text:
		default:
			w.missed = true
		}
	}
}

// noteMissed informs the reader that messages may have been lost: the listener has reconnected.
func (w *waker) noteMissed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missed = true
	w.informMissed()
}

// informMissed queues an empty message for the reader when messages were lost, or does so later
// when the queue is full; the caller holds w.mu.
func (w *waker) informMissed() {
	if !w.missed {
		return
	}
	select {
	case w.received <- "": // a send on a nil channel never proceeds
		w.missed = false
	default:
	}
}

// probeEvery is how long the result of a probe is valid: work from another replica is found with at
// most this delay.
const probeEvery = time.Second

// gate skips polls that can find nothing. Other replicas change the database too, so one statement
// per second, the probe, checks for possible work. A change by this process, or a hint from another
// one, ends a rest immediately.
type gate struct {
	mu      sync.Mutex
	changes uint64 // of this process, and hints
	probed  probe
}

// probe is the result of a probe for a node: the work that may exist.
type probe struct {
	node    string
	clock   any // the injected clock
	at      time.Time
	changes uint64          // before it was read
	due     map[string]bool // polls that may find something; a dead node runs all of its polls
}

func (g *gate) changed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes++
}

// known returns the result of the last probe for a poll; fresh is false when it has expired. Then
// next is the probe to make. A poll of no node shares the probe of the node.
func (g *gate) known(p store.Poll, clock any, now time.Time) (due, fresh bool, next probe) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k, node := &g.probed, cmp.Or(p.Node, g.probed.node)
	fresh = k.node == node && k.clock == clock && k.changes == g.changes && k.due != nil && now.Sub(k.at) < probeEvery
	return k.due[p.Kind], fresh, probe{node: node, clock: clock, at: now, changes: g.changes}
}

func (g *gate) keep(k probe) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probed = k
}

// mayFind reports whether a poll may find something.
func (e engine) mayFind(ctx context.Context, p store.Poll) (bool, error) {
	if p.Kind == sqlstore.PollJobs {
		return true, nil
	}
	at, clock := time.Now(), e.clock() //nolint:forbidigo // monotonic, never stored
	due, fresh, k := e.gate.known(p, clock, at)
	if fresh {
		return due, nil
	}
	err := e.View(ctx, p.Kind, func(ctx context.Context, tx sqlstore.Tx) (err error) {
		k.due, err = sqlstore.Due(ctx, tx, k.node)
		return err
	})
	if err == nil {
		e.gate.keep(k)
	}
	return k.due[p.Kind], err
}
