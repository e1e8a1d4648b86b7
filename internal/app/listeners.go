package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/dashboard"
	"laneway/internal/diskspace"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/hook"
	"laneway/internal/secret"
	"laneway/internal/store"
)

const (
	metricsOff  = "off"
	metricsMain = "main"
	// stopSockets limits the closing of sockets, which follows the drain.
	stopSockets = 700 * time.Millisecond
)

// openGateway creates the server.
func (p *Process) openGateway() error {
	l := p.cfg.Limits
	cfg := gateway.Config{
		Version:      p.opts.Version,
		AllowedHosts: p.cfg.Hosts(), AllowedOrigins: p.cfg.AllowedOrigins, TrustedProxies: p.cfg.TrustedPrefixes(),
		MaxPayload: int64(l.MaxPayload), MaxBuffered: l.MaxBuffered, MaxSockets: l.Sockets, MaxUnauthenticated: l.Unauthenticated,
		MaxUnauthenticatedPerAddr: l.UnauthenticatedPerAddress, MaxPerPrincipal: l.SocketsPerPrincipal,
		Limits: auth.Limits{
			CronWritesPerMinute: offIsNegative(l.CronWrites), ChatsPerMinute: offIsNegative(l.Chat),
			HooksPerMinute: offIsNegative(l.Hooks), BytesPerMinute: offIsNegative(l.Bytes),
		},
		RequestsPerSecond: offIsNegative(l.Requests), Hooks: hooksOf(p.cfg.Hooks),
		StopTimeout: stopSockets, Metrics: p.metrics.Registry(), TurnTokens: p.turnTokens, ToolServers: p.external.Status,
		Jobs: p.dispatch.Jobs, Pairings: p.dispatch.Pairings, Usage: p.dispatch.Meter, Files: p.dispatch.Uploads, Tools: p.dispatch.ToolsOf,
	}
	cfg.Sources = []auth.Source{p.ownKeys()}
	if p.tokens != nil {
		cfg.Sources = append(cfg.Sources, p.tokens)
	}
	if shared, ok := p.store.(store.Allowances); ok {
		cfg.Limiter = auth.NewSharedLimiter(cfg.Limits, shared, p.log)
	}
	if p.cfg.MetricsListen == metricsMain {
		cfg.MetricsOnMain = p.metrics.Handler()
	}
	cfg.Webhooks = p.webhooks
	if p.cfg.Dashboard {
		cfg.Dashboard = dashboard.Handler()
	}
	var err error
	if p.gateway, err = gateway.New(cfg, p.dispatch, p.log); err != nil {
		return fmt.Errorf("making the gateway: %w", err)
	}
	p.metrics.Registry().MustRegister(diskCollector{p.diskFree})
	return nil
}

// diskFree returns the free space of the disks to which this process writes.
func (p *Process) diskFree() map[string]uint64 {
	read := p.opts.FreeSpace
	if read == nil {
		read = diskspace.Free
	}
	free := map[string]uint64{}
	for name, dir := range p.disks() {
		if n, err := read(dir); err == nil {
			free[name] = n
		}
	}
	return free
}

// hooksOf returns the configured webhooks.
func hooksOf(configured map[string]config.Hook) map[string]hook.Hook {
	hooks := make(map[string]hook.Hook, len(configured))
	for name, h := range configured {
		hooks[name] = hook.Hook{
			Secret: secret.New(h.Secret.Reveal()), Scheme: h.Scheme, Agent: h.Agent, Session: h.Session, Prefix: h.Prefix,
			AllowSessionKey: h.AllowSessionKey,
		}
	}
	return hooks
}

// hookSessions returns the sessions that hooks name and that contain no identity, by the principals
// of the hooks.
func hookSessions(configured map[string]config.Hook, defaultAgent string) map[string]chat.SessionKey {
	names := map[string]chat.SessionKey{}
	for name, h := range configured {
		principal := "hook:" + name
		key, err := chat.ParseSessionKey(h.Session, cmp.Or(h.Agent, defaultAgent))
		if err == nil && h.Session != "" && key.RightOf(principal) == chat.RightFree {
			names[principal] = key
		}
	}
	return names
}

// offIsNegative maps the configured 0 = off to the gateway's negative value.
func offIsNegative(n int) int {
	return cmp.Or(n, auth.Off)
}

