package storetest

import (
	"maps"
	"strconv"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// breach is a statement that violates exactly one invariant.
type breach struct {
	id     string
	sql    string
	values map[string]string // parameters of the invariants, where they differ from the usual ones
}

func literal(n int64) string { return strconv.FormatInt(n, 10) }

// breaks has one breach for each invariant. It uses the names of [world.example].
func breaks() []breach {
	return []breach{
		{id: "I1.state", sql: `UPDATE inbox SET state = 'lost' WHERE message_id = 'a3'`},
		{id: "I1.notice", sql: `DELETE FROM outbox WHERE kind = 'notice'`},
		{id: "I1.merged", sql: `UPDATE inbox SET merged_into = 999 WHERE message_id = 'c1'`},
		{id: "I1.answered", sql: `UPDATE runs SET state = 'failed' WHERE id = 'a1'`},
		{id: "I1.behind", sql: `UPDATE sessions SET done_seq = 2, taken_seq = 3 WHERE key = 'agent:main:a'`},
		{id: "I3.now", sql: `UPDATE sessions SET run_limit = 0 WHERE key = 'agent:main:a'`},
		{id: "I3.past", sql: `UPDATE runs SET ended_at = ended_at + 60000 WHERE id = 'b1'`},
		{id: "I4.lane", sql: `UPDATE runs SET lane = 'cron' WHERE id = 'a2'`, values: map[string]string{"cron": "0"}},
		{id: "I5.order", sql: `UPDATE runs SET started_at = started_at - 60000, ended_at = started_at - 60000 WHERE id = 'b2'`},
		{id: "I5.stranded", sql: `UPDATE inbox SET accepted_at = 1 WHERE session_key = 'agent:main:free'`},
		{id: "I6.receipt", sql: `UPDATE outbox SET provider_id = '' WHERE run_id = 'a1'`},
		{id: "I7.drain", sql: `UPDATE nodes SET draining = true, draining_since = 1 WHERE id = 'n1'`},
		{id: "I7.left", sql: `UPDATE runs SET owner = 'absent' WHERE id = 'a2'`},
		{id: "I8.seq", sql: `UPDATE sessions SET stop_seq = last_seq + 1 WHERE key = 'agent:main:a'`},
		{id: "I8.epoch", sql: `UPDATE runs SET epoch = 99 WHERE id = 'a2'`},
		{id: "I8.twice", sql: `UPDATE runs SET seq_from = 1 WHERE id = 'b2'`},
		{id: "I8.effect", sql: `UPDATE outbox SET epoch = 99 WHERE run_id = 'a1'`},
		{id: "I8.branch", sql: `INSERT INTO branches (session_key, session_id, parent_key, parent_id, parent_seq, depth) VALUES ('a', 'b', 'absent', 'c', 1, 1)`},
		{id: "I9.secret", sql: `UPDATE runs SET error = 'the key ` + canary + ` is wrong' WHERE id = 'a1'`},
		{
			id: "I10.queue", values: map[string]string{"cap": "1"},
			sql: `UPDATE inbox SET state = 'waiting', run_id = (SELECT run_id FROM inbox WHERE message_id = 'a3') WHERE message_id = 'a2'`,
		},
		{id: "I2.twice", sql: `UPDATE cron_run_logs SET scheduled_for = 1, trigger = CASE state WHEN 'ok' THEN 'schedule' ELSE 'catchup' END
			WHERE state IN ('ok', 'running')`},
		{id: "I2.state", sql: `UPDATE cron_run_logs SET state = 'lost' WHERE state = 'ok'`},
		{id: "I2.retry", sql: `UPDATE cron_run_logs SET next_attempt_at = 5 WHERE state = 'ok'`},
		{id: "I2.stuck", sql: `UPDATE cron_run_logs SET run_id = 'nothing', node = 'nothing' WHERE state = 'running'`},
		{id: "I2.lost", sql: `UPDATE cron_run_logs SET run_id = 'nothing' WHERE state = 'queued'`},
		{id: "I2.dead", sql: `UPDATE cron_jobs SET next_run_at = 0 WHERE id = 'j1'`},
		{id: "I2.late", sql: `UPDATE cron_jobs SET next_run_at = 1 WHERE id = 'j1'`},
		{id: "I10.jobs", sql: `UPDATE cron_jobs SET owner = 'ann' WHERE id = 'j2'`, values: map[string]string{"jobs": "1"}},
		{id: "I10.ledger", sql: `UPDATE cron_run_logs SET finished_at = 1 WHERE state = 'ok'`, values: map[string]string{"keep": "5"}},
		{id: "I10.nodes", sql: `UPDATE nodes SET lease_until = 1 WHERE id = 'n2'`},
	}
}

// breakOne checks that no invariant returns rows on good data, and that exactly one does after the breach.
func (w *world) breakOne(b breach) {
	w.Helper()
	w.example()
	values := w.values()
	maps.Copy(values, b.values)
	if b.id != "I4.lane" { // its limit is that of the lane to which the statement moves the run
		equal(w, "violations of good data", w.brokenRules(values), []string{})
	}
	w.broken = true
	w.h.Exec(w.tb, b.sql)
	equal(w, "violations after the breach", w.speaking(values), []string{b.id})
	equal(w, "violations after the breach, as tests ask for them", w.brokenRules(values), []string{b.id})
}

// speaking lists the invariants that return rows; the rows must begin with the id.
func (w *world) speaking(values map[string]string) []string {
	w.Helper()
	var ids []string
	for _, inv := range store.Invariants() {
		rows := w.violations(inv, values)
		if len(rows) == 0 {
			continue
		}
		if got, isText := rows[0][0].(string); !isText || got != inv.ID {
			w.Errorf("the rows of %s begin with %v", inv.ID, rows[0][0])
		}
		ids = append(ids, inv.ID)
	}
	return ids
}

// example makes rows of every kind. Node n1 runs sessions a, b and c, n2 does nothing, and session free has no owner:
//
//	a     a1 answered with a delivered reply, a2 running, a3 waiting
//	b     b1 and b2 answered one after the other
//	c     c1 merged into c2
//	free  f1 waiting
//	tele  t1 (update 41) dropped with a notice
//
// Job j1 of ann has runs that are ok, running, queued, retrying and skipped; job j2 of bob has no runs.
func (w *world) example() {
	w.Helper()
	for _, id := range []string{"n1", "n2"} {
		w.ok(w.st.Register(w.ctx, store.Node{ID: id, Addr: "127.0.0.1:1", Version: "test", Lease: lease}))
	}
	w.exampleRun("a", "a1")
	list := try(w.st.ClaimOutgoing(w.ctx, store.ClaimOutgoingParams{Node: "n1", Channels: []string{"web"}, Limit: many})).ok(w)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: "n1", ID: list[0].ID, ProviderID: "provider-1"})).ok(w)
	a2 := w.exampleMessage("a", "a2")
	w.exampleMessage("a", "a3")
	w.start(claimOf(exampleKey("a"), a2), "a2", a2.Seq)
	w.exampleRun("b", "b1")
	w.exampleRun("b", "b2")
	c1, c2 := w.exampleMessage("c", "c1"), w.exampleMessage("c", "c2")
	w.start(claimOf(exampleKey("c"), c1), "c2", c1.Seq, c2.Seq)
	w.finish(answered(claimOf(exampleKey("c"), c1), "c2"))
	free := w.message("n1", exampleKey("free"))
	free.Message.ID, free.Take = "f1", false
	w.accept(free)
	w.exampleDrop()
	w.exampleCron()
}

