// Package app is the process: New wires the parts, Run runs them, and the shutdown undoes
// everything in reverse order within one time limit.
//
// Besides cmd, it is the only package that reads the configuration, and the only one that chooses
// adapters (which store, which agents, which channels). Each part receives its own Config and its
// dependencies as arguments.
//
// # Shutdown
//
// When the context of [Process.Run] is done, the process accepts no new work. The drain timeout
// limits how long running turns continue; a second signal (Options.Hurry) interrupts them. The
// order is: stop accepting, drain turns, stop sending, stop channels, leave the table of nodes,
// close sockets, close the store. A construction that fails half-way is undone by the same clean-up
// functions, in reverse order.
package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"laneway/internal/channel"
	"laneway/internal/channel/web"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/config"
	"laneway/internal/diskspace"
	"laneway/internal/dispatch"
	"laneway/internal/files"
	"laneway/internal/gateway"
	"laneway/internal/history"
	"laneway/internal/metrics"
	"laneway/internal/process"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/tool/access"
	"laneway/internal/tool/external"
)

// Options of a process.
type Options struct {
	// Loaded is the checked configuration, Credentials the secrets that callers may present.
	Loaded      *config.Loaded
	Credentials config.Credentials
	// Hold holds the gateway before it starts any work; it stays held until it is released.
	Hold bool
	// RereadCredentials reads the files of those secrets again. One goroutine calls it every two
	// seconds. The credentials that it returns are valid even when it returns an error. nil = they
	// never change.
	RereadCredentials func() (config.Credentials, error)
	// FreeSpace returns the free bytes on the disk of a directory; nil = ask the operating system.
	FreeSpace func(dir string) (uint64, error)
	// Version is shown to people and other nodes, Commit in the metrics; "" = unknown.
	Version, Commit string
	Log             *slog.Logger
	// Ready is called once with the addresses when the listeners are open; may be nil.
	Ready func(addresses []string)
	// LookupEnv is the environment in which command agents are searched (PATH, HOME, …).
	LookupEnv func(string) (string, bool)
	// Environ is that environment as NAME=value. Agents receive the variables that the
	// configuration passes to them.
	Environ []string
	// Program is the path of this program, which agents start as `PROGRAM mcp` to call their tools;
	// "" = they have no tools.
	Program string
	// Reaper ends processes that programs of agents and MCP servers leave; nil = they are not
	// ended.
	Reaper *process.Reaper
	// Hurry, when closed, interrupts the turns of a drain; may be nil.
	Hurry <-chan struct{}
	// Reload requests that the configuration is read again with Reread; Restart also restarts the
	// scheduler in place. Both may be nil.
	Reload, Restart <-chan struct{}
	Reread          func() (*config.Loaded, error)
}

// Process is a gateway that is wired and listens. Create it with New, then call Run once.
type Process struct {
	cfg      config.Config
	opts     Options
	log      *slog.Logger
	store    dispatch.Store
	dispatch *dispatch.Dispatcher
	gateway  *gateway.Server
	tokens   *namedTokens // nil when the store keeps no tokens
	// turnTokens authorise calls of the tools of running turns at /mcp.
	turnTokens *access.Turns
	// external are the tools of other MCP servers.
	external *external.Set
	metrics  *metrics.Metrics
	channels []channel.Channel
	webhooks map[string]http.Handler // by path
	files    *files.Dir
	main     []net.Listener
	scrape   net.Listener   // nil when there is no metrics listener
	startup  *startupServer // nil once the gateway serves the listeners
	manager  *serviceManager
	abandon  context.CancelCauseFunc
	undo     []cleanup // in order of construction
}

type cleanup struct {
	name string
	run  func(ctx context.Context) error
}

// Run creates a process and runs it until ctx is done. A start that is cancelled by ctx is a clean
// end: any error was then caused by the cancellation.
func Run(ctx context.Context, opts Options) error {
	p, err := New(ctx, opts)
	switch {
	case err != nil && ctx.Err() != nil:
		opts.Log.InfoContext(ctx, "stopped before the start was complete", "cause", context.Cause(ctx), "err", err)
		return nil //nolint:nilerr // the end was asked for; the error is in the log
	case err != nil:
		return err
	}
	return p.Run(ctx)
}

