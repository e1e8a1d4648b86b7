// Package metrics has the Prometheus registry of a process, and implements the Observer of each
// package.
//
// Labels come from closed sets (lane, outcome, reason, channel, …) and never hold a session, a
// user, a job or a chat: the number of series does not depend on the use of the gateway. Gauges of
// state (lanes, connections, outbox) are read from the state at each scrape, through [Source];
// nothing is counted twice.
//
// The package starts no goroutine. Its observers only add to counters and never block.
package metrics

import (
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/dispatch"
	"laneway/internal/gateway"
	"laneway/internal/gateway/socket"
	"laneway/internal/ownership"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/usage"
)

// Metrics has the registry and the observers.
type Metrics struct {
	registry *prometheus.Registry

	accepted                       *prometheus.CounterVec
	dropped                        *prometheus.CounterVec
	outcomes                       *prometheus.CounterVec
	runs                           *prometheus.CounterVec
	runTime                        *prometheus.HistogramVec
	waited                         *prometheus.HistogramVec
	fenced                         *prometheus.CounterVec
	sent                           *prometheus.CounterVec
	commands                       *prometheus.CounterVec
	leaseLost                      prometheus.Counter
	takenOver                      prometheus.Counter
	rolledBack                     *prometheus.CounterVec
	refused                        *prometheus.CounterVec
	stuck                          *prometheus.CounterVec
	unknown                        prometheus.Counter
	rpc                            *prometheus.CounterVec
	slowClosed                     prometheus.Counter
	closed                         *prometheus.CounterVec
	authFailed                     *prometheus.CounterVec
	telegramCalls, telegramUpdates *prometheus.CounterVec
	tokens                         *prometheus.CounterVec
	http                           *prometheus.CounterVec
	httpTime, stored               *prometheus.HistogramVec

	conns   prometheus.Gauge
	rpcTime prometheus.Histogram
}

// runBuckets range from a fast local answer to the longest allowed turn.
func runBuckets() []float64 {
	return []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 120, 300, 600, 1800, 3600}
}

func waitBuckets() []float64 {
	return []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600}
}

// New makes a registry with the metrics of laneway, of the Go runtime and of the process.
func New(version, commit string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.accepted = m.counters("messages_accepted_total", "Messages made durable, by channel; duplicates are offers of a message that existed.", "channel", "duplicate")
	m.dropped = m.counters("queue_dropped_total", "Messages that a full queue cost their place (old) or that it refused (new).", "policy")
	m.outcomes = m.counters("messages_ended_total", "Messages by outcome and reason.", "lane", "outcome", "reason")
	m.runs = m.counters("runs_total", "Turns by outcome.", "lane", "outcome")
	m.runTime = m.histograms("run_duration_seconds", "Time from the start of a turn to its end.", runBuckets(), "lane")
	m.waited = m.histograms("run_wait_seconds", "Time from the acceptance of a message to the start of its turn.", waitBuckets(), "lane")
	m.fenced = m.counters("fenced_writes_total", "Writes refused because another process owned the session.", "operation")
	m.sent = m.counters("outbox_sends_total", "Attempts to send, by result.", "channel", "kind", "result")
	m.commands = m.counters("commands_total", "Chat commands executed.", "command", "ok")
	m.refused = m.counters("scheduler_refused_total", "Messages that the scheduler refused.", "reason")
	m.stuck = m.counters("runs_stuck_total", "Stopped turns that did not return within the grace.", "lane")
	m.rpc = m.counters("rpc_requests_total", "Requests by method and result code.", "method", "code")
	m.closed = m.counters("ws_closed_total", "WebSocket connections that ended, by reason.", "reason")
	m.authFailed = m.counters("auth_failures_total", "Refused credentials.", "reason")
	m.telegramCalls = m.counters("telegram_calls_total", "Calls of the Telegram Bot API, by method and result.", "method", "result")
	m.telegramUpdates = m.counters("telegram_updates_total", "Updates from Telegram, by what became of them.", "result")
	m.tokens = m.counters("tokens_total", "Tokens of turns that ended, by lane; input includes cached ones. laneway_model_tokens_total supersedes it for everything but lanes. Do not add the two.", "lane", "direction")
	m.http = m.counters("http_requests_total", "HTTP requests but sockets, by route and status.", "route", "code")
	m.httpTime = m.histograms("http_duration_seconds", "Time from an HTTP request to the end of its answer.", runBuckets(), "route")
	m.stored = m.histograms("store_operation_seconds", "Time that the store takes for the three operations of a turn.", waitBuckets(), "operation")
	m.leaseLost = m.counter("lease_lost_total", "Times this process was declared dead or could not reach the database in time.")
	m.takenOver = m.counter("sessions_taken_over_total", "Sessions taken over from a process that was gone.")
	m.rolledBack = m.counters("database_rollbacks_total", "Times the database was found to have lost commits, by what showed it.", "reason")
	m.conns = prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "laneway", Name: "ws_connections", Help: "Open WebSocket connections."})
	m.rpcTime = prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "laneway", Name: "rpc_duration_seconds", Help: "Time from a request to its answer.", Buckets: waitBuckets()})
	m.registry.MustRegister(m.conns, m.rpcTime)
	m.unknown = m.counter("lane_unknown_total", "Messages that named a lane which does not exist; they ran in main.")
	m.slowClosed = m.counter("ws_slow_closed_total", "Connections closed because the client read too slowly.")
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "laneway", Name: "build_info", Help: "Always 1; the labels say what runs."}, []string{"version", "commit", "go"})
	build.WithLabelValues(version, commit, runtime.Version()).Set(1)
	m.registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.begin()
	return m
}