func (w *world) exampleCron() {
	w.Helper()
	j1 := w.job(func(j *cron.Job) { j.ID, j.Overlap = "j1", cron.OverlapConcurrent })
	w.job(func(j *cron.Job) { j.ID, j.Owner = "j2", "bob" })
	var runs []cron.Launched
	for range 4 {
		runs = append(runs, w.byHand("n1", j1))
		w.clock.advance(time.Millisecond)
	}
	w.endRun(w.begin(runs[0]), runs[0].Message.ID, cron.RunOK, nil)
	w.begin(runs[1])
	w.failAgain(runs[3], time.Hour)
	row := skippedRow(j1, j1.State.Next.Add(-interval), cron.ReasonOverlap)
	try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: "j1", Skipped: &row, Change: func(j cron.Job, _ time.Time) (*cron.Job, error) {
		return &j, nil
	}})).ok(w)
}

func exampleKey(rest string) chat.SessionKey { return chat.SessionKey{Agent: "main", Rest: rest} }

func (w *world) exampleMessage(rest, id string) store.Accepted {
	w.Helper()
	p := w.message("n1", exampleKey(rest))
	p.Message.ID = id
	return w.accept(p)
}

func (w *world) exampleRun(rest, id string) {
	w.Helper()
	a := w.exampleMessage(rest, id)
	c := claimOf(exampleKey(rest), a)
	w.start(c, id, a.Seq)
	w.clock.advance(10 * time.Millisecond)
	p := answered(c, id)
	p.Outgoing = []store.Outgoing{{Session: c.Session, Kind: store.KindReply, Text: "done", Target: chat.Target{Channel: "web", ChatID: id}}}
	w.finish(p)
	w.clock.advance(10 * time.Millisecond)
}

func (w *world) exampleDrop() {
	w.Helper()
	key := exampleKey("tele")
	_, got, err := w.st.AcquireLease(w.ctx, "telegram:1", "n1")
	w.ok(err)
	equal(w, "lease taken", got, true)
	p := w.message("n1", key)
	p.Message.Channel, p.Message.ExternalID = "telegram:1", 41
	a := w.accept(p)
	ended := try(w.st.EndWaiting(w.ctx, store.EndParams{
		Session: key, Seqs: []int64{a.Seq}, Outcome: chat.OutcomeDropped, Reason: "queue_full",
		Notice: &store.Outgoing{Session: key, Kind: store.KindNotice, Text: "dropped", Target: chat.Target{Channel: "telegram:1", ChatID: "5"}},
	})).ok(w)
	equal(w, "ended", seqsOf(ended), []int64{a.Seq})
}