// listen binds every address. An address in use fails the start with a sentence.
func (p *Process) listen(ctx context.Context) error {
	var lc net.ListenConfig
	for _, addr := range p.cfg.Listen {
		l, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return fmt.Errorf("%s; stop it, or choose another address with --listen", notListening(addr, err))
		}
		p.main = append(p.main, l)
		p.onClose("listener "+addr, closer(l))
	}
	if p.cfg.MetricsListen == metricsOff || p.cfg.MetricsListen == metricsMain || p.cfg.MetricsListen == "" {
		return nil
	}
	l, err := lc.Listen(ctx, "tcp", p.cfg.MetricsListen)
	if err != nil {
		return fmt.Errorf("%s; choose another address for metrics with --metrics-listen, or off", notListening(p.cfg.MetricsListen, err))
	}
	p.scrape = l
	p.log.InfoContext(ctx, "serving metrics", "address", l.Addr().String())
	p.onClose("metrics listener", closer(l))
	return nil
}

// notListening says why nothing listens on an address, the cause first.
func notListening(addr string, err error) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return addr + " is taken (address already in use): another gateway or another program listens there"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok { // it repeats the address
		err = op.Err
	}
	return "cannot listen on " + addr + ": " + err.Error()
}

func closer(l net.Listener) func(context.Context) error {
	return func(context.Context) error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// metricsHandler is the handler of the metrics listener. It serves programs on this machine, and
// refuses web pages in its browsers.
func (p *Process) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.metrics.Handler())
	if p.cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return auth.ProtectLocal(mux, p.cfg.Hosts(), p.scrape)
}

// serveMetrics serves the metrics listener until ctx is done.
func serveMetrics(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving metrics: %w", err)
	}
	return nil
}

// toolsURL returns the URL of the tools of turns, for programs on this host.
func toolsURL(main []net.Listener) string {
	if len(main) == 0 {
		return ""
	}
	at := main[0].Addr().String()
	if host, port, err := net.SplitHostPort(at); err == nil {
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			at = net.JoinHostPort("127.0.0.1", port)
		}
	}
	return "http://" + at + "/mcp"
}

// addresses returns the addresses of the main listener.
func (p *Process) addresses() []string {
	list := make([]string, 0, len(p.main))
	for _, l := range p.main {
		list = append(list, l.Addr().String())
	}
	return list
}

// startupServer answers requests before the store is open. Without it, a gateway whose store
// migrates or cannot be reached would look as if it were not running. It authenticates no caller
// and changes nothing. It refuses every connect with `gateway starting` and every other request
// with 503; the probes report a process that is alive and not ready. It borrows the main listeners,
// which the gateway serves afterwards.
type startupServer struct {
	borrowed []*borrowedListener
	close    context.CancelFunc
	ended    chan error // the result of Serve, one value
}

// openStartupServer starts the server on the main listeners. Its goroutine ends with
// closeStartupServer.
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

// closeStartupServer stops the server, waits for its goroutine and makes the listeners usable
// again. A second call does nothing.
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

// borrowedListener is a listener whose Close ends Accept but keeps the socket open for the next
// server.
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

// startingBackend is the backend of the startup server. It implements the methods that the gateway
// calls periodically and for a probe. The other methods are nil: the startup server authenticates
// no caller, so the gateway never calls them.
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

// Audit stores nothing: credentials that are refused during the start are only in the log of the
// process.
func (startingBackend) Audit(context.Context, chat.Audit) error { return chat.ErrStoreUnavailable }

func (startingBackend) Subscribe(func(chat.Event), func(chat.Event) bool) (cancel func()) {
	return func() {}
}

// serviceManager tells systemd what this process does, for a unit with Type=notify: that it
// listens, that it stops, and, as long as work moves, that it lives. The dispatcher decides whether
// work moves, not the database: a restart would not bring a database back.
type serviceManager struct {
	address string // of the socket; "" = the process has no service manager
	stalled atomic.Pointer[func() bool]
	cancel  context.CancelFunc
	ended   chan struct{}
}

// openServiceManager reports that the listeners are open, and begins to feed the watchdog of the
// unit if it has one.
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

// watchdogOf is the time after which the service manager ends a silent process; 0 = never. The
// variable may be meant for a parent process.
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

// diskCollector reads the free space of the disks at each scrape.
type diskCollector struct{ source func() map[string]uint64 }

// Describe implements prometheus.Collector: a disk whose free space cannot be read has no series.
func (diskCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c diskCollector) Collect(ch chan<- prometheus.Metric) {
	free := prometheus.NewDesc("laneway_disk_free_bytes", "Free space of each disk, by its content (data, database).", []string{"disk"}, nil)
	for disk, bytes := range c.source() {
		ch <- prometheus.MustNewConstMetric(free, prometheus.GaugeValue, float64(bytes), disk)
	}
}
