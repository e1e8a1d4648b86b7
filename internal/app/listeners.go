package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	"laneway/internal/channel/web"
	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/cron"
	"laneway/internal/dashboard"
	"laneway/internal/diskspace"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/hook"
	"laneway/internal/metrics"
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
		StopTimeout: stopSockets, Observer: p.metrics.Gateway(), TurnTokens: p.turnTokens, ToolServers: p.external.Status,
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
	p.metrics.Watch(metrics.Source{
		Lanes: p.dispatch.Lanes, Channels: p.dispatch.Channels, DatabaseUp: func() bool { return p.dispatch.Alive() == nil },
		Outbox: func() int { return p.dispatch.Figures().OutboxWaiting }, Cron: func() cron.Summary { return p.dispatch.Figures().Cron },
		TakenLong: func() int { return p.dispatch.Figures().TakenLong }, DiskFree: p.diskFree,
	})
	p.metrics.Begin(p.known())
	return nil
}

// known returns the label values that the wiring determines.
func (p *Process) known() metrics.Known {
	k := metrics.Known{Channels: []string{web.Name}, Commands: p.commands, Methods: slices.Collect(maps.Keys(gateway.Needs()))}
	for _, c := range p.channels {
		if kind := chat.ChannelKind(c.Name()); !slices.Contains(k.Channels, kind) {
			k.Channels = append(k.Channels, kind)
		}
	}
	return k
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

// hookSessions returns the sessions that hooks name and that contain no identity, with the principals of the hooks.
func hookSessions(configured map[string]config.Hook, defaultAgent string) map[chat.SessionKey]string {
	names := map[chat.SessionKey]string{}
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		h, principal := configured[name], "hook:"+name
		key, err := chat.ParseSessionKey(h.Session, cmp.Or(h.Agent, defaultAgent))
		if _, taken := names[key]; err == nil && h.Session != "" && !taken && key.RightOf(principal) == chat.RightFree {
			names[key] = principal
		}
	}
	return names
}

// offIsNegative maps the configured 0 = off to the gateway's negative value.
func offIsNegative(n int) int {
	if n == 0 {
		return auth.Off
	}
	return n
}

// listen binds every address. An address in use fails the start with a sentence.
func (p *Process) listen(ctx context.Context) error {
	var lc net.ListenConfig
	for _, addr := range p.cfg.Listen {
		l, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return fmt.Errorf("listening on %s: %w; is another gateway running? choose another address with --listen", addr, unwrapListen(err))
		}
		p.main = append(p.main, l)
		p.onClose("listener "+addr, closer(l))
	}
	if p.cfg.MetricsListen == metricsOff || p.cfg.MetricsListen == metricsMain || p.cfg.MetricsListen == "" {
		return nil
	}
	l, err := lc.Listen(ctx, "tcp", p.cfg.MetricsListen)
	if err != nil {
		return fmt.Errorf("listening for metrics on %s: %w; choose another address with --metrics-listen, or off", p.cfg.MetricsListen, unwrapListen(err))
	}
	p.scrape = l
	p.log.InfoContext(ctx, "serving metrics", "address", l.Addr().String())
	p.onClose("metrics listener", closer(l))
	return nil
}

// unwrapListen removes the address that net.OpError repeats.
func unwrapListen(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

func closer(l net.Listener) func(context.Context) error {
	return func(context.Context) error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// metricsHandler is the handler of the metrics listener. It serves programs on this machine, and refuses web pages in its browsers.
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
