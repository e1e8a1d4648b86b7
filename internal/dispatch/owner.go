package dispatch

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// incarnation is this process as the store knows it: a new one at every start and after every lost lease.
type incarnation struct {
	id    string
	until time.Time // local, monotonic: work is given up here even if the store cannot be asked

	held *heldLeases // shared by the values that a heartbeat makes of one incarnation
}

// heldLeases are the named leases of an incarnation.
type heldLeases struct {
	mu     sync.Mutex
	byName map[string]store.Lease
}

func (i *incarnation) lease(name string) (store.Lease, bool) {
	i.held.mu.Lock()
	defer i.held.mu.Unlock()
	l, ok := i.held.byName[name]
	return l, ok
}

// all lists the leases that are held.
func (i *incarnation) all() []store.Lease {
	i.held.mu.Lock()
	defer i.held.mu.Unlock()
	return slices.Collect(maps.Values(i.held.byName))
}

func (i *incarnation) holds(l store.Lease, ok bool) {
	i.held.mu.Lock()
	defer i.held.mu.Unlock()
	delete(i.held.byName, l.Name)
	if ok {
		i.held.byName[l.Name] = l
	}
}

// alive is the current incarnation, or the error for a process that has none: it accepts nothing then.
func (d *Dispatcher) alive() (*incarnation, error) {
	me := d.node.Load()
	switch {
	case d.restarting.Load():
		return nil, chat.ErrDraining
	case me == nil || time.Now().After(me.until):
		return nil, chat.ErrStoreUnavailable
	}
	return me, nil
}

// NodeID is the id of the current incarnation, "" while there is none.
func (d *Dispatcher) NodeID() string {
	if me := d.node.Load(); me != nil {
		return me.id
	}
	return ""
}

// margin is taken off the lease: a process gives up before others may take over.
func (d *Dispatcher) margin() time.Duration { return min(2*time.Second, d.cfg.Lease/5) }

// beatLoop registers this process and keeps its lease. It is the only goroutine that replaces the incarnation, and it waits for nothing
// but the heartbeat itself: a slow sweep must not cost the lease.
func (d *Dispatcher) beatLoop(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(d.beat(ctx))
		case done := <-d.renew:
			d.renewed(ctx, done)
		}
	}
}

// sweepLoop takes over what nobody owns: by the clock, when the store hints that there is something, and when this process asks for it.
func (d *Dispatcher) sweepLoop(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(d.cfg.Sweep*9/10 + rand.N(d.cfg.Sweep/5)) //nolint:gosec // spread, not secrecy
		case <-d.sweepNow:
		case <-d.wakeups():
		}
		d.sweep(ctx)
		d.turned.Store(time.Now().UnixNano())
	}
}

func (d *Dispatcher) wakeups() <-chan struct{} {
	w, ok := d.store.(store.Waker)
	me := d.node.Load()
	if !ok || me == nil {
		return nil
	}
	return w.Wakeups(me.id)
}

// beat extends the lease or registers a new incarnation; it returns when to come again.
func (d *Dispatcher) beat(ctx context.Context) time.Duration {
	every := d.cfg.Heartbeat
	ctx, cancel := context.WithTimeoutCause(ctx, d.cfg.Lease/3, errors.New("the heartbeat took too long"))
	defer cancel()
	me := d.node.Load()
	if me == nil {
		if err := d.register(ctx); err != nil {
			d.log.WarnContext(ctx, "not registered yet; trying again", "err", err)
			return every / 3
		}
		return every
	}
	asked := time.Now()
	b, err := d.store.Heartbeat(ctx, me.id)
	switch {
	case err == nil:
		d.extend(me, asked, b)
		return every
	case errors.Is(err, chat.ErrFenced) || time.Now().After(me.until):
		d.loseLease(ctx, err)
		return 0
	default:
		d.log.WarnContext(ctx, "heartbeat missed; trying again", "err", err)
		return every / 3
	}
}

func (d *Dispatcher) extend(me *incarnation, asked time.Time, b store.Beat) {
	next := &incarnation{id: me.id, until: asked.Add(d.cfg.Lease - d.margin()), held: me.held}
	d.node.Store(next)
	d.company.Store(b.OtherNodes > 0)
	d.stopRequested(b.Stops)
}

