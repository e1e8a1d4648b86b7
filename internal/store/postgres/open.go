// Package postgres is the store for deployments: any number of gateway processes share one
// PostgreSQL (14 or newer).
//
// # Central ideas
//
// The operations are those of package sqlstore. This package adds connections, transactions, and
// features that only PostgreSQL has.
//
// The row of a session is its lock. Every change of a session's messages, runs or counters locks
// that row first, so the operations on one session are serial and those on different sessions never
// wait for each other. Under READ COMMITTED every statement sees what was committed before it
// began; therefore the lock is always taken by an earlier statement than the one that reads. A
// single statement that locks and reads would decide on a snapshot from before the lock, and
// wake-ups would be lost.
//
// An operation of a turn is two round trips: BEGIN is sent with the statements that lock and read,
// COMMIT with those that write. Between them it decides in Go. Concurrent accepts, starts and
// finishes of different sessions share one transaction (a group of sqlstore): one start of each
// statement and one flush for all. A group skips the sessions that another transaction has locked,
// proves the fence of each claim, and handles the usual case only; an operation that it leaves out
// has written nothing and runs in a transaction of its own. A single operation does not wait for
// others.
//
// The only clock is the database's. Every statement takes the time as its first parameter, which is
// NULL (the database's clock) unless a test injects a clock.
//
// Cron takes its locks in one order: jobs, ledger rows that retry, sessions, the rows of the
// sessions. A claim checks first, in one round trip that reads two index entries, whether anything
// is due. It locks the due jobs, decides in Go and writes arrays: a few statements for hundreds of
// fires. The execution of a run is a message. Every statement that ends a message ends its run in
// the same transaction. When the connection breaks during the commit of a claim, the next claim
// returns its launches.
//
// # What it promises
//
// The guarantees of package store, and in addition: Heartbeat and stop have a connection each and
// never wait for the pool. The store retries operations after conflicts and broken connections
// (five retries, with jitter). When the database is unreachable, read-only, full or out of
// connections, the error is chat.ErrStoreUnavailable with a remedy and without an address or
// password.
//
// # What it does not do
//
// It does not migrate by itself: [Open] refuses an older schema, [MigrateUp] upgrades it. It sends
// no NOTIFY inside a transaction, because the server serializes the commits of such transactions.
// It has no state in memory that must survive a crash: it keeps the ids of launches whose commit is
// unknown, but the sweep also finds those.
//
// # How it ends
//
// [Store.Close] waits for the running groups and ends the two goroutines of the wake-up hints
// (which exist only after their first use), the pools and the control connections.
//
//	st, err := postgres.Open(ctx, postgres.Config{URL: url})
//	if err != nil { … }
//	defer st.Close()
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

const (
	// defaultConns is enough for a few thousand turns per second; more connections only increase
	// contention in the server.
	defaultConns = 16
	// connIdleTime is how long an unused connection of a pool stays open, unless the URL sets
	// pool_max_conn_idle_time.
	connIdleTime = 5 * time.Minute
)

// Config of a [Store].
type Config struct {
	// URL of the database (postgres://…, or the keyword form). Required. It is never logged.
	URL string
	// MaxConns bounds the connections of ordinary work, half of which are reserved for turns; 0 =
	// 16, at least 2. Two control connections and, when wake-ups are used, a listener come on top.
	// A limit of the role or of the database reduces it, see [ConnLimit].
	MaxConns int
	// WarmConns is how many of the connections for turns are opened, with planned statements,
	// before they are used. 0 = pool_min_conns of the URL, or 4 without it. Negative disables it:
	// connections then plan the statements that they use. Each costs some 35 ms of processor time.
	WarmConns int
	// Now replaces the database's clock in tests; nil = the database's clock.
	Now func() time.Time
	// Logger logs retries and the listener's reconnects; nil = no log.
	Logger *slog.Logger

	// tracer observes the statements; may be nil. Benchmarks count with it.
	tracer pgx.QueryTracer
}

