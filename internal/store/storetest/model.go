package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// The model is a simple description of sessions: their messages in order, each with a state, and
// their owners.
type model struct {
	w     *world
	t     *rapid.T
	nodes []string
	rooms []*modelSession
}

type modelSession struct {
	key   chat.SessionKey
	owner string
	epoch int64
	stop  int64
	lines []*line // line n has sequence number n + 1
	held  time.Time
}

type line struct {
	accept  store.AcceptParams
	seq     int64
	state   string
	outcome chat.Outcome
	run     string // "" = never started
	at      time.Time
	stopBy  string
}

// runModel applies random operations to a store and to the model, and compares the two after each
// step. All attempts share one store; each has sessions and nodes of its own.
func runModel(t *testing.T, open Opener) {
	t.Helper()
	shared := newWorld(t, open)
	rapid.Check(t, func(rt *rapid.T) {
		w := *shared
		w.reporter = rt
		m := &model{w: &w, t: rt, nodes: []string{w.node(), w.node()}}
		for range 2 {
			m.rooms = append(m.rooms, &modelSession{key: w.key()})
		}
		rt.Repeat(map[string]func(*rapid.T){
			"accept": m.accept, "again": m.again, "start": m.start, "finish": m.finish, "requeue": m.requeue,
			"stop": m.stop, "drop": m.drop, "time": m.time, "crash": m.crash, "leave": m.leave, "zombie": m.zombie,
			"": func(*rapid.T) { m.compare() },
		})
		m.end()
	})
}

// pick draws an index, which is more readable in the log of a failure than the value.
func pick[V any](t *rapid.T, what string, list []V) V {
	return list[rapid.IntRange(0, len(list)-1).Draw(t, what)]
}

func (m *model) session() *modelSession { return pick(m.t, "room", m.rooms) }

func (m *model) node() string { return pick(m.t, "node", m.nodes) }

func (m *model) alive(node string) bool { return slices.Contains(m.nodes, node) }

func (r *modelSession) in(states ...string) []*line {
	return slices.DeleteFunc(slices.Clone(r.lines), func(l *line) bool { return !slices.Contains(states, l.state) })
}

func (r *modelSession) queued() []*line { return r.in(store.StateWaiting) }

// open are the messages without an outcome.
func (r *modelSession) open() []*line {
	return r.in(store.StateWaiting, store.StateRunning)
}

func (r *modelSession) claim() store.Claim {
	return store.Claim{Session: r.key, Node: r.owner, Epoch: r.epoch}
}

func (r *modelSession) done() int64 {
	if open := r.open(); len(open) > 0 {
		return open[0].seq - 1
	}
	return int64(len(r.lines))
}

func (l *line) end(o chat.Outcome) { l.state, l.outcome = store.StateDone, o }

// owned reports whether a live node owns the session; tests of a claim need it.
func (m *model) owned(r *modelSession) bool { return m.alive(r.owner) }

func (m *model) accept(t *rapid.T) {
	r, node := m.session(), m.node()
	p := m.w.message(node, r.key)
	p.Queue = scheduler.Settings{MaxConcurrent: many, Debounce: window, Cap: rapid.IntRange(0, 3).Draw(t, "cap"), DropNew: rapid.Bool().Draw(t, "drop_new")}
	p.Message.Content.Options.Typed = rapid.Bool().Draw(t, "typed")
	if rapid.IntRange(0, 3).Draw(t, "interrupts") == 0 {
		p.Message.Content.Options.Mode = chat.ModeInterrupt
	}
	l := &line{accept: p, seq: int64(len(r.lines) + 1), state: store.StateWaiting, at: m.w.clock.now()}
	over, outcome := r.displaced(l)
	if len(over) > 0 && outcome == chat.OutcomeDropped && p.Queue.DropNew {
		_, err := m.w.st.Accept(m.w.ctx, p)
		m.w.fails(err, chat.ErrQueueFull)
		return
	}
	idle, queued := len(r.open()) == 0, len(r.queued())
	a := m.w.accept(p)
	if len(over) == 0 {
		equal(m.w, "messages before it", a.Behind, queued)
	}
	equal(m.w, "sequence number", a.Seq, l.seq)
	ended, others := a.Dropped, a.Superseded
	if outcome == chat.OutcomeSuperseded {
		ended, others = others, ended
	}
	var victims []int64
	for _, l := range over {
		l.end(outcome)
		victims = append(victims, l.seq)
	}
	equal(m.w, string(outcome), seqsOf(ended), victims)
	equal(m.w, "ended otherwise", len(others), 0)
	m.acquired(r, a, node, idle)
	if p.Message.Content.Options.Typed {
		r.held = m.w.clock.now().Add(window)
	}
	r.lines = append(r.lines, l)
}

