package sqlite

import (
	"context"
	"errors"

	"laneway/internal/store"
)

var (
	_ store.Holds = (*Store)(nil)
	_ store.Holds = (*Visitor)(nil)
)

// holdCopy holds the gateway of a backup: the database at path, which no process uses.
func holdCopy(ctx context.Context, path string, at int64, h store.Hold) error {
	c, err := openWriting(path, false)
	if err != nil {
		return explain("open the backup", err)
	}
	err = c.until(ctx, "hold the backup", func() error { return c.exec(store.SetHoldSQL, at, h.Who, h.Reason) })
	return errors.Join(err, c.close())
}