// begin creates the series of alerts at zero: the rate of a series that begins with its first event
// shows no increase.
func (m *Metrics) begin() {
	for _, operation := range []string{"start", "finish"} {
		m.fenced.WithLabelValues(operation)
	}
	for _, operation := range []string{"accept", "start", "finish"} {
		m.stored.WithLabelValues(operation)
	}
	for _, policy := range []chat.DropPolicy{chat.DropOld, chat.DropNew} {
		m.dropped.WithLabelValues(string(policy))
	}
	for _, lane := range []string{scheduler.LaneMain, scheduler.LaneSubagent, scheduler.LaneTeam, scheduler.LaneCron} {
		m.stuck.WithLabelValues(lane)
		m.runTime.WithLabelValues(lane)
		m.waited.WithLabelValues(lane)
		for _, outcome := range []chat.Outcome{chat.OutcomeAnswered, chat.OutcomeFailed, chat.OutcomeStopped, chat.OutcomeDead} {
			m.runs.WithLabelValues(lane, string(outcome))
			m.outcomes.WithLabelValues(lane, string(outcome), "")
		}
		m.tokens.WithLabelValues(lane, tokensIn)
		m.tokens.WithLabelValues(lane, tokensOut)
	}
	for _, why := range scheduler.Refusals() {
		m.refused.WithLabelValues(string(why))
	}
	for _, reason := range []string{"mismatch", "missing", "locked", "hook"} {
		m.authFailed.WithLabelValues(reason)
	}
	for _, sign := range ownership.RollbackSigns() {
		m.rolledBack.WithLabelValues(string(sign))
	}
	for _, reason := range socket.CloseReasons() {
		m.closed.WithLabelValues(string(reason))
	}
}

// The directions of tokens.
const (
	tokensIn  = "input"
	tokensOut = "output"
)

// Known are the labels that are known when the process is wired.
type Known struct {
	// Channels are the kinds of channels, Commands the chat commands, and Methods the RPC methods.
	Channels, Commands, Methods []string
}

