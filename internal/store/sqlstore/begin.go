package sqlstore

import (
	"context"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

const (
	// headSQL reads the messages of a session that wait first, with what a decision about them
	// needs. The bound of the numbers is what ended before: PostgreSQL would otherwise read its
	// dead entries in the index. The bytes bound the bodies, of which at least one is read. $2 how
	// many, $3 how many bytes.
	headSQL = `SELECT ` + messageColumns + ` FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS before FROM (
			SELECT *` + queuedFrom + ` AND seq > (SELECT done_seq FROM sessions WHERE key = $1) ORDER BY seq {limit $2}) head) sized
		WHERE before < CAST($3 AS bigint) ORDER BY seq`

	// runsNowSQL are the turns of a session that have a place in it.
	runsNowSQL = `SELECT id, owner, epoch, state FROM runs {by runs_open} WHERE session_key = $1 AND {running}`

	// runBatchSQL are the messages of a run.
	runBatchSQL = `SELECT ` + messageColumns + ` FROM inbox WHERE session_key = $1 AND {open} AND state = 'running' AND run_id = $2 ORDER BY seq`

	// headPage is how many messages Begin reads at first, one more than a batch usually has, and
	// headBytes is how many bytes of them. It reads more only while all of them become one turn.
	headPage  = 13
	headBytes = 50_000
)

// Begin decides what a session does with a slot, and does it; see store.Store.
func (s Inbox) Begin(ctx context.Context, p store.BeginParams) (store.Begun, error) {
	o := &startOp{begin: &beginning{p: p}}
	o.p.Session = p.Session
	if err := s.starts.do(ctx, o, 0); err != nil {
		return store.Begun{}, err
	}
	return o.begin.out, nil
}

// beginning is one Begin in progress.
type beginning struct {
	p       store.BeginParams
	out     store.Begun
	head    []store.Waiting
	page    int
	turns   []turnNow
	waiting []store.Waiting // the rest of the head
}

// turnNow is a turn that has a place in its session.
type turnNow struct {
	id, owner, state string
	epoch            int64
}

// readBeginnings reads the heads of the sessions and their turns. The results are available after
// the next Query, which the last of them is with flush.
func (b *starting) readBeginnings(ctx context.Context, ops []*startOp, flush bool) error {
	for i, o := range ops {
		if o.begin == nil {
			continue
		}
		g := &beginning{p: o.begin.p, page: headPage}
		o.begin, o.p = g, store.StartParams{Claim: store.Claim{Session: g.p.Session}}
		err := b.tx.Later(ctx, runsNowSQL, func(r Row) error {
			var t turnNow
			err := r.Scan(&t.id, &t.owner, &t.epoch, &t.state)
			g.turns = append(g.turns, t)
			return err
		}, o.Name())
		if err != nil {
			return err
		}
		read := b.tx.Later
		if flush && i == len(ops)-1 {
			read = b.tx.Query
		}
		if err := read(ctx, headSQL, g.scan, o.Name(), g.page, headBytes); err != nil {
			return err
		}
	}
	return nil
}

func (o *beginning) scan(r Row) error {
	m, err := scanMessage(r)
	o.head = append(o.head, m)
	return err
}

// begin decides about one session. Among several, it leaves unusual ones to a transaction of their
// own: another run under the claim, a run that began before, a stop, and a turn of more messages
// than were read.
func (b *starting) begin(ctx context.Context, o *startOp) (done bool, err error) {
	g := o.begin
	r := b.sessions.rows[o.Name()]
	switch {
	case r == nil || r.owner != g.p.Node || !r.ownerAlive:
		if b.alone {
			err = chat.ErrFenced
		}
		return false, err
	}
	claim := store.Claim{Session: g.p.Session, Node: r.owner, Epoch: r.epoch}
	g.out.Claim, g.out.Last = claim, r.lastSeq
	if i := slices.IndexFunc(g.turns, func(t turnNow) bool {
		return t.owner == claim.Node && t.epoch == claim.Epoch && t.state == store.RunRunning && !slices.Contains(g.p.Known, t.id)
	}); i >= 0 {
		return b.alone, b.again(ctx, o, r, g.turns[i].id)
	}
	d, whole, err := b.decide(ctx, g, r)
	if err != nil || !whole {
		return false, err
	}
	if len(d.Stopped) > 0 {
		if !b.alone {
			return false, nil
		}
		if err := b.endStale(ctx, g, r, d.Stopped); err != nil {
			return false, err
		}
	}
	if !d.Until.IsZero() {
		g.out.Wait = d.Until.Sub(fromMillis(b.sessions.now))
	}
	var batch []store.Waiting
	for i := range d.Take {
		j := slices.IndexFunc(g.waiting, func(m store.Waiting) bool { return m.Seq == d.Take[i].Seq })
		batch, g.waiting = append(batch, g.waiting[j]), slices.Delete(g.waiting, j, j+1)
	}
	if len(batch) > 0 && (batch[0].Lane != g.p.Lane || batch[0].Principal != g.p.Principal) { // the slot is for another lane or principal
		g.waiting, batch = append(batch[:1:1], g.waiting...), nil
	}
	if len(batch) > 0 {
		done, err = b.beginWith(ctx, o, r, batch)
	} else {
		done = true
	}
	g.next(r, g.waiting)
	return done, err
}

// beginWith starts the turn of a batch.
func (b *starting) beginWith(ctx context.Context, o *startOp, r *sessionRow, batch []store.Waiting) (bool, error) {
	g := o.begin
	id := batch[len(batch)-1].RunID
	switch {
	case id == "": // the usual case needs no query
	case !b.alone:
		return false, nil
	default:
		known, err := runsByID(ctx, b.tx, []string{id})
		if err != nil {
			return false, err
		}
		b.runs[id] = known[id]
		if known[id].ID == "" {
			delete(b.runs, id)
		}
	}
	var ready bool
	if o.p, ready = g.p.Plan(g.out.Claim, batch); !ready {
		g.out.Unplanned = batch
		return true, nil
	}
	b.waiting[r.key] = batch
	done, err := b.start(ctx, o)
	if done {
		g.out.RunID, g.out.Messages = o.p.RunID, batch
	}
	return done, err
}

// next is what waits in the session now.
func (o *beginning) next(r *sessionRow, waiting []store.Waiting) {
	if len(waiting) > 0 {
		o.out.Next = waiting[0].Front(chat.QueueMode(r.mode), int(r.waiting), r.lastSeq)
	}
}

// again returns the run of an earlier Begin whose response was lost.
func (b *starting) again(ctx context.Context, o *startOp, r *sessionRow, id string) error {
	if !b.alone {
		return nil
	}
	g := o.begin
	runs, err := runsByID(ctx, b.tx, []string{id})
	if err != nil {
		return err
	}
	batch, err := all(ctx, b.tx, runBatchSQL, scanMessage, r.key, id)
	if err != nil || len(batch) == 0 {
		return err
	}
	var ready bool
	if o.p, ready = g.p.Plan(g.out.Claim, batch); !ready {
		g.out.Unplanned = batch
		return nil
	}
	g.out.RunID, g.out.Messages = id, batch
	g.next(r, g.head)
	return b.startedBefore(ctx, o, r, runs[id])
}

// decide reads as much of the queue as the decision needs. whole is false when it needs more than
// was read together with other sessions.
func (b *starting) decide(ctx context.Context, g *beginning, r *sessionRow) (d scheduler.Decision, whole bool, err error) {
	st := scheduler.SessionState{
		Mode: scheduler.QueueMode(r.mode), Last: r.lastSeq, Cutoff: r.stopSeq, Running: len(g.turns), Inputs: g.p.Inputs,
	}
	for r.waiting > 0 {
		d = scheduler.Next(rowsOf(g.head), g.settings(), st, fromMillis(b.sessions.now))
		left := len(g.head) - len(d.Take) - len(d.Stopped)
		if left > 0 || int64(len(g.head)) >= r.waiting {
			break
		}
		if !b.alone {
			return d, false, nil
		}
		g.page, g.head = g.page*4, nil
		if err := b.tx.Query(ctx, headSQL, g.scan, r.key, g.page, headBytes*g.page/headPage); err != nil {
			return d, false, err
		}
	}
	g.waiting = slices.Clone(g.head)
	return d, true, nil
}

// settings are those of the newest message that was read.
func (o *beginning) settings() scheduler.Settings {
	if len(o.head) == 0 {
		return scheduler.DefaultSettings()
	}
	return o.p.Settings(&o.head[len(o.head)-1])
}

func rowsOf(waiting []store.Waiting) []scheduler.Row {
	rows := make([]scheduler.Row, len(waiting))
	for i := range waiting {
		rows[i] = waiting[i].Row()
	}
	return rows
}

// endStale ends the messages that a stop covers and that still waited.
func (b *starting) endStale(ctx context.Context, o *beginning, r *sessionRow, seqs []int64) error {
	o.out.Stopped, o.waiting = o.waiting[:len(seqs):len(seqs)], o.waiting[len(seqs):]
	if err := endMessages(ctx, b.tx, r.key, o.out.Stopped, ending{outcome: chat.OutcomeStale, reason: string(chat.OutcomeStale)}); err != nil {
		return err
	}
	r.waiting -= int64(len(seqs))
	var oldest int64
	if _, err := one(ctx, b.tx, `SELECT COALESCE(min(seq), 0) FROM inbox WHERE session_key = $1 AND {open}`, into(&oldest), r.key); err != nil {
		return err
	}
	r.settle(oldest)
	b.change(r)
	return nil
}

// change remembers a session that is to be saved, once.
func (b *starting) change(r *sessionRow) {
	if !slices.Contains(b.changed, r) {
		b.changed = append(b.changed, r)
	}
}