// New wires a process: listeners, store, agents, dispatcher, gateway, in this order. Until it
// returns, the startup server refuses every connection. When a step fails, the earlier steps are
// undone.
func New(ctx context.Context, opts Options) (_ *Process, err error) {
	p := &Process{cfg: opts.Loaded.Config, opts: opts, log: opts.Log}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.cleanUp(context.WithoutCancel(ctx)))
		}
	}()
	if err := p.listen(ctx); err != nil {
		return nil, err
	}
	if err := p.openStartupServer(ctx); err != nil {
		return nil, err
	}
	p.openServiceManager(ctx)
	if p.store, err = openStore(ctx, p.cfg, p.log); err != nil {
		return nil, err
	}
	p.onClose("store", func(context.Context) error { return p.store.Close() })
	if opts.Hold {
		if err := p.store.SetHold(ctx, &store.Hold{Who: "laneway serve --hold"}, store.ChangedBy{Who: "cli"}); err != nil {
			return nil, fmt.Errorf("holding the gateway: %w", err)
		}
	}
	p.metrics = metrics.New(opts.Version, opts.Commit)
	if err := p.wire(ctx); err != nil {
		return nil, err
	}
	if err := p.openGateway(); err != nil {
		return nil, err
	}
	if err := p.dispatch.Register(ctx); err != nil {
		return nil, fmt.Errorf("registering with the store: %w", err)
	}
	if err := p.closeStartupServer(); err != nil {
		return nil, fmt.Errorf("closing the startup server: %w", err)
	}
	p.manager.follow(func() bool { return gateway.Stalled(p.dispatch.Progress()) })
	freeStartMemory()
	return p, nil
}

// largeStart is the size of the heap in bytes above which two collections are worth their cost
// after a start. A start without migrations stays below it.
const largeStart = 8 << 20

// freeStartMemory returns memory that only the start needed. The migration parser leaves buffers of
// 4 MiB each in a pool. They count as heap, so the collector would wait until the heap has grown to
// twice their size. A pool is empty after the second collection. Both collections take 8 ms of
// processor time, a fifth of a start, so they are skipped when no migration was applied.
func freeStartMemory() {
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	if heap.HeapSys-heap.HeapReleased < largeStart { // memory that a collection during the start freed is still held by the process
		return
	}
	runtime.GC()
	debug.FreeOSMemory()
}

// onClose registers a step of cleanUp.
func (p *Process) onClose(name string, run func(context.Context) error) {
	p.undo = append(p.undo, cleanup{name: name, run: run})
}

// cleanUp undoes the construction in reverse order.
func (p *Process) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTime)
	defer cancel()
	var faults []error
	for _, c := range slices.Backward(p.undo) {
		p.log.DebugContext(ctx, "closing", "part", c.name)
		if err := c.run(ctx); err != nil {
			faults = append(faults, fmt.Errorf("closing %s: %w", c.name, err))
		}
	}
	p.undo = nil
	return errors.Join(faults...)
}

// cleanUpTime limits the steps after the drain.
const cleanUpTime = 2 * time.Second

// wire creates the dispatcher with its agents and channels.
func (p *Process) wire(ctx context.Context) error {
	if err := pickModels(ctx, p.cfg.Agents, p.log); err != nil {
		return err
	}
	agents, err := buildAgents(p.cfg, p.surroundings(), p.log)
	if err != nil {
		return err
	}
	p.onClose("agents", func(context.Context) error { closeAgents(agents); return nil })
	table, err := command.New()
	if err != nil {
		return fmt.Errorf("making the command table: %w", err)
	}
	if err := p.openFiles(); err != nil {
		return err
	}
	if err := p.openChannels(table.Infos()); err != nil {
		return err
	}
	posts := openWebhooks(p.cfg)
	p.channels = append(p.channels, web.New(), posts)
	p.turnTokens = access.New(toolsURL(p.main))
	p.external = external.New(serversOf(p.cfg, p.opts.Reaper), p.opts.LookupEnv, modelTransport(), p.log)
	work, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	p.abandon = abandon
	p.onClose("turns", func(context.Context) error { abandon(errProcessEnds); return nil })
	jobs, err := p.cronConfig(posts)
	if err != nil {
		return err
	}
	p.dispatch, err = dispatch.New(work, dispatch.Config{
		Version: p.opts.Version, Addr: replicaName(p.cfg.Cluster.NodeID), BootID: uuid.NewString(),
		Lease: time.Duration(p.cfg.Cluster.Lease), Heartbeat: time.Duration(p.cfg.Cluster.Heartbeat), Sweep: time.Duration(p.cfg.Cluster.Sweep), AgentWait: time.Duration(p.cfg.Cluster.AgentWait),
		Exclusive: p.store.Kind() == kindSQLite, Lanes: lanesOf(p.cfg), UserTurns: p.cfg.Limits.UserTurns,
		Space: p.freeSpace().Check, SeesOwn: p.seesOwn(ctx), OwnWaiting: p.cfg.Limits.OwnWaiting, CallerWaiting: p.cfg.Limits.CallerWaiting,
		OwnSessions: p.cfg.Limits.OwnSessions, CallerSessions: p.cfg.Limits.CallerSessions, Agents: agents,
		Access: p.turnTokens, External: p.external, Queue: queueOf(p.cfg), ThrottleAt: float64(p.cfg.Queue.ThrottlePercent) / 100, Cron: jobs, Files: p.files, KeptFiles: int64(p.cfg.Limits.KeptFiles), Usage: p.usageConfig(), Names: hookSessions(p.cfg.Hooks, agents[0].Info.ID),
	}, dispatch.Deps{
		Store: p.store, Commands: table, Needs: gateway.Needs(), Channels: p.channels, Metrics: p.metrics.Registry(), Logger: p.log,
	})
	if err != nil {
		return fmt.Errorf("making the dispatcher: %w", err)
	}
	return nil
}

