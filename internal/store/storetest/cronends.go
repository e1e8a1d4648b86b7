package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

func cronEndTests() []test {
	return []test{
		{"EveryEndIsReturned", everyEndIsReturned},
		{"APauseThatEndsIsReturned", pauseEndIsReturned},
		{"TheEndOfAMessageReturnsTheEndOfItsRun", messageEndsRun},
	}
}

// finished reads the finished rows of the ledger.
func (w *world) finished() map[string]cron.Run {
	w.Helper()
	p := try(w.cron().Runs(w.ctx, cron.RunFilter{Limit: many})).ok(w)
	out := map[string]cron.Run{}
	for _, r := range p.Runs {
		out[r.ID] = r
	}
	return out
}

// ends checks the rows that an operation returns as finished against its changes in the ledger.
func (w *world) ends(what string, op func() []cron.Run) (n int) {
	w.Helper()
	before := w.finished()
	got := op()
	var want []cron.Run
	for id, r := range w.finished() {
		if _, was := before[id]; !was {
			want = append(want, r)
		}
	}
	byID := func(a, b cron.Run) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(got, byID)
	slices.SortFunc(want, byID)
	ids := func(list []cron.Run) (out []string) {
		for _, r := range list {
			out = append(out, fmt.Sprint(r.ID, r.State, r.Reason, r.Error, r.ScheduledFor.UTC(), r.FinishedAt.UTC(), r.SlotCount, r.Owner, r.Attempt))
		}
		return out
	}
	equal(w, what, ids(got), ids(want))
	return len(want)
}

// everyEndIsReturned creates a random history, the same each time, and compares the result of each
// operation with the changes in the ledger.
func everyEndIsReturned(w *world) {
	h := &endings{world: w, node: w.node(), dice: rand.New(rand.NewPCG(31, 12)), begun: map[string]cron.Launched{}, ended: map[string]int{}} // no secret
	for _, o := range []cron.OverlapPolicy{cron.OverlapSkip, cron.OverlapCancelPrevious, cron.OverlapConcurrent} {
		h.jobs = append(h.jobs, w.job(func(j *cron.Job) { j.Overlap, j.Missed.Rule = o, cron.MissedFireAll }).ID)
	}
	steps := []func(){h.claim, h.claim, h.start, h.start, h.finish, h.cancelRun, h.cancelJob, h.pause, h.resume, h.enqueue, h.upsert}
	for range 120 {
		steps[h.dice.IntN(len(steps))]()
	}
	h.remove()
	for _, what := range []string{"claim", "end of an attempt", "cancelled run", "cancelled job", "resume", "removal"} {
		equal(w, "ends by "+what, h.ended[what] > 0, true)
	}
}

// endings is a random history of jobs.
type endings struct {
	*world

	node  string
	dice  *rand.Rand
	jobs  []string
	wait  []cron.Launched
	begun map[string]cron.Launched
	ended map[string]int // finished rows by the operation that ended them
}

func (h *endings) check(what string, op func() []cron.Run) { h.ended[what] += h.ends(what, op) }

func (h *endings) job() string { return h.jobs[h.dice.IntN(len(h.jobs))] }

func (h *endings) claim() {
	h.pass(interval*time.Duration(1+h.dice.IntN(3)), h.node)
	h.check("claim", func() []cron.Run {
		c := h.claimDue(h.node)
		h.wait = append(h.wait, c.Launched...)
		return c.Finished
	})
}

// start begins a waiting run, unless it has ended meanwhile.
func (h *endings) start() {
	if len(h.wait) == 0 {
		return
	}
	l := h.wait[0]
	h.wait = h.wait[1:]
	if h.ledger(l.Run.ID).State != cron.RunQueued {
		return
	}
	h.check("start", func() []cron.Run { h.begin(l); return nil })
	h.begun[l.Run.ID] = l
}

