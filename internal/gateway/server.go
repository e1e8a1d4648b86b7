// Package gateway is the HTTP server of laneway: every client that uses HTTP or WebSocket connects
// to it.
//
// It converts frames to calls and events to frames, decides which caller may do what, and protects
// the process from clients that are broken, slow or hostile. It has no access to lanes, SQL and
// agents: [Backend] does all work. The methods are in packages by subject (conversation, jobs,
// pairing) and use the table of package rpc; the methods for the gateway as a whole are here.
// Package wire has the types of the protocol.
//
// # Ideas
//
// One table. Every method is one row: name, scope, types of its parameters and its result, handler.
// The row defines what can be called, which parameters are accepted within which limits, what the
// documentation contains and what the tests cover. A method that is not in the table does not
// exist.
//
// One writer per connection. A goroutine with data for a client puts it into the connection's send
// buffer and continues; it never waits for another connection. The buffer merges unsent text of a
// run, replaces unsent snapshots of a state, and keeps everything else in order. Events are
// numbered when they are written, so merging leaves no gap. A connection whose client reads too
// slowly is closed. A response is never lost silently: either it is delivered, or the connection is
// closed.
//
// Runs do not belong to connections. A request continues when its client has disconnected, because
// its effect is durable and the same idempotency key finds it again. Only the wait for the second
// frame of `agent` ends with the connection.
//
// A gate preserves the order. Before a message is passed to the backend, its connection closes a
// gate for the run. Events that arrive while the gate is closed wait for it, and it opens when the
// response is queued. So the response is first even when the run has ended before the call
// returned.
//
// # Guarantees
//
//   - A connection receives only the challenge before its credential is verified; scopes and
//     visibility are checked again with every request and every event.
//   - Every request has exactly one answer (two for `agent`) within its deadline, or the connection
//     is closed.
//   - The response to chat.send and agent precedes every event of its run on that connection;
//     events of a run keep their order.
//   - Memory per connection is limited: message size, requests in flight, send buffer, followed
//     runs.
//   - Accepted connections are counted before anything is read from them, in total and, while they
//     are unauthenticated, per address. Writes to a connection have a deadline, so that a client
//     that does not read holds no resources.
//   - When a credential is removed, changed or expired, its connections are closed within five
//     seconds.
//
// # What it does not do
//
// It keeps no durable state: events are not replayed, and a new connection reads the state
// (chat.history with its cursor). It terminates no TLS and reads no secret from URLs, cookies or
// upgrade headers. It makes no decision about messages: order, queues, commands and idempotency
// belong to the backend.
//
// # Shutdown
//
// [Server.Drain] announces the shutdown: it sends `shutdown` to every connection and refuses new
// connects. When the context of [Server.Serve] is done, the listeners close, every client receives
// `shutdown` and close 1012, and Serve waits for connections and requests, up to a limit. Every
// goroutine that it started has returned then, unless its error names one that has not.
//
// # Example
//
//	srv, err := gateway.New(gateway.Config{
//		Version:     "1.2.0",
//		Credentials: []auth.Credential{{Name: "gateway", Digest: sha256.Sum256(secret), Scopes: []string{chat.ScopeAdmin}}},
//	}, dispatcher, log)
//	if err != nil {
//		return err
//	}
//	return srv.Serve(ctx, listener)
//
//go:generate go run ./gendoc -out ../../docs -wire ../wire -types ../dashboard/types
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/cron/schedule"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/hook"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/mcp"
	"laneway/internal/gateway/openai"
	"laneway/internal/gateway/params"
	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/socket"
	"laneway/internal/metrics"
	"laneway/internal/wire"
)

// errStopping is the cause with which everything in progress ends when the gateway stops.
var errStopping = errors.New("the gateway stops")

// Server is the HTTP and WebSocket server of the gateway. It is created with [New], runs in
// [Server.Serve], and is safe for concurrent use.
type Server struct {
	cfg         Config
	backend     Backend
	log         *slog.Logger
	counters    *counters
	auth        *auth.Authenticator
	policy      *auth.RequestPolicy
	hub         *socket.Hub[*client]
	sockets     *socket.Upgrader
	connLimiter *socket.ConnLimiter
	inFlight    *inflight.Limiter
	methods     rpc.Table
	methodNames []string
	connects    *params.Decoder // for the parameters of connect
	bootID      string
	startedAt   time.Time
	connSeq     atomic.Uint64
	state       *lifecycle
	report      *reporter
	services    *httpServices
	hooks       *hook.Handler
	completions *openai.Handler
	uploads     *openai.FileHandler
	tools       *mcp.Handler // nil without [Config.Tools]
	health      *monitor
	publish     publisher
}

