// Command peers measures laneway's PostgreSQL store beside River and beside the bare engine: the same server, the same run, alternating, so that
// a ratio means something on a shared machine. It is a module of its own, because River is no dependency of laneway.
//
//	scripts/peers                 (or make peers; ROUNDS=5)
//
// Each round measures every contender once for each number of workers, in a fresh database:
//
//   - river: jobs that do nothing, inserted 500 at a time while its workers run, until the last is completed: a fire of laneway is inserted by its
//     claim, too, 500 at a time;
//   - river, work: the same jobs, inserted before the clock starts, so without the cost of the insert;
//   - engine: three statements for each job, which insert, start and end one row;
//   - statements: three statements for each turn over laneway's tables, fences included (BenchmarkStatements of internal/store/postgres);
//   - fires, turns: BenchmarkCost of internal/store/postgres, with ledger, messages, transcript and outbox;
//   - binary: the real program with 128 workers and an agent that answers at once, 2,000 jobs that are due together (BenchmarkDueAtOnce of
//     internal/teste2e; the best of three waves, so that it is warm).
//
// The figures are medians of the rounds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"
)

// conns is how many connections each contender may have.
const conns = 16

// River's own benchmark sets these: with the defaults it fetches ten times a second.
const (
	fetchCooldown     = 2 * time.Millisecond
	fetchPollInterval = 20 * time.Millisecond
)

type options struct {
	url, laneway, binary string
	rounds, jobs         int
}