func (h *endings) finish() {
	for id, l := range h.begun {
		delete(h.begun, id)
		states := []cron.RunState{cron.RunOK, cron.RunError, cron.RunRetrying}
		state := states[h.dice.IntN(len(states))]
		h.check("end of an attempt", func() (finished []cron.Run) {
			h.endRun(claimOfRun(l), l.Message.ID, state, func(e *cron.AttemptEnd) {
				e.NextAttempt = h.clock.now().Add(interval / 2)
				e.Job = func(old cron.Job, r cron.Run, _ time.Time) *cron.Job {
					finished = []cron.Run{r} // it may be called again
					return &old
				}
			})
			return finished
		})
		return
	}
}

func (h *endings) cancelRun() {
	if len(h.wait) == 0 {
		return
	}
	id := h.wait[h.dice.IntN(len(h.wait))].Run.ID
	h.check("cancelled run", func() []cron.Run { return h.cancelled(cron.CancelParams{RunID: id, Note: "cancelled: enough"}) })
}

func (h *endings) cancelJob() {
	h.check("cancelled job", func() []cron.Run { return h.cancelled(cron.CancelParams{JobID: h.job()}) })
}

func (h *endings) cancelled(p cron.CancelParams) []cron.Run {
	c := try(h.cron().CancelRuns(h.ctx, p)).ok(h)
	return c.Finished
}

func (h *endings) pause() {
	h.check("pause", func() []cron.Run {
		return h.alter(h.job(), func(j *cron.Job) {
			if j.Pause == nil {
				until := h.clock.now().Add(2 * interval)
				j.Pause, j.State.NextRunAt = &cron.Pause{By: "ann", At: h.clock.now(), Until: until}, until
			}
		}).Finished
	})
}

// resume ends a pause by a change: the missed slots become one row.
func (h *endings) resume() {
	id := h.job()
	j := h.stored(id)
	if j.Pause == nil {
		return
	}
	h.pass(interval, h.node)
	row := skippedRow(j, j.State.Next, cron.ReasonPaused)
	h.check("resume", func() []cron.Run {
		c := try(h.cron().ChangeJob(h.ctx, cron.ChangeParams{ID: id, Skipped: &row, Change: func(j cron.Job, now time.Time) (*cron.Job, error) {
			j.Pause = nil
			compiled, err := schedule.Compile(j.Schedule)
			if err != nil {
				return nil, err
			}
			next, _ := j.Timetable(compiled).First(now)
			j.State.Next, j.State.NextRunAt = next.Slot, next.At
			return &j, nil
		}})).ok(h)
		return c.Finished
	})
}

func (h *endings) enqueue() {
	h.clock.advance(time.Millisecond)
	h.check("run by hand", func() []cron.Run {
		e := try(h.cron().EnqueueRuns(h.ctx, cron.EnqueueParams{Node: h.node, JobID: h.job(), Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
			return []cron.Launch{launch(d.Job, cron.TriggerManual, schedule.Fire{Slot: now, At: now})}, nil
		}})).ok(h)
		h.wait = append(h.wait, e.Launched...)
		return e.Finished
	})
}

func (h *endings) upsert() {
	j := h.stored(h.job())
	j.Description += "x"
	h.check("upsert", func() []cron.Run {
		r := try(h.cron().PutJob(h.ctx, putParams(j))).ok(h)
		return r.Finished
	})
}

// remove removes all jobs with their active runs.
func (h *endings) remove() {
	h.enqueue()
	for _, id := range h.jobs {
		h.check("removal", func() []cron.Run {
			c := try(h.cron().ChangeJob(h.ctx, cron.ChangeParams{ID: id, CancelActive: true, CancelReason: cron.ReasonRemoved, Change: func(cron.Job, time.Time) (*cron.Job, error) {
				return nil, nil // removes the job
			}})).ok(h)
			return c.Finished
		})
	}
}

