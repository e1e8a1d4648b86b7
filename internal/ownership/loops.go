package ownership

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/store"
)

// sweepBatch is how many sessions a sweep takes, and how many it wakes at once.
const sweepBatch = 200

// Run extends the lease, passes stop requests on and sweeps until ctx ends; it returns when its
// goroutines have ended.
func (n *Node) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, n.end)
	defer stop()
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){n.heartbeatLoop, n.sweepLoop} {
		loops.Go(func() { loop(ctx) })
	}
	loops.Wait()
}

// heartbeatLoop registers this process and keeps its lease. It is the only goroutine that replaces
// the incarnation, and it waits only for the heartbeat itself: a slow sweep must not cost the
// lease. The heartbeat returns the stop requests of other replicas, so a hint about one brings it
// forward.
func (n *Node) heartbeatLoop(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(n.heartbeat(ctx))
		case <-n.hints(store.HintStop):
			t.Reset(n.heartbeat(ctx))
		case done := <-n.renew:
			n.replace(ctx)
			close(done)
		}
	}
}

// heartbeat extends the lease or registers a new incarnation; it returns the wait until the next
// call.
func (n *Node) heartbeat(ctx context.Context) time.Duration {
	every, loop := n.cfg.Heartbeat, ctx
	ctx, cancel := context.WithTimeoutCause(ctx, n.cfg.Lease/3, errors.New("the heartbeat took too long"))
	defer cancel()
	me := n.current.Load()
	if me == nil {
		if err := n.register(ctx); err != nil {
			n.log.WarnContext(ctx, "not registered yet; trying again", "err", err)
			return every / 3
		}
		return 0 // the first heartbeat learns the history: a failover before it would pass unnoticed
	}
	asked, known := time.Now(), n.peers.Load()
	beat, err := n.store.Heartbeat(ctx, me.id, n.draining.Load())
	switch {
	case err == nil:
		if sign, before := n.witness.sees(beat, n.handler.Running(), asked, n.cfg.Lease); sign != "" {
			n.startOver(loop, me, sign, before, beat.History)
			return 0
		}
		n.current.Store(&incarnation{id: me.id, lease: n.until(asked), leases: me.leases})
		n.peers.CompareAndSwap(known, new(beat.OtherNodes > 0)) // a sign of a peer that arrived meanwhile is newer than the count of the store
		n.setHold(ctx, beat.Hold)
		for _, r := range beat.Stops {
			n.handler.Stop(r)
		}
		return every
	case errors.Is(err, chat.ErrFenced) || me.over(time.Now()):
		n.loseLease(ctx, err)
		return 0
	default:
		n.log.WarnContext(ctx, "heartbeat missed; trying again", "err", err)
		return every / 3
	}
}

// loseLease abandons the incarnation and all its running work. The messages are rows in the store,
// where the next incarnation finds them.
func (n *Node) loseLease(ctx context.Context, cause error) {
	n.counters.leaseLost.Inc()
	n.log.ErrorContext(ctx, "the lease of this process is lost; its turns are cancelled and run again from the database", "err", cause)
	n.current.Store(nil)
	n.handler.LeaseLost()
}

// sweepLoop takes over work without a live owner: periodically, after a hint from the store, and on
// request of this process.
func (n *Node) sweepLoop(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(n.cfg.Sweep*9/10 + rand.N(n.cfg.Sweep/5)) // spread, not secrecy
		case <-n.sweepNow:
		case <-n.hints(store.HintMessage):
		}
		n.sweep(ctx)
		n.sweptAt.Store(time.Now().UnixNano())
	}
}

// hints delivers hints for the current incarnation; nil before the process is registered.
func (n *Node) hints(h store.Hint) <-chan struct{} {
	me := n.current.Load()
	if n.waker == nil || me == nil {
		return nil
	}
	return n.waker.Wakeups(me.id, h)
}

// sweep takes over sessions without a live owner and reads messages whose hint was lost.
func (n *Node) sweep(ctx context.Context) {
	me, err := n.alive()
	if err != nil || n.draining.Load() {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, n.cfg.Lease, errors.New("the sweep took too long"))
	defer cancel()
	agents := n.cfg.Agents
	if agents != nil && n.cfg.Given != nil {
		agents = append(slices.Clip(agents), n.cfg.Given()...)
	}
	taken, err := n.store.Sweep(ctx, store.SweepParams{Node: me.id, Limit: sweepBatch, Agents: agents})
	if err != nil {
		n.log.WarnContext(ctx, "sweep failed; trying again", "err", err)
		return
	}
	if len(taken) > 0 {
		n.counters.takenOver.Add(float64(len(taken)))
		n.log.InfoContext(ctx, "took over sessions", "sessions", len(taken))
		n.SweepNow() // more may exist, because a sweep has a limit
	}
	n.handler.Wake(taken)
	n.wakeHinted(ctx, me.id)
}