func main() {
	o := options{url: os.Getenv("TEST_DATABASE_URL")}
	flag.StringVar(&o.laneway, "laneway", "", "test binary of internal/store/postgres")
	flag.StringVar(&o.binary, "binary", "", "test binary of internal/teste2e, run in its directory")
	flag.IntVar(&o.rounds, "rounds", 5, "how often everything is measured")
	flag.IntVar(&o.jobs, "jobs", 5000, "jobs of one measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// contender measures how many operations it does in a second.
type contender struct {
	name    string
	measure func(ctx context.Context, o options, workers int) (float64, error)
}

func run(ctx context.Context, o options) error {
	if o.url == "" || o.laneway == "" || o.binary == "" {
		return errors.New("TEST_DATABASE_URL, -laneway and -binary are required: use scripts/peers")
	}
	list := []contender{
		{"river", inDatabase(riverInsertAndWork)},
		{"work", inDatabase(riverWork)},
		{"engine", inDatabase(bareRows)},
		{"fires", benchmark("Cost$/^fire", "fires/s")},
		{"statements", benchmark("Statements", "turns/s")},
		{"turns", benchmark("Cost$/^turn", "turns/s")},
		{"binary", burst},
	}
	fmt.Printf("| workers | river | river, work | engine | fires | statements | turns | binary | fires / river | fires / engine | turns / statements | binary / river |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, workers := range []int{16, 30, 32, 128} {
		rates := map[string][]float64{}
		for range o.rounds {
			for _, c := range list {
				rate, err := c.measure(ctx, o, workers)
				if err != nil {
					return fmt.Errorf("%s, %d workers: %w", c.name, workers, err)
				}
				rates[c.name] = append(rates[c.name], rate)
			}
		}
		m := func(name string) float64 { slices.Sort(rates[name]); return rates[name][len(rates[name])/2] }
		fmt.Printf("| %d | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.2f | %.2f | %.2f | %.2f |\n", workers, m("river"), m("work"), m("engine"), m("fires"), m("statements"), m("turns"), m("binary"),
			m("fires")/m("river"), m("fires")/m("engine"), m("turns")/m("statements"), m("binary")/m("river"))
	}
	return nil
}

// inDatabase gives a measurement a fresh database of the server.
func inDatabase(measure func(ctx context.Context, pool *pgxpool.Pool, jobs, workers int) (time.Duration, error)) func(context.Context, options, int) (float64, error) {
	return func(ctx context.Context, o options, workers int) (rate float64, err error) {
		admin, err := pgx.Connect(ctx, o.url)
		if err != nil {
			return 0, err
		}
		name := fmt.Sprintf("peers_%d", time.Now().UnixNano())
		if _, err := admin.Exec(ctx, `CREATE DATABASE `+name); err != nil {
			return 0, errors.Join(err, admin.Close(ctx))
		}
		defer func() {
			_, dropped := admin.Exec(context.WithoutCancel(ctx), `DROP DATABASE `+name+` WITH (FORCE)`)
			err = errors.Join(err, dropped, admin.Close(context.WithoutCancel(ctx)))
		}()
		cfg, err := pgxpool.ParseConfig(o.url)
		if err != nil {
			return 0, err
		}
		cfg.ConnConfig.Database, cfg.MaxConns = name, conns
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return 0, err
		}
		defer pool.Close()
		took, err := measure(ctx, pool, o.jobs, workers)
		return float64(o.jobs) / took.Seconds(), err
	}
}

type noop struct {
	N int `json:"n"`
}

// Kind implements river.JobArgs.
func (noop) Kind() string { return "noop" }

// together is how many jobs are inserted by one statement; a claim of laneway has as many.
const together = 500

// riverInsertAndWork measures jobs from their insert to their completion.
func riverInsertAndWork(ctx context.Context, pool *pgxpool.Pool, jobs, workers int) (time.Duration, error) {
	return riverJobs(ctx, pool, jobs, workers, func(client *river.Client[pgx.Tx]) error { return client.Start(ctx) }, insert)
}

// riverWork measures jobs that are in the table already.
func riverWork(ctx context.Context, pool *pgxpool.Pool, jobs, workers int) (time.Duration, error) {
	return riverJobs(ctx, pool, jobs, workers, func(client *river.Client[pgx.Tx]) error { return insert(ctx, client, jobs) },
		func(ctx context.Context, client *river.Client[pgx.Tx], _ int) error { return client.Start(ctx) })
}

// insert inserts jobs that do nothing.
func insert(ctx context.Context, client *river.Client[pgx.Tx], jobs int) error {
	for from := 0; from < jobs; from += together {
		list := make([]river.InsertManyParams, min(together, jobs-from))
		for i := range list {
			list[i].Args = noop{from + i}
		}
		if _, err := client.InsertManyFast(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

// riverJobs prepares River and measures what follows until all jobs are completed.
func riverJobs(ctx context.Context, pool *pgxpool.Pool, jobs, workers int, prepare func(*river.Client[pgx.Tx]) error,
	measured func(context.Context, *river.Client[pgx.Tx], int) error,
) (time.Duration, error) {
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return 0, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return 0, err
	}
	kinds := river.NewWorkers()
	river.AddWorker(kinds, river.WorkFunc(func(context.Context, *river.Job[noop]) error { return nil }))
	client, err := river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, Workers: kinds,
		FetchCooldown: fetchCooldown, FetchPollInterval: fetchPollInterval,
	})
	if err != nil {
		return 0, err
	}
	ended, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: jobs, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer cancel()
	if err := prepare(client); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := measured(ctx, client, jobs); err != nil {
		return 0, err
	}
	for range jobs {
		select {
		case <-ended:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return time.Since(began), client.Stop(ctx)
}

// bareRows is the least that a durable job can cost: a row that is inserted, started and ended by a commit each.
func bareRows(ctx context.Context, pool *pgxpool.Pool, jobs, workers int) (time.Duration, error) {
	const table = `CREATE TABLE bare (id bigint PRIMARY KEY, state text NOT NULL, started_at timestamptz, ended_at timestamptz, body text) WITH (fillfactor = 50)`
	if _, err := pool.Exec(ctx, table); err != nil {
		return 0, err
	}
	began := time.Now()
	all, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		all.Go(func() error {
			for i := w; i < jobs; i += workers {
				for _, sql := range []string{
					`INSERT INTO bare (id, state, body) VALUES ($1, 'waiting', 'a question')`,
					`UPDATE bare SET state = 'running', started_at = now() WHERE id = $1 AND state = 'waiting'`,
					`UPDATE bare SET state = 'done', ended_at = now() WHERE id = $1 AND state = 'running'`,
				} {
					if _, err := pool.Exec(ctx, sql, i); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	err := all.Wait()
	return time.Since(began), err
}

// benchmark runs one of laneway's own benchmarks and reads its rate.
func benchmark(name, unit string) func(context.Context, options, int) (float64, error) {
	return func(ctx context.Context, o options, workers int) (float64, error) {
		only := fmt.Sprintf("^Benchmark%s$/^workers=%d$", name, workers)
		return figure(exec.CommandContext(ctx, o.laneway, "-test.run", "^$", "-test.bench", only, "-test.benchtime", strconv.Itoa(o.jobs)+"x"), unit)
	}
}

// burst measures the real program, whose lane has 128 slots; no figure for other numbers of workers.
func burst(ctx context.Context, o options, workers int) (float64, error) {
	if workers != 128 {
		return 0, nil
	}
	cmd := exec.CommandContext(ctx, o.binary, "-test.run", "^$", "-test.bench", "^BenchmarkDueAtOnce$/^jobs=2000$/^lane=128$/^postgres$", "-test.benchtime", "3x")
	cmd.Dir = "internal/teste2e"
	return figure(cmd, "best-fires/s")
}

// figure runs a benchmark and reads one figure of its output.
func figure(cmd *exec.Cmd, unit string) (float64, error) {
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	fields := strings.Fields(string(out))
	at := slices.Index(fields, unit)
	if at < 1 {
		return 0, fmt.Errorf("there is no %s in the output of %s", unit, cmd)
	}
	return strconv.ParseFloat(fields[at-1], 64)
}
