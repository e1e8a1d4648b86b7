package postgres

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"laneway/internal/store"
)

const (
	// wakeChannel is the NOTIFY channel of hints. A payload is the id of the node that should read again.
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
	targets            map[string]bool
	local              map[string]chan struct{}
	texts              []string    // to be sent
	hinted             func()      // is called before a hint is delivered
	received           chan string // broadcasts of other processes; nil while no reader exists
	missed             bool        // messages may have been lost, and the reader was not informed yet

	from string // identifies this process in its broadcasts, so that it skips its own
}

func newWaker(pool *pgxpool.Pool, cfg *pgx.ConnConfig, log *slog.Logger) *waker {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // a store lives until Close
	return &waker{
		pool: pool, cfg: cfg.Copy(), log: log, ctx: ctx, cancel: cancel, look: make(chan struct{}, 1), tried: make(chan struct{}),
		hinted: func() {}, targets: map[string]bool{}, local: map[string]chan struct{}{}, from: uuid.NewString(),
	}
}

func (w *waker) close() {
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.done.Wait()
}

// Notify sends a hint to a node, see store.Waker. The first call starts the sender.
func (s *Store) Notify(node string, h store.Hint) { s.wake.notify(node + string(h)) }

// Wakeups delivers the hints for a node of this process, see store.Waker. The first call starts the listener.
func (s *Store) Wakeups(node string, h store.Hint) <-chan struct{} {
	return s.wake.wakeups(node + string(h))
}

func (w *waker) notify(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || len(w.targets) >= maxTargets {
		return
	}
	w.targets[node] = true
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
	ch, ok := w.local[node]
	if !ok {
		ch = make(chan struct{}, 1)
		w.local[node] = ch
	}
	w.startListener()
	return ch
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

// send takes all targets and messages at once, sends them outside of any transaction, and then rests: further ones are collected meanwhile and sent together.
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
	nodes := make([]string, 0, len(w.targets))
	for node := range w.targets {
		nodes = append(nodes, node)
	}
	clear(w.targets)
	texts := w.texts
	w.texts = nil
	w.mu.Unlock()
	_, err := w.pool.Exec(w.ctx, `SELECT pg_notify($1, node) FROM unnest($2::text[]) AS node UNION ALL SELECT pg_notify($3, news) FROM unnest($4::text[]) AS news`,
		wakeChannel, nodes, eventChannel, w.payloads(texts))
	if err != nil && w.ctx.Err() == nil {
		w.log.DebugContext(w.ctx, "wake-up hints and broadcasts are lost", "err", translate(err))
	}
}

// listen receives until close. After a reconnect it sends every local channel a hint, because hints may have been missed.
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

// noteAttempt stores the result of the first attempt to listen, and reports whether this is the first. Only the listener calls it.
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

func (w *waker) wakeLocal(node string) {
	w.hinted()
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch, ok := w.local[node]; ok {
		signal(ch)
	}
}

func (w *waker) wakeAll() {
	w.hinted()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ch := range w.local {
		signal(ch)
	}
}
