// Package metrics has the Prometheus registry of a process, and what parts need to register their
// metrics in it. The scheduler and the loop of cron know the standard library only: the packages
// that run them implement their Observers.
//
// Labels come from closed sets (lane, outcome, reason, channel, …) and never hold a session, a
// user, a job or a chat: the number of series does not depend on the use of the gateway. A series
// that an alert reads is created at zero, because the rate of a series that begins with its first
// event shows no increase. Gauges of state (lanes, connections, outbox) are read from the state at
// each scrape; nothing is counted twice.
//
// The package starts no goroutine. Counting never blocks.
package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics has the registry.
type Metrics struct {
	registry *prometheus.Registry
}

// RunBuckets range from a fast local answer to the longest allowed turn, in seconds.
func RunBuckets() []float64 {
	return []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 120, 300, 600, 1800, 3600}
}

// WaitBuckets range from a lookup in memory to the longest wait for a turn, in seconds.
func WaitBuckets() []float64 {
	return []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600}
}

// New makes a registry with the metrics of laneway, of the Go runtime and of the process.
func New(version, commit string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "laneway", Name: "build_info", Help: "Always 1; the labels say what runs."}, []string{"version", "commit", "go"})
	build.WithLabelValues(version, commit, runtime.Version()).Set(1)
	m.registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Registry is where the parts of the process register their metrics.
func (m *Metrics) Registry() prometheus.Registerer { return m.registry }

// Maker creates metrics of laneway and registers them. Its methods panic when a name is taken.
type Maker struct{ factory promauto.Factory }

// In returns a maker; nil creates metrics that nobody reads.
func In(r prometheus.Registerer) Maker { return Maker{promauto.With(r)} }

// Counters creates a metric with the name laneway_NAME, as the other methods do.
func (m Maker) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return m.factory.NewCounterVec(prometheus.CounterOpts{Namespace: "laneway", Name: name, Help: help}, labels)
}

// Counter is described at [Maker.Counters].
func (m Maker) Counter(name, help string) prometheus.Counter {
	return m.factory.NewCounter(prometheus.CounterOpts{Namespace: "laneway", Name: name, Help: help})
}

// Histograms is described at [Maker.Counters].
func (m Maker) Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return m.factory.NewHistogramVec(prometheus.HistogramOpts{Namespace: "laneway", Name: name, Help: help, Buckets: buckets}, labels)
}

// Histogram is described at [Maker.Counters].
func (m Maker) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return m.factory.NewHistogram(prometheus.HistogramOpts{Namespace: "laneway", Name: name, Help: help, Buckets: buckets})
}

// Gauge is described at [Maker.Counters].
func (m Maker) Gauge(name, help string) prometheus.Gauge {
	return m.factory.NewGauge(prometheus.GaugeOpts{Namespace: "laneway", Name: name, Help: help})
}

// Handler returns a handler that serves the text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2, Timeout: 10 * time.Second})
}

// Read creates a gauge that is read at each scrape; read must return at once.
func (m Maker) Read(name, help string, read func() float64) {
	m.factory.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "laneway", Name: name, Help: help}, read)
}
