package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// group has the benchmarks of one package that run together.
type group struct {
	pkg, bench, benchtime string
	rows                  []row
}

// row is one line of the table.
type row struct {
	what, bench, metric string
	unit                string
	scale               float64 // the figure is divided by it
	goal                float64
	more                bool // more is better
}

type key struct{ bench, metric string }

func groups() []group {
	return []group{
		{"./internal/scheduler", "Turn|Million|Idle|WakeFull|WakeToStart", "1s", []row{
			{what: "scheduler: submit, start, finish; 1 session", bench: "Turn/sessions=1", metric: "ns/op", unit: "ns", goal: 1686},
			{what: "scheduler: the same; 10 000 sessions", bench: "Turn/sessions=10000", metric: "ns/op", unit: "ns", goal: 1686},
			{what: "scheduler: allocations per turn; 10 000 sessions", bench: "Turn/sessions=10000", metric: "allocs/op", unit: "", goal: 3},
			{what: "scheduler: 1 000 000 sessions once each", bench: "MillionSessionsOnce", metric: "ns/session", unit: "ns", goal: 1000},
			{what: "scheduler: left per idle session", bench: "IdleSession", metric: "B/session", unit: "B", goal: 1},
			{what: "scheduler: goroutines left", bench: "IdleSession", metric: "goroutines", unit: "", goal: 0},
			{what: "scheduler: wake to start, free lane, p50", bench: "WakeToStart", metric: "p50-ns", unit: "ns", goal: 500},
			{what: "scheduler: wake to start, free lane, p99", bench: "WakeToStart", metric: "p99-ns", unit: "ns", goal: 2000},
			{what: "scheduler: wake while the lane is full", bench: "WakeFullLane", metric: "ns/op", unit: "ns", goal: 10_000},
		}},
		{"./internal/store/sqlite", "^BenchmarkCron$/late", "200x", lateRows("SQLite")},
		{"./internal/store/postgres", "^BenchmarkCron$/late", "200x", lateRows("PostgreSQL")},
		{"./internal/store/sqlite", "^BenchmarkCron$/burst", "1x", burstRows("SQLite")},
		{"./internal/store/postgres", "^BenchmarkCron$/burst", "1x", burstRows("PostgreSQL")},
		{"./internal/store/sqlite", "^BenchmarkCron$/list/jobs=10000/rows=1000000", "20x", ledgerRows("SQLite")},
		{"./internal/store/postgres", "^BenchmarkCron$/list/jobs=10000/rows=1000000", "20x", ledgerRows("PostgreSQL")},
		{"./internal/store/sqlite", "^BenchmarkFires$", "3000x", fireRows("SQLite", 300, 1, 32, 128)},
		{"./internal/store/postgres", "^BenchmarkFires$", "3000x", fireRows("PostgreSQL", 0, 1, 16, 128)},
		{"./internal/store/postgres", "^BenchmarkCost$", "3000x", costRows()},
		{"./internal/store/sqlite", "^BenchmarkSearch$", "200x", searchRows("SQLite")},
		{"./internal/store/postgres", "^BenchmarkSearch$", "200x", searchRows("PostgreSQL")},
		{"./internal/teste2e", "DueAtOnce", "5x", slices.Concat(dueRows("SQLite", "sqlite", 80), dueRows("PostgreSQL", "postgres", 60))},
		{"./internal/teste2e", "Message", "500x", []row{
			{what: "message to turn start, idle gateway, SQLite, p50", bench: "Message/sqlite", metric: "start_p50_ms", unit: "ms", goal: 1.5},
			{what: "message to turn start, idle gateway, SQLite, p99", bench: "Message/sqlite", metric: "start_p99_ms", unit: "ms", goal: 10},
			{what: "message to turn start, idle gateway, PostgreSQL, p50", bench: "Message/postgres", metric: "start_p50_ms", unit: "ms", goal: 2},
			{what: "message to turn start, idle gateway, PostgreSQL, p99", bench: "Message/postgres", metric: "start_p99_ms", unit: "ms", goal: 10},
			{what: "message to answer, echo, SQLite, p50", bench: "Message/sqlite", metric: "answer_p50_ms", unit: "ms"},
			{what: "message to answer, echo, PostgreSQL, p50", bench: "Message/postgres", metric: "answer_p50_ms", unit: "ms"},
		}},
		{"./internal/teste2e", "Conversations", "12000x", talkRows()},
		{"./internal/teste2e", "LongConversation", "200x", []row{
			{what: "a turn after 1 600 entries, echo, SQLite: processor time", bench: "LongConversation/sqlite", metric: "cpu_ms/turn", unit: "ms", goal: 2.2},
			{what: "a turn after 1 600 entries, echo, PostgreSQL: processor time", bench: "LongConversation/postgres", metric: "cpu_ms/turn", unit: "ms"},
		}},
		{"./internal/teste2e", "Stop", "200x", []row{
			{what: "/stop, lanes full, 10 000 waiting, SQLite: signal p99", bench: "Stop/sqlite", metric: "signal_p99_ms", unit: "ms", goal: 100},
			{what: "/stop, lanes full, 10 000 waiting, SQLite: worst answer", bench: "Stop/sqlite", metric: "answer_worst_ms", unit: "ms", goal: 1000},
			{what: "/stop, lanes full, 10 000 waiting, PostgreSQL: signal p99", bench: "Stop/postgres", metric: "signal_p99_ms", unit: "ms", goal: 100},
			{what: "/stop, lanes full, 10 000 waiting, PostgreSQL: worst answer", bench: "Stop/postgres", metric: "answer_worst_ms", unit: "ms", goal: 1000},
		}},
		{"./internal/teste2e", "Start", "20x", []row{
			{what: "start to first answer, empty data directory, SQLite, p50", bench: "Start/sqlite", metric: "first_answer_p50_ms", unit: "ms", goal: 300},
			{what: "private memory after the first answer, SQLite", bench: "Start/sqlite", metric: "private_MB", unit: "MB", goal: 10},
			{what: "private memory after 1 000 sessions, SQLite", bench: "Start/sqlite", metric: "private_1000_sessions_MB", unit: "MB", goal: 15},
			{what: "start to first answer, PostgreSQL, p50", bench: "Start/postgres", metric: "first_answer_p50_ms", unit: "ms"},
		}},
		{"./internal/gateway", "HealthRoundTrip|RawEcho", "2s", []row{
			{what: "WebSocket: health calls, 64 connections", bench: "HealthRoundTrip", metric: "calls/s", unit: "/s", more: true},
			{what: "WebSocket: raw echo on the same machine", bench: "RawEcho", metric: "calls/s", unit: "/s", more: true},
		}},
		{"./internal/teste2e", "Sockets", "10000x", []row{
			{what: "WebSocket: memory each of 10 000 idle sockets", bench: "Sockets", metric: "KB/socket", unit: "KB", goal: 12},
			{what: "WebSocket: connects until 10 000 are open", bench: "Sockets", metric: "connects/s", unit: "/s", goal: 500, more: true},
			{what: "WebSocket: one event to 10 000 sockets", bench: "Sockets", metric: "broadcast_ms", unit: "ms", goal: 1000},
		}},
		{"./internal/teste2e", "Streams", "250x", []row{
			{what: "WebSocket: age of a token, 200 streams x 50/s, p50", bench: "Streams", metric: "age_p50_ms", unit: "ms"},
			{what: "WebSocket: age of a token, 200 streams x 50/s, p99", bench: "Streams", metric: "age_p99_ms", unit: "ms", goal: 50},
		}},
		{"./internal/cron/schedule", "Next$/.*1-5", "1s", []row{
			{what: "cron: next fire of `0 9 * * 1-5`", bench: "Next/0_9_*_*_1-5", metric: "ns/op", unit: "ns", goal: 5000},
		}},
		{"./internal/cron", "Decide", "1s", []row{
			{what: "cron: decision for a job that is in time", bench: "Decide/in_time", metric: "ns/op", unit: "ns"},
			{what: "cron: decision after three days of a one-second job", bench: "Decide/three_days_late,_each_second", metric: "ns/op", unit: "ns"},
		}},
	}
}

