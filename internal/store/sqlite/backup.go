package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// Backup writes a consistent snapshot of the database at path into the new file dest, marks the copy as held ([store.Holds]), and checks it. A gateway may use
// the database meanwhile. dest is durable on the disk when Backup returns. Backup and writers do not wait for each other; the log of the database grows
// meanwhile.
func Backup(ctx context.Context, path, dest string) (err error) {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("there is no database at %s: %w", path, err)
	}
	if err := inspectFile(path); err != nil {
		return err
	}
	if err := touch(dest); err != nil { // created with private permissions; SQLite accepts an empty file as a new database
		return err
	}
	if err := vacuumInto(ctx, path, dest); err != nil {
		return err
	}
	h := store.Hold{Who: "laneway backup", Reason: "this is a backup: what it has not sent and not run may have been sent and run since"}
	if err := holdCopy(ctx, dest, time.Now().UnixMilli(), h); err != nil { //nolint:forbidigo // when the backup was made
		return err
	}
	if err := checkBackup(ctx, dest); err != nil {
		return err
	}
	file, err := os.OpenFile(dest, os.O_RDWR, 0) //nolint:gosec // the operator's own choice
	if err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return nil
}

func vacuumInto(ctx context.Context, path, dest string) error {
	c, err := openCopying(path)
	if err != nil {
		return explain("open the database", err)
	}
	err = c.until(ctx, "write the backup", func() error {
		if err := c.inspect(); err != nil {
			return err
		}
		return c.exec(`VACUUM INTO ?`, dest)
	})
	return errors.Join(err, c.close())
}

// checkBackup reads every page of the copy.
func checkBackup(ctx context.Context, dest string) (err error) {
	c, err := openReading(dest)
	if err != nil {
		return explain("open the backup", err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	var found string
	err = c.until(ctx, "check the backup", func() error {
		return c.query(`PRAGMA quick_check(1)`, func(r sqlstore.Row) error { return r.Scan(&found) })
	})
	if err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("the backup is damaged (%s): check the disk of the target and make it again", found)
	}
	return nil
}