// surroundings returns what this process provides to programs of agents.
func (p *Process) surroundings() surroundings {
	return surroundings{sessions: p.store, lookup: p.opts.LookupEnv, self: p.opts.Program, reaper: p.opts.Reaper, passed: func(a config.Agent) map[string]string {
		return p.cfg.Passed(a, p.opts.Environ)
	}}
}

// disks returns directories on the disks to which this process writes, keyed by their content.
func (p *Process) disks() map[string]string {
	disks := map[string]string{"data": p.cfg.Data}
	if !p.cfg.Database.IsPostgres() {
		disks["database"] = filepath.Dir(sqlitePath(p.cfg))
	}
	return disks
}

// freeSpace returns the free-space check for the disks to which this process writes.
func (p *Process) freeSpace() *diskspace.Floor {
	return diskspace.New(diskspace.Config{Dirs: slices.Collect(maps.Values(p.disks())), Bytes: int64(p.cfg.Limits.FreeSpace), Free: p.opts.FreeSpace, Logger: p.log})
}

// seesOwn reads the named tokens before work starts, so that work of an earlier process has the
// limits of its sender from the beginning.
func (p *Process) seesOwn(ctx context.Context) func(principal string) bool {
	p.tokens = &namedTokens{store: p.store}
	if _, err := p.tokens.Credentials(ctx); err != nil {
		p.log.WarnContext(ctx, "the named tokens were not read; trying again", "err", err)
	}
	return p.tokens.seesOwn
}

var errProcessEnds = errors.New("the process ends")

// Run runs the process until ctx is done or a part fails, then drains and closes it. It returns nil
// after a clean end.
func (p *Process) Run(ctx context.Context) error {
	if p.opts.Ready != nil {
		p.opts.Ready(p.addresses())
	}
	service, stopService := context.WithCancel(context.WithoutCancel(ctx))
	defer stopService()
	parts, partsCtx := errgroup.WithContext(service)
	parts.Go(func() error { return p.dispatch.Run(partsCtx) })
	stopChannels := p.startChannels(partsCtx) // before the gateway, so that its first client sees whether they run
	parts.Go(func() error { return p.gateway.Serve(partsCtx, p.main...) })
	if p.scrape != nil {
		parts.Go(func() error { return serveMetrics(partsCtx, p.scrape, p.metricsHandler(), p.log) })
	}
	parts.Go(func() error { p.probeAgents(partsCtx); return nil })
	parts.Go(func() error { p.external.Run(partsCtx); return nil })
	parts.Go(func() error { p.opts.Reaper.Run(partsCtx); return nil })
	intake, stopIntake := context.WithCancel(partsCtx)
	defer stopIntake()
	parts.Go(func() error { return p.dispatch.Jobs.Run(intake) })
	indexer := history.NewIndexer(history.IndexerConfig{Store: p.store, Lease: p.dispatch.Lease, Log: p.log})
	parts.Go(func() error { indexer.Run(intake); return nil })
	p.untilStop(ctx, partsCtx)
	_ = p.manager.tell(partsCtx, "STOPPING=1") // only `systemctl status` shows it
	p.delayStop(ctx, partsCtx)
	stopIntake()
	p.gateway.Drain()
	drained := p.drain(ctx) // channels keep running during the drain: answers continue, and /stop works
	stopChannels()
	p.dispatch.Leave(context.WithoutCancel(ctx))
	stopService()
	err := parts.Wait()
	return errors.Join(ignoreCancel(err), drained, p.cleanUp(context.WithoutCancel(ctx)))
}

// untilStop serves requests to reload and to restart until ctx is done or a part has failed.
func (p *Process) untilStop(ctx, parts context.Context) {
	for {
		select {
		case <-ctx.Done():
			p.log.InfoContext(ctx, "stopping", "cause", context.Cause(ctx))
			return
		case <-parts.Done():
			p.log.ErrorContext(ctx, "a part of the gateway failed; stopping", "err", context.Cause(parts))
			return
		case <-p.opts.Reload:
			p.reload(ctx)
		case <-p.opts.Restart:
			p.reload(ctx)
			p.log.InfoContext(ctx, "restarting the scheduler in place")
			if err := p.dispatch.Restart(ctx); err != nil {
				p.log.ErrorContext(ctx, "restarting the scheduler", "err", err)
			}
		}
	}
}

