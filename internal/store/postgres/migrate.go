package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/migrations"
)

// versionTable records the applied steps.
const versionTable = "laneway_migrations"

// ErrOldSchema wraps [store.ErrSchema] when the schema is older than this program, so that
// [MigrateUp] helps.
var ErrOldSchema = fmt.Errorf("%w, which is newer", store.ErrSchema)

// LiveNodesError refuses a downgrade while gateways use the database.
type LiveNodesError struct {
	// Nodes are the incarnations whose lease is valid, oldest first.
	Nodes []string
}

// Error contains the remedy.
func (e *LiveNodesError) Error() string {
	return fmt.Sprintf("gateways use this database (%s), and each message fails without the step: stop them first", strings.Join(e.Nodes, ", "))
}

// MigrateUp brings the schema to this program's version and returns the number of applied steps.
// Any number of processes may call it at the same time: an advisory lock lets one migrate, and the
// others then find no step to apply. It needs the role that owns the schema. log receives the
// messages of [migrations.Up]; nil = no log.
func MigrateUp(ctx context.Context, url string, log *slog.Logger) (int, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var steps int
	err := withProvider(ctx, url, "migrating the database up", func(_ *sql.DB, p *goose.Provider) (err error) {
		steps, err = migrations.Up(ctx, p, log)
		return err
	})
	return steps, err
}

// MigrateDown reverts the newest step, including the data in the objects that it drops, and returns
// its version; 0 when no step was applied. A *[LiveNodesError] means that gateways use the database
// and force is false; nothing was changed. A gateway that starts in between is not noticed.
func MigrateDown(ctx context.Context, url string, force bool) (int64, error) {
	var version int64
	err := withProvider(ctx, url, "migrating the database down", func(db *sql.DB, p *goose.Provider) error {
		if !force {
			if err := refuseLiveNodes(ctx, db); err != nil {
				return err
			}
		}
		done, err := p.Down(ctx)
		if errors.Is(err, goose.ErrNoNextVersion) {
			return nil
		}
		if done != nil && done.Source != nil {
			version = done.Source.Version
		}
		return err
	})
	return version, err
}

const liveNodesSQL = `SELECT id FROM nodes WHERE lease_until > date_part('epoch', now()) * 1000 ORDER BY started_at, id`

