package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	driver "modernc.org/sqlite"
	zombiezen "zombiezen.com/go/sqlite"

	"laneway/internal/chat"
	"laneway/internal/store/sqlstore"
)

const (
	busyTimeout = 5 * time.Second // for other programs that have the file open; connections of this process never wait for each other
	// walPages is the size of the log (in 4 KiB pages) at which it is copied into the database.
	// Four times SQLite's default: pages that are written repeatedly are copied once, and one copy
	// of 16 MiB still takes only some ten milliseconds.
	walPages = 4000
	// cacheKiB bounds the page cache of the writer. SQLite's 2 MiB are too few for a batch over
	// some hundred sessions.
	cacheKiB = 16 << 10
	// walKeep is the maximum size of the log file after a burst, in bytes.
	walKeep = 64 << 20
)

// conn is a connection to the file. It belongs to one goroutine at a time. It caches its prepared
// statements, because compiling one takes several times as long as running it. The statements are
// constants and a few combinations, so their number is bounded. A parameter of a limit is written
// LIMIT +?: with LIMIT ? the planner inspects the value, and SQLite compiles the statement again
// after each binding.
type conn struct {
	db      *zombiezen.Conn
	dialect *sqlstore.Dialect
	row     row // of the statement that runs
}

// openWriting opens a connection that reads and writes the existing file. Unsynced is as in
// [Config].
func openWriting(path string, unsynced bool) (*conn, error) {
	synchronous := "FULL"
	if unsynced {
		synchronous = "OFF"
	}
	return connect(path, zombiezen.OpenReadWrite,
		`PRAGMA auto_vacuum = INCREMENTAL`, // only effective before the first table exists
		`PRAGMA journal_mode = WAL`,
		`PRAGMA synchronous = `+synchronous,
		// Overwrites deleted content in pages that are written anyway. Free pages keep their
		// content until they are reused or returned to the disk; a backup contains none of them.
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

// prepare returns the statement with its arguments bound. Surplus arguments are for the other
// engine.
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

// step runs a statement to its end, or until scan returns an error. scan must not run statements.
// Afterwards the statement can be bound and run again.
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
			_ = stmt.Reset() // repeats the error of the step
			return err
		}
	}
}

// finish releases the bound values, which may be large.
func (c *conn) finish(stmt *zombiezen.Stmt, err error) error {
	_ = stmt.ClearBindings() // fails for an interrupted connection only; then the next use does it
	return err
}

// inTransaction reports whether a transaction is open.
func (c *conn) inTransaction() bool { return !c.db.AutocommitEnabled() }

// within runs statements in a transaction, which ends when run returns, or as soon as ctx ends.
// commit keeps its writes unless a statement fails.
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

// sharedText is the maximum length of strings of a row that share memory: a row of fifty columns is
// one allocation, and a short string does not keep a long one in memory.
const sharedText = 256

// row is the current row of a statement.
type row struct {
	stmt   *zombiezen.Stmt
	values []value // the text columns of the current row; reused for the next one
	text   []byte
}

// value is a column.
type value struct {
	kind       zombiezen.ColumnType
	number     int64
	text       string
	start, end int // for a string that shares memory
}

// Scan implements sqlstore.Row. It does not convert: a NULL, a string and a number each need a
// variable of a fitting type.
func (r *row) Scan(dest ...any) error {
	if n := r.stmt.ColumnCount(); n != len(dest) {
		return fmt.Errorf("a row has %d columns, want %d", n, len(dest))
	}
	r.read(len(dest))
	for i, to := range dest {
		if err := r.values[i].into(to, r.stmt, i); err != nil {
			return fmt.Errorf("read column %d of a row: %w", i, err)
		}
	}
	return nil
}

// Values implements sqlstore.Row.
func (r *row) Values() ([]any, error) {
	values := make([]any, r.stmt.ColumnCount())
	r.read(len(values))
	for i, v := range r.values {
		values[i] = v.plain(r.stmt, i)
	}
	return values, nil
}

