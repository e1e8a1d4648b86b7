package memory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/memory"
	"laneway/internal/store/storetest"
)

// tables has the columns that the invariants read.
const tables = `
CREATE TABLE nodes (id, lease_until, addr, draining, draining_since);
CREATE TABLE sessions (key, agent, principal, owner, epoch, last_seq, taken_seq, done_seq, stop_seq, waiting, run_limit, debounce_until);
CREATE TABLE inbox (session_key, seq, message_id, dedupe, channel, external_id, body, state, outcome, reason, run_id, merged_into,
	notice_id, accepted_at, ended_at);
CREATE TABLE runs (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, attempt, crashes, state, error, stop_by,
	started_at, ended_at);
CREATE TABLE outbox (id, run_id, n, channel, chat_id, kind, state, node, epoch, last_error, provider_id, created_at);
CREATE TABLE leases (name, owner, epoch, next_offset);
CREATE TABLE cron_jobs (id, owner, key, name, kind, enabled, next_slot, next_run_at, invalid, last_error, revision, fired, updated_at,
	paused_at, paused_until);
CREATE TABLE cron_run_logs (id, job_id, owner, scheduled_for, trigger, state, reason, claimed_at, started_at, finished_at,
	next_attempt_at, run_id, attempt, error, delivery_error);
CREATE TABLE audit_log (id, who, verb, object, before_hash, after_hash, peer, request_id, at);
`

// mirror answers SQL about a memory store: it copies the store into tables, anew when anything happened since the last question.
type mirror struct {
	st      *memory.Store
	ops     atomic.Int64 // operations of the store so far
	changes []string     // statements to run on every copy

	db     *sql.DB
	copied int64 // ops and changes when db was made
}

func (m *mirror) current(tb testing.TB) *sql.DB {
	tb.Helper()
	if now := m.ops.Load() + int64(len(m.changes)); m.db == nil || m.copied != now {
		m.close()
		m.db, m.copied = m.copyTo(tb), now
	}
	return m.db
}

func (m *mirror) close() {
	if m.db != nil {
		m.db.Close()
	}
}

func (m *mirror) query(tb testing.TB, text string) [][]any {
	tb.Helper()
	db := m.current(tb)
	rows, err := db.QueryContext(context.WithoutCancel(tb.Context()), text)
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

func (m *mirror) copyTo(tb testing.TB) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	run := func(text string, args ...any) {
		if _, err := db.ExecContext(context.WithoutCancel(tb.Context()), text, args...); err != nil {
			tb.Fatalf("%s\n%v", text, err)
		}
	}
	run(tables)
	run("BEGIN")
	m.st.Dump(func(table string, columns map[string]any) {
		names := slices.Sorted(maps.Keys(columns))
		values := make([]any, len(names))
		for i, name := range names {
			values[i] = columns[name]
		}
		marks := strings.TrimSuffix(strings.Repeat("?,", len(names)), ",")
		run(fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(names, ","), marks), values...)
	})
	for _, text := range m.changes {
		run(text)
	}
	run("COMMIT")
	return db
}

func open(tb testing.TB, now func() time.Time) storetest.Harness {
	tb.Helper()
	m := &mirror{}
	st := memory.New(memory.Config{Now: now, Before: func(context.Context, string) error {
		m.ops.Add(1)
		return nil
	}})
	m.st = st
	tb.Cleanup(func() {
		m.close()
		if err := st.Close(); err != nil {
			tb.Error(err)
		}
	})
	same := func() store.Store { return st }
	return storetest.Harness{
		Open: same, Reopen: same, Query: m.query,
		Exec: func(_ testing.TB, text string) { m.changes = append(m.changes, text) },
	}
}

func TestMemoryStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, open)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	storetest.RunRecords(t, open)
}

func TestClosedStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	st := memory.New(memory.Config{})
	if err := st.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Ping(t.Context()); !errors.Is(err, chat.ErrStoreUnavailable) {
		t.Fatalf("got %v", err)
	}
}

func TestBeforeIsAskedAndItsErrorStopsTheOperation(t *testing.T) {
	t.Parallel()
	var asked []string
	outage := false
	st := memory.New(memory.Config{Before: func(_ context.Context, op string) error {
		asked = append(asked, op)
		if outage {
			return chat.ErrStoreUnavailable
		}
		return nil
	}})
	if err := st.Register(t.Context(), store.Node{ID: "n1"}); err != nil {
		t.Fatal(err)
	}
	outage = true
	if err := st.Unregister(t.Context(), "n1"); !errors.Is(err, chat.ErrStoreUnavailable) {
		t.Fatalf("got %v", err)
	}
	outage = false
	if _, err := st.Heartbeat(t.Context(), "n1"); err != nil {
		t.Fatalf("the refused operation had an effect: %v", err)
	}
	if want := []string{"Register", "Unregister", "Heartbeat"}; !slices.Equal(asked, want) {
		t.Fatalf("asked %v, want %v", asked, want)
	}
}

func TestLeaseRunsOutInVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Config{})
		if err := st.Register(t.Context(), store.Node{ID: "n1", Lease: 15 * time.Second}); err != nil {
			t.Fatal(err)
		}
		<-time.After(14 * time.Second)
		if _, err := st.Heartbeat(t.Context(), "n1"); err != nil {
			t.Fatal(err)
		}
		<-time.After(15 * time.Second)
		if _, err := st.Heartbeat(t.Context(), "n1"); !errors.Is(err, chat.ErrFenced) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestCallersKeepTheirValues(t *testing.T) {
	t.Parallel()
	st := memory.New(memory.Config{})
	key := chat.MainKey("main")
	params := map[string]any{"a": 1}
	in := chat.Message{Session: key, ID: "m1", Content: chat.Content{Text: "x", Options: chat.Options{Params: params}}}
	if _, err := st.Accept(t.Context(), store.AcceptParams{Message: in}); err != nil {
		t.Fatal(err)
	}
	params["a"] = 2
	m, err := st.MessageByID(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	m.Content.Options.Params["a"] = 3
	again, err := st.MessageByID(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Content.Options.Params["a"]; got != 1 {
		t.Fatalf("the stored value became %v", got)
	}
}