// Register makes this process known to the store before anybody is let in: without it the first messages would be refused for a moment. Run
// does it as well, and again whenever the lease is lost.
func (d *Dispatcher) Register(ctx context.Context) error {
	if d.node.Load() != nil {
		return nil
	}
	return d.register(ctx)
}

func (d *Dispatcher) register(ctx context.Context) error {
	n := store.Node{ID: newID(), Addr: d.cfg.Addr, Version: d.cfg.Version, Lease: d.cfg.Lease, Exclusive: d.cfg.Exclusive}
	asked := time.Now()
	if err := d.store.Register(ctx, n); err != nil {
		return err
	}
	d.node.Store(&incarnation{
		id: n.ID, until: asked.Add(d.cfg.Lease - d.margin()), held: &heldLeases{byName: map[string]store.Lease{}},
	})
	wake(d.sweepNow)
	return nil
}

// loseLease gives up everything that ran under a dead incarnation. What waits in memory is forgotten: its rows are the messages.
func (d *Dispatcher) loseLease(ctx context.Context, why error) {
	d.obs.LeaseLost()
	d.log.ErrorContext(ctx, "the lease of this process is lost; its turns are cancelled and run again from the database", "err", why)
	d.node.Store(nil)
	d.sched.Cancel(scheduler.ErrLeaseLost)
	d.sched.ResetAll()
	d.handover.clear()
}

// sweep takes over sessions without a live owner, as many as there is room for, and looks for messages whose wake-up was lost.
func (d *Dispatcher) sweep(ctx context.Context) {
	me, err := d.alive()
	if err != nil || d.draining.Load() {
		return
	}
	const batch = 200
	ctx, cancel := context.WithTimeoutCause(ctx, d.cfg.Lease, errors.New("the sweep took too long"))
	defer cancel()
	taken, err := d.store.Sweep(ctx, me.id, batch)
	if err != nil {
		d.log.WarnContext(ctx, "sweep failed; trying again", "err", err)
		return
	}
	hinted, err := d.store.Hinted(ctx, me.id, batch)
	if err != nil {
		d.log.WarnContext(ctx, "reading hinted messages failed; trying again", "err", err)
	}
	if len(taken) > 0 {
		d.obs.TakenOver(len(taken))
		d.log.InfoContext(ctx, "took over sessions", "sessions", len(taken))
	}
	for _, t := range append(taken, hinted...) {
		d.resume(ctx, t)
	}
	for _, s := range d.handover.overdue(d.sched) {
		d.settle(ctx, s)
	}
	if len(taken) > 0 { // there may be more: a sweep is bounded in sessions and in bytes
		wake(d.sweepNow)
	}
}

// resume hands the unfinished messages of a session to the scheduler: runs that had begun as one item each, the others as they came. A cron run that
// another process has claimed ahead waits for its moment, and what lies behind it waits with it.
func (d *Dispatcher) resume(ctx context.Context, t store.Taken) {
	if i, at := d.early(t.Messages); i >= 0 {
		rest := t
		rest.Messages = t.Messages[i:]
		d.cron.At(at, func(ctx context.Context) {
			if me := d.node.Load(); me != nil && me.id == t.Node { // another incarnation finds them by its sweep
				d.resume(ctx, rest)
			}
		})
		if i == 0 {
			return
		}
		t.LastSeq, t.Messages = t.Messages[i].Seq-1, t.Messages[:i]
	}
	var items []scheduler.Item[work]
	for _, rows := range batches(t.Messages) {
		lead := rows[len(rows)-1]
		m := chat.Message{Session: lead.Session, Channel: lead.Channel, Content: lead.Content}
		it := d.item(work{claim: t.Claim, rows: rows}, d.settings(m, t.Mode))
		if lead.RunID != "" {
			it.ID, it.RunID, it.NoMerge = lead.RunID, lead.RunID, true
		}
		items = append(items, it)
	}
	for _, s := range d.handover.resume(d.sched, t.Session, t.Epoch, items, t.LastSeq) {
		d.settle(ctx, s)
	}
}

// early finds the first message whose moment is to come; -1 when there is none.
func (d *Dispatcher) early(rows []store.Waiting) (i int, at time.Time) {
	if d.cron == nil {
		return -1, at
	}
	now := d.cron.Now().UnixMilli()
	i = slices.IndexFunc(rows, func(r store.Waiting) bool {
		return r.RunID == "" && r.Channel == cron.Channel && r.Content.Options.NotBefore > now
	})
	if i >= 0 {
		at = time.UnixMilli(rows[i].Content.Options.NotBefore)
	}
	return i, at
}

