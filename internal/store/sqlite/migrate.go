package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"

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

// Migration is one numbered change of the schema.
type Migration struct {
	Version   int64
	Name      string
	Applied   bool
	AppliedAt time.Time // zero = pending
}

// Migrate changes the schema of a database that no process has open, or reads the one of any database, and returns the state of every migration, oldest first.
// A file that does not exist is made by Up only. Errors as in [Open].
func Migrate(ctx context.Context, cfg Config, d Direction) (_ []Migration, err error) {
	if _, statErr := os.Stat(cfg.Path); d != Up && errors.Is(statErr, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no database at %s: make it with migrate up: %w", cfg.Path, statErr)
	}
	if d == Status {
		return migrationsOf(ctx, cfg)
	}
	cfg, lock, err := prepare(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	db, err := sql.Open("sqlite", dsn(cfg.Path, false))
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return migrate(ctx, db, cfg.Logger, d)
}

// migrationsOf reads the state of every migration, without the lock and on a connection that cannot write: a gateway may use the database.
func migrationsOf(ctx context.Context, cfg Config) (_ []Migration, err error) {
	if err := checkReleased(ctx, cfg.Path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(cfg.Path, true))
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return migrate(ctx, db, cfg.Logger, Status)
}

func migrate(ctx context.Context, db *sql.DB, log *slog.Logger, d Direction) ([]Migration, error) {
	provider, err := examine(ctx, db)
	if err != nil {
		return nil, err
	}
	switch d {
	case Up:
		err = up(ctx, provider, log)
	case Down:
		err = down(ctx, provider, log)
	case Status:
	default:
		err = fmt.Errorf("unknown direction %q: want up, down or status", d)
	}
	if err != nil {
		return nil, err
	}
	return list(ctx, provider)
}

func migrateUp(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	provider, err := examine(ctx, db)
	if err != nil {
		return err
	}
	return up(ctx, provider, log)
}

// examine refuses a database that must not be changed: a file of another program, and a schema that this binary does not know.
func examine(ctx context.Context, db *sql.DB) (*goose.Provider, error) {
	if err := checkOwner(ctx, db); err != nil {
		return nil, err
	}
	files, err := fs.Sub(migrations.SQLite, "sqlite")
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	have, know, err := provider.GetVersions(ctx)
	if err != nil {
		return nil, explain("read the schema version", err)
	}
	if have > know {
		return nil, fmt.Errorf("%w: its schema is version %d and this program knows up to %d; install the newer laneway again, "+
			"or restore the backup made before the upgrade", ErrNewerSchema, have, know)
	}
	return provider, nil
}

// checkReleased returns [migrations.ErrUnreleased] for a database from before the first release. It looks through a connection that cannot write, so that such
// a file stays as it is, with its log. What else may be wrong with the file is found, and named, by what opens it.
func checkReleased(ctx context.Context, path string) (err error) {
	if info, statErr := os.Stat(path); statErr != nil || info.Size() == 0 {
		return nil // there is nothing to refuse
	}
	db, err := sql.Open("sqlite", dsn(path, true))
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var ours bool
	if err := db.QueryRowContext(ctx, `SELECT count(*) > 0 FROM sqlite_schema WHERE name = 'goose_db_version'`).Scan(&ours); err != nil || !ours {
		return nil // another file, or a damaged one
	}
	var version int64
	if err := db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&version); err != nil {
		return explain("read the schema version", err)
	}
	return migrations.CheckReleased(version)
}

// checkOwner separates a new file and ours from a file of another program. Without it a mistyped path would add our tables to another
// program's database.
func checkOwner(ctx context.Context, db *sql.DB) error {
	var tables, ours int
	err := db.QueryRowContext(ctx, `
		SELECT count(*), coalesce(sum(name = 'goose_db_version'), 0) FROM sqlite_schema
		WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`).Scan(&tables, &ours)
	if err != nil {
		return explain("open the database", err)
	}
	if tables > 0 && ours == 0 {
		return fmt.Errorf("%w: the file has %d tables and none of laneway's; name another file with --database sqlite:PATH", ErrForeign, tables)
	}
	return nil
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

func list(ctx context.Context, provider *goose.Provider) ([]Migration, error) {
	status, err := provider.Status(ctx)
	if err != nil {
		return nil, explain("read the migrations of the database", err)
	}
	out := make([]Migration, 0, len(status))
	for _, m := range status {
		out = append(out, Migration{
			Version: m.Source.Version, Name: filepath.Base(m.Source.Path),
			Applied: m.State == goose.StateApplied, AppliedAt: m.AppliedAt,
		})
	}
	return out, nil
}