// New checks the configuration and returns a server that does not serve yet. It starts no
// goroutine.
func New(cfg Config, backend Backend, log *slog.Logger) (*Server, error) {
	cfg = cfg.withDefaults()
	who, authErr := auth.New(auth.Config{Credentials: cfg.Credentials, Sources: cfg.Sources, Limiter: cfg.Limiter, Metrics: cfg.Metrics}, backend, log)
	policy, policyErr := auth.NewRequestPolicy(auth.PolicyConfig{
		AllowedHosts: cfg.AllowedHosts, AllowedOrigins: cfg.AllowedOrigins, TrustedProxies: cfg.TrustedProxies,
	})
	counted := newCounters(cfg.Metrics)
	s := &Server{
		cfg: cfg, backend: backend, log: log, counters: counted,
		auth: who, policy: policy, state: &lifecycle{}, report: &reporter{log: log, counters: counted},
		bootID: uuid.NewString(), startedAt: time.Now(), inFlight: inflight.New(cfg.MaxPayload, cfg.Deadlines.Request),
	}
	s.connects = params.Of[wire.ConnectParams]()
	s.health = &monitor{backend: backend, state: s.state, log: log, startedAt: s.startedAt, zones: schedule.ZoneRelease()}
	s.connLimiter = socket.NewConnLimiter(socket.ConnLimits{
		MaxSockets: cfg.MaxSockets, MaxUnauthenticatedPerAddr: cfg.MaxUnauthenticatedPerAddr, WriteTimeout: cfg.Deadlines.Write, Exempt: policy.Trusted,
		Network: auth.Network,
	}, log)
	s.hub = socket.NewHub[*client](socket.HubLimits{
		Sockets: cfg.MaxSockets, Unauthenticated: cfg.MaxUnauthenticated, PerPrincipal: cfg.MaxPerPrincipal,
	})
	s.publish = newPublisher(s.hub)
	s.sockets = socket.NewUpgrader(cfg.sockets())
	s.services = &httpServices{lifecycle: s.state, reporter: s.report, auth: who, policy: policy, backend: backend, inFlight: s.inFlight}
	hooks, err := hook.New(hook.Config{Hooks: cfg.Hooks, BodyTimeout: cfg.Deadlines.Message, AcceptTimeout: cfg.Deadlines.Request}, backend, who, s.services)
	if err := errors.Join(cfg.check(), authErr, policyErr, err); err != nil {
		return nil, fmt.Errorf("gateway configuration: %w", err)
	}
	s.hooks = hooks
	deps := openai.Deps{Runs: backend, Allowances: who, Files: cfg.Files, Server: s.services, Log: log}
	s.completions = openai.New(openai.Config{MaxBody: cfg.MaxPayload, BodyTimeout: cfg.Deadlines.Message, AcceptTimeout: cfg.Deadlines.Request, StartedAt: s.startedAt}, deps)
	s.uploads = openai.NewFiles(deps)
	if cfg.Tools != nil && cfg.TurnTokens != nil {
		s.tools = mcp.New(mcp.Deps{Turns: cfg.TurnTokens, Tools: cfg.Tools, Allowances: who, Server: s.services, BodyTimeout: cfg.Deadlines.Message, Version: cfg.Version, Log: log})
	}
	s.methods = rpc.NewTable(allMethods(s))
	s.methodNames = s.methods.Names()
	s.state.up.Store(!cfg.HoldConnects)
	return s, nil
}

// BootID returns the id of this start of the gateway for clients.
func (s *Server) BootID() string { return s.bootID }

// Ready accepts connects; see [Config.HoldConnects].
func (s *Server) Ready() { s.state.up.Store(true) }

// StopReady makes /readyz fail and changes nothing else: load balancers stop sending new work, and
// requests that they still send are served.
func (s *Server) StopReady() { s.state.leaving.Store(true) }

// Drain announces that the gateway is about to stop: clients receive a `shutdown` event, new
// connects are refused, /readyz fails. Existing connections stay open until Serve's context is
// done. A second call does nothing.
func (s *Server) Drain() {
	if s.state.down.CompareAndSwap(false, true) {
		s.publish.announce("draining")
	}
}

// Serve serves the main listeners until ctx is done. Then it stops accepting, ends every connection
// (`shutdown`, close 1012), and waits for connections and requests up to Config.StopTimeout; those
// that remain are cut. It closes the listeners. It returns nil after a clean end, and an error when
// a listener failed or something did not end.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(errStopping)
	s.policy.Bind(listeners...)
	s.refreshKeys(base)
	s.health.look(base)
	cancel := s.backend.Subscribe(s.publish.event, s.publish.wanted)
	defer cancel()
	if s.cfg.Jobs != nil {
		defer s.cfg.Jobs.Subscribe(s.publish.cron, func() bool { return s.hub.Count() > 0 })()
	}
	waits, endWaits := context.WithCancelCause(base)
	defer endWaits(errStopping)
	srv := s.httpServer(base, waits)
	var loops sync.WaitGroup
	watch, endWatch := context.WithCancel(base)
	loops.Go(func() { s.watch(watch) })
	loops.Go(func() { s.auth.Run(watch) })
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		loops.Go(func() { failed <- srv.Serve(s.connLimiter.Limit(l)) })
	}
	err := firstFailure(ctx, failed)
	endWaits(errStopping) // before the timeout starts, so that their answers are still written
	stopErr := s.stop(srv, cut)
	endWatch()
	loops.Wait()
	return errors.Join(err, stopErr)
}

