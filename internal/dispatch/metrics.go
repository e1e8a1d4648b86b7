package dispatch

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/metrics"
	"laneway/internal/scheduler"
)

// counters are the metrics of messages and turns.
type counters struct {
	messages, drops, ends, turns, tokenCount, fences, refusals, commands *prometheus.CounterVec
	turnTime, waits, storeTime                                           *prometheus.HistogramVec
}

func newCounters(r prometheus.Registerer, lanes []scheduler.Lane, channels []string, table *command.Table) *counters {
	in := metrics.In(r)
	c := &counters{
		messages:   in.Counters("messages_accepted_total", "Messages saved, by channel; a duplicate was saved before.", "channel", "duplicate"),
		drops:      in.Counters("queue_dropped_total", "Messages that a full queue dropped (old) or refused (new).", "policy"),
		ends:       in.Counters("messages_ended_total", "Messages by outcome and reason.", "lane", "outcome", "reason"),
		turns:      in.Counters("runs_total", "Turns by outcome.", "lane", "outcome"),
		turnTime:   in.Histograms("run_duration_seconds", "Time from the start of a turn to its end.", metrics.RunBuckets(), "lane"),
		waits:      in.Histograms("run_wait_seconds", "Time from the acceptance of a message to the start of its turn.", metrics.WaitBuckets(), "lane"),
		tokenCount: in.Counters("tokens_total", "Tokens of ended turns by lane, cached ones included. Use laneway_model_tokens_total for all else; don't add the two.", "lane", "direction"),
		storeTime:  in.Histograms("store_operation_seconds", "Time that the store takes for the three operations of a turn.", metrics.WaitBuckets(), "operation"),
		refusals:   in.Counters("scheduler_refused_total", "Messages that the scheduler refused.", "reason"),
		fences:     in.Counters("fenced_writes_total", "Writes refused because another process owned the session.", "operation"),
		commands:   in.Counters("commands_total", "Chat commands executed.", "command", "ok"),
	}
	c.begin(lanes, channels, table)
	return c
}

// begin creates the series of known labels at zero.
func (c *counters) begin(lanes []scheduler.Lane, channels []string, table *command.Table) {
	for _, why := range []string{refusedStale, refusedDraining} {
		c.refusals.WithLabelValues(why)
	}
	for _, operation := range []string{"start", "finish"} {
		c.fences.WithLabelValues(operation)
	}
	for _, operation := range []string{"accept", "start", "finish"} {
		c.storeTime.WithLabelValues(operation)
	}
	for _, policy := range []chat.DropPolicy{chat.DropOld, chat.DropNew} {
		c.drops.WithLabelValues(string(policy))
	}
	for _, l := range lanes {
		lane := l.Name
		c.turnTime.WithLabelValues(lane)
		c.waits.WithLabelValues(lane)
		for _, outcome := range []chat.Outcome{chat.OutcomeAnswered, chat.OutcomeFailed, chat.OutcomeStopped, chat.OutcomeDead} {
			c.turns.WithLabelValues(lane, string(outcome))
			c.ends.WithLabelValues(lane, string(outcome), "")
		}
		c.tokens(lane, 0, 0)
	}
	for _, name := range channels {
		for _, duplicate := range []string{"true", "false"} {
			c.messages.WithLabelValues(chat.ChannelKind(name), duplicate)
		}
	}
	for _, entry := range table.Infos() {
		for _, ok := range []string{"true", "false"} {
			c.commands.WithLabelValues(entry.Name, ok)
		}
	}
}

func (c *counters) accepted(channel string, duplicate bool) {
	c.messages.WithLabelValues(channel, strconv.FormatBool(duplicate)).Inc()
}

// dropped: a full queue removed a message (old) or refused it (new).
func (c *counters) dropped(policy chat.DropPolicy) { c.drops.WithLabelValues(string(policy)).Inc() }

// ended: a message has its outcome.
func (c *counters) ended(lane string, outcome chat.Outcome, reason string) {
	c.ends.WithLabelValues(lane, string(outcome), reason).Inc()
}

