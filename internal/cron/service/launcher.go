package service

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// launcher receives the claims of the loop; it implements [cron.Launcher].
type launcher struct {
	*parts

	delivery *Delivery
	budgets  dailyAlerts
}

var _ cron.Launcher = (*launcher)(nil)

// Launch submits a claimed run to its lane.
func (l *launcher) Launch(ctx context.Context, run cron.Launched) { l.turns.Launch(ctx, run) }

// Claimed stops the runs that are replaced by claimed ones, and sends alerts about skipped slots.
func (l *launcher) Claimed(ctx context.Context, c cron.Claimed) {
	for _, run := range c.Cancelled {
		l.turns.Stop(run, store.StopCause(string(cron.ReasonReplaced), cron.Channel))
	}
	byID := map[string]cron.Job{}
	for _, j := range c.Jobs {
		byID[j.ID] = j
	}
	skipped := map[string][]cron.Run{}
	for _, r := range c.Recorded {
		if r.State == cron.RunSkipped && (r.Reason == cron.ReasonOverlap || r.Reason == cron.ReasonBudget || r.Reason == cron.ReasonBufferFull) {
			skipped[r.JobID] = append(skipped[r.JobID], r)
		}
	}
	for id, runs := range skipped {
		if kind := l.skipAlert(byID[id], runs); kind != cron.AlertNone { // the loop does not wait for the alert
			l.background(func() { l.delivery.alert(context.WithoutCancel(ctx), byID[id], runs[len(runs)-1], kind) })
		}
	}
}

// skipAlert is the alert about the slots of a job that were just skipped.
func (l *launcher) skipAlert(job cron.Job, runs []cron.Run) cron.AlertKind {
	byBudget := slices.ContainsFunc(runs, func(r cron.Run) bool { return r.Reason == cron.ReasonBudget && r.Error == "" }) // others have their own notice
	switch {
	case byBudget && !job.Alert.Off && l.budgets.first(job.Owner, time.Now()):
		return cron.AlertBudget
	case job.Skipping(len(runs)):
		return cron.AlertSkipping
	default:
		return cron.AlertNone
	}
}

// dailyAlerts records who got an alert of one kind: one a day. For used-up daily runs these are owners, whichever job it is.
type dailyAlerts struct {
	mu   sync.Mutex
	sent map[string]time.Time
}

const alertPeriod = 24 * time.Hour

// first reports whether the name got no alert within a day, and records that it gets one now.
func (b *dailyAlerts) first(name string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.sent, func(_ string, at time.Time) bool { return now.Sub(at) >= alertPeriod })
	if _, known := b.sent[name]; known {
		return false
	}
	if b.sent == nil {
		b.sent = map[string]time.Time{}
	}
	b.sent[name] = now
	return true
}
