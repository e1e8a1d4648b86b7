package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway"
)

// startupServer answers requests before the store is open. Without it, a gateway whose store migrates or cannot be reached would look as if
// it were not running. It authenticates no caller and changes nothing. It refuses every connect with `gateway starting` and every other
// request with 503; the probes report a process that is alive and not ready. It borrows the main listeners, which the gateway serves
// afterwards.
type startupServer struct {
	borrowed []*borrowedListener
	close    context.CancelFunc
	ended    chan error // the result of Serve, one value
}

// openStartupServer starts the server on the main listeners. Its goroutine ends with closeStartupServer.
func (p *Process) openStartupServer(ctx context.Context) error {
	srv, err := gateway.New(gateway.Config{
		Version: p.opts.Version, AllowedHosts: p.cfg.Hosts(), AllowedOrigins: p.cfg.AllowedOrigins, TrustedProxies: p.cfg.TrustedPrefixes(),
		MaxSockets: p.cfg.Limits.Sockets, MaxUnauthenticated: p.cfg.Limits.Unauthenticated, MaxUnauthenticatedPerAddr: p.cfg.Limits.UnauthenticatedPerAddress,
		Credentials: credentials(p.opts.Credentials), HoldConnects: true, StopTimeout: stopSockets,
	}, startingBackend{}, p.log)
	if err != nil {
		return fmt.Errorf("making the startup server: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	server := &startupServer{close: cancel, ended: make(chan error, 1)}
	listeners := make([]net.Listener, 0, len(p.main))
	for _, l := range p.main {
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			cancel()
			return fmt.Errorf("a listener is a %T", l)
		}
		one := &borrowedListener{TCPListener: tcp}
		server.borrowed = append(server.borrowed, one)
		listeners = append(listeners, one)
	}
	go func() { server.ended <- srv.Serve(ctx, listeners...) }() // ends with closeStartupServer
	p.startup = server
	p.onClose("startup server", func(context.Context) error { return p.closeStartupServer() })
	return nil
}

// closeStartupServer stops the server, waits for its goroutine and makes the listeners usable again. A second call does nothing.
func (p *Process) closeStartupServer() error {
	if p.startup == nil {
		return nil
	}
	last := p.startup
	p.startup = nil
	last.close()
	err := ignoreCancel(<-last.ended)
	for _, l := range last.borrowed {
		err = errors.Join(err, l.SetDeadline(time.Time{}))
	}
	return err
}

// borrowedListener is a listener whose Close ends Accept but keeps the socket open for the next server.
type borrowedListener struct {
	*net.TCPListener

	returned atomic.Bool
}

// Accept implements [net.Listener].
func (l *borrowedListener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil && l.returned.Load() {
		return nil, net.ErrClosed
	}
	return c, err
}

// Close implements [net.Listener].
func (l *borrowedListener) Close() error {
	l.returned.Store(true)
	return l.SetDeadline(time.Unix(1, 0)) // wakes Accept
}

// startingBackend is the backend of the startup server. It implements the methods that the gateway calls periodically and for a probe. The
// other methods are nil: the startup server authenticates no caller, so the gateway never calls them.
type startingBackend struct{ gateway.Backend }

func (startingBackend) DefaultAgent() string { return "main" }

func (startingBackend) Status(context.Context) chat.SystemStatus {
	return chat.SystemStatus{Progress: startingBackend{}.Progress()}
}

// Lanes is called each second, also when no client is connected.
func (startingBackend) Lanes() chat.LanesStatus { return chat.LanesStatus{} }

func (startingBackend) Progress() chat.Progress { return chat.Progress{CronAge: -1, WriterAge: -1} }

func (startingBackend) Ready(context.Context) error {
	return &chat.NotReadyError{Check: chat.CheckDatabase, Cause: errors.New("the gateway is starting")}
}

// Audit stores nothing: credentials that are refused during the start are only in the log of the process.
func (startingBackend) Audit(context.Context, chat.Audit) error { return chat.ErrStoreUnavailable }

func (startingBackend) Subscribe(func(chat.Event), func(chat.Event) bool) (cancel func()) {
	return func() {}
}

// serviceManager tells systemd what this process does, for a unit with Type=notify: that it listens, that it stops, and, as long as work moves, that it lives.
// The dispatcher decides whether work moves, not the database: a restart would not bring a database back.
type serviceManager struct {
	address string // of the socket; "" = the process has no service manager
	stalled atomic.Pointer[func() bool]
	cancel  context.CancelFunc
	ended   chan struct{}
}

// openServiceManager reports that the listeners are open, and begins to feed the watchdog of the unit if it has one.
func (p *Process) openServiceManager(ctx context.Context) {
	lookup := p.opts.LookupEnv
	if lookup == nil {
		lookup = func(string) (string, bool) { return "", false }
	}
	m := &serviceManager{ended: make(chan struct{})}
	m.address, _ = lookup("NOTIFY_SOCKET")
	p.manager = m
	if err := m.tell(ctx, "READY=1"); err != nil {
		p.log.WarnContext(ctx, "the service manager was not told that this gateway listens", "err", err)
	}
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() { // ends with the clean-up
		defer close(m.ended)
		m.feed(ctx, watchdogOf(lookup)/2)
	}()
	p.onClose("service manager", func(context.Context) error { m.cancel(); <-m.ended; return nil })
}

// follow lets the watchdog starve while stalled is true.
func (m *serviceManager) follow(stalled func() bool) { m.stalled.Store(&stalled) }

// feed tells the service manager in each interval that the process lives; 0 = it does not ask.
func (m *serviceManager) feed(ctx context.Context, interval time.Duration) {
	if m.address == "" || interval <= 0 {
		return
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if stalled := m.stalled.Load(); stalled == nil || !(*stalled)() {
			_ = m.tell(ctx, "WATCHDOG=1") // without an answer, the next one may arrive
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// tell sends a state. An address that begins with @ is in the abstract namespace.
func (m *serviceManager) tell(ctx context.Context, state string) error {
	if m.address == "" {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", m.address)
	if err != nil {
		return err
	}
	err = conn.SetWriteDeadline(time.Now().Add(tellTime)) // a full queue must not hold up a stop
	if err == nil {
		_, err = conn.Write([]byte(state))
	}
	return errors.Join(err, conn.Close())
}

// tellTime limits the wait for a service manager that does not read.
const tellTime = time.Second

// watchdogOf is the time after which the service manager ends a silent process; 0 = never. The variable may be meant for a parent process.
func watchdogOf(lookup func(string) (string, bool)) time.Duration {
	if pid, set := lookup("WATCHDOG_PID"); set && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	text, _ := lookup("WATCHDOG_USEC")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}
