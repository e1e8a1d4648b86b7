package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// Source provides the gauges for each scrape. Every function must return at once, without the database.
type Source struct {
	Lanes func() chat.LanesStatus
	// Channels returns the channels that this process runs; may be nil.
	Channels func() []chat.ChannelStatus
	// Outbox returns how many messages wait to be sent and Cron counts jobs and runs, both as last read; DatabaseUp reports whether the last
	// check reached the database.
	Outbox     func() int
	TakenLong  func() int
	Cron       func() cron.Summary
	DatabaseUp func() bool
	// DiskFree returns how many bytes are free on the disks of this process, by their content (data, database); nil if unknown.
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