// window is the debounce time of the model's sessions.
const window = time.Second

func (l *line) interrupts() bool { return l.accept.Message.Content.Options.Mode == chat.ModeInterrupt }

// displaced are the messages that a new one ends. A message that interrupts ends all that wait,
// unless it only joins them. Another one ends the oldest groups while more wait than Cap; the first
// group of a session without a turn, and messages of a run, do not count.
func (r *modelSession) displaced(l *line) (over []*line, outcome chat.Outcome) {
	busy := len(r.in(store.StateRunning)) > 0
	groups := grouped(append(r.queued(), l), busy)
	switch {
	case l.interrupts():
		if busy || len(groups) > 1 {
			over = r.queued()
		}
		return over, chat.OutcomeSuperseded
	case l.accept.Queue.Cap == 0 || len(groups[len(groups)-1]) > 1:
		return nil, chat.OutcomeDropped
	case !busy:
		groups = groups[1:]
	}
	groups = slices.DeleteFunc(groups, func(g []*line) bool { return g[0].run != "" })
	for i := range len(groups) - l.accept.Queue.Cap {
		over = append(over, groups[i]...)
	}
	return over, chat.OutcomeDropped
}

// grouped are messages by their turns: those of a run, and typed messages each within the window of
// the one before, at most three windows after the first. Messages that interrupt have no window
// while a turn runs.
func grouped(lines []*line, busy bool) (groups [][]*line) {
	typed := func(l *line) bool {
		return l.accept.Message.Content.Options.Typed && l.run == "" && (!busy || !l.interrupts())
	}
	for _, l := range lines {
		if i := slices.IndexFunc(groups, func(g []*line) bool { return l.run != "" && g[0].run == l.run }); i >= 0 {
			groups[i] = append(groups[i], l)
			continue
		}
		if n := len(groups); n > 0 && typed(l) {
			g := groups[n-1]
			before := g[len(g)-1]
			if typed(before) && before.seq == l.seq-1 && l.at.Before(before.at.Add(window)) && l.at.Before(g[0].at.Add(3*window)) {
				groups[n-1] = append(g, l)
				continue
			}
		}
		groups = append(groups, []*line{l})
	}
	return groups
}

// acquired updates the owner of the session after an accept: an idle one is taken, one with a live
// owner is not.
func (m *model) acquired(r *modelSession, a store.Accepted, node string, idle bool) {
	switch {
	case m.owned(r):
		equal(m.w, "owner", []any{a.Owner, a.Epoch}, []any{r.owner, r.epoch})
	case idle:
		equal(m.w, "an idle session is taken", []any{a.Owner, a.Epoch}, []any{node, r.epoch + 1})
	}
	equal(m.w, "mine", a.Mine, a.Owner == node && m.alive(a.Owner))
	r.owner, r.epoch = a.Owner, a.Epoch
}

func (m *model) again(t *rapid.T) {
	r := m.session()
	if len(r.lines) == 0 {
		t.Skip("no message yet")
	}
	l := pick(t, "line", r.lines)
	a := m.w.accept(l.accept)
	equal(m.w, "duplicate", []any{a.Duplicate, a.Seq, a.Existing.Outcome}, []any{true, l.seq, l.outcome})
}

func (m *model) start(t *rapid.T) {
	r := m.session()
	queued := r.queued()
	if len(queued) == 0 || !m.owned(r) {
		t.Skip("nothing to start")
	}
	fresh := slices.DeleteFunc(slices.Clone(queued), func(l *line) bool { return l.run != "" })
	if len(fresh) == 0 || queued[0].run != "" {
		m.begin(r, queued[0].run)
		return
	}
	n := rapid.IntRange(1, len(fresh)).Draw(t, "batch")
	for i, l := range fresh[:n] { // a batch ends at a gap in the numbers
		if l.seq != fresh[0].seq+int64(i) {
			n = i
			break
		}
	}
	run := fresh[n-1].accept.Message.ID
	for _, l := range fresh[:n] {
		l.run = run
	}
	m.begin(r, run)
}

// begin starts the waiting messages of a run.
func (m *model) begin(r *modelSession, run string) {
	list := slices.DeleteFunc(r.queued(), func(l *line) bool { return l.run != run })
	var seqs []int64
	for _, l := range list {
		seqs = append(seqs, l.seq)
		l.state = store.StateRunning
	}
	s := m.w.start(r.claim(), run, seqs...)
	equal(m.w, "started", s.Seqs, seqs)
	equal(m.w, "stop_by", s.StopBy, list[0].stopBy)
}