// batches groups messages: those of one run stay together under its id; a held message that no turn has taken yet joins the one right before it,
// as the debounce window would have made it. Where a number is missing, something came between: a command, or a message that is on its way
// to the scheduler already and must not be passed.
func batches(rows []store.Waiting) [][]store.Waiting {
	var out [][]store.Waiting
	runAt := map[string]int{}
	for _, r := range rows {
		if i, ok := runAt[r.RunID]; ok && r.RunID != "" {
			out[i] = append(out[i], r)
			continue
		}
		if n := len(out); n > 0 && joins(out[n-1], r) {
			out[n-1] = append(out[n-1], r)
			continue
		}
		if r.RunID != "" {
			runAt[r.RunID] = len(out)
		}
		out = append(out, []store.Waiting{r})
	}
	return out
}

func joins(batch []store.Waiting, r store.Waiting) bool {
	last := batch[len(batch)-1]
	return r.State == store.StateHeld && r.RunID == "" && last.RunID == "" && r.Seq == last.Seq+1 &&
		last.Content.Sender.ID == r.Content.Sender.ID && last.Content.Thread == r.Content.Thread &&
		len(last.Content.Attachments)+len(r.Content.Attachments) == 0 &&
		!last.Content.Options.NoMerge && !r.Content.Options.NoMerge && len(batch) < 12
}

// Lease takes or confirms a named lease for this process; a channel polls only while it holds its own.
func (d *Dispatcher) Lease(ctx context.Context, name string) (next int64, ok bool, err error) {
	me, err := d.alive()
	if err != nil {
		return 0, false, err
	}
	if d.handsOn() {
		return 0, false, nil
	}
	l, ok, err := d.store.AcquireLease(ctx, name, me.id)
	if err != nil {
		return 0, false, err
	}
	l.Name = name
	me.holds(l, ok)
	return l.NextOffset, ok, nil
}

// handsOn reports whether named leases are for others now: this process drains, and there may be others. The only process on its store
// keeps them, so that a /stop is heard while turns finish.
func (d *Dispatcher) handsOn() bool { return d.draining.Load() && !d.cfg.Exclusive }

// releaseLeases gives every named lease back, so that another node polls at once instead of after the drain.
func (d *Dispatcher) releaseLeases(ctx context.Context, me *incarnation) {
	for _, l := range me.all() {
		me.holds(l, false)
		if err := d.store.ReleaseLease(ctx, l); err != nil {
			d.log.WarnContext(ctx, "a lease was not given back; others wait until this process has left", "lease", l.Name, "err", err)
		}
	}
}

// Drain is the end, see the package comment: it takes nothing new, lets turns finish and flushes the outbox. ctx ends the patience with
// running turns; the whole takes at most a grace more. Channels may run meanwhile; Leave comes after them.
func (d *Dispatcher) Drain(ctx context.Context) error {
	d.draining.Store(true)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*d.cfg.Lease)
	defer cancel()
	me := d.node.Load()
	if me != nil {
		if err := d.store.SetDraining(boundedBy(ctx, last), me.id); err != nil {
			d.log.WarnContext(ctx, "other nodes do not know that this one drains", "err", err)
		}
		if d.handsOn() {
			d.releaseLeases(boundedBy(ctx, last), me)
		}
	}
	err := d.sched.Drain(ctx)
	d.flushOutbox(ctx)
	return err
}

// Leave takes this process out of the table of nodes: whatever it still owned is free for others at once. It is the last thing before the
// context of Run ends, after Drain and after the channels have ended. It takes at most a second.
func (d *Dispatcher) Leave(ctx context.Context) {
	me := d.node.Load()
	if me == nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	if err := d.store.Unregister(ctx, me.id); err != nil {
		d.log.WarnContext(ctx, "left without saying so; others wait for the lease to end", "err", err)
	}
}

// boundedBy is ctx while it lasts, else a moment more.
func boundedBy(ctx, last context.Context) context.Context {
	if ctx.Err() == nil {
		return ctx
	}
	return last
}