// talkRows are the turns of 32 growing conversations.
func talkRows() (rows []row) {
	for _, r := range []row{
		{what: "echo, SQLite", bench: "echo/sqlite"},
		{what: "echo, PostgreSQL", bench: "echo/postgres"},
		{what: "a model that answers immediately, SQLite", bench: "model/sqlite"},
		{what: "a model that answers immediately, PostgreSQL", bench: "model/postgres"},
	} {
		name := "Conversations/" + r.bench
		rows = append(rows,
			row{what: "32 sessions in conversation, " + r.what, bench: name, metric: "turns/s", unit: "/s", more: true},
			row{what: "32 sessions in conversation, " + r.what + ": processor time a turn", bench: name, metric: "cpu_ms/turn", unit: "ms"})
	}
	return rows
}

// ledgerRows are the reads of the dashboard's pages of jobs.
func ledgerRows(store string) (rows []row) {
	for _, r := range []row{
		{what: "a page of 100 with counts and outcomes", bench: "dashboard"},
		{what: "the history of a job", bench: "history"},
		{what: "the runs before a slot that is explained", bench: "explain"},
	} {
		r.what = store + " cron: 10 000 jobs, 1 000 000 runs: " + r.what
		r.bench, r.metric, r.unit, r.scale, r.goal = "Cron/list/jobs=10000/rows=1000000/"+r.bench, "ns/op", "ms", 1e6, 50
		rows = append(rows, r)
	}
	return rows
}