// Begin creates the series of known labels at zero; call it once. It omits the series of failures,
// whose labels name the failure.
func (m *Metrics) Begin(k Known) {
	for _, channel := range k.Channels {
		m.accepted.WithLabelValues(channel, yes(false))
		m.accepted.WithLabelValues(channel, yes(true))
		for _, result := range []string{"delivered", "retry", "failed", "expired", "resent", "gone"} {
			m.sent.WithLabelValues(channel, store.KindReply, result)
		}
	}
	for _, command := range k.Commands {
		m.commands.WithLabelValues(command, yes(true))
		m.commands.WithLabelValues(command, yes(false))
	}
	for _, method := range k.Methods {
		m.rpc.WithLabelValues(method, "ok")
	}
	if slices.Contains(k.Channels, "telegram") {
		for _, result := range []string{"accepted", "command", "duplicate", "ignored", "limited", "parked", "refused"} {
			m.telegramUpdates.WithLabelValues(result)
		}
	}
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "laneway", Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "laneway", Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "laneway", Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	return h
}

// Handler returns a handler that serves the text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2, Timeout: 10 * time.Second})
}

// Dispatch returns the observer of package dispatch.
func (m *Metrics) Dispatch() dispatch.Observer { return dispatchObserver{m} }

// Scheduler returns the observer of package scheduler.
func (m *Metrics) Scheduler() scheduler.Observer { return schedulerObserver{m: m} }

type dispatchObserver struct{ m *Metrics }

func (o dispatchObserver) Accepted(channel string, duplicate bool) {
	o.m.accepted.WithLabelValues(channel, yes(duplicate)).Inc()
}
func (o dispatchObserver) Dropped(policy string) { o.m.dropped.WithLabelValues(policy).Inc() }

func (o dispatchObserver) Ended(lane string, outcome chat.Outcome, reason string) {
	o.m.outcomes.WithLabelValues(lane, string(outcome), reason).Inc()
}

func (o dispatchObserver) TurnEnded(lane string, outcome chat.Outcome, d, waited time.Duration) {
	o.m.runs.WithLabelValues(lane, string(outcome)).Inc()
	o.m.runTime.WithLabelValues(lane).Observe(d.Seconds())
	o.m.waited.WithLabelValues(lane).Observe(max(0, waited.Seconds()))
}

func (o dispatchObserver) Tokens(lane string, input, output int) {
	o.m.tokens.WithLabelValues(lane, tokensIn).Add(float64(max(0, input)))
	o.m.tokens.WithLabelValues(lane, tokensOut).Add(float64(max(0, output)))
}

func (o dispatchObserver) Stored(operation string, took time.Duration) {
	o.m.stored.WithLabelValues(operation).Observe(took.Seconds())
}
func (o dispatchObserver) Fenced(operation string) { o.m.fenced.WithLabelValues(operation).Inc() }

func (o dispatchObserver) Sent(channel, kind, result string) {
	o.m.sent.WithLabelValues(channel, kind, result).Inc()
}

func (o dispatchObserver) CommandRun(name string, ok bool) {
	o.m.commands.WithLabelValues(name, yes(ok)).Inc()
}
func (o dispatchObserver) LeaseLost()      { o.m.leaseLost.Inc() }
func (o dispatchObserver) TakenOver(n int) { o.m.takenOver.Add(float64(n)) }
func (o dispatchObserver) RolledBack(sign ownership.RollbackSign) {
	o.m.rolledBack.WithLabelValues(string(sign)).Inc()
}