// turnEnded: a turn has returned after took; waited is the time from acceptance to start.
func (c *counters) turnEnded(lane string, outcome chat.Outcome, took, waited time.Duration) {
	c.turns.WithLabelValues(lane, string(outcome)).Inc()
	c.turnTime.WithLabelValues(lane).Observe(took.Seconds())
	c.waits.WithLabelValues(lane).Observe(max(0, waited.Seconds()))
}

// tokens counts what the model of a turn read and wrote, as reported by its runner.
func (c *counters) tokens(lane string, input, output int) {
	c.tokenCount.WithLabelValues(lane, "input").Add(float64(max(0, input)))
	c.tokenCount.WithLabelValues(lane, "output").Add(float64(max(0, output)))
}

// stored: an operation of the store ended after took, with or without an error.
func (c *counters) stored(operation string, took time.Duration) {
	c.storeTime.WithLabelValues(operation).Observe(took.Seconds())
}

// Why a message got no turn in this process: a stop covered it, or the process drains.
const (
	refusedStale    = "stale"
	refusedDraining = "draining"
)

func (c *counters) refused(why string) { c.refusals.WithLabelValues(why).Inc() }

// fenced: a write was refused because the claim was lost.
func (c *counters) fenced(operation string) { c.fences.WithLabelValues(operation).Inc() }

func (c *counters) commandRun(name string, ok bool) {
	c.commands.WithLabelValues(name, strconv.FormatBool(ok)).Inc()
}

// newLaneCounters makes the observer of the scheduler; [counters] count the ends of turns.
func newLaneCounters(r prometheus.Registerer, lanes []scheduler.Lane) scheduler.Observer {
	in := metrics.In(r)
	o := schedulerObserver{
		stuck:   in.Counters("runs_stuck_total", "Stopped turns that did not return within the grace.", "lane"),
		unknown: in.Counter("lane_unknown_total", "Messages that named an unknown lane; they ran in main."),
	}
	for _, l := range lanes {
		o.stuck.WithLabelValues(l.Name)
	}
	return o
}

type schedulerObserver struct {
	stuck   *prometheus.CounterVec
	unknown prometheus.Counter
}

func (o schedulerObserver) TurnStuck(lane string) { o.stuck.WithLabelValues(lane).Inc() }
func (o schedulerObserver) LaneUnknown()          { o.unknown.Inc() }

// registerGauges adds what is read from the state at each scrape, without the database.
func (h *health) registerGauges(r prometheus.Registerer) {
	if r == nil {
		return
	}
	r.MustRegister(&laneCollector{source: h.Lanes, descs: laneDescs()}, &channelCollector{h.Channels})
	in := metrics.In(r)
	in.Read("outbox_waiting", "Outgoing messages that wait to be sent.", func() float64 { return float64(h.figures.current().OutboxWaiting) })
	in.Read("taken_long", "Rows that a gateway has taken for longer than is possible.", func() float64 { return float64(h.figures.current().TakenLong) })
	in.Read("cron_jobs", "Jobs that users have created.", func() float64 { return float64(h.figures.current().Cron.Jobs) })
	in.Read("cron_paused", "Jobs that are paused.", func() float64 { return float64(h.figures.current().Cron.Paused) })
	in.Read("cron_running", "Runs of jobs in progress.", func() float64 { return float64(h.figures.current().Cron.Running) })
	in.Read("cron_backlog", "Runs that are due and have not started.", func() float64 { return float64(h.figures.current().Cron.Backlog) })
	in.Read("cron_oldest_due_seconds", "How long the oldest due run has waited; 0 = none.", func() float64 { return max(0, h.figures.current().Cron.OldestDue.Seconds()) })
	in.Read("db_up", "1 when the last check found the database usable.", func() float64 {
		if h.Alive() == nil {
			return 1
		}
		return 0
	})
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
		yielded:  d("lane_yielded", "Turns without a slot: they wait for sub-agents, or summarize a conversation.", "lane"),
		oldest:   d("lane_oldest_wait_seconds", "How long the first ready session has waited.", "lane"),
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
