package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"laneway/internal/store"
)

// Backup writes the database at path as it is at one moment, and held ([store.Holds]), into the new file dest, which may be done while a gateway uses it, and checks the copy. dest is on
// the disk when it returns. It waits for no writer, and no writer waits for it; the log of the database grows meanwhile.
func Backup(ctx context.Context, path, dest string) (err error) {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("there is no database at %s: %w", path, err)
	}
	if err := checkReleased(ctx, path); err != nil {
		return err
	}
	if err := touch(dest); err != nil { // private from the beginning; SQLite takes an empty file as a new one
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

func vacuumInto(ctx context.Context, path, dest string) (err error) {
	db, err := sql.Open("sqlite", readDSN(path))
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkOwner(ctx, db); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `VACUUM INTO ?`, dest)
	return explain("write the backup", err)
}

// checkBackup reads every page of the copy.
func checkBackup(ctx context.Context, dest string) (err error) {
	db, err := sql.Open("sqlite", readDSN(dest))
	if err != nil {
		return fmt.Errorf("open the backup: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var found string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found); err != nil {
		return explain("check the backup", err)
	}
	if found != "ok" {
		return fmt.Errorf("the backup is damaged (%s): check the disk of the target and make it again", found)
	}
	return nil
}