func yes(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// schedulerObserver counts what dispatch does not see; dispatch counts the ends of turns.
type schedulerObserver struct {
	scheduler.NopObserver
	m *Metrics
}

func (o schedulerObserver) MessageRefused(why scheduler.Refusal) {
	o.m.refused.WithLabelValues(string(why)).Inc()
}
func (o schedulerObserver) TurnStuck(lane string) { o.m.stuck.WithLabelValues(lane).Inc() }
func (o schedulerObserver) LaneUnknown()          { o.m.unknown.Inc() }

// Gateway returns the observer of package gateway.
func (m *Metrics) Gateway() gateway.Observer { return gatewayObserver{m} }

type gatewayObserver struct{ m *Metrics }

func (o gatewayObserver) ConnOpened() { o.m.conns.Inc() }

func (o gatewayObserver) ConnClosed(reason socket.CloseReason) {
	o.m.conns.Dec()
	o.m.closed.WithLabelValues(string(reason)).Inc()
	if reason == socket.ClosedSlow {
		o.m.slowClosed.Inc()
	}
}

func (o gatewayObserver) Request(method, result string, took time.Duration) {
	o.m.rpc.WithLabelValues(method, result).Inc()
	o.m.rpcTime.Observe(took.Seconds())
}

func (o gatewayObserver) HTTPRequest(route string, status int, took time.Duration) {
	o.m.http.WithLabelValues(route, strconv.Itoa(status)).Inc()
	o.m.httpTime.WithLabelValues(route).Observe(took.Seconds())
}

func (o gatewayObserver) AuthFailed(reason string) { o.m.authFailed.WithLabelValues(reason).Inc() }

// Source provides the gauges for each scrape. Every function must return at once, without the
// database.
type Source struct {
	Lanes func() chat.LanesStatus
	// Channels returns the channels that this process runs; may be nil.
	Channels func() []chat.ChannelStatus
	// Outbox returns how many messages wait to be sent and Cron counts jobs and runs, both as last
	// read; DatabaseUp reports whether the last check reached the database.
	Outbox     func() int
	TakenLong  func() int
	Cron       func() cron.Summary
	DatabaseUp func() bool
	// DiskFree returns how many bytes are free on the disks of this process, by their content
	// (data, database); nil if unknown.
	DiskFree func() map[string]uint64
}

// Watch adds the gauges of a source; call it once.
func (m *Metrics) Watch(s Source) {
	m.registry.MustRegister(&laneCollector{source: s.Lanes, descs: laneDescs()})
	if s.Channels != nil {
		m.registry.MustRegister(&channelCollector{s.Channels})
	}
	if s.DiskFree != nil {
		m.registry.MustRegister(diskCollector{s.DiskFree})
	}
	m.gauge("outbox_waiting", "Outgoing messages that wait to be sent.", func() float64 { return float64(s.Outbox()) })
	m.gauge("taken_long", "Rows that a gateway has taken for longer than is possible.", func() float64 { return float64(s.TakenLong()) })
	m.gauge("cron_jobs", "Jobs of people.", func() float64 { return float64(s.Cron().Jobs) })
	m.gauge("cron_paused", "Jobs that are paused.", func() float64 { return float64(s.Cron().Paused) })
	m.gauge("cron_running", "Runs of jobs that are under way.", func() float64 { return float64(s.Cron().Running) })
	m.gauge("cron_backlog", "Fires that are due and have not started.", func() float64 { return float64(s.Cron().Backlog) })
	m.gauge("cron_oldest_due_seconds", "How long the oldest due fire waits; 0 = none.", func() float64 { return max(0, s.Cron().OldestDue.Seconds()) })
	m.gauge("db_up", "1 when the last check found the database usable.", func() float64 {
		if s.DatabaseUp() {
			return 1
		}
		return 0
	})
}

func (m *Metrics) gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "laneway", Name: name, Help: help}, read))
}

type laneGauges struct{ capacity, active, waiting, stopping, yielded, oldest, sessions *prometheus.Desc }

func laneDescs() laneGauges {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("laneway_"+name, help, labels, nil)
	}
	return laneGauges{
		capacity: d("lane_capacity", "Slots of the lane.", "lane"),
		active:   d("lane_active", "Turns that hold a slot.", "lane"),
		waiting:  d("lane_waiting", "Sessions that are ready and have no slot.", "lane"),
		stopping: d("lane_stopping", "Turns that were stopped and have not returned.", "lane"),
		yielded:  d("lane_yielded", "Turns without a slot: they wait for sub-turns, or summarise a conversation.", "lane"),
		oldest:   d("lane_oldest_wait_seconds", "How long the first of the ready sessions waits.", "lane"),
		sessions: d("sessions", "Sessions that this process tracks, by state.", "state"),
	}
}