// wakeHinted wakes the sessions about which hints came, and the next ones in which messages wait.
// It goes from session to session, so that each sweep costs little however many there are.
func (n *Node) wakeHinted(ctx context.Context, id string) {
	var heard store.HintedSessions
	if n.waker != nil {
		heard = n.waker.Hinted(id, store.HintMessage)
	}
	next := store.FrontsParams{Node: id, After: n.woken, Limit: sweepBatch}
	if heard.All {
		next.After = chat.SessionKey{}
	}
	if len(heard.Keys) > 0 {
		named := store.FrontsParams{Node: id}
		for _, text := range heard.Keys {
			if key, err := chat.ParseSessionKey(text, ""); err == nil {
				named.Sessions = append(named.Sessions, key)
			}
		}
		n.wake(ctx, named)
	}
	for {
		fronts := n.wake(ctx, next)
		if len(fronts) < sweepBatch {
			n.woken = chat.SessionKey{}
			return
		}
		n.woken = fronts[len(fronts)-1].Session
		if next.After = n.woken; !heard.All {
			return
		}
	}
}

// wake wakes some sessions in which messages wait.
func (n *Node) wake(ctx context.Context, p store.FrontsParams) []store.Front {
	fronts, err := n.store.Fronts(ctx, p)
	if err != nil {
		n.log.WarnContext(ctx, "reading what waits failed; trying again", "err", err)
	}
	n.handler.Wake(fronts)
	return fronts
}

// pauses are the waits between two tries of a write. They have no jitter, because a process has few
// such writes at a time.
func pauses() retry.Policy {
	return retry.Policy{Base: 20 * time.Millisecond, Max: time.Second, Spread: -1}
}

// errEnded is the cause of waits that the end of [Node.Run] interrupts.
var errEnded = errors.New("the process ends")

// Final makes a write that must not be lost when its caller has gone away. It is retried while the
// store is unavailable and this incarnation is alive: giving up earlier would leave rows that no
// other process may change. When it fails, the next owner's sweep finds the rows. what names the
// write in the error of a try that took too long.
func (n *Node) Final(ctx context.Context, what string, write func(context.Context) error) error {
	wait, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(n.life, func() { cancel(errEnded) })
	defer stop()
	id := n.ID()
	return n.repeat(wait, what+" took too long", func(err error) bool { return store.CommitUnknown(err) && n.ID() == id }, write)
}

// WhileAlive retries an operation while the store is unavailable and ctx lasts.
func (n *Node) WhileAlive(ctx context.Context, op func(context.Context) error) error {
	return n.repeat(ctx, "the store took too long", store.CommitUnknown, op)
}

// repeat makes each try in a context of its own, bounded by the lease. The end of wait interrupts
// the waits but no try, because the caller must know whether a write was committed.
func (n *Node) repeat(wait context.Context, late string, again func(error) bool, op func(context.Context) error) error {
	return retry.Do(wait, retry.Options{Policy: pauses(), Retryable: again}, func(ctx context.Context) error {
		try, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), n.cfg.Lease, fmt.Errorf("%s: %w", late, context.DeadlineExceeded))
		defer cancel()
		return op(try)
	})
}

// RollbackSign is the evidence by which a process notices that the database has lost commits: the
// label of the metric, and the object of the row in the audit log.
type RollbackSign string

// The signs. A failover to a lagging standby shows both, a restored database with the same history
// only the second.
const (
	// SignHistory: the commit history of the database has changed.
	SignHistory RollbackSign = "history"
	// SignRuns: for a whole lease the database has assigned a run to this process that it does not
	// execute. The end of the run was committed and is lost.
	SignRuns RollbackSign = "runs"
)

// RollbackSigns are all signs. The caller owns the slice.
func RollbackSigns() []RollbackSign { return []RollbackSign{SignHistory, SignRuns} }