// read reads the columns, except those that are neither a number nor a string.
func (r *row) read(columns int) {
	r.values, r.text = r.values[:0], r.text[:0]
	for i := range columns {
		v := value{kind: r.stmt.ColumnType(i)}
		switch v.kind {
		case zombiezen.TypeInteger:
			v.number = r.stmt.ColumnInt64(i)
		case zombiezen.TypeText:
			if n := r.stmt.ColumnLen(i); n > sharedText {
				v.text = r.stmt.ColumnText(i)
			} else if n > 0 {
				v.start, v.end = len(r.text), len(r.text)+n
				r.text = append(r.text, make([]byte, n)...)
				r.stmt.ColumnBytes(i, r.text[v.start:])
			}
		default:
		}
		r.values = append(r.values, v)
	}
	for i, all := 0, string(r.text); i < columns; i++ {
		if v := &r.values[i]; v.end > 0 {
			v.text = all[v.start:v.end]
		}
	}
}

// into stores the value of a column.
func (v *value) into(to any, stmt *zombiezen.Stmt, column int) error {
	switch isText, isNumber := v.kind == zombiezen.TypeText, v.kind == zombiezen.TypeInteger; to := to.(type) {
	case *string:
		if isText {
			*to = v.text
			return nil
		}
	case *int64:
		if isNumber {
			*to = v.number
			return nil
		}
	case *int:
		if isNumber {
			*to = int(v.number)
			return nil
		}
	case *bool:
		if isNumber {
			*to = v.number != 0
			return nil
		}
	case **string:
		if *to = nil; isText {
			text := v.text
			*to = &text
		}
		return nil
	case **int64:
		if *to = nil; isNumber {
			number := v.number
			*to = &number
		}
		return nil
	case *float64:
		if isNumber || v.kind == zombiezen.TypeFloat {
			*to = stmt.ColumnFloat(column)
			return nil
		}
	case interface{ SetMillis(ms int64) }: // this needs no interface value for the number
		to.SetMillis(v.number)
		return nil
	case sql.Scanner:
		return to.Scan(v.plain(stmt, column))
	default:
		switch p := reflect.ValueOf(to).Elem(); { // a named type
		case p.Kind() == reflect.String && isText:
			p.SetString(v.text)
			return nil
		case p.CanInt() && isNumber:
			p.SetInt(v.number)
			return nil
		}
	}
	return fmt.Errorf("a %T cannot hold %v", to, v.plain(stmt, column))
}

// plain is the value in its native type.
func (v *value) plain(stmt *zombiezen.Stmt, column int) any {
	switch v.kind {
	case zombiezen.TypeNull:
		return nil
	case zombiezen.TypeText:
		return v.text
	case zombiezen.TypeFloat:
		return stmt.ColumnFloat(column)
	case zombiezen.TypeBlob:
		b := make([]byte, stmt.ColumnLen(column))
		stmt.ColumnBytes(column, b)
		return b
	default:
		return v.number
	}
}

// bind binds a value to a parameter. A list becomes a JSON array.
func bind(stmt *zombiezen.Stmt, n int, v any) error {
	switch v := v.(type) {
	case nil:
		stmt.BindNull(n)
	case string:
		stmt.BindText(n, v)
	case int64:
		stmt.BindInt64(n, v)
	case int:
		stmt.BindInt64(n, int64(v))
	case bool:
		stmt.BindBool(n, v)
	case float64:
		stmt.BindFloat(n, v)
	case []byte:
		stmt.BindBytes(n, v)
	case []string, []int64:
		return bindList(stmt, n, v)
	default:
		switch s := reflect.ValueOf(v); { // a named type
		case s.Kind() == reflect.String:
			stmt.BindText(n, s.String())
		case s.CanInt():
			stmt.BindInt64(n, s.Int())
		default:
			return fmt.Errorf("a parameter cannot be a %T", v)
		}
	}
	return nil
}

