package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"laneway/internal/store"
)

var (
	_ store.Holds = (*Store)(nil)
	_ store.Holds = (*Visitor)(nil)
)

// holdCopy holds the gateway that a backup will be: the database at path, which no process uses.
func holdCopy(ctx context.Context, path string, at int64, h store.Hold) (err error) {
	db, err := sql.Open("sqlite", dsn(path, false))
	if err != nil {
		return fmt.Errorf("open the backup: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(ctx, store.SetHoldSQL, at, h.Who, h.Reason)
	return explain("hold the backup", err)
}
