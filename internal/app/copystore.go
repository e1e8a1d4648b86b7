package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"laneway/internal/config"
	"laneway/internal/store/postgres"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/transfer"
)

type (
	// CopyOptions are the options of a copy of a store.
	CopyOptions = transfer.Options
	// CopyStep is the progress of a copy.
	CopyStep = transfer.Step
	// CopyResult is the result of a copy.
	CopyResult = transfer.Result
)

// closingTarget is a side of a copy that is closed at the end.
type closingTarget interface {
	transfer.Target
	Close() error
}

// CopyStore copies the whole content of from into to, and verifies that both are equal. A copy that was interrupted continues when it is
// called again. While a gateway uses one of the two, it changes nothing and returns a *[LiveNodesError] or an error wrapping
// sqlite.ErrInUse.
func CopyStore(ctx context.Context, from, to config.DatabaseURL, o CopyOptions) (_ *CopyResult, err error) {
	source, err := openSide(ctx, from, false)
	if err != nil {
		return nil, fmt.Errorf("opening the source: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := openSide(ctx, to, true)
	if err != nil {
		return nil, fmt.Errorf("opening the target: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	return transfer.Copy(ctx, source, target, o)
}

// openSide opens one side of a copy.
func openSide(ctx context.Context, at config.DatabaseURL, write bool) (closingTarget, error) {
	if path, ok := at.SQLitePath(); ok {
		open := sqlite.OpenSource
		if write {
			open = sqlite.OpenTarget
		}
		side, err := open(ctx, sqlite.Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		return side, nil
	}
	open := postgres.OpenSource
	if write {
		open = postgres.OpenTarget
	}
	side, err := open(ctx, at.Reveal())
	if err != nil {
		return nil, err
	}
	return side, nil
}

// Database returns the address of the configured store, even when it is the default.
func Database(cfg config.Config) (config.DatabaseURL, error) {
	if cfg.Database.IsSet() {
		return cfg.Database, nil
	}
	var at config.DatabaseURL
	if err := at.UnmarshalText([]byte("sqlite:" + sqlitePath(cfg))); err != nil {
		return at, fmt.Errorf("finding the configured store: %w", err)
	}
	return at, nil
}
