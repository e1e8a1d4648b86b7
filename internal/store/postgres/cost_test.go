package postgres_test

import (
	"context"
	"errors"
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
	"github.com/jackc/pgx/v5/pgxpool"
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

// The three statements of BenchmarkStatements. Each is a transaction of its own and contains its
// fence: node, epoch and lease.
const (
	bareNow = `(date_part('epoch', clock_timestamp()) * 1000)::bigint`

	bareAccept = `
WITH s AS (
	INSERT INTO sessions AS s (key, agent, principal, session_id, lane, owner, epoch, last_seq, waiting, created_at, updated_at, last_message_at)
	VALUES ($1, 'main', 'gateway', $1, 'main', 'n1', 1, 1, 1, ` + bareNow + `, ` + bareNow + `, ` + bareNow + `)
	ON CONFLICT (key) DO UPDATE SET last_seq = s.last_seq + 1, waiting = s.waiting + 1, updated_at = excluded.updated_at, last_message_at = excluded.updated_at
	RETURNING last_seq, updated_at
)
INSERT INTO inbox (session_key, seq, message_id, channel, principal, sender, body, lane, state, node, accepted_at)
SELECT $1, last_seq, $2, 'web', 'gateway', '{}', '{"text":"a question"}', 'main', 'waiting', 'n1', updated_at FROM s RETURNING seq`

	bareFence = `UPDATE sessions s SET transcript_seq = transcript_seq + 1, updated_at = ` + bareNow + `, %s
	WHERE key = $1 AND owner = 'n1' AND epoch = 1 AND EXISTS (SELECT 1 FROM nodes WHERE id = 'n1' AND lease_until > ` + bareNow + `)
	RETURNING session_id, transcript_seq, updated_at AS now`

	bareEntry = `
	INSERT INTO transcript (session_key, session_id, seq, run_id, role, content, at) SELECT $1, s.session_id, s.transcript_seq, $2, %s, s.now FROM s`
)

var (
	bareStart = `
WITH s AS (` + fmt.Sprintf(bareFence, "taken_seq = $3, waiting = waiting - 1") + `
), b AS (
	UPDATE inbox SET state = 'running', run_id = $2 FROM s WHERE session_key = $1 AND seq = $3 AND state = 'waiting' AND ended_at IS NULL RETURNING accepted_at
), r AS (
	INSERT INTO runs (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, state, queued_at, started_at)
	SELECT $2, $1, s.session_id, $3, $3, 'main', 'n1', 1, 'running', b.accepted_at, s.now FROM s, b
)` + fmt.Sprintf(bareEntry, "'user', 'a question'")

	bareEnd = `
WITH s AS (` + fmt.Sprintf(bareFence, "done_seq = $3, last_run_id = $2, last_state = 'ok', preview = 'an answer'") + `
), b AS (
	UPDATE inbox SET state = 'done', outcome = 'answered', ended_at = s.now FROM s WHERE session_key = $1 AND seq = $3 AND ended_at IS NULL
), r AS (
	UPDATE runs SET state = 'ok', ended_at = s.now FROM s WHERE id = $2 AND state = 'running'
), o AS (
	INSERT INTO outbox (id, run_id, session_key, channel, chat_id, payload, next_at, created_at) SELECT $2, $2, $1, 'web', $1, 'an answer', s.now, s.now FROM s
)` + fmt.Sprintf(bareEntry, "'assistant', 'an answer'")
)

// BenchmarkStatements is a lower bound for the cost of a turn on these tables: an accept, a start
// and an end of one statement each. It omits the other cases of the store (a full queue, a dead
// owner, a repeated message, a second attempt) and shared transactions. BenchmarkCost/turn in the
// same run shows the cost of the store.
func BenchmarkStatements(b *testing.B) {
	for _, workers := range []int{16, 30, 32, 128} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) { benchStatements(b, workers) })
	}
}

func benchStatements(b *testing.B, workers int) {
	b.Helper()
	m := newMeter(b)
	m.open(b) // registers the node
	cfg, err := pgxpool.ParseConfig(m.url)
	if err != nil {
		b.Fatal(err)
	}
	cfg.MaxConns = 16 // as in the store
	pool, err := pgxpool.NewWithConfig(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	share(b, workers, numbers(-workers, 0), func(i int) error { return bareTurn(b.Context(), pool, workers, i) })
	m.begin(b)
	b.ResetTimer()
	share(b, workers, numbers(0, b.N), func(i int) error { return bareTurn(b.Context(), pool, workers, i) })
	m.report(b)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
}

// bareTurn is a turn in the session of its worker.
func bareTurn(ctx context.Context, pool *pgxpool.Pool, workers, i int) error {
	key, id := fmt.Sprintf("agent:main:w%d", (i+workers)%workers), fmt.Sprintf("m-%d", i)
	var seq int64
	if err := pool.QueryRow(ctx, bareAccept, key, id).Scan(&seq); err != nil {
		return err
	}
	for _, statement := range []string{bareStart, bareEnd} {
		tag, err := pool.Exec(ctx, statement, key, id, seq)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != 1 {
			return errors.New("the fence does not hold")
		}
	}
	return nil
}

// numbers returns the integers in [from, to).
func numbers(from, to int) []int {
	list := make([]int, 0, to-from)
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}