func firstFailure(ctx context.Context, failed <-chan error) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return fmt.Errorf("serving a listener: %w", err)
	}
}

// stop ends everything, gracefully first.
func (s *Server) stop(srv *http.Server, cut context.CancelCauseFunc) error {
	s.Drain()
	bound, cancel := context.WithTimeout(context.WithoutCancel(srv.BaseContext(nil)), s.cfg.StopTimeout)
	defer cancel()
	s.publish.announce("stopped")
	for _, c := range s.hub.Close() {
		c.End(&socket.Closing{Code: websocket.CloseServiceRestart, Text: "gateway is stopping", Reason: socket.ClosedStopping})
	}
	_ = srv.Shutdown(bound) // closes the listeners at once; requests that do not end are cut off below
	left := s.hub.Wait(bound)
	if left == 0 {
		return nil
	}
	cut(errStopping)
	for _, c := range s.hub.Connections() {
		c.Cut()
	}
	_ = srv.Close()
	again, cancel := context.WithTimeout(context.WithoutCancel(bound), s.cfg.StopTimeout)
	defer cancel()
	if left := s.hub.Wait(again); left > 0 {
		return fmt.Errorf("stopping the gateway: %d connections did not end within %s", left, 2*s.cfg.StopTimeout)
	}
	return nil
}

func (s *Server) httpServer(base, waits context.Context) *http.Server {
	return &http.Server{
		Handler:           s.routes(base, waits),
		ReadHeaderTimeout: s.cfg.Deadlines.Header,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    32 << 10,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       socket.ConnContext,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// lifecycle is the state of the gateway between start and stop. It is safe for concurrent use.
type lifecycle struct {
	up, down atomic.Bool
	leaving  atomic.Bool // no longer ready, but still serving
}

func (l *lifecycle) ready() bool    { return l.up.Load() }
func (l *lifecycle) draining() bool { return l.down.Load() }

// Refusal returns why no work is accepted now, or nil.
func (l *lifecycle) Refusal() *fault.Error {
	switch {
	case l.draining():
		return fault.Draining()
	case !l.ready():
		return fault.Starting()
	default:
		return nil
	}
}

// counters are the metrics of a [Server]. Methods are those of the table or "unknown"; results are
// ok or the code of the error; routes are patterns or "none".
type counters struct {
	conns            prometheus.Gauge
	closed, rpc, web *prometheus.CounterVec
	slow             prometheus.Counter
	rpcTime          prometheus.Histogram
	webTime          *prometheus.HistogramVec
}

func newCounters(r prometheus.Registerer) *counters {
	in := metrics.In(r)
	c := &counters{
		conns:   in.Gauge("ws_connections", "Open WebSocket connections."),
		closed:  in.Counters("ws_closed_total", "WebSocket connections that ended, by reason.", "reason"),
		slow:    in.Counter("ws_slow_closed_total", "Connections closed because the client read too slowly."),
		rpc:     in.Counters("rpc_requests_total", "Requests by method and result code.", "method", "code"),
		rpcTime: in.Histogram("rpc_duration_seconds", "Time from a request to its answer.", metrics.WaitBuckets()),
		web:     in.Counters("http_requests_total", "HTTP requests, without WebSockets, by route and status.", "route", "code"),
		webTime: in.Histograms("http_duration_seconds", "Time from an HTTP request to the end of its answer.", metrics.RunBuckets(), "route"),
	}
	for _, reason := range socket.CloseReasons() {
		c.closed.WithLabelValues(string(reason))
	}
	for method := range Needs() {
		c.rpc.WithLabelValues(method, "ok")
	}
	return c
}

func (c *counters) connClosed(reason socket.CloseReason) {
	c.conns.Dec()
	c.closed.WithLabelValues(string(reason)).Inc()
	if reason == socket.ClosedSlow {
		c.slow.Inc()
	}
}

func (c *counters) request(method, result string, took time.Duration) {
	c.rpc.WithLabelValues(method, result).Inc()
	c.rpcTime.Observe(took.Seconds())
}

// httpRequest is not called for sockets.
func (c *counters) httpRequest(route string, status int, took time.Duration) {
	c.web.WithLabelValues(route, strconv.Itoa(status)).Inc()
	c.webTime.WithLabelValues(route).Observe(took.Seconds())
}