// searchRows are the costs of a search, and of its index.
func searchRows(store string) (rows []row) {
	const bench = "Search/messages=1000000"
	for _, r := range []row{
		{what: "p50", metric: "p50-ms", unit: "ms"},
		{what: "p95", metric: "p95-ms", unit: "ms", goal: 100},
		{what: "p95, a word that most messages have", metric: "common-p95-ms", unit: "ms"},
		{what: "p95, a rare word", metric: "rare-p95-ms", unit: "ms"},
		{what: "p95, the sessions of one principal", metric: "own-p95-ms", unit: "ms"},
		{what: "p95 with 3 000 messages outside of the index", metric: "behind-p95-ms", unit: "ms"},
		{what: "indexing, each message", metric: "index-us/message", unit: "us"},
		{what: "commit of 3 000 messages", metric: "commit-ms", unit: "ms"},
		{what: "size of the index, each message", metric: "index-B/message", unit: "B"},
		{what: "commit of 50 messages", metric: "batch-ms", unit: "ms"},
		{what: "a turn and the indexing of its messages, in units of a turn", metric: "commit-turn-ratio", unit: ""},
		{what: "a turn beside no commit, p50", metric: "turn-p50-ms", unit: "ms"},
		{what: "a turn beside a commit, p50", metric: "commit-turn-p50-ms", unit: "ms"},
		{what: "a turn while the index is written without an end, in units of one without", metric: "endless-turn-ratio", unit: ""},
	} {
		r.what, r.bench = store+" search in 1 000 000 messages: "+r.what, bench
		rows = append(rows, r)
	}
	return rows
}

// costRows are the costs of a fire and a turn on PostgreSQL in figures that hardly depend on the
// machine's load.
func costRows() (rows []row) {
	for _, c := range []struct {
		op      string
		workers int
		cpu     float64
		goals   bool
	}{{"fire", 2, 0, true}, {"fire", 16, 400, true}, {"fire", 128, 220, true}, {"turn", 1, 0, false}, {"turn", 2, 0, false}, {"turn", 32, 0, false}} {
		goal := func(g float64) float64 {
			if !c.goals {
				return 0
			}
			return g
		}
		statements := goal(1.5)
		if c.workers < 16 { // few operations share a transaction
			statements = 0
		}
		what := fmt.Sprintf("PostgreSQL %s, %d workers: ", c.op, c.workers)
		bench := fmt.Sprintf("Cost/%s/workers=%d", c.op, c.workers)
		rows = append(rows,
			row{what: what + "rows written", bench: bench, metric: "rows/op", unit: ""},
			row{what: what + "index entries", bench: bench, metric: "entries/op", unit: "", goal: goal(10)},
			row{what: what + "log", bench: bench, metric: "log-B/op", unit: "B", goal: goal(3000)},
			row{what: what + "statements", bench: bench, metric: "statements/op", unit: "", goal: statements},
			row{what: what + "processor time", bench: bench, metric: "cpu-us/op", unit: "us", goal: c.cpu},
			row{what: what + "allocations", bench: bench, metric: "allocs/op", unit: ""})
	}
	return rows
}