// delayStop keeps serving for the shutdown delay while /readyz fails. The second signal or a failed
// part ends it.
func (p *Process) delayStop(ctx, parts context.Context) {
	delay := time.Duration(p.cfg.ShutdownDelay)
	if delay == 0 || parts.Err() != nil {
		return
	}
	p.gateway.StopReady()
	p.log.InfoContext(ctx, "no longer ready; still serving before the drain", "delay", delay.String())
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.opts.Hurry:
	case <-parts.Done():
	}
}

// drain lets turns finish for the drain timeout, or until the second signal. Turns that do not
// return after that are logged and abandoned, because the process ends.
func (p *Process) drain(ctx context.Context) error {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(p.cfg.DrainTimeout-p.cfg.ShutdownDelay))
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	if p.opts.Hurry != nil {
		go func() { // ends with this function
			select {
			case <-p.opts.Hurry:
				p.log.WarnContext(ctx, "second signal: running turns are interrupted now")
				cancel()
			case <-stop:
			}
		}()
	}
	p.log.InfoContext(ctx, "draining", "timeout", time.Duration(p.cfg.DrainTimeout).String())
	err := p.dispatch.Drain(limit)
	if errors.Is(err, scheduler.ErrTurnsLeft) {
		p.log.WarnContext(ctx, "turns did not return; their messages run again in the next process", "err", err)
		return nil
	}
	return err
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// reload reads the configuration again and applies what can change in a running process: lanes and
// queues. It logs the names of other changed settings, which keep their values. An invalid
// configuration changes nothing.
func (p *Process) reload(ctx context.Context) {
	loaded, err := p.opts.Reread()
	if err != nil {
		p.log.ErrorContext(ctx, "the configuration was read again and is not used: it has faults", "err", err)
		return
	}
	next := loaded.Config
	if err := p.dispatch.Reconfigure(lanesOf(next), queueOf(next)); err != nil {
		p.log.ErrorContext(ctx, "the new lanes are not used", "err", err)
		return
	}
	fixed, changed := fixedChanges(p.cfg, loaded), append(settingChanges("lanes", p.cfg.Lanes, next.Lanes), settingChanges("queue", p.cfg.Queue, next.Queue)...)
	p.auditReload(ctx, reloadable(p.cfg), reloadable(next))
	p.cfg.Lanes, p.cfg.Queue = next.Lanes, next.Queue
	p.log.InfoContext(ctx, "the configuration was read again", "changed", changed, "needs_restart", fixed)
}

// settingChanges lists the settings of a group that differ, each with its values.
func settingChanges[T any](group string, old, next T) []string {
	names := []string{}
	a, b := reflect.ValueOf(old), reflect.ValueOf(next)
	for i := range a.NumField() {
		if before, after := a.Field(i).Interface(), b.Field(i).Interface(); before != after {
			names = append(names, fmt.Sprintf("%s.%s: %v → %v", group, a.Type().Field(i).Tag.Get("yaml"), before, after))
		}
	}
	return names
}

// verbReload is the verb of a reload in the audit log.
const verbReload = "config.reload"

// reloadable returns the settings that a reload can change, as text without secrets.
func reloadable(cfg config.Config) string {
	text, err := json.Marshal([]any{cfg.Lanes, cfg.Queue})
	if err != nil {
		return "" // numbers and strings cannot fail; on an error nothing is recorded
	}
	return string(text)
}

// auditReload records a reload that changes something. The reload is applied even when the record
// fails.
func (p *Process) auditReload(ctx context.Context, before, after string) {
	if before == after {
		return
	}
	row := chat.Audit{Who: "host", Verb: verbReload, Object: "lanes and queue"}
	if err := p.store.Audit(ctx, *row.Between(before, after)); err != nil {
		p.log.WarnContext(ctx, "the reload is not in the audit log", "err", err)
	}
}

// fixedChanges names the settings that differ and need a new process. Callers' secrets from files
// are not among them, because they are always reread.
func fixedChanges(old config.Config, next *config.Loaded) []string {
	names := []string{}
	a, b := reflect.ValueOf(old), reflect.ValueOf(next.Config)
	for i := range a.NumField() {
		f := a.Type().Field(i)
		key := f.Tag.Get("yaml")
		if key == "lanes" || key == "queue" || next.Rereads(key) || reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			continue
		}
		names = append(names, key)
	}
	return names
}