// refuseLiveNodes returns a *LiveNodesError while the lease of a gateway is valid. A database
// without the table has no gateways.
func refuseLiveNodes(ctx context.Context, db *sql.DB) error {
	var there bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass('nodes') IS NOT NULL`).Scan(&there); err != nil || !there {
		return err
	}
	rows, err := db.QueryContext(ctx, liveNodesSQL)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var nodes []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		nodes = append(nodes, id)
	}
	if len(nodes) > 0 {
		return &LiveNodesError{Nodes: nodes}
	}
	return rows.Err()
}

// MigrateStatus lists the steps of this program, oldest first. It writes nothing, even when no
// schema exists yet.
func MigrateStatus(ctx context.Context, url string) ([]migrations.Step, error) {
	var list []migrations.Step
	err := withProvider(ctx, url, "reading the schema version", func(db *sql.DB, p *goose.Provider) (err error) {
		var there bool
		if err := db.QueryRowContext(ctx, versionsSQL).Scan(&there); err != nil {
			return err
		}
		if !there { // the library would create its table
			for _, source := range p.ListSources() {
				list = append(list, migrations.Step{Version: source.Version, Name: source.Path})
			}
			return nil
		}
		list, err = migrations.Steps(ctx, p)
		return err
	})
	return list, err
}

func withProvider(ctx context.Context, url, doing string, fn func(*sql.DB, *goose.Provider) error) error {
	pc, err := poolConfig(Config{URL: url})
	if err != nil {
		return err
	}
	pc.ConnConfig.RuntimeParams["statement_timeout"] = "0" // a step over a large table may take long
	pc.ConnConfig.RuntimeParams["lock_timeout"] = "0"
	db := stdlib.OpenDB(*pc.ConnConfig)
	p, err := provider(db)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	var encoding string
	if err = db.QueryRowContext(ctx, `SHOW server_encoding`).Scan(&encoding); err == nil {
		err = checkEncoding(encoding)
	}
	if err == nil {
		err = checkReleased(ctx, db)
	}
	if err == nil {
		err = fn(db, p)
	}
	if err := errors.Join(err, p.Close()); err != nil {
		return fmt.Errorf("%s: %w", doing, notOwner(translate(err)))
	}
	return nil
}

// checkEncoding refuses a database in which not every message can be stored.
func checkEncoding(encoding string) error {
	if encoding == "" || encoding == wantedEncoding { // a pooler may not report it
		return nil
	}
	return chat.Errorf(chat.CodeInvalid, sentenceEncoding, encoding)
}

// checkReleased returns [migrations.ErrUnreleased] for a database from before the first release,
// which stays unchanged.
func checkReleased(ctx context.Context, db *sql.DB) error {
	var there bool
	if err := db.QueryRowContext(ctx, versionsSQL).Scan(&there); err != nil || !there {
		return err
	}
	var version int64
	if err := db.QueryRowContext(ctx, appliedSQL).Scan(&version); err != nil {
		return err
	}
	return migrations.CheckReleased(version)
}

// notOwner explains the remedy when the role may use the tables but not change them, as is
// recommended for the role of a gateway.
func notOwner(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != codeNoRight {
		return err
	}
	return unavailable(sentenceNotOwner, pgErr)
}

func provider(db *sql.DB) (*goose.Provider, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, fmt.Errorf("preparing the migration lock: %w", err)
	}
	files, err := fs.Sub(migrations.Postgres, "postgres")
	if err != nil {
		return nil, fmt.Errorf("reading the migrations: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(locker), goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, fmt.Errorf("preparing the migrations: %w", err)
	}
	return p, nil
}

// checkSchema compares the newest step of the database with the newest one of this program. It
// refuses an unknown schema and one from before the first release, and never replaces them: the
// data may be the only copy.
func (s *Store) checkSchema(ctx context.Context) error {
	have, err := s.appliedStep(ctx)
	switch {
	case err != nil:
		return err
	case have > s.step:
		return schemaError(store.ErrSchema, "the database has schema version %d, newer than %d of this program: install a newer laneway", have, s.step)
	}
	if err := migrations.CheckReleased(have); err != nil {
		return err
	}
	if err := s.checkApplied(have); err != nil {
		return err
	}
	return s.checkFinished(ctx)
}

// checkFinished refuses the target of an unfinished copy: it lacks a part of what was accepted
// elsewhere.
func (s *Store) checkFinished(ctx context.Context) error {
	var unfinished bool
	err := s.do(ctx, "looking for an unfinished copy", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, unfinishedSQL).Scan(&unfinished)
	})
	if err == nil && unfinished {
		err = errUnfinishedCopy()
	}
	return err
}

// checkApplied refuses a schema that lacks a step of this program. A newer schema is accepted:
// during a rolling upgrade it is an extension.
func (s *Store) checkApplied(have int64) error {
	if have < s.step {
		return schemaError(ErrOldSchema, "the database has schema version %d and this program needs %d: run `laneway migrate up`", have, s.step)
	}
	return nil
}

// versionsSQL checks whether a schema exists.
const versionsSQL = `SELECT to_regclass('` + versionTable + `') IS NOT NULL`

const appliedSQL = `SELECT COALESCE(max(version_id), 0) FROM ` + versionTable + ` WHERE is_applied`

func schemaError(cause error, format string, have, want int64) error {
	e := chat.Errorf(chat.CodeStoreUnavailable, format, have, want)
	e.Cause = cause
	return e
}

func (s *Store) appliedStep(ctx context.Context) (int64, error) {
	var version int64
	err := s.do(ctx, "reading the schema version", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, appliedSQL).Scan(&version)
	})
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == codeNoTable {
		return 0, nil
	}
	return version, err
}

func newestStep() (int64, error) {
	files, err := fs.Glob(migrations.Postgres, "postgres/*.sql")
	if err != nil {
		return 0, fmt.Errorf("reading the migrations: %w", err)
	}
	var newest int64
	for _, name := range files {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("reading the migrations: %w", err)
		}
		newest = max(newest, version)
	}
	return newest, nil
}

// Rights are the rights of the store's role beyond reading and writing rows, and the rights that it
// lacks.
type Rights struct {
	// Role is its name.
	Role string
	// Superuser: all rights, whatever is granted.
	Superuser bool
	// OwnsLog: it owns audit_log, or is a member of the role that does, and can grant itself every
	// right on it.
	OwnsLog bool
	// ChangesLog: it may update, delete or truncate audit_log.
	ChangesLog bool
	// Lacks are required rights that were not granted, such as `UPDATE on sessions`.
	Lacks []string
}

// rightsSQL reads only the tables of the program, which it finds by their owner: other tables of
// the schema do not matter.
const rightsSQL = `
WITH log AS (
	SELECT oid, relowner, relnamespace FROM pg_class WHERE oid = 'audit_log'::regclass
), needed AS (
	SELECT t.oid, t.relname, p FROM pg_class t
		JOIN log ON log.relnamespace = t.relnamespace AND log.relowner = t.relowner
		CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p
	WHERE t.relkind = 'r' AND NOT (t.relname = 'audit_log' AND p IN ('UPDATE', 'DELETE')) AND NOT (t.relname = '` + versionTable + `' AND p <> 'SELECT')
)
SELECT current_user, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user), pg_has_role(current_user, log.relowner, 'USAGE'),
	has_table_privilege(log.oid, 'UPDATE, DELETE, TRUNCATE'),
	ARRAY(SELECT p || ' on ' || relname FROM needed WHERE NOT has_table_privilege(oid, p) ORDER BY relname, p)
