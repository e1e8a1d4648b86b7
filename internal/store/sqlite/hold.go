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

// holdCopy holds the gateway that a backup will be: the database at path, which no process uses. A database of an older schema has no table for it yet.
func holdCopy(ctx context.Context, path string, at int64, h store.Hold) (err error) {
	db, err := sql.Open("sqlite", dsn(path, false))
	if err != nil {
		return fmt.Errorf("open the backup: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{`CREATE TABLE IF NOT EXISTS hold (id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1), since INTEGER NOT NULL, who TEXT NOT NULL, reason TEXT NOT NULL) STRICT`, nil},
		{store.SetHoldSQL, []any{at, h.Who, h.Reason}},
	} {
		if _, err := db.ExecContext(ctx, step.sql, step.args...); err != nil {
			return explain("hold the backup", err)
		}
	}
	return nil
}