// Store is the port on PostgreSQL. It is safe for concurrent use.
type Store struct {
	sqlstore.Store

	pool  *pgxpool.Pool
	turns *pgxpool.Pool // accept, start and finish, see planForTurns
	lists *store.Lists  // of the connections of pool

	dialect *sqlstore.Dialect
	gate    gate

	beat *control // heartbeats only
	ctrl *control // stops and pings
	now  func() time.Time
	log  *slog.Logger
	wake *waker

	step   int64 // the newest schema step of this program
	wanted int   // connections of the pools, as configured
}

var (
	_ store.Store = (*Store)(nil)
	_ store.Waker = (*Store)(nil)
)

// Open connects and checks the schema. It returns chat.ErrStoreUnavailable when the database cannot
// be used, and an error wrapping [store.ErrSchema] when the schema does not fit: [ErrOldSchema]
// when it is older than this program, [migrations.ErrUnreleased] when it is from before the first
// release.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	pc, err := poolConfig(cfg)
	if err != nil {
		return nil, err
	}
	step, err := newestStep()
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		beat: newControl(pc.ConnConfig),
		ctrl: newControl(pc.ConnConfig),
		now:  cfg.Now,
		log:  cfg.Logger,

		step:    step,
		dialect: sqlstore.Postgres(),
	}
	s.Store = sqlstore.New(engine{s})
	if err := s.openConns(ctx, pc, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database: %w", translate(err)), s.beat.close(), s.ctrl.close())
	}
	s.wake = newWaker(s.pool, pc.ConnConfig, s.log)
	s.wake.hinted = s.gate.changed
	if err := s.checkSchema(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openConns opens the control connections, and then the pools with the remaining connections of the
// limit: a busy pool must not take the connection of a heartbeat.
func (s *Store) openConns(ctx context.Context, pc *pgxpool.Config, cfg Config) error {
	s.wanted = int(pc.MaxConns)
	l, err := s.connLimit(ctx)
	if err != nil {
		return err
	}
	if err := s.beat.use(ctx, func(*pgx.Conn) error { return nil }); err != nil {
		return err
	}
	if l.Limit > 0 {
		if l.Limit < LeastConns {
			return unavailable(l.Sentence(LeastConns), nil)
		}
		if most := int32(min(l.Limit-controlConns, 10_000)); pc.MaxConns > most {
			s.log.WarnContext(ctx, "the pool has fewer connections than configured", "connections", most, "err", l.Sentence(int(pc.MaxConns)+controlConns))
			pc.MaxConns = most
		}
	}
	s.pool, s.turns, err = openPools(ctx, pc, cfg)
	s.lists = store.NewLists(int(pc.MaxConns)) // openPools has left these to pool
	return err
}

// openPools divides the connections between the turns and everything else.
func openPools(ctx context.Context, pc *pgxpool.Config, cfg Config) (pool, turns *pgxpool.Pool, err error) {
	tc := pc.Copy()
	tc.MaxConns = max(pc.MaxConns/2, 1)
	pc.MaxConns = max(pc.MaxConns-tc.MaxConns, 1)
	planForTurns(tc.ConnConfig)
	pc.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		useArrayCodec(conn.TypeMap())
		return nil
	}
	tc.AfterConnect = pc.AfterConnect
	warm(tc, plannedConns(cfg, pc), cfg.Logger)
	if turns, err = pgxpool.NewWithConfig(ctx, tc); err != nil {
		return nil, nil, err
	}
	if pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		turns.Close()
		return nil, nil, err
	}
	return pool, turns, nil
}

func poolConfig(cfg Config) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		// The cause repeats the address, so it is left out.
		return nil, chat.Errorf(chat.CodeInvalid, "the database address cannot be read: write postgres://user:password@host:5432/name")
	}
	if cc, err := pgconn.ParseConfig(cfg.URL); err == nil && cc.RuntimeParams["pool_max_conn_idle_time"] == "" {
		pc.MaxConnIdleTime = connIdleTime
	}
	pc.MaxConns = defaultConns
	if cfg.MaxConns > 0 {
		pc.MaxConns = int32(min(cfg.MaxConns, 10_000))
	}
	setSession(pc.ConnConfig)
	pc.ConnConfig.OnPgError = keepsConn
	pc.ConnConfig.Tracer = cfg.tracer
	return pc, nil
}