func pauseEndIsReturned(w *world) {
	node := w.node()
	j, other := w.job(nil), w.job(func(j *cron.Job) { j.Overlap = cron.OverlapConcurrent })
	until := w.clock.now().Add(interval)
	w.alter(j.ID, func(j *cron.Job) {
		j.Pause, j.State.NextRunAt = &cron.Pause{By: "ann", At: w.clock.now(), Until: until}, until
	})
	w.pass(interval, node)
	c := w.claimDue(node)
	equal(w, "jobs of the claim", len(c.Jobs), 2)
	equal(w, "resumed", len(c.Resumed), 1)
	equal(w, "the job", []any{c.Resumed[0].ID, c.Resumed[0].Pause == nil, c.Resumed[0].State.NextRunAt}, []any{j.ID, true, w.stored(j.ID).State.NextRunAt})
	w.pass(interval, node)
	equal(w, "resumed later", len(w.claimDue(node).Resumed), 0)
	equal(w, "the other", w.stored(other.ID).Pause == nil, true)
}

// messageEndsRun ends queued runs with each operation that ends messages, together with the message
// of a person where the operation ends more than one. Each operation returns the rows of the ledger
// that it ended.
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

	node  string
	run   cron.Launched
	after string
}

func (w *world) queuedRun(node string) *messageEnds {
	w.Helper()
	j := w.job(func(j *cron.Job) { j.Session = "session:of-" + j.ID })
	m := &messageEnds{world: w, node: node, run: w.due(node)}
	equal(w, "job of the run", m.run.Run.JobID, j.ID)
	w.alter(j.ID, func(j *cron.Job) { j.Enabled, j.State.NextRunAt = false, time.Time{} })
	m.after, _ = w.acceptText(node, m.run.Message.Session)
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
	p.Queue.Cap = 1
	change(&p)
	return m.accept(p)
}

// drop begins the other message first: the first message of a session without a turn is not
// dropped.
func (m *messageEnds) drop() []store.Waiting {
	m.start(store.Claim{Session: m.run.Message.Session, Node: m.node, Epoch: m.run.Epoch}, m.after, m.run.Seq+1)
	return m.full(func(*store.AcceptParams) {}).Dropped
}

func (m *messageEnds) interrupt() []store.Waiting {
	return m.full(func(p *store.AcceptParams) { p.Message.Content.Options.Mode = chat.ModeInterrupt }).Superseded
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

// cronIsolatedTests check that a run in a session of its own consists of a session, a message and a
// run like all others, so the tests of those also cover it.
func cronIsolatedTests() []test {
	return []test{
		{"IsARunAMessageAndASession", isolatedReads},
		{"IsDeletedAndKept", isolatedDelete},
	}
}

func entry(role, text, runID string) chat.TranscriptEntry {
	return chat.TranscriptEntry{RunID: runID, Role: role, Text: text, Tokens: len(text)}
}

// beginSaying starts a launched run with entries of the transcript.
func (w *world) beginSaying(l cron.Launched, entries ...chat.TranscriptEntry) (store.Claim, store.Started) {
	w.Helper()
	c := claimOfRun(l)
	s := try(w.st.Start(w.ctx, store.StartParams{
		Claim: c, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq}, Cron: w.attempt(l.Message.ID, c.Node), Transcript: entries,
	})).ok(w)
	return c, s
}

func (w *world) entriesOf(key chat.SessionKey) []chat.TranscriptEntry {
	w.Helper()
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key, FromStart: true})).ok(w)
	equal(w, "total", tr.Total, len(tr.Entries))
	return tr.Entries
}

func textsOf(list []chat.TranscriptEntry) []string {
	var texts []string
	for _, e := range list {
		texts = append(texts, e.Role+": "+e.Text)
	}
	return texts
}

