package app

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"laneway/internal/config"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/store/sqlite"
)

const (
	kindSQLite   = "sqlite"
	kindPostgres = "postgres"
	sqliteName   = "laneway.db"
)

// sqlitePath is the file of the embedded store.
func sqlitePath(cfg config.Config) string {
	if path, ok := cfg.Database.SQLitePath(); ok && path != "" {
		return path
	}
	return filepath.Join(cfg.Data, sqliteName)
}

// openStore opens the configured store with its schema brought up to date. Several replicas may do that at once.
func openStore(ctx context.Context, cfg config.Config, log *slog.Logger) (store.Store, error) {
	if !cfg.Database.IsPostgres() {
		s, err := sqlite.Open(ctx, sqlite.Config{Path: sqlitePath(cfg), Logger: log})
		if err != nil {
			return nil, fmt.Errorf("opening the store: %w", err)
		}
		return s, nil
	}
	url := cfg.Database.Reveal()
	if _, err := postgres.MigrateUp(ctx, url); err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	s, err := postgres.Open(ctx, postgres.Config{URL: url, MaxConns: cfg.DatabaseConns, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	return s, nil
}