// dueRows are for jobs that are due together, run by the binary.
func dueRows(name, database string, later float64) []row {
	few, many := "DueAtOnce/jobs=200/lane=30/"+database, "DueAtOnce/jobs=2000/lane=128/"+database
	return []row{
		{what: name + ", 200 jobs due at once, lane 30: start late, first wave, p99", bench: few, metric: "first_p99_ms", unit: "ms", goal: 80},
		{what: name + ", 200 jobs due at once, lane 30: start late, later, p99", bench: few, metric: "later_p99_ms", unit: "ms", goal: later},
		{what: name + ", 2 000 jobs due at once, lane 128: fires", bench: many, metric: "best-fires/s", unit: "/s", more: true},
	}
}

func lateRows(name string) []row {
	return []row{
		{what: name + " cron: lateness, 10 jobs a second, p50", bench: "Cron/late/jobs_per_second=10", metric: "late-p50-ms", unit: "ms"},
		{what: name + " cron: lateness, 10 jobs a second, p99", bench: "Cron/late/jobs_per_second=10", metric: "late-p99-ms", unit: "ms", goal: 10},
	}
}

func burstRows(name string) []row {
	return []row{
		{what: name + " cron: lateness, 10 000 due at once, p50", bench: "Cron/burst/jobs=10000", metric: "late-p50-ms", unit: "ms"},
		{what: name + " cron: lateness, 10 000 due at once, p99", bench: "Cron/burst/jobs=10000", metric: "late-p99-ms", unit: "ms", goal: 2500},
		{what: name + " cron: claims of a burst of 10 000", bench: "Cron/burst/jobs=10000", metric: "claims/burst", unit: ""},
	}
}

// fireRows are fires from the claim to the end of their runs, by the number of concurrent workers.
func fireRows(name string, allocations float64, workers ...int) (rows []row) {
	for _, n := range workers {
		rows = append(rows, row{
			what: fmt.Sprintf("%s cron: durable fires, ledger included, %d workers", name, n), bench: fmt.Sprintf("Fires/workers=%d", n), metric: "fires/s", unit: "/s", more: true,
		})
	}
	last := workers[len(workers)-1]
	return append(rows, row{
		what: fmt.Sprintf("%s cron: allocations per fire, %d workers", name, last), bench: fmt.Sprintf("Fires/workers=%d", last), metric: "allocs/op", goal: allocations,
	})
}

func (g group) matching(re *regexp.Regexp) []row {
	var rows []row
	for _, r := range g.rows {
		if re.MatchString(r.what) {
			rows = append(rows, r)
		}
	}
	return rows
}

var benchLine = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// parse reads the output of go test -bench and returns every figure by benchmark and unit.
func parse(text string) map[key][]float64 {
	found := map[key][]float64{}
	for line := range strings.Lines(text) {
		m := benchLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		fields := strings.Fields(m[2])
		for i := 0; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				k := key{m[1], fields[i+1]}
				found[k] = append(found[k], v)
			}
		}
	}
	return found
}

// line formats the row with its figures. The ratio is such that 1 and more means that the goal is
// reached, whether more or less is better.
func (r row) line(samples []float64) string {
	if len(samples) == 0 {
		return fmt.Sprintf("| %-58s | %12s | %12s | %12s | %6s |", r.what, "no figure", "", "", "")
	}
	if r.scale == 0 {
		r.scale = 1
	}
	slices.Sort(samples)
	median, worst := samples[len(samples)/2]/r.scale, samples[len(samples)-1]/r.scale
	if r.more {
		worst = samples[0] / r.scale
	}
	goal, ratio := "", ""
	if r.goal > 0 {
		goal = figure(r.goal, r.unit)
		if q := r.goal / median; r.more {
			ratio = strconv.FormatFloat(1/q, 'f', 2, 64)
		} else {
			ratio = strconv.FormatFloat(q, 'f', 2, 64)
		}
	}
	return fmt.Sprintf("| %-58s | %12s | %12s | %12s | %6s |", r.what, figure(median, r.unit), figure(worst, r.unit), goal, ratio)
}

func figure(v float64, unit string) string {
	digits := 0
	switch {
	case v < 10:
		digits = 2
	case v < 100:
		digits = 1
	}
	return strings.TrimSpace(strconv.FormatFloat(v, 'f', digits, 64) + " " + unit)
}
