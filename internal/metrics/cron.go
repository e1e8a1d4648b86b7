package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/cron"
)

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
