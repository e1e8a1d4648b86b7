package storetest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

// CheckInvariants runs every invariant and fails the test for each row that one returns: at the time now, for nodes with this lease and queues
// with this cap.
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

// brokenRules are the ids of the invariants that return rows. On PostgreSQL they are one statement, which is planned once per connection: separate statements
// with inlined values took 18 ms after each test. SQLite does not compile one large statement faster than many small ones.
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

// allRules is one statement for PostgreSQL that returns which invariants have rows, and the names of its values in the order of their placeholders.
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