// keepsConn reports whether a connection stays in the pool after an error. A connection that the
// server ends or that is read-only does not. A session keeps the default from its start, so when
// the read-only default of the database or the role is lifted, only new connections can write.
func keepsConn(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	return err.Code != codeReadOnly && !strings.EqualFold(err.Severity, "FATAL")
}

// setSession sets the settings on which the statements rely, whatever the defaults of the database
// or the role are.
func setSession(cc *pgx.ConnConfig) {
	defaults := map[string]string{
		"application_name":                    "laneway",
		"default_transaction_isolation":       "read committed",
		"statement_timeout":                   "30s",
		"lock_timeout":                        "10s",
		"idle_in_transaction_session_timeout": "30s",
		"plan_cache_mode":                     "force_generic_plan",
		"jit":                                 "off",
	}
	maps.Copy(cc.RuntimeParams, defaults)
	cc.ConnectTimeout = cmp.Or(cc.ConnectTimeout, 5*time.Second)
}

// planForTurns makes the statements of a turn find their rows only by index. They are planned once
// per connection, possibly while the tables are empty; a plan that reads a whole small table would
// stay after the table has grown.
func planForTurns(cc *pgx.ConnConfig) {
	for _, way := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_material"} {
		cc.RuntimeParams[way] = "off"
	}
}

const pingSQL = `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean, (` + appliedSQL + `)`

// Kind is "postgres".
func (s *Store) Kind() string { return "postgres" }

// Ping succeeds when the database is writable and has the schema of this program. It returns within
// the context. It uses a control connection.
func (s *Store) Ping(ctx context.Context) error {
	return s.control(ctx, "checking the database", s.ctrl, func(conn *pgx.Conn) error {
		var (
			readOnly bool
			have     int64
		)
		if err := conn.QueryRow(ctx, pingSQL).Scan(&readOnly, &have); err != nil {
			return err
		}
		if readOnly { // possibly by the default with which this session started
			_ = conn.Close(ctx) // the next use opens a new one
			return unavailable(sentenceReadOnly, nil)
		}
		return s.checkApplied(have)
	})
}

// Now is the database's clock, or the injected one.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var at int64
	err := s.do(ctx, "reading the clock", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, readClockSQL, s.clock()).Scan(&at)
	})
	return fromMillis(at), err
}

// Close ends the store, after the operations in progress.
func (s *Store) Close() error {
	s.wake.close()
	s.EndGroups()
	s.turns.Close()
	s.pool.Close()
	return errors.Join(s.beat.close(), s.ctrl.close())
}

// clock is the first parameter of every statement: NULL means the clock of the database.
func (s *Store) clock() any {
	if s.now == nil {
		return nil
	}
	return s.now().UnixMilli()
}

// readClockSQL reads the clock of the transaction.
const readClockSQL = `SELECT ` + nowSQL

// nowSQL is the time of the transaction in milliseconds. One value per transaction keeps rows that
// are written together equal.
const nowSQL = `COALESCE($1::bigint, (date_part('epoch', now()) * 1000)::bigint)`

const (
	// controlConns are the connections of a store outside of its pools: heartbeats, stops, and the
	// listener.
	controlConns = 3
	// LeastConns is how many connections a gateway needs: the control connections, one for turns
	// and one for everything else.
	LeastConns = controlConns + 2
)

// ConnLimit is how many connections the database grants to the role.
type ConnLimit struct {
	// Role is its name. Limit is the lower one of the limits of the role and of the database, for
	// all of its connections together; 0 = unlimited, as for a superuser.
	Role  string
	Limit int
	// Wanted is how many connections this store opens at most without the limit.
	Wanted int
}

