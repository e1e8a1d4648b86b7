package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/dispatch"
	"laneway/internal/retry"
	"laneway/internal/store/postgres"
	"laneway/internal/store/sqlite"
	"laneway/migrations"
)

const (
	kindSQLite   = "sqlite"
	kindPostgres = "postgres"
	sqliteName   = "laneway.db"
)

// sqlitePath returns the file of the embedded store.
func sqlitePath(cfg config.Config) string {
	if path, ok := cfg.Database.SQLitePath(); ok && path != "" {
		return path
	}
	return filepath.Join(cfg.Data, sqliteName)
}

// openStore opens the configured store and updates its schema. Several replicas may do that at once. A current schema is
// not changed, so a role without permission to change it suffices. It waits for a database that cannot be reached, starts
// or has no connection left until ctx is done, because a machine that boots starts the gateway first; every other refusal
// ends it. The log has one line for each change of the cause.
func openStore(ctx context.Context, cfg config.Config, log *slog.Logger) (dispatch.Store, error) {
	if !cfg.Database.IsPostgres() {
		s, err := sqlite.Open(ctx, sqlite.Config{Path: sqlitePath(cfg), Logger: log})
		if err != nil {
			return nil, fmt.Errorf("opening the store: %w", err)
		}
		return s, nil
	}
	config := postgres.Config{URL: cfg.Database.Reveal(), MaxConns: cfg.DatabaseConns, Logger: log}
	var s *postgres.Store
	reported := ""
	err := retry.Do(ctx, retry.Options{
		Policy: retry.Policy{Base: time.Second, Max: 30 * time.Second}, Retryable: postgres.WaitHelps,
		Notify: func(err error, _ int, _ time.Duration) {
			if app, ok := errors.AsType[*chat.Error](err); ok && app.Message != reported {
				reported = app.Message
				log.WarnContext(ctx, "waiting for the database", "err", err)
			}
		},
	}, func(ctx context.Context) (err error) {
		if s, err = postgres.Open(ctx, config); errors.Is(err, postgres.ErrOldSchema) {
			if _, err = postgres.MigrateUp(ctx, config.URL, log); err == nil {
				s, err = postgres.Open(ctx, config)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	return s, nil
}

// ErrUnreleased is the error for a database from before the first release.
var ErrUnreleased = migrations.ErrUnreleased

// LiveNodesError is the error for a step back while gateways use the database.
type LiveNodesError = postgres.LiveNodesError

// Migrate does action (up, down by one step, status) to the configured store and returns every step, oldest first. Down returns a *[LiveNodesError]
// while gateways use the database, unless force is set. A SQLite database in use is refused in any case.
func Migrate(ctx context.Context, cfg config.Config, action string, force bool) ([]migrations.Step, error) {
	if cfg.Database.IsPostgres() {
		return migratePostgres(ctx, cfg.Database.Reveal(), action, force)
	}
	direction := map[string]sqlite.Direction{"up": sqlite.Up, "down": sqlite.Down, "status": sqlite.Status}[action]
	return sqlite.Migrate(ctx, sqlite.Config{Path: sqlitePath(cfg)}, direction)
}

func migratePostgres(ctx context.Context, url, action string, force bool) (_ []migrations.Step, err error) {
	switch action {
	case "up":
		_, err = postgres.MigrateUp(ctx, url, nil)
	case "down":
		_, err = postgres.MigrateDown(ctx, url, force)
	}
	if err != nil {
		return nil, err
	}
	return postgres.MigrateStatus(ctx, url)
}
