package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// canary is a string that no row may contain.
const canary = "canary-7f3a"

var parameterName = regexp.MustCompile(`:[a-z]+`)

// bind substitutes values for the names in an invariant. Values are SQL literals.
func bind(inv store.Invariant, values map[string]string) string {
	return parameterName.ReplaceAllStringFunc(inv.SQL, func(found string) string { return values[found[1:]] })
}

// values are the parameters of the invariants for the final check.
func (w *world) values() map[string]string { return valuesAt(w.clock.now(), lease, w.cap) }

func valuesAt(now time.Time, lease time.Duration, limit int) map[string]string {
	at := func(back time.Duration) string { return literal(now.Add(-back).UnixMilli()) }
	return map[string]string{
		"now": at(0), "gone": at(lease + 5*time.Second), "drain": at(32 * time.Second), "since": at(24 * time.Hour),
		"main": literal(1 << 20), "subagent": literal(1 << 20), "team": literal(1 << 20), "cron": literal(1 << 20),
		"cap": literal(int64(limit)), "secret": "'" + canary + "'", "jobs": literal(1 << 20), "keep": "1",
	}
}

// CheckInvariants runs every invariant and fails the test for each row that one returns: at the
// time now, for nodes with this lease and queues with this cap.
func CheckInvariants(tb testing.TB, query func(tb testing.TB, sql string, args ...any) [][]any, now time.Time, lease time.Duration, limit int) {
	tb.Helper()
	values := valuesAt(now, lease, limit)
	for _, inv := range store.Invariants() {
		if rows := query(tb, strings.TrimSpace(bind(inv, values))); len(rows) > 0 {
			tb.Errorf("%s is broken: %s\n%v", inv.ID, inv.Rule, rows)
		}
	}
}

// violations runs one invariant.
func (w *world) violations(inv store.Invariant, values map[string]string) [][]any {
	w.Helper()
	return w.h.Query(w.tb, strings.TrimSpace(bind(inv, values)))
}

func (w *world) checkInvariants(when string) {
	w.Helper()
	if w.h.Query == nil {
		return
	}
	for _, id := range w.brokenRules(w.values()) {
		all := store.Invariants()
		inv := all[slices.IndexFunc(all, func(inv store.Invariant) bool { return inv.ID == id })]
		w.Errorf("%s: %s is broken: %s\n%v", when, inv.ID, inv.Rule, w.violations(inv, w.values()))
	}
}

// brokenRules are the ids of the invariants that return rows. On PostgreSQL they are one statement,
// which is planned once per connection: separate statements with inlined values took 18 ms after
// each test. SQLite does not compile one large statement faster than many small ones.
func (w *world) brokenRules(values map[string]string) []string {
	w.Helper()
	if w.st.Kind() != "postgres" {
		return w.speaking(values)
	}
	text, names := allRules()
	args := make([]any, len(names))
	for i, name := range names {
		if n, err := strconv.ParseInt(values[name], 10, 64); err == nil {
			args[i] = n
		} else {
			args[i] = strings.Trim(values[name], "'")
		}
	}
	var ids []string
	for _, row := range w.h.Query(w.tb, text, args...) {
		ids = append(ids, fmt.Sprint(row[0]))
	}
	return ids
}

// allRules is one statement for PostgreSQL that returns which invariants have rows, and the names
// of its values in the order of their placeholders.
func allRules() (text string, names []string) {
	var all []string
	for _, inv := range store.Invariants() {
		rule := parameterName.ReplaceAllStringFunc(inv.SQL, func(found string) string {
			name := found[1:]
			i := slices.Index(names, name)
			if i < 0 {
				i, names = len(names), append(names, name)
			}
			if name == "secret" {
				return fmt.Sprintf("$%d::text", i+1)
			}
			return fmt.Sprintf("$%d::bigint", i+1)
		})
		all = append(all, fmt.Sprintf("SELECT '%s' AS id WHERE EXISTS (%s)", inv.ID, strings.TrimSpace(rule)))
	}
	return strings.Join(all, "\nUNION ALL\n"), names
}

// leaks write the canary to every place where no secret may be.
func leaks() []string {
	return []string{
		`UPDATE runs SET error = 'x ` + canary + `' WHERE id = 'a1'`,
		`UPDATE outbox SET last_error = '` + canary + ` x' WHERE run_id = 'a1'`,
		`UPDATE nodes SET addr = '` + canary + `' WHERE id = 'n2'`,
		`UPDATE cron_run_logs SET error = '` + canary + `' WHERE state = 'ok'`,
		`UPDATE cron_run_logs SET delivery_error = '` + canary + `' WHERE state = 'ok'`,
		`UPDATE cron_jobs SET last_error = '` + canary + `' WHERE id = 'j1'`,
		`INSERT INTO audit_log (id, who, verb, object, at) VALUES ('1', 'ann', 'add', 'job ` + canary + `', 1)`,
	}
}

func runInvariants(t *testing.T, open Opener) {
	t.Helper()
	for _, b := range breaks() {
		t.Run(b.id, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open)
			if w.h.Exec != nil {
				w.breakOne(b)
			}
		})
	}
	for _, sql := range leaks() {
		t.Run("I9.secret/"+strings.Join(strings.Fields(sql)[:4], " "), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open)
			if w.h.Exec != nil {
				w.breakOne(breach{id: "I9.secret", sql: sql})
			}
		})
	}
}

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

// breakOne checks that no invariant returns rows on good data, and that exactly one does after the
// breach.
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

// example makes rows of every kind. Node n1 runs sessions a, b and c, n2 does nothing, and session
// free has no owner:
//
//	a     a1 answered with a delivered reply, a2 running, a3 waiting
//	b     b1 and b2 answered one after the other
//	c     c1 merged into c2
//	free  f1 waiting
//	tele  t1 (update 41) dropped with a notice
//
// Job j1 of ann has runs that are ok, running, queued, retrying and skipped; job j2 of bob has no
// runs.
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

// Query runs a SELECT and returns its rows, each with its columns in order. It also works in a
// cleanup of the test.
func Query(tb testing.TB, db *sql.DB, text string, args ...any) [][]any {
	tb.Helper()
	rows, err := db.QueryContext(context.WithoutCancel(tb.Context()), text, args...)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		tb.Fatal(err)
	}
	var out [][]any
	for rows.Next() {
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			tb.Fatal(err)
		}
		out = append(out, values)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return out
}

// ReviewedSchema compares the schema of an engine with the file next to the migrations, or writes
// that file.
func ReviewedSchema(tb testing.TB, path, schema string, write bool) {
	tb.Helper()
	schema = "The tables, columns and indexes that the migrations make. After a new migration write it again: make schema\n\n" + schema
	if write {
		if err := os.WriteFile(path, []byte(schema), 0o600); err != nil {
			tb.Fatal(err)
		}
		return
	}
	content, err := os.ReadFile(path) // a file of the repository
	if err != nil {
		tb.Fatal(err)
	}
	have, want := strings.Split(schema, "\n"), strings.Split(string(content), "\n")
	for i := range max(len(have), len(want)) {
		if i >= len(have) || i >= len(want) || have[i] != want[i] {
			line := func(list []string) string { return strings.Join(list[min(i, len(list)):min(i+1, len(list))], "") }
			tb.Fatalf("%s, line %d: the schema has %q, the file %q; if the change is meant: make schema", path, i+1, line(have), line(want))
		}
	}
}