func isolatedReads(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	key, id := l.Message.Session, l.Message.ID
	equal(w, "launched", []any{l.Seq, l.Mine, l.Owner, l.Behind}, []any{int64(1), true, node, 0})

	m := w.row(id)
	equal(w, "the message that waits", []any{m.Session, m.Seq, m.State, m.Principal, m.Channel, m.Lane, m.Content.Text, m.AcceptedAt, m.RunID},
		[]any{key, int64(1), store.StateWaiting, j.Principal, "cron", "cron", "work", l.Run.ClaimedAt, ""})
	equal(w, "unfinished", w.unfinished(), 1)
	waiting, total, err := w.st.PendingInputs(w.ctx, key, 0, many)
	w.ok(err)
	equal(w, "pending", append(idsOf(waiting), literal(int64(total))), []string{id, "1"})
	s := w.session(key)
	equal(w, "the session that waits", []any{s.Owner, s.Epoch, s.LastSeq, s.TakenSeq, s.DoneSeq, s.Waiting, s.SessionID, s.Principal, s.RunLimit},
		[]any{node, l.Epoch, int64(1), int64(0), int64(0), 1, l.SessionID, j.Principal, 1})

	w.clock.advance(time.Second)
	began := w.clock.now()
	c, started := w.beginSaying(l, entry(chat.RoleUser, "work", id))
	equal(w, "started", []any{started.Seqs, started.Attempt, started.SessionID, started.Principal, started.StartedAt, len(started.Notes)},
		[]any{[]int64{1}, 1, l.SessionID, j.Principal, began, 0})
	equal(w, "the first entry", []any{started.Entries[0].Seq, started.Entries[0].At}, []any{int64(1), began})
	r := w.run(id)
	equal(w, "the run", []any{r.Session, r.SeqFrom, r.SeqTo, r.Owner, r.Epoch, r.Attempt, r.Crashes, r.State, r.StartedAt, r.QueuedAt},
		[]any{key, int64(1), int64(1), node, c.Epoch, 1, 0, store.RunRunning, began, l.Run.ClaimedAt})
	equal(w, "its message", []any{w.row(id).State, w.row(id).RunID}, []any{store.StateRunning, id})
	equal(w, "active", w.session(key).ActiveRuns, []string{id})

	w.clock.advance(time.Second)
	p := w.ending(c, id, cron.RunOK, func(e *cron.AttemptEnd) {
		e.Usage = chat.Usage{InputTokens: 3, OutputTokens: 4, Model: "m", Provider: "p"}
	})
	p.Usage, p.Preview, p.Transcript = p.Cron.Usage, "it is", []chat.TranscriptEntry{entry(chat.RoleAssistant, "it is done", id), entry(chat.RoleSystem, "a note", id)}
	f := w.finish(p)
	equal(w, "finished", []any{f.Released, f.EndedAt, f.Entries[0].Seq, f.Entries[1].Seq}, []any{true, w.clock.now(), int64(2), int64(3)})
	w.ended(id, chat.OutcomeAnswered)
	r = w.run(id)
	equal(w, "the ended run", []any{r.State, r.EndedAt, r.Usage}, []any{store.RunOK, w.clock.now(), p.Usage})
	s = w.session(key)
	equal(w, "the ended session", []any{s.Owner, s.DoneSeq, s.Waiting, s.LastRunID, s.LastState, s.Preview, s.TotalTokens, s.UpdatedAt, len(s.ActiveRuns)},
		[]any{"", int64(1), 0, id, store.RunOK, "it is", 7, w.clock.now(), 0})
	entries := w.entriesOf(key)
	equal(w, "transcript", textsOf(entries), []string{"user: work", "assistant: it is done", "system: a note"})
	equal(w, "times", []time.Time{entries[0].At, entries[2].At}, []time.Time{began, w.clock.now()})
	equal(w, "tokens", entries[1].Tokens, len("it is done"))
}

func isolatedDelete(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	c, _ := w.beginSaying(l, entry(chat.RoleUser, "work", l.Message.ID))
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: l.Message.Session})).fails(w, chat.ErrConflict)
	w.endRun(c, l.Message.ID, cron.RunOK, nil)
	out := try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: l.Message.Session, KeepTranscript: true})).ok(w)
	equal(w, "deleted", []any{out.Deleted, out.Kept}, []any{true, l.SessionID})
	try(w.st.Session(w.ctx, l.Message.Session, "")).fails(w, chat.ErrSessionNotFound)
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: l.Message.Session, SessionID: l.SessionID})).ok(w)
	equal(w, "kept", textsOf(tr.Entries), []string{"user: work"})
	equal(w, "the ledger", w.ledger(l.Run.ID).State, cron.RunOK)
	_, a := w.acceptText(node, l.Message.Session)
	equal(w, "a new session of the key", []any{a.Seq, a.Epoch, a.Created}, []any{int64(2), l.Epoch + 1, true})
}
