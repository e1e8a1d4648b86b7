package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite" // the driver sqlite
)

// tables has the columns that the invariants read.
const tables = `
CREATE TABLE nodes (id, lease_until, addr, draining, draining_since);
CREATE TABLE sessions (key, agent, principal, owner, epoch, last_seq, taken_seq, done_seq, stop_seq, waiting, run_limit, debounce_until);
CREATE TABLE inbox (session_key, seq, message_id, dedupe, channel, external_id, body, state, outcome, reason, run_id, merged_into,
	notice_id, accepted_at, ended_at);
CREATE TABLE runs (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, attempt, crashes, state, error, detail, stop_by,
	started_at, ended_at);
CREATE TABLE outbox (id, run_id, n, channel, chat_id, kind, state, node, epoch, last_error, provider_id, created_at);
CREATE TABLE leases (name, owner, epoch, next_offset);
CREATE TABLE cron_jobs (id, owner, key, name, kind, enabled, next_slot, next_run_at, invalid, last_error, revision, fired, updated_at,
	paused_at, paused_until);
CREATE TABLE cron_run_logs (id, job_id, owner, scheduled_for, trigger, state, reason, claimed_at, started_at, finished_at,
	next_attempt_at, run_id, attempt, error, delivery_error, session_key, lane, node);
CREATE TABLE hold (who);
CREATE TABLE audit_log (id, who, verb, object, before_hash, after_hash, peer, request_id, at);
`

var tableNames = regexp.MustCompile(`CREATE TABLE (\w+)`)

// Dumper is a store that knows no SQL and can show its rows.
type Dumper interface {
	// Dump calls row for every row, with the columns that the invariants read.
	Dump(row func(table string, columns map[string]any))
}

// Mirror answers SQL about a store that knows none: it copies the rows into tables, anew when anything happened since the last question. Close
// it at the end. One goroutine asks; any may call Changed.
type Mirror struct {
	st      Dumper
	ops     atomic.Int64 // changes of the store so far
	changes []string     // statements to run on every copy

	db      *sql.DB
	inserts map[string]*sql.Stmt // by text; they end with db
	copied  int64                // ops and changes when the rows were copied; -1 = never
}

// NewMirror makes a mirror of st.
func NewMirror(st Dumper) *Mirror {
	return &Mirror{st: st, inserts: map[string]*sql.Stmt{}, copied: -1}
}

// Changed marks that the store may have changed.
func (m *Mirror) Changed() { m.ops.Add(1) }

// Exec runs a statement on every copy from now on; it is Exec of a [Harness].
func (m *Mirror) Exec(_ testing.TB, text string) { m.changes = append(m.changes, text) }

func (m *Mirror) current(tb testing.TB) *sql.DB {
	tb.Helper()
	if m.db == nil {
		m.db = emptyTables(tb)
	}
	if now := m.ops.Load() + int64(len(m.changes)); m.copied != now {
		m.copyRows(tb)
		m.copied = now
	}
	return m.db
}

// Close gives the copy back.
func (m *Mirror) Close() {
	if m.db != nil {
		_ = m.db.Close() // it lives in memory
	}
}

// Query runs a SELECT on a current copy; it is Query of a [Harness].
func (m *Mirror) Query(tb testing.TB, text string, args ...any) [][]any {
	tb.Helper()
	db := m.current(tb)
	rows, err := db.QueryContext(context.WithoutCancel(tb.Context()), text, args...)
	if err != nil {
		tb.Fatalf("%s\n%v", text, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		tb.Fatal(err)
	}
	var all [][]any
	for rows.Next() {
		row := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			tb.Fatal(err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return all
}

func emptyTables(tb testing.TB) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	run(tb, db, tables)
	return db
}

func run(tb testing.TB, db *sql.DB, text string) {
	tb.Helper()
	if _, err := db.ExecContext(context.WithoutCancel(tb.Context()), text); err != nil {
		tb.Fatalf("%s\n%v", text, err)
	}
}

// copyRows replaces every row. The tables and the statements that insert stay, because compiling them costs more than a copy.
func (m *Mirror) copyRows(tb testing.TB) {
	tb.Helper()
	run(tb, m.db, "BEGIN")
	for _, made := range tableNames.FindAllStringSubmatch(tables, -1) {
		run(tb, m.db, "DELETE FROM "+made[1])
	}
	m.st.Dump(func(table string, columns map[string]any) {
		names := slices.Sorted(maps.Keys(columns))
		values := make([]any, len(names))
		for i, name := range names {
			values[i] = columns[name]
		}
		m.insert(tb, table, names, values)
	})
	for _, text := range m.changes {
		run(tb, m.db, text)
	}
	run(tb, m.db, "COMMIT")
}

func (m *Mirror) insert(tb testing.TB, table string, names []string, values []any) {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	text := insertInto(table, names)
	statement, kept := m.inserts[text]
	if !kept {
		var err error
		if statement, err = m.db.PrepareContext(ctx, text); err != nil {
			tb.Fatalf("%s\n%v", text, err)
		}
		m.inserts[text] = statement
	}
	if _, err := statement.ExecContext(ctx, values...); err != nil {
		tb.Fatalf("%s\n%v", text, err)
	}
}

func insertInto(table string, names []string) string {
	marks := strings.TrimSuffix(strings.Repeat("?,", len(names)), ",")
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(names, ","), marks)
}
