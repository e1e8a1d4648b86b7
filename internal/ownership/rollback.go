package ownership

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// RollbackSign is the evidence by which a process notices that the database has lost commits: the label of the metric, and the object of the row in the audit
// log.
type RollbackSign string

// The signs. A failover to a lagging standby shows both, a restored database with the same history only the second.
const (
	// SignHistory: the commit history of the database has changed.
	SignHistory RollbackSign = "history"
	// SignRuns: for a whole lease the database has assigned a run to this process that it does not execute. The end of the run was committed and is lost.
	SignRuns RollbackSign = "runs"
)

// RollbackSigns are all signs. The caller owns the slice.
func RollbackSigns() []RollbackSign { return []RollbackSign{SignHistory, SignRuns} }

// witness is the state by which the goroutine of the heartbeat notices a database that lost commits.
type witness struct {
	history string
	// unknown are the runs of the last heartbeat that this process did not execute, with the time of the first heartbeat for which this was so. It is normal
	// for a moment: the start of the run was committed and has not returned yet, or the run has just ended.
	unknown map[string]time.Time
}

// sees compares a heartbeat with the state of the process; "" when they agree.
func (w *witness) sees(beat store.Beat, running map[string]bool, now time.Time, lease time.Duration) (sign RollbackSign, before string) {
	before = w.history
	if beat.History != "" {
		w.history = beat.History
	}
	if before != "" && beat.History != "" && before != beat.History {
		w.unknown = nil
		return SignHistory, before
	}
	unknown := map[string]time.Time{}
	for _, run := range beat.Runs {
		if running[run] {
			continue
		}
		first, seen := w.unknown[run]
		if !seen {
			first = now
		}
		if now.Sub(first) >= lease {
			sign = SignRuns
		}
		unknown[run] = first
	}
	w.unknown = unknown
	if sign != "" {
		w.unknown = nil
	}
	return sign, before
}

// startOver abandons the incarnation because the database has lost commits: the state of this process about its messages and runs may be wrong, so the next
// incarnation reads everything from the database. No crash is counted. It runs on the goroutine of the heartbeat.
func (n *Node) startOver(ctx context.Context, me *incarnation, sign RollbackSign, before, after string) {
	n.obs.RolledBack(sign)
	n.log.ErrorContext(ctx, "the database has lost commits, perhaps in a failover; messages acknowledged shortly before may be missing; everything is read again",
		"sign", sign, "history_before", before, "history_after", after)
	n.current.Store(nil)
	n.handler.LeaseLost()
	if err := n.store.Unregister(ctx, me.id); err != nil {
		n.log.WarnContext(ctx, "the old incarnation was not unregistered; its lease ends by itself", "err", err)
	}
	row := chat.Audit{Who: "gateway", Verb: store.VerbRollback, Object: string(sign), Before: before, After: after}
	if err := n.store.Audit(ctx, row); err != nil {
		n.log.WarnContext(ctx, "the loss of commits was not noted in the log of changes", "err", err)
	}
}