// witness is the state by which the goroutine of the heartbeat notices a database that lost
// commits.
type witness struct {
	history string
	// unknown are the runs of the last heartbeat that this process did not execute, with the time
	// of the first heartbeat for which this was so. It is normal for a moment: the start of the run
	// was committed and has not returned yet, or the run has just ended.
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

// remembered is how many acknowledged commits a process remembers. Concurrent commits may be
// acknowledged in another order than they were made, so the last one is not enough.
const remembered = 16

// acknowledged are the newest commits that this process has acknowledged, oldest first.
type acknowledged struct {
	mu   sync.Mutex
	list []commit
}

// commit is an accepted message, or the end of a run, which then has a time.
type commit struct {
	id    string
	ended time.Time
}

// Acknowledged remembers that the commit of a message, or with ended the end of a run, was
// acknowledged. After a failover it must be in the database.
func (n *Node) Acknowledged(id string, ended time.Time) {
	n.acked.mu.Lock()
	defer n.acked.mu.Unlock()
	if len(n.acked.list) == remembered {
		n.acked.list = slices.Delete(n.acked.list, 0, 1)
	}
	n.acked.list = append(n.acked.list, commit{id, ended})
}

// missing lists the remembered commits that the database does not have, and forgets them.
func (n *Node) missing(ctx context.Context) (ids []string, err error) {
	n.acked.mu.Lock()
	list := slices.Clone(n.acked.list)
	n.acked.mu.Unlock()
	for _, c := range list {
		lost := "message " + c.id
		if c.ended.IsZero() {
			_, err = n.store.MessageByID(ctx, c.id)
		} else {
			var run store.Run
			if run, err = n.store.RunByID(ctx, c.id); err == nil && run.EndedAt.Equal(c.ended) {
				continue
			}
			lost = "the end of run " + c.id
		}
		switch {
		case err != nil && !errors.Is(err, chat.ErrNotFound):
			return ids, fmt.Errorf("looking for %s: %w", lost, err)
		case err != nil || !c.ended.IsZero():
			ids = append(ids, lost)
		}
	}
	if len(ids) > 0 {
		n.acked.mu.Lock()
		n.acked.list = nil
		n.acked.mu.Unlock()
	}
	return ids, nil
}

// startOver abandons the incarnation because the database may have lost commits: the state of this
// process about its messages and runs may be wrong, so the next incarnation reads everything from
// the database. No crash is counted. It runs on the goroutine of the heartbeat.
func (n *Node) startOver(ctx context.Context, me *incarnation, sign RollbackSign, before, after string) {
	n.abandon(ctx, me)
	var lost []string
	wait, cancel := context.WithTimeout(ctx, n.cfg.Lease)
	defer cancel()
	// A server that has just taken over is slow, and an answer that did not come is no loss.
	err := retry.Do(wait, retry.Options{Policy: pauses(), Retryable: func(error) bool { return true }}, func(ctx context.Context) (err error) {
		try, cancel := context.WithTimeoutCause(ctx, n.cfg.Lease/3, errors.New("the search for acknowledged commits took too long"))
		defer cancel()
		lost, err = n.missing(try)
		return err
	})
	if sign == SignHistory && len(lost) == 0 && err == nil {
		n.log.WarnContext(ctx, "the database failed over; nothing acknowledged by this gateway is missing; everything is read again",
			"history_before", before, "history_after", after)
		return
	}
	n.counters.rolledBack.WithLabelValues(string(sign)).Inc()
	n.log.ErrorContext(ctx, "the database has lost commits, perhaps in a failover; messages acknowledged shortly before may be missing; everything is read again",
		"sign", sign, "history_before", before, "history_after", after, "missing", lost, "err", err)
	if len(lost) > 0 {
		after += "; missing: " + strings.Join(lost, ", ")
	}
	row := chat.Audit{Who: "gateway", Verb: store.VerbRollback, Object: string(sign), Before: before, After: after}
	note, cancel := context.WithTimeout(ctx, n.cfg.Lease)
	defer cancel()
	if err := n.store.Audit(note, row); err != nil {
		n.log.WarnContext(ctx, "the loss of commits was not noted in the log of changes", "err", err)
	}
}

// abandon leaves an incarnation and its work, which the next one finds in the database.
func (n *Node) abandon(ctx context.Context, me *incarnation) {
	n.current.Store(nil)
	n.handler.LeaseLost()
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Lease/3)
	defer cancel()
	if err := n.store.Unregister(ctx, me.id); err != nil {
		n.log.WarnContext(ctx, "the old incarnation was not unregistered; its lease ends by itself", "err", err)
	}
}
