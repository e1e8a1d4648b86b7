package storetest

import (
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// messageEndsRun ends queued runs with each operation that ends messages, together with the message of a person where the operation ends more than one. Each
// operation returns the rows of the ledger that it ended.
func messageEndsRun(w *world) {
	node := w.node()
	for _, c := range []struct {
		by     string
		end    func(m *messageEnds) []store.Waiting
		ended  int
		state  cron.RunState
		reason cron.Reason
	}{
		{"stop", func(m *messageEnds) []store.Waiting { return m.stop(store.StopOne) }, 1, cron.RunCancelled, cron.ReasonStopped},
		{"stop of all", func(m *messageEnds) []store.Waiting { return m.stop(store.StopAll) }, 2, cron.RunCancelled, cron.ReasonStopped},
		{"drop", (*messageEnds).drop, 1, cron.RunCancelled, cron.ReasonStopped},
		{"interrupt", (*messageEnds).interrupt, 2, cron.RunCancelled, cron.ReasonStopped},
		{"deletion", (*messageEnds).remove, 2, cron.RunCancelled, cron.ReasonStopped},
		{"superseded", func(m *messageEnds) []store.Waiting { return m.outcome(chat.OutcomeSuperseded) }, 2, cron.RunCancelled, cron.ReasonStopped},
		{"stale", func(m *messageEnds) []store.Waiting { return m.outcome(chat.OutcomeStale) }, 2, cron.RunCancelled, cron.ReasonStopped},
		{"failed", func(m *messageEnds) []store.Waiting { return m.outcome(chat.OutcomeFailed) }, 2, cron.RunError, ""},
		{"dead", func(m *messageEnds) []store.Waiting { return m.outcome(chat.OutcomeDead) }, 2, cron.RunInterrupted, ""},
	} {
		m := w.queuedRun(node)
		w.ends(c.by, func() (runs []cron.Run) {
			ended := c.end(m)
			equal(w, c.by+": messages that ended", len(ended), c.ended)
			for _, e := range ended {
				if e.CronRun != nil {
					equal(w, c.by+": message of the run", e.MessageID, m.run.Message.ID)
					runs = append(runs, *e.CronRun)
				}
			}
			equal(w, c.by+": runs that ended", len(runs), 1)
			return runs
		})
		r := w.ledger(m.run.Run.ID)
		equal(w, c.by+": row", []any{r.State, r.Reason, r.FinishedAt}, []any{c.state, c.reason, w.clock.now()})
		equal(w, c.by+": active runs of the job", w.stored(r.JobID).State.Queued, 0)
	}
}

// messageEnds is a run that waits in a session, and a message of a person after it.
type messageEnds struct {
	*world

	node string
	run  cron.Launched
}

func (w *world) queuedRun(node string) *messageEnds {
	w.Helper()
	j := w.job(func(j *cron.Job) { j.Session = "session:of-" + j.ID })
	m := &messageEnds{world: w, node: node, run: w.due(node)}
	equal(w, "job of the run", m.run.Run.JobID, j.ID)
	w.alter(j.ID, func(j *cron.Job) { j.Enabled, j.State.NextRunAt = false, time.Time{} })
	w.acceptText(node, m.run.Message.Session)
	return m
}

func (m *messageEnds) stop(scope store.StopScope) []store.Waiting {
	m.Helper()
	s := try(m.st.Stop(m.ctx, store.StopParams{Session: m.run.Message.Session, Scope: scope, By: "ann", Reason: "stop"})).ok(m)
	return s.Waiting
}

func (m *messageEnds) full(change func(p *store.AcceptParams)) store.Accepted {
	m.Helper()
	p := m.message(m.node, m.run.Message.Session)
	p.Cap, p.Drop = 2, chat.DropOld
	change(&p)
	return m.accept(p)
}

func (m *messageEnds) drop() []store.Waiting { return m.full(func(*store.AcceptParams) {}).Dropped }

func (m *messageEnds) interrupt() []store.Waiting {
	return m.full(func(p *store.AcceptParams) { p.Mode = chat.ModeInterrupt }).Superseded
}

func (m *messageEnds) remove() []store.Waiting {
	m.Helper()
	d := try(m.st.DeleteSession(m.ctx, store.DeleteParams{Session: m.run.Message.Session})).ok(m)
	equal(m.world, "content of messages that ended", slices.ContainsFunc(d.Ended, func(w store.Waiting) bool { return w.Content.Text != "" }), false)
	return d.Ended
}

func (m *messageEnds) outcome(o chat.Outcome) []store.Waiting {
	m.Helper()
	return try(m.st.EndWaiting(m.ctx, store.EndParams{Session: m.run.Message.Session, Seqs: []int64{m.run.Seq, m.run.Seq + 1}, Outcome: o, Reason: "why"})).ok(m)
}
