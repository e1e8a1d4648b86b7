package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/pressly/goose/v3"

	"laneway/internal/store/sqlstore"
	"laneway/migrations"
)

var (
	// ErrNewerSchema is wrapped when the database was written by a newer laneway.
	ErrNewerSchema = errors.New("the database is newer than this program")
	// ErrForeign is wrapped when the file is a SQLite database of another program.
	ErrForeign = errors.New("the database belongs to another program")
)

// Direction is what [Migrate] does.
type Direction string

// The directions.
const (
	Up     Direction = "up"     // apply every pending migration
	Down   Direction = "down"   // revert the newest one; its data is lost
	Status Direction = "status" // change nothing
)

// Migrate changes the schema of a database that no process has open, or reads the schema of any
// database, and returns the state of every migration, oldest first. Only Up creates a missing file.
// Errors as in [Open].
func Migrate(ctx context.Context, cfg Config, d Direction) (_ []migrations.Step, err error) {
	if _, statErr := os.Stat(cfg.Path); d != Up && errors.Is(statErr, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no database at %s: make it with migrate up: %w", cfg.Path, statErr)
	}
	if d == Status { // without the lock: a gateway may use the database
		if err := inspectFile(cfg.Path); err != nil {
			return nil, err
		}
		return migrate(ctx, cfg, Status)
	}
	cfg, lock, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	c, err := openOurs(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	return migrate(ctx, cfg, d)
}

func migrate(ctx context.Context, cfg Config, d Direction) (found []migrations.Step, err error) {
	err = withMigrations(ctx, cfg, d == Status, func(provider *goose.Provider) (err error) {
		switch d {
		case Up:
			err = up(ctx, provider, cfg.Logger)
		case Down:
			err = down(ctx, provider, cfg.Logger)
		case Status:
		default:
			err = fmt.Errorf("unknown direction %q: want up, down or status", d)
		}
		if err == nil {
			found, err = steps(ctx, provider)
		}
		return err
	})
	return found, err
}

// withMigrations calls do with the migrations of the database, unless it has an unknown schema.
// They have a connection of their own, because goose uses database/sql. [openWriting] has already
// set the options of the file itself.
func withMigrations(ctx context.Context, cfg Config, readOnly bool, do func(*goose.Provider) error) (err error) {
	db, err := sql.Open("sqlite", dsn(cfg, readOnly))
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	files, err := fs.Sub(migrations.SQLite, "sqlite")
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	have, know, err := provider.GetVersions(ctx)
	if err != nil {
		return explain("read the schema version", err)
	}
	if have > know {
		return fmt.Errorf("%w: its schema is version %d and this program knows up to %d; install the newer laneway again, "+
			"or restore the backup made before the upgrade", ErrNewerSchema, have, know)
	}
	return do(provider)
}

// dsn is the address of the file for the driver. The path is a URI, so that a question mark in a
// directory's name stays part of it.
func dsn(cfg Config, readOnly bool) string {
	q := url.Values{"mode": {"rw"}, "_busy_timeout": {strconv.FormatInt(busyTimeout.Milliseconds(), 10)}, "_pragma": {"secure_delete(FAST)"}}
	switch {
	case readOnly:
		q.Set("mode", "ro")
		q.Set("_query_only", "1")
	case cfg.Unsynced:
		q.Set("_synchronous", "OFF")
	default:
		q.Set("_synchronous", "FULL")
	}
	path := filepath.ToSlash(cfg.Path)
	if path[0] != '/' {
		path = "/" + path // for a drive letter
	}
	return (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}).String()
}

// openOurs opens a database that this program may change, or an empty file.
func openOurs(cfg Config) (*conn, error) {
	c, err := openWriting(cfg.Path, cfg.Unsynced)
	if err != nil {
		return nil, explain("open the database", err)
	}
	if err := c.inspect(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// inspectFile is inspect through a connection that cannot write, so that a refused file and its log
// stay unchanged. Other faults of the file are reported when it is opened for use.
func inspectFile(path string) (err error) {
	if info, _ := os.Stat(path); info == nil || info.Size() == 0 { //nolint:gosec // the path is the operator's own configuration
		return nil // nothing to refuse
	}
	c, err := openReading(path)
	if err == nil {
		if err = c.inspect(); err == nil {
			return c.close()
		}
		err = errors.Join(err, c.close())
	}
	if primary(err) != 0 {
		return nil
	}
	return err
}

// inspect refuses a database of another program ([ErrForeign]) and one from before the first
// release ([migrations.ErrUnreleased]). Otherwise a mistyped path would add our tables to another
// program's database.
func (c *conn) inspect() error {
	var tables, ours, version int64
	err := c.query(`
		SELECT count(*), coalesce(sum(name = 'goose_db_version'), 0) FROM sqlite_schema
		WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`, func(r sqlstore.Row) error { return r.Scan(&tables, &ours) })
	if err == nil && ours > 0 {
		version, err = c.number(`SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`)
	}
	switch {
	case err != nil:
		return explain("open the database", err)
	case tables > 0 && ours == 0:
		return fmt.Errorf("%w: the file has %d tables and none of laneway's; name another file with --database sqlite:PATH", ErrForeign, tables)
	default:
		return migrations.CheckReleased(version)
	}
}

func up(ctx context.Context, provider *goose.Provider, log *slog.Logger) error {
	_, err := migrations.Up(ctx, provider, log)
	return explain("migrate the database up", err)
}

func down(ctx context.Context, provider *goose.Provider, log *slog.Logger) error {
	m, err := provider.Down(ctx)
	if errors.Is(err, goose.ErrNoNextVersion) {
		return fmt.Errorf("there is no migration to take back: %w", err)
	}
	if err == nil {
		log.InfoContext(ctx, "schema migration taken back", "version", m.Source.Version)
	}
	return explain("migrate the database down", err)
}

func steps(ctx context.Context, provider *goose.Provider) ([]migrations.Step, error) {
	list, err := migrations.Steps(ctx, provider)
	return list, explain("read the migrations of the database", err)
}