FROM log`

// Rights reads the rights of the role from the database.
func (s *Store) Rights(ctx context.Context) (r Rights, err error) {
	err = s.do(ctx, "reading the rights of the role", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, rightsSQL).Scan(&r.Role, &r.Superuser, &r.OwnsLog, &r.ChangesLog, &r.Lacks)
	})
	return r, err
}

// compactTime bounds a compaction.
const compactTime = 10 * time.Minute

var errCompactTime = errors.New("the compaction took too long")

// tablesSQL lists the tables with their sizes including indexes, their dead rows, and whether this
// role may vacuum them.
const tablesSQL = `SELECT quote_ident(c.relname), pg_total_relation_size(c.oid), pg_stat_get_dead_tuples(c.oid), pg_has_role(c.relowner, 'USAGE')
	FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1`

type table struct {
	name       string
	size, dead int64
	mine       bool
}

// Compact vacuums every table, on a connection of its own. The space of deleted and replaced rows
// becomes free for new ones, free space at the end of a table is returned to the disk, and the
// statistics are updated. It runs concurrently with reads and writes (no FULL) and skips a table
// that another vacuum is processing. It checks ctx between the tables. It stops after ten minutes,
// and the next compaction continues.
func (s *Store) Compact(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, compactTime, errCompactTime)
	defer cancel()
	cfg := s.pool.Config().ConnConfig.Copy()
	cfg.RuntimeParams["statement_timeout"] = "0"   // ctx bounds it
	cfg.RuntimeParams["vacuum_cost_delay"] = "1ms" // leave disk bandwidth to turns
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return "", fmt.Errorf("compacting the database: %w", translate(err))
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	report, err := compact(ctx, conn)
	switch {
	case errors.Is(context.Cause(ctx), errCompactTime):
		return report + "; the rest is for the next time", nil
	case ctx.Err() != nil:
		return report, context.Cause(ctx)
	case err != nil:
		return report, fmt.Errorf("compacting the database: %w", translate(err))
	}
	return report, nil
}

func compact(ctx context.Context, conn *pgx.Conn) (string, error) {
	before, err := tables(ctx, conn)
	if err != nil {
		return "", err
	}
	done, refused, dead := 0, 0, int64(0)
	for _, t := range before {
		if !t.mine {
			refused++
			continue
		}
		if _, err = conn.Exec(ctx, `VACUUM (ANALYZE, SKIP_LOCKED) `+t.name); err != nil {
			break
		}
		done, dead = done+1, dead+t.dead
	}
	report := fmt.Sprintf("%d tables vacuumed, about %d dead rows in them", done, dead)
	if refused > 0 {
		report += fmt.Sprintf("; %d left out, because they belong to another role", refused)
	}
	if err != nil {
		return report, err
	}
	after, err := tables(ctx, conn)
	if err != nil {
		return report, err
	}
	return fmt.Sprintf("%.1f MiB given back to the disk, %s", float64(max(total(before)-total(after), 0))/(1<<20), report), nil
}

func tables(ctx context.Context, conn *pgx.Conn) ([]table, error) {
	rows, err := conn.Query(ctx, tablesSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t table, err error) {
		return t, row.Scan(&t.name, &t.size, &t.dead, &t.mine)
	})
}

func total(list []table) (bytes int64) {
	for _, t := range list {
		bytes += t.size
	}
	return bytes
}
