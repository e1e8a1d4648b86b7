package storetest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"laneway/internal/chat"
	"laneway/internal/store"
)

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

// sweep checks that exactly the sessions without a live owner are taken, and continues the runs that had begun.
func (m *model) sweep(node string) {
	taken := map[chat.SessionKey]store.Taken{}
	for _, t := range m.w.sweep(node) {
		taken[t.Session] = t
	}
	for _, r := range m.rooms {
		t, got := taken[r.key]
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
		if s.Waiting < len(r.in(store.StateWaiting)) || s.Waiting > len(r.queued()) {
			m.w.Fatalf("%d wait by the session row; by the model %d, and %d with the held ones", s.Waiting, len(r.in(store.StateWaiting)), len(r.queued()))
		}
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
