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

	"laneway/internal/cron/schedule"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/hook"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/mcp"
	"laneway/internal/gateway/openai"
	"laneway/internal/gateway/params"
	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/socket"
	"laneway/internal/wire"
)

// errStopping is the cause with which everything in progress ends when the gateway stops.
var errStopping = errors.New("the gateway stops")

// Server is the HTTP and WebSocket server of the gateway. It is created with [New], runs in [Server.Serve], and is safe for concurrent use.
type Server struct {
	cfg         Config
	backend     Backend
	log         *slog.Logger
	observer    Observer
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
	tools       *mcp.Handler // nil when the backend has no tools
	health      *monitor
	publish     publisher
}

// New checks the configuration and returns a server that does not serve yet. It starts no goroutine.
func New(cfg Config, backend Backend, log *slog.Logger) (*Server, error) {
	cfg = cfg.withDefaults()
	who, authErr := auth.New(auth.Config{Credentials: cfg.Credentials, Sources: cfg.Sources, Limiter: cfg.Limiter}, backend, cfg.Observer, log)
	policy, policyErr := auth.NewRequestPolicy(auth.PolicyConfig{
		AllowedHosts: cfg.AllowedHosts, AllowedOrigins: cfg.AllowedOrigins, TrustedProxies: cfg.TrustedProxies,
	})
	s := &Server{
		cfg: cfg, backend: backend, log: log, observer: cfg.Observer,
		auth: who, policy: policy, state: &lifecycle{}, report: &reporter{log: log, observer: cfg.Observer},
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
	files, _ := backend.(openai.Files) //nolint:errcheck // nil for a gateway without files
	s.completions = openai.New(
		openai.Config{MaxBody: cfg.MaxPayload, BodyTimeout: cfg.Deadlines.Message, AcceptTimeout: cfg.Deadlines.Request, StartedAt: s.startedAt},
		openai.Deps{Runs: backend, Agents: backend, Allowances: who, Files: files, Server: s.services, Log: log},
	)
	if tools, ok := backend.(mcp.Tools); ok && cfg.TurnTokens != nil {
		s.tools = mcp.New(mcp.Deps{Turns: cfg.TurnTokens, Tools: tools, Allowances: who, Server: s.services, BodyTimeout: cfg.Deadlines.Message, Version: cfg.Version, Log: log})
	}
	cron, _ := backend.(CronBackend) //nolint:errcheck // nil for a gateway without jobs
	s.methods = rpc.NewTable(allMethods(s, cron))
	s.methodNames = s.methods.Names()
	s.state.up.Store(!cfg.HoldConnects)
	return s, nil
}

// BootID returns the id of this start of the gateway for clients.
func (s *Server) BootID() string { return s.bootID }

// Ready accepts connects; see [Config.HoldConnects].
func (s *Server) Ready() { s.state.up.Store(true) }

// StopReady makes /readyz fail and changes nothing else: load balancers stop sending new work, and requests that they still send are
// served.
func (s *Server) StopReady() { s.state.leaving.Store(true) }

// Drain announces that the gateway is about to stop: clients receive a `shutdown` event, new connects are refused, /readyz fails. Existing
// connections stay open until Serve's context is done. A second call does nothing.
func (s *Server) Drain() {
	if s.state.down.CompareAndSwap(false, true) {
		s.publish.announce("draining")
	}
}

// Serve serves the main listeners until ctx is done. Then it stops accepting, ends every connection (`shutdown`, close 1012), and waits for
// connections and requests up to Config.StopTimeout; those that remain are cut. It closes the listeners. It returns nil after a clean end,
// and an error when a listener failed or something did not end.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(errStopping)
	s.policy.Bind(listeners...)
	s.refreshKeys(base)
	s.health.look(base)
	cancel := s.backend.Subscribe(s.publish.event, s.publish.wanted)
	defer cancel()
	if jobs, ok := s.backend.(CronBackend); ok {
		defer jobs.SubscribeCron(s.publish.cron, func() bool { return s.hub.Count() > 0 })()
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
	_ = srv.Shutdown(bound) //nolint:errcheck // closes the listeners at once; requests that do not end are cut off below
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

func (s *Server) nextConnID() string {
	return "c-" + s.bootID[:4] + strconv.FormatUint(s.connSeq.Add(1), 36)
}