// running picks a run in progress in an owned session.
func (m *model) running(t *rapid.T) (*modelSession, string, []*line) {
	r := m.session()
	list := r.in(store.StateRunning)
	if len(list) == 0 || !m.owned(r) {
		t.Skip("nothing runs")
	}
	run := pick(t, "running", list).run
	return r, run, slices.DeleteFunc(list, func(l *line) bool { return l.run != run })
}

func (m *model) finish(t *rapid.T) {
	r, run, list := m.running(t)
	p := answered(r.claim(), run)
	if rapid.Bool().Draw(t, "fails") {
		p.State, p.Outcome, p.Cause = store.RunFailed, chat.OutcomeFailed, "unknown"
	}
	if list[0].stopBy != "" {
		p = stopped(r.claim(), run)
	}
	f := m.w.finish(p)
	for _, l := range list {
		l.end(p.Outcome)
		if p.Outcome == chat.OutcomeAnswered && l.accept.Message.ID != run && l != leaderOf(list, run) {
			l.outcome = chat.OutcomeMerged
		}
	}
	equal(m.w, "released", f.Released, len(r.open()) == 0)
	if f.Released {
		r.owner = ""
	}
}

// leaderOf is the message that named the run, else the newest: the namesake may have been stopped
// while it waited again.
func leaderOf(list []*line, run string) *line {
	for _, l := range list {
		if l.accept.Message.ID == run {
			return l
		}
	}
	return list[len(list)-1]
}

func (m *model) requeue(t *rapid.T) {
	r, run, list := m.running(t)
	f := m.w.finish(requeued(r.claim(), run))
	equal(m.w, "released", f.Released, false)
	for _, l := range list { // they keep their position, and no accept drops them
		l.state = store.StateWaiting
	}
}

func (m *model) stop(t *rapid.T) {
	r := m.session()
	var waiting []int64
	running := map[string]bool{}
	asked := func(l *line) bool { return l.stopBy != "" }
	if rapid.Bool().Draw(t, "all") {
		for _, l := range r.queued() {
			l.end(chat.OutcomeStopped)
			waiting = append(waiting, l.seq)
		}
		for _, l := range r.in(store.StateRunning) {
			running[l.run] = true
		}
		m.mark(r, running)
		r.stop = int64(len(r.lines))
		s := m.w.stop(r.key, store.StopAll, "")
		equal(m.w, "stopped while waiting", seqsOf(s.Waiting), waiting)
		equal(m.w, "stopped runs", len(s.Running), len(running))
		return
	}
	if list := slices.DeleteFunc(r.in(store.StateRunning), asked); len(list) > 0 {
		running[list[0].run] = true
		m.mark(r, running)
	} else if queued := r.queued(); len(queued) > 0 { // without a window, only messages of a run share a turn
		for _, l := range queued {
			if l == queued[0] || l.run != "" && l.run == queued[0].run {
				l.end(chat.OutcomeStopped)
				waiting = append(waiting, l.seq)
			}
		}
	}
	s := m.w.stop(r.key, store.StopOne, "")
	equal(m.w, "stopped while waiting", seqsOf(s.Waiting), waiting)
	equal(m.w, "stopped runs", len(s.Running), len(running))
}

func (m *model) mark(r *modelSession, runs map[string]bool) {
	for _, l := range r.lines {
		if runs[l.run] && l.run != "" {
			l.stopBy = "bob"
		}
	}
}

func (m *model) drop(t *rapid.T) {
	r := m.session()
	if len(r.lines) == 0 {
		t.Skip("no message yet")
	}
	l := pick(t, "line", r.lines)
	var want []int64
	if l.state == store.StateWaiting {
		l.end(chat.OutcomeSuperseded)
		want = []int64{l.seq}
	}
	list, err := m.w.st.EndWaiting(m.w.ctx, store.EndParams{Session: r.key, Seqs: []int64{l.seq}, Outcome: chat.OutcomeSuperseded})
	m.w.ok(err)
	equal(m.w, "ended", seqsOf(list), want)
}

// time passes, less than a lease, and every node sends heartbeats.
func (m *model) time(t *rapid.T) {
	m.w.clock.advance(time.Duration(rapid.IntRange(1, 1000).Draw(t, "ms")) * time.Millisecond)
	for _, node := range m.nodes {
		m.w.beat(node)
	}
}