func bindList(stmt *zombiezen.Stmt, n int, list any) error {
	if reflect.ValueOf(list).Len() == 0 {
		stmt.BindText(n, "[]")
		return nil
	}
	text, err := encode(list)
	stmt.BindText(n, text)
	return err
}

// instant is a stored time; 0 and NULL (scanned as 0) are the zero time.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// encode makes the JSON of a column.
func encode(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode for the database: %w", err)
	}
	return string(text), nil
}

// errClosed is the error of operations after Close.
var errClosed = &chat.Error{Code: chat.CodeStoreUnavailable, Message: "the database is closed because the gateway is stopping", Retryable: true}

// failure is an error from the engine.
type failure struct {
	code zombiezen.ResultCode // without its extension
	error
}

// Unwrap supports errors.Is.
func (f *failure) Unwrap() error { return f.error }

func engineError(err error) error { return &failure{zombiezen.ErrCode(err).ToPrimary(), err} }

// primary is the engine's result code without its extension, 0 for errors that are not from the
// engine.
func primary(err error) zombiezen.ResultCode {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	if e, ok := errors.AsType[*driver.Error](err); ok { // from a migration
		return zombiezen.ResultCode(e.Code() & 0xff)
	}
	return zombiezen.ResultOK
}

// unavailable returns the sentence for a failure of the environment. Every other error of the
// engine is a defect of this program.
func unavailable(err error) (sentence string, ok bool) {
	switch primary(err) {
	case zombiezen.ResultFull:
		return "the disk is full: free space where the database lies; nothing was stored", true
	case zombiezen.ResultIOErr:
		return "the disk reported an error: check the disk of the data directory", true
	case zombiezen.ResultReadOnly, zombiezen.ResultPerm, zombiezen.ResultAuth:
		return "the database cannot be written: check the permissions of the data directory and whether its disk is mounted read-only", true
	case zombiezen.ResultCantOpen:
		return "the database file cannot be opened: check that the data directory exists and belongs to this user", true
	case zombiezen.ResultBusy, zombiezen.ResultLocked, zombiezen.ResultProtocol:
		return "the database is locked by another program: end the program that has the database file open", true
	case zombiezen.ResultCorrupt, zombiezen.ResultNotADB:
		return "the database file is damaged or is not a SQLite database: restore it from a backup", true
	case zombiezen.ResultNoMem:
		return "there is not enough memory for the database", true
	default:
		return "", false
	}
}

// explain maps an error to the port's closed set. Domain errors and context errors stay unchanged,
// failures of the environment become chat.ErrStoreUnavailable with a sentence, and all other errors
// are wrapped with the operation.
func explain(doing string, err error) error {
	if _, known := errors.AsType[*chat.Error](err); known || err == nil {
		return err
	}
	if sentence, ok := unavailable(err); ok {
		return &chat.Error{
			Code: chat.CodeStoreUnavailable, Message: sentence, Retryable: true,
			RetryAfter: chat.ErrStoreUnavailable.RetryAfter, Cause: fmt.Errorf("%s: %w", doing, err),
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// connectionLost reports whether the state of the writer's connection is uncertain after err ended
// a transaction. A refusal, a full disk and a lock of another process leave it usable; after any
// other error of the engine the writer opens a new connection, so that a repaired disk needs no
// restart.
func connectionLost(err error) bool {
	switch primary(err) {
	case zombiezen.ResultOK, zombiezen.ResultFull, zombiezen.ResultBusy, zombiezen.ResultConstraint:
		return false
	default:
		return true
	}
}

// ended is the error of an operation whose context ended: the context's error, with its cause if it
// has one.
func ended(ctx context.Context, doing string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w (%w)", doing, err, cause)
}

// outcome is the error of an operation that the end of ctx interrupted.
func outcome(ctx context.Context, doing string, err error) error {
	if err != nil && ctx.Err() != nil {
		return ended(ctx, doing)
	}
	return explain(doing, err)
}