type laneCollector struct {
	source func() chat.LanesStatus
	descs  laneGauges
}

// Describe implements prometheus.Collector.
func (c *laneCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *laneCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.source()
	put := func(d *prometheus.Desc, v float64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, label)
	}
	for _, l := range s.Lanes {
		put(c.descs.capacity, float64(l.Capacity), l.Name)
		put(c.descs.active, float64(l.Active), l.Name)
		put(c.descs.waiting, float64(l.Waiting), l.Name)
		put(c.descs.stopping, float64(l.Stopping), l.Name)
		put(c.descs.yielded, float64(l.Yielded), l.Name)
		put(c.descs.oldest, l.OldestWait.Seconds(), l.Name)
	}
	put(c.descs.sessions, float64(s.Tracked), "tracked")
	put(c.descs.sessions, float64(s.Running), "running")
	put(c.descs.sessions, float64(s.Waiting), "waiting")
	put(c.descs.sessions, float64(s.Debounced), "debouncing")
}

// Telegram returns the observer of the Telegram channel.
func (m *Metrics) Telegram() TelegramObserver { return TelegramObserver{m} }

// TelegramObserver counts calls and updates of the Bot API.
type TelegramObserver struct{ m *Metrics }

// Call counts one call; method and result are from closed sets.
func (o TelegramObserver) Call(method, result string) {
	o.m.telegramCalls.WithLabelValues(method, result).Inc()
}

// Update counts one update by its result.
func (o TelegramObserver) Update(result string) { o.m.telegramUpdates.WithLabelValues(result).Inc() }

// channelCollector reads the status of the channels. The account is a name from the configuration.
type channelCollector struct {
	source func() []chat.ChannelStatus
}

// Describe implements prometheus.Collector: the series depend on the configuration.
func (*channelCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *channelCollector) Collect(ch chan<- prometheus.Metric) {
	labels := []string{"channel", "account"}
	connected := prometheus.NewDesc("laneway_channel_connected", "1 while the channel works.", labels, nil)
	age := prometheus.NewDesc("laneway_channel_last_poll_age_seconds", "How long ago the provider last answered a poll; absent before the first.", labels, nil)
	for _, s := range c.source() {
		up := 0.0
		if s.Connected {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(connected, prometheus.GaugeValue, up, s.ID, s.AccountID)
		if s.LastPollAge >= 0 {
			ch <- prometheus.MustNewConstMetric(age, prometheus.GaugeValue, s.LastPollAge.Seconds(), s.ID, s.AccountID)
		}
	}
}

// Cron makes the observer of the cron loop; call it once.
func (m *Metrics) Cron() cron.RunnerObserver {
	o := cronObserver{
		late:     prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "laneway", Name: "cron_start_lag_seconds", Help: "Time from the planned moment of a fire to its launch.", Buckets: waitBuckets()}),
		claim:    prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "laneway", Name: "cron_tick_seconds", Help: "Time that one look at what is due takes.", Buckets: waitBuckets()}),
		recorded: m.counters("cron_slots_not_run_total", "Slots that were recorded without a run.", "state", "reason"),
		ended:    m.counters("cron_runs_total", "Runs of jobs that ended, by how.", "trigger", "outcome"),
		failed:   m.counter("cron_tick_failures_total", "Looks at what is due that failed."),
	}
	m.registry.MustRegister(o.late, o.claim)
	for _, trigger := range []cron.Trigger{cron.TriggerSchedule, cron.TriggerManual, cron.TriggerCatchup, cron.TriggerBackfill} {
		for _, state := range []cron.RunState{cron.RunOK, cron.RunError, cron.RunCancelled, cron.RunInterrupted} {
			o.ended.WithLabelValues(string(trigger), string(state))
		}
	}
	for state, reasons := range map[cron.RunState][]cron.Reason{
		cron.RunSkipped: {cron.ReasonOverlap, cron.ReasonBudget, cron.ReasonPaused, cron.ReasonBufferFull},
		cron.RunMissed:  {cron.ReasonWindow, cron.ReasonPolicy, cron.ReasonMaxCatchup, cron.ReasonNoAgent},
	} {
		for _, reason := range reasons {
			o.recorded.WithLabelValues(string(state), string(reason))
		}
	}
	return o
}

