package scheduler

// core is everything that the scheduler's mutex guards. Each part owns its fields and is independent of the other parts; the methods of core are the decisions
// that need several of them. Every method of core and of its parts is called with the mutex held, and none takes it.
type core[M any] struct {
	begins   bool // turns call Began, see Config.Begins
	draining bool // nothing new is accepted or started

	lanes      lanes[M]
	principals principals[M]
	queues     queues[M]
	turns      turns[M]
	throttle   throttle[M]
	tally      tally
	pending    pending
}

// init creates the parts. Pointers between them stay valid because a Scheduler is never copied.
func (c *core[M]) init(s *Scheduler[M]) {
	c.begins = s.cfg.Begins
	c.lanes = newLanes[M](s.cfg.Lanes)
	c.principals = principals[M]{byName: map[string]*principal[M]{}, bound: s.cfg.PrincipalTurns}
	c.queues = queues[M]{byKey: map[string]*session[M]{}, gen: 1, windowOver: s.windowOver, tally: &c.tally, pending: &c.pending}
	c.turns = turns[M]{s: s, tally: &c.tally, pending: &c.pending}
	c.throttle = throttle[M]{on: s.cfg.TokenEstimate != nil, pending: &c.pending}
}

// admit decides about a message and adds it to its session.
func (c *core[M]) admit(it *Item[M], set Settings, fx *effects[M]) (Submitted[M], error) {
	if c.draining {
		return Submitted[M]{}, ErrGatewayDraining
	}
	cutoff := c.queues.cutoffs.of(it.Session)
	if it.Seq != 0 && it.Seq <= cutoff {
		return Submitted[M]{}, ErrMessageStale
	}
	x := c.queues.open(it.Session, cutoff)
	if known := x.known(it); known != nil {
		return Submitted[M]{Ticket: &known.ticket, Seq: it.Seq, Running: known.turnOf != nil, Duplicate: true}, nil
	}
	x.set = set
	l := c.lanes.find(it.Lane, fx)
	if set.Mode == ModeInterrupt {
		c.interrupt(x, it, l, fx)
	}
	if x.joins(it, l) {
		return c.extend(x, c.entry(it, l, fx), fx), nil
	}
	if c.queues.closeWindow(x) {
		c.settle(x, fx) // the messages of the window may start now
	}
	return c.enqueue(x, c.entry(it, l, fx), fx), nil
}

// entry creates the record of an accepted message.
func (c *core[M]) entry(it *Item[M], l *lane[M], fx *effects[M]) *entry[M] {
	e := &entry[M]{box: [1]Item[M]{*it}, at: fx.now, lane: l, who: c.principals.of(it.Principal), count: 1, bytes: it.Size}
	e.last = e
	c.tally.accepted++
	return e
}

// extend adds a message to the open window.
func (c *core[M]) extend(x *session[M], e *entry[M], fx *effects[M]) Submitted[M] {
	before := x.waiting
	if c.queues.extendWindow(x, e, fx.now) {
		c.settle(x, fx)
	}
	return Submitted[M]{Ticket: &e.ticket, Seq: e.item().Seq, Running: e.turnOf != nil, Position: before}
}

// enqueue makes the message wait, and starts it if it can start.
func (c *core[M]) enqueue(x *session[M], e *entry[M], fx *effects[M]) Submitted[M] {
	it := e.item()
	e.steer = x.set.Mode == ModeSteer && it.merges()
	e.alone = x.set.Mode == ModeInterrupt && len(x.running) > 0
	before := x.insert(e)
	if x.back() == e && x.debounces(it) {
		c.queues.openWindow(x, e, fx.now)
	}
	c.settle(x, fx)
	return Submitted[M]{Ticket: &e.ticket, Seq: it.Seq, Running: e.turnOf != nil, Position: before}
}

// interrupt applies mode interrupt: the message replaces all unfinished work of its session. A message that joins the open window of a session without a turn
// interrupts nothing.
func (c *core[M]) interrupt(x *session[M], it *Item[M], l *lane[M], fx *effects[M]) {
	if x.idle() || len(x.running) == 0 && x.depth() == 1 && x.joins(it, l) {
		return
	}
	cause := &CancelCause{Reason: ReasonSuperseded, By: it.ID}
	for _, t := range x.running {
		c.turns.cancel(t, cause, fx)
	}
	c.queues.empty(x, OutcomeSuperseded, cause, fx)
}

// drain refuses everything new and ends waiting messages as cleared.
func (c *core[M]) drain(fx *effects[M]) {
	c.draining = true
	for _, x := range c.queues.byKey {
		c.throttle.forget(x, fx)
		c.queues.empty(x, OutcomeCleared, ErrGatewayDraining, fx)
		c.settle(x, fx)
	}
}

// running lists the running turns.
func (c *core[M]) running() []*Turn[M] {
	var all []*Turn[M]
	for _, x := range c.queues.byKey {
		all = append(all, x.running...)
	}
	return all
}

// pending counts the goroutines and armed timers that the scheduler has started and that have not ended. It is guarded by the scheduler's mutex instead of
// being a sync.WaitGroup, because the count must change together with the decision that starts or ends one.
type pending struct {
	count int
	none  chan struct{} // closed when count drops to zero; nil while nothing waits for that
}

// add counts a goroutine or timer that is about to be started.
func (p *pending) add() { p.count++ }

// done counts the end of one.
func (p *pending) done() {
	p.count--
	if p.count == 0 && p.none != nil {
		close(p.none)
		p.none = nil
	}
}

// ended returns a channel that is closed when nothing is pending.
func (p *pending) ended() <-chan struct{} {
	if p.count == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if p.none == nil {
		p.none = make(chan struct{})
	}
	return p.none
}
