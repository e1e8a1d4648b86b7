package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	zombiezen "zombiezen.com/go/sqlite"

	"laneway/internal/store/sqlstore"
)

const (
	busyTimeout = 5 * time.Second // for other programs that have the file open; connections of this process never wait for each other
	// walPages is the size of the log (in 4 KiB pages) at which it is copied into the database. Four times SQLite's default: pages that are written repeatedly
	// are copied once, and one copy of 16 MiB still takes only some ten milliseconds.
	walPages = 4000
	// cacheKiB bounds the page cache of the writer. SQLite's 2 MiB are too few for a batch over some hundred sessions.
	cacheKiB = 16 << 10
	// walKeep is the maximum size of the log file after a burst, in bytes.
	walKeep = 64 << 20
)

// conn is a connection to the file. It belongs to one goroutine at a time. It caches its prepared statements, because compiling one takes several times as long
// as running it. The statements are constants and a few combinations, so their number is bounded. A parameter of a limit is written LIMIT +?: with LIMIT ? the
// planner inspects the value, and SQLite compiles the statement again after each binding.
type conn struct {
	db      *zombiezen.Conn
	dialect *sqlstore.Dialect
	row     row // of the statement that runs
}

// openWriting opens a connection that reads and writes the existing file. Unsynced is as in [Config].
func openWriting(path string, unsynced bool) (*conn, error) {
	synchronous := "FULL"
	if unsynced {
		synchronous = "OFF"
	}
	return connect(path, zombiezen.OpenReadWrite,
		`PRAGMA auto_vacuum = INCREMENTAL`, // only effective before the first table exists
		`PRAGMA journal_mode = WAL`,
		`PRAGMA synchronous = `+synchronous,
		// Overwrites deleted content in pages that are written anyway. Free pages keep their content until they are reused or returned to the disk; a backup
		// contains none of them.
		`PRAGMA secure_delete = FAST`,
		`PRAGMA cache_size = -`+strconv.Itoa(cacheKiB),
		`PRAGMA wal_autocheckpoint = `+strconv.Itoa(walPages),
		`PRAGMA journal_size_limit = `+strconv.Itoa(walKeep),
	)
}

// openReading opens a connection that cannot write.
func openReading(path string) (*conn, error) {
	return connect(path, zombiezen.OpenReadOnly, `PRAGMA query_only = ON`)
}

// openCopying opens a connection that cannot write this file, but can write another one.
func openCopying(path string) (*conn, error) { return connect(path, zombiezen.OpenReadOnly) }

func connect(path string, mode zombiezen.OpenFlags, settings ...string) (*conn, error) {
	db, err := zombiezen.OpenConn(path, mode)
	if err != nil {
		return nil, engineError(err)
	}
	db.SetBusyTimeout(busyTimeout)
	c := &conn{db: db, dialect: sqlstore.SQLite()}
	for _, text := range settings {
		if err := c.exec(text); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return c, nil
}

// close also ends the transaction.
func (c *conn) close() error {
	if err := c.db.Close(); err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

// exec runs a statement without marks of a [sqlstore.Dialect].
func (c *conn) exec(text string, args ...any) error { return c.query(text, nil, args...) }

// query is exec that calls scan for each row.
func (c *conn) query(text string, scan func(sqlstore.Row) error, args ...any) error {
	stmt, err := c.prepare(text, args)
	if err != nil {
		return err
	}
	return c.finish(stmt, c.step(stmt, scan))
}

// number is the first column of the only row.
func (c *conn) number(text string, args ...any) (n int64, err error) {
	err = c.query(text, func(r sqlstore.Row) error { return r.Scan(&n) }, args...)
	return n, err
}

// prepare returns the statement with its arguments bound. Surplus arguments are for the other engine.
func (c *conn) prepare(text string, args []any) (*zombiezen.Stmt, error) {
	stmt, err := c.db.Prepare(text)
	if err != nil {
		return nil, engineError(err)
	}
	for i := range min(len(args), stmt.BindParamCount()) {
		if err := bind(stmt, i+1, args[i]); err != nil {
			return nil, err
		}
	}
	return stmt, nil
}

// step runs a statement to its end, or until scan returns an error. scan must not run statements. Afterwards the statement can be bound and run again.
func (c *conn) step(stmt *zombiezen.Stmt, scan func(sqlstore.Row) error) error {
	c.row.stmt = stmt
	for {
		more, err := stmt.Step()
		if err != nil {
			err = engineError(err)
		} else if more && scan != nil {
			err = scan(&c.row)
		}
		if !more || err != nil {
			_ = stmt.Reset() //nolint:errcheck // repeats the error of the step
			return err
		}
	}
}

// finish releases the bound values, which may be large.
func (c *conn) finish(stmt *zombiezen.Stmt, err error) error {
	_ = stmt.ClearBindings() //nolint:errcheck // fails for an interrupted connection only; then the next use does it
	return err
}

// inTransaction reports whether a transaction is open.
func (c *conn) inTransaction() bool { return !c.db.AutocommitEnabled() }

// within runs statements in a transaction, which ends when run returns, or as soon as ctx ends. commit keeps its writes unless a statement fails.
func (c *conn) within(ctx context.Context, begin string, commit bool, run func() error) error {
	c.db.SetInterrupt(ctx.Done())
	defer c.db.SetInterrupt(nil)
	err := c.exec(begin)
	if err != nil {
		return err
	}
	if err = run(); err == nil && commit {
		err = c.exec(`COMMIT`)
	}
	if c.inTransaction() {
		c.db.SetInterrupt(nil) // even after ctx has ended: an open snapshot would keep the log from being copied into the database
		if undo := c.exec(`ROLLBACK`); undo != nil {
			err = errors.Join(err, undo)
		}
	}
	return err
}

// until runs statements and interrupts them when ctx ends; doing names them in errors.
func (c *conn) until(ctx context.Context, doing string, run func() error) error {
	c.db.SetInterrupt(ctx.Done())
	err := run()
	c.db.SetInterrupt(nil)
	return outcome(ctx, doing, err)
}