// Sentence describes the limit that is needed.
func (l ConnLimit) Sentence(wanted int) string {
	return fmt.Sprintf("the database lets the role %s open %d connections; a gateway needs at least %d, and up to %d with this configuration:"+
		" raise CONNECTION LIMIT of the role or of the database, or lower database_conns", l.Role, l.Limit, LeastConns, wanted)
}

// connLimitSQL reads the limits, -1 = unlimited; LEAST ignores NULL.
const connLimitSQL = `
SELECT r.rolname, COALESCE(LEAST(NULLIF(r.rolconnlimit, -1), NULLIF(d.datconnlimit, -1)), 0), r.rolsuper
FROM pg_roles r, pg_database d WHERE r.rolname = session_user AND d.datname = current_database()`

func (s *Store) connLimit(ctx context.Context) (l ConnLimit, err error) {
	err = s.ctrl.use(ctx, func(conn *pgx.Conn) error {
		if err := checkEncoding(conn.PgConn().ParameterStatus("server_encoding")); err != nil {
			return err
		}
		var super bool
		err := conn.QueryRow(ctx, connLimitSQL).Scan(&l.Role, &l.Limit, &super)
		if super {
			l.Limit = 0
		}
		return err
	})
	return l, err
}

// ConnLimit reads how many connections the role may have.
func (s *Store) ConnLimit(ctx context.Context) (l ConnLimit, err error) {
	err = s.do(ctx, "reading the limit of connections", func(ctx context.Context) (err error) {
		l, err = s.connLimit(ctx)
		return err
	})
	l.Wanted = s.wanted + controlConns
	return l, err
}

// defaultWarm is one connection for each kind of group, so that a first burst needs neither
// connecting nor planning.
const defaultWarm = 4

// turnStatements are the statements of turns, which every connection for them has planned before
// its first use.
func turnStatements() []string {
	d := sqlstore.Postgres()
	list := []string{}
	for _, text := range sqlstore.TurnTexts() {
		list = append(list, d.Of(text).SQL)
	}
	return list
}

// plannedConns is how many connections for turns are planned before they are used. A URL with
// pool_min_conns=0 requests none, which the configuration of a pool cannot distinguish from a URL
// without it.
func plannedConns(cfg Config, pc *pgxpool.Config) int {
	if cfg.WarmConns != 0 {
		return max(cfg.WarmConns, 0)
	}
	if cc, err := pgconn.ParseConfig(cfg.URL); err == nil && cc.RuntimeParams["pool_min_conns"] != "" {
		return int(pc.MinConns)
	}
	return defaultWarm
}

// warm keeps n connections open and makes each new connection of the pool plan the statements of
// turns; for 0 it does neither. The plans of a connection take some 30 ms, which would otherwise
// delay the first operations of a burst. A statement that cannot be planned, for example before a
// migration, fails again where it is used, with an error that names the reason; so a failure here
// is only logged.
func warm(pc *pgxpool.Config, n int, log *slog.Logger) {
	if n < 1 {
		return
	}
	pc.MinConns = min(int32(min(n, 10_000)), pc.MaxConns)
	first := pc.AfterConnect
	pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := first(ctx, conn); err != nil {
			return err
		}
		for _, sql := range turnStatements() {
			if err := plan(ctx, conn, sql); err != nil {
				log.DebugContext(ctx, "a statement cannot be planned ahead", "err", translate(err))
				return ctx.Err()
			}
		}
		return nil
	}
}

// plan prepares a statement and makes its plan, without running it. A connection has one generic
// plan per statement (setSession), which EXPLAIN makes and keeps.
func plan(ctx context.Context, conn *pgx.Conn, sql string) error {
	prepared, err := conn.Prepare(ctx, sql, sql)
	if err != nil {
		return err
	}
	explain := "EXPLAIN EXECUTE " + pgx.Identifier{prepared.Name}.Sanitize()
	if n := len(prepared.ParamOIDs); n > 0 {
		explain += "(NULL" + strings.Repeat(", NULL", n-1) + ")"
	}
	if _, err := conn.PgConn().Exec(ctx, explain).ReadAll(); err != nil {
		return fmt.Errorf("planning a statement: %w", err)
	}
	return nil
}