type cronObserver struct {
	late, claim prometheus.Histogram
	recorded    *prometheus.CounterVec
	ended       *prometheus.CounterVec
	failed      prometheus.Counter
}

// Ticked implements cron.RunnerObserver.
func (o cronObserver) Ticked(took time.Duration, _ int, ok bool) {
	o.claim.Observe(took.Seconds())
	if !ok {
		o.failed.Inc()
	}
}

// Fired implements cron.RunnerObserver.
func (o cronObserver) Fired(_ cron.Trigger, late time.Duration) { o.late.Observe(late.Seconds()) }

// Recorded implements cron.RunnerObserver.
func (o cronObserver) Recorded(state cron.RunState, reason cron.Reason, slots int64) {
	o.recorded.WithLabelValues(string(state), string(reason)).Add(float64(slots))
}

// Ended implements cron.RunnerObserver.
func (o cronObserver) Ended(trigger cron.Trigger, state cron.RunState) {
	o.ended.WithLabelValues(string(trigger.Kind()), string(state)).Inc()
}

// Usage makes the observer of package usage; call it once. models are the configured models by
// agent, whose series begin at zero.
func (m *Metrics) Usage(models map[string]string) usage.Observer {
	o := usageObserver{
		tokens:  m.counters("model_tokens_total", "Tokens of each request, by agent and model, also of turns that crash or are stopped. Input leaves out cached ones, which the provider had in its cache.", "agent", "model", "kind"),
		cost:    m.counters("model_cost_total", "Cost of tokens in the currency of the budgets, by agent and model.", "agent", "model"),
		refused: m.counters("budget_refusals_total", "Requests to models that a budget has prevented.", "budget"),
		dropped: m.counter("usage_records_dropped_total", "Records of usage that the store refuses for good. They are in the other metrics and in no counter."),
	}
	for _, kind := range []usage.Kind{usage.KindTurn, usage.KindJob, usage.KindPrincipal, usage.KindDay} {
		o.refused.WithLabelValues(string(kind))
	}
	for agent, model := range models {
		o.Used(agent, model, chat.Usage{}, 0)
	}
	return o
}

type usageObserver struct {
	tokens, cost, refused *prometheus.CounterVec
	dropped               prometheus.Counter
}

// Used implements usage.Observer.
func (o usageObserver) Used(agent, model string, used chat.Usage, cost usage.Money) {
	cached := min(used.CachedTokens, used.InputTokens)
	o.tokens.WithLabelValues(agent, model, "input").Add(float64(used.InputTokens - cached))
	o.tokens.WithLabelValues(agent, model, "cached").Add(float64(cached))
	o.tokens.WithLabelValues(agent, model, "output").Add(float64(used.OutputTokens))
	o.cost.WithLabelValues(agent, model).Add(cost.Float())
}

// Refused implements usage.Observer.
func (o usageObserver) Refused(kind usage.Kind) { o.refused.WithLabelValues(string(kind)).Inc() }

// Dropped implements usage.Observer.
func (o usageObserver) Dropped() { o.dropped.Inc() }

// diskCollector reads the free space of the disks at each scrape.
type diskCollector struct{ source func() map[string]uint64 }

// Describe implements prometheus.Collector: a disk whose free space cannot be read has no series.
func (diskCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c diskCollector) Collect(ch chan<- prometheus.Metric) {
	free := prometheus.NewDesc("laneway_disk_free_bytes", "Free space of the disk, by what lies on it.", []string{"disk"}, nil)
	for disk, bytes := range c.source() {
		ch <- prometheus.MustNewConstMetric(free, prometheus.GaugeValue, float64(bytes), disk)
	}
}
