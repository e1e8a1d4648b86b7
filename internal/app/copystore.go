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
	// CopyOptions are what a copy of a store needs.
	CopyOptions = transfer.Options
	// CopyStep is how far a copy is.
	CopyStep = transfer.Step
	// CopyResult is what a copy has done.
	CopyResult = transfer.Result
)

// closingTarget is a side of a copy that is given back at the end.
type closingTarget interface {
	transfer.Target
	Close() error
}

// CopyStore copies everything that from contains into to, and checks that it is equal. A copy that was interrupted goes on when it is called again. It returns a
// *[LiveNodesError], or an error wrapping sqlite.ErrInUse, while a gateway uses one of the two, and changes nothing then.
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

// Database is the address of the configured store, also where it is the default one.
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