// crash lets the lease of one node expire while the other one stays alive.
func (m *model) crash(*rapid.T) {
	i := slices.Index(m.nodes, m.node())
	for range 2 {
		m.w.clock.advance(lease - time.Second)
		m.w.beat(m.nodes[1-i])
	}
	m.nodes[i] = m.w.node()
	m.sweep(m.nodes[1-i])
}

func (m *model) leave(*rapid.T) {
	i := slices.Index(m.nodes, m.node())
	m.w.ok(m.w.st.Unregister(m.w.ctx, m.nodes[i]))
	m.nodes[i] = m.w.node()
	m.sweep(m.nodes[1-i])
}

// sweep checks that exactly the sessions without a live owner are taken, and continues the runs
// that had begun.
func (m *model) sweep(node string) {
	swept := map[chat.SessionKey]taken{}
	for _, t := range m.w.sweep(node) {
		swept[t.Session] = t
	}
	for _, r := range m.rooms {
		t, got := swept[r.key]
		want := len(r.open()) > 0 && !m.owned(r) && !r.held.After(m.w.clock.now())
		equal(m.w, "taken over: "+r.key.String(), got, want)
		if !got {
			continue
		}
		equal(m.w, "claim", t.Claim, store.Claim{Session: r.key, Node: node, Epoch: r.epoch + 1})
		r.owner, r.epoch = t.Node, t.Epoch
		var open []int64
		runs := []string{}
		for _, l := range r.open() {
			open = append(open, l.seq)
			if l.state == store.StateRunning && !slices.Contains(runs, l.run) {
				runs = append(runs, l.run)
			}
		}
		equal(m.w, "messages taken over", seqsOf(t.Messages), open)
		m.runOn(r, runs)
	}
}

// runOn restarts the runs of the old owner.
func (m *model) runOn(r *modelSession, runs []string) {
	for _, run := range runs {
		for _, l := range r.in(store.StateRunning) {
			if l.run == run {
				l.state = store.StateWaiting
			}
		}
		m.begin(r, run)
	}
}

// zombie tries to write with an outdated claim.
func (m *model) zombie(t *rapid.T) {
	r, run, _ := m.running(t)
	c := r.claim()
	c.Epoch -= int64(rapid.IntRange(1, 3).Draw(t, "epochs"))
	_, err := m.w.st.Finish(m.w.ctx, answered(c, run))
	m.w.fails(err, chat.ErrFenced)
	c = r.claim()
	c.Node = "unregistered"
	_, err = m.w.st.Finish(m.w.ctx, answered(c, run))
	m.w.fails(err, chat.ErrFenced)
}

// compare compares everything that the store returns about the sessions with the model.
func (m *model) compare() {
	for _, r := range m.rooms {
		if len(r.lines) == 0 {
			continue
		}
		s := m.w.session(r.key)
		equal(m.w, "last_seq, done_seq and stop_seq of "+r.key.String(),
			[]int64{s.LastSeq, s.DoneSeq, s.StopSeq}, []int64{int64(len(r.lines)), r.done(), r.stop})
		equal(m.w, "waiting", s.Waiting, len(r.queued()))
		equal(m.w, "epoch", s.Epoch, r.epoch)
		if m.owned(r) && len(r.open()) > 0 {
			equal(m.w, "owner", s.Owner, r.owner)
		}
		if s.TakenSeq < s.DoneSeq || s.TakenSeq > s.LastSeq {
			m.w.Fatalf("taken_seq %d is not between %d and %d", s.TakenSeq, s.DoneSeq, s.LastSeq)
		}
		for _, l := range r.lines {
			row := m.w.row(l.accept.Message.ID)
			equal(m.w, fmt.Sprintf("state and outcome of %s %d", r.key, l.seq), []any{row.State, row.Outcome}, []any{l.state, l.outcome})
		}
	}
}

// end ends all work, so that the next attempt is independent of this one.
func (m *model) end() {
	m.w.clock.advance(time.Minute)
	m.nodes = []string{m.w.node(), m.w.node()}
	m.sweep(m.nodes[0])
	for _, r := range m.rooms {
		for open := r.open(); len(open) > 0; open = r.open() {
			l := open[0]
			if l.run == "" {
				l.run = l.accept.Message.ID
			}
			if l.state != store.StateRunning {
				m.begin(r, l.run)
			}
			m.w.finish(stopped(r.claim(), l.run))
			for _, other := range r.in(store.StateRunning) {
				if other.run == l.run {
					other.end(chat.OutcomeStopped)
				}
			}
		}
	}
	m.compare()
	for _, node := range m.nodes {
		m.w.ok(m.w.st.Unregister(m.w.ctx, node))
	}
}
