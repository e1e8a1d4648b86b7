package postgres_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

// BenchmarkCost reports the cost of a fire and a turn in figures that are almost independent of the
// load of the machine: heap rows and index entries written, bytes of the log, statements, and the
// processor time of client and server.
func BenchmarkCost(b *testing.B) {
	for _, workers := range []int{2, 16, 30, 32, 128} {
		b.Run(fmt.Sprintf("fire/workers=%d", workers), func(b *testing.B) { benchFireCost(b, workers) })
	}
	for _, workers := range []int{1, 2, 16, 30, 32, 128} {
		b.Run(fmt.Sprintf("turn/workers=%d", workers), func(b *testing.B) { benchTurnCost(b, workers) })
	}
}

func benchFireCost(b *testing.B, workers int) {
	b.Helper()
	m := newMeter(b)
	s := m.open(b)
	addJobs(b, m.url, b.N)
	exec(b, m.url, `VACUUM ANALYZE cron_jobs`)
	b.ReportAllocs()
	m.begin(b)
	b.ResetTimer()
	fireAll(b, s, workers)
	m.report(b)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "fires/s")
}

func benchTurnCost(b *testing.B, workers int) {
	b.Helper()
	m := newMeter(b)
	s := m.open(b)
	do := func(i int) error {
		key := chat.SessionKey{Agent: "main", Rest: fmt.Sprintf("w%d", max(i, -i)%workers)}
		return talk(b.Context(), s, key, fmt.Sprintf("m-%d", i))
	}
	share(b, workers, numbers(-workers, 0), do)
	b.ReportAllocs()
	m.begin(b)
	b.ResetTimer()
	share(b, workers, numbers(0, b.N), do)
	m.report(b)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
}

// talk is a turn with a transcript and a reply.
func talk(ctx context.Context, s *postgres.Store, key chat.SessionKey, id string) error {
	a, err := s.Accept(ctx, message("n1", key, id))
	if err != nil {
		return err
	}
	c := store.Claim{Session: key, Node: "n1", Epoch: a.Epoch}
	_, err = s.Start(ctx, store.StartParams{
		Claim: c, RunID: id, Lane: "main", Seqs: []int64{a.Seq}, Transcript: []chat.TranscriptEntry{{RunID: id, Role: chat.RoleUser, Text: "a question"}},
	})
	if err != nil {
		return err
	}
	_, err = s.Finish(ctx, store.FinishParams{
		Claim: c, RunID: id, State: store.RunOK, Outcome: chat.OutcomeAnswered,
		Transcript: []chat.TranscriptEntry{{RunID: id, Role: chat.RoleAssistant, Text: "an answer"}},
		Outgoing:   []store.Outgoing{{Session: key, Kind: store.KindReply, Target: chat.Target{Channel: "web", ChatID: key.Rest}, Text: "an answer"}},
	})
	return err
}

// share distributes the items over several workers, each of which takes every workers-th one.
func share[T any](b *testing.B, workers int, items []T, do func(T) error) {
	b.Helper()
	var group errgroup.Group
	for w := range workers {
		group.Go(func() error {
			for i := w; i < len(items); i += workers {
				if err := do(items[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// meter measures what a database and this process do between begin and report.
type meter struct {
	url        string
	conn       *pgx.Conn
	statements atomic.Int64

	lsn    string
	client int64 // microseconds
	server int64
}

func newMeter(b *testing.B) *meter {
	b.Helper()
	url := testpg.DB(b)
	m := &meter{url: url, conn: connect(b, url)}
	b.Cleanup(func() { _ = m.conn.Close(context.WithoutCancel(b.Context())) })
	execOn(b, m.conn, `CREATE EXTENSION IF NOT EXISTS pg_walinspect`)
	return m
}

// open opens the store with a node, and counts its statements.
func (m *meter) open(b *testing.B) *postgres.Store {
	b.Helper()
	s := open(b, postgres.Traced(postgres.Config{URL: m.url}, m))
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := s.Register(b.Context(), store.Node{ID: "n1", Lease: 24 * time.Hour}); err != nil {
		b.Fatal(err)
	}
	return s
}

// TraceQueryStart implements pgx.QueryTracer.
func (m *meter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	m.statements.Add(1)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (m *meter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (m *meter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (m *meter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	m.statements.Add(1)
}

// TraceBatchEnd implements pgx.BatchTracer.
func (m *meter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (m *meter) begin(b *testing.B) {
	b.Helper()
	m.lsn = fmt.Sprint(queryOn(b, m.conn, `SELECT pg_current_wal_insert_lsn()::text`)[0][0])
	m.statements.Store(0)
	m.client, m.server = clientTime(b), m.serverTime(b)
}

// logSQL counts the log records written since a position, %s, by kind.
const logSQL = `
SELECT count(*) FILTER (WHERE resource_manager = 'Btree' AND record_type ~ '^(INSERT_LEAF|INSERT_POST|SPLIT)'),
	count(*) FILTER (WHERE resource_manager IN ('Heap', 'Heap2') AND record_type ~ '^(INSERT|UPDATE|HOT_UPDATE|MULTI_INSERT)'),
	sum(record_length)::bigint
FROM pg_get_wal_records_info('%s', pg_current_wal_flush_lsn())`

func (m *meter) report(b *testing.B) {
	b.Helper()
	b.StopTimer()
	per := func(v any, unit string) {
		n, ok := v.(int64)
		if !ok {
			b.Fatalf("%s is %v", unit, v)
		}
		b.ReportMetric(float64(n)/float64(b.N), unit)
	}
	client, server := clientTime(b), m.serverTime(b)
	per(client-m.client+server-m.server, "cpu-us/op")
	per(server-m.server, "server-us/op")
	per(m.statements.Load(), "statements/op")
	execOn(b, m.conn, `SELECT pg_switch_wal()`) // so that the end of the log is flushed
	row := queryOn(b, m.conn, fmt.Sprintf(logSQL, m.lsn))[0]
	per(row[0], "entries/op")
	per(row[1], "rows/op")
	per(row[2], "log-B/op")
}

func clientTime(b *testing.B) int64 {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return r.Utime.Nano()/1000 + r.Stime.Nano()/1000
}

// serverTime is the processor time of the server and of all its processes, ended ones included, in
// microseconds. It reads /proc.
func (m *meter) serverTime(b *testing.B) int64 {
	b.Helper()
	backend := fmt.Sprint(queryOn(b, m.conn, `SELECT pg_backend_pid()`)[0][0])
	own := procStat(backend)
	if own == nil {
		b.Skip("there is no /proc/PID/stat")
	}
	postmaster := own[1]
	total := ticks(procStat(postmaster), 11, 15)
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range list {
		if stat := procStat(filepath.Base(filepath.Dir(path))); stat != nil && stat[1] == postmaster {
			total += ticks(stat, 11, 13)
		}
	}
	return total * 10_000
}

// procStat are the fields of a process after its name: state, parent, …; nil when the process does
// not exist.
func procStat(pid string) []string {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	_, rest, ok := strings.Cut(string(text), ") ")
	if err != nil || !ok {
		return nil
	}
	return strings.Fields(rest)
}

// ticks sums some fields, which are hundredths of a second.
func ticks(stat []string, from, to int) (sum int64) {
	for i := from; i < to && i < len(stat); i++ {
		n, err := strconv.ParseInt(stat[i], 10, 64)
		if err == nil {
			sum += n
		}
	}
	return sum
}

// numbers returns the integers in [from, to).
func numbers(from, to int) []int {
	list := make([]int, 0, to-from)
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}
