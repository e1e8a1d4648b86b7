// Package sqlite is the embedded store: one file in the data directory, for one gateway process,
// with nothing to install.
//
// # One writer that batches
//
// A flush of the disk costs as much as hundreds of statements, and SQLite has one writer at a time
// anyway. So one goroutine owns the only connection that writes. It runs all waiting operations, up
// to 256, in one transaction and flushes once. During the flush the next batch fills: under load
// the batches grow, and a single operation never waits for others. Heartbeat, Stop, Ping and the
// other control operations go to the front of the queue.
//
// The accepts, starts and finishes of a batch run together, one per session: they share the
// statements that read. All other operations run alone.
//
// An operation that is refused, fails or panics undoes only itself; the rest of the batch commits.
// Savepoints do that when a failed operation has written. The usual batch runs without them,
// because they cost a copy of every page. Callers get their results after the commit and never
// before, so every result is durable (journal in WAL mode, synchronous=FULL). When the commit
// fails, every operation of the batch gets chat.ErrStoreUnavailable.
//
// # Readers
//
// A small pool of read-only connections serves lists, histories and counts. A read sees one
// snapshot, the last commit before it began; so a caller that has the result of a write also reads
// what it wrote. Readers and the writer never wait for each other.
//
// # Connections
//
// A connection is one of zombiezen.com/go/sqlite, a thin layer on the engine that caches the
// prepared statements. One goroutine at a time uses it. The end of a context interrupts a read; it
// does not interrupt the writer. Only goose, which runs the migrations when a store is opened, uses
// database/sql.
//
// # Jobs and their ledger
//
// A fire is a message: [Store.Claim] writes the ledger row, the message, its session and the next
// slot of the job in one operation, and from then on the run is handled like every message. So the
// ledger has no leases. It follows the messages: Start, Finish, a takeover, a stop and a delivery
// update its row in their own transaction. A claim takes at most 500 jobs, because no other
// operation writes meanwhile; its cost is proportional to the due jobs, independent of the number
// of jobs. A ledger row enters the history indexes when it is finished.
//
// A job whose columns cannot be decoded is listed and does not fire, and the columns stay until a
// change replaces them. When another message has the id that the message of a run needs, that one
// run ends with an error. Pruning a run also deletes the session that was made for it, unless the
// session has more messages.
//
// # One process
//
// [Open] holds an operating system lock on a file next to the database while the store is open. A
// second process gets an error ([ErrInUse]) with the remedy. The lock ends with the process, even
// with kill -9. As no other process writes, the clock of this process is the clock of the store.
//
// # What it promises
//
//   - The guarantees of package store; the suite in storetest runs against it.
//   - A crash at any moment loses nothing that was acknowledged.
//   - On a full disk, an input/output error or a read-only file, writes fail with a sentence, reads
//     work where the disk allows them, and the store recovers without a restart.
//   - A database of a newer schema ([ErrNewerSchema]), of another program ([ErrForeign]), or from
//     before the first release ([migrations.ErrUnreleased]) is refused and never changed.
//   - The cost of an operation depends on the unfinished work and not on the history: partial
//     indexes contain only unfinished rows.
//
// # What it does not do
//
// It does not work on a network file system, whose locks are not reliable. It deletes no history by
// itself; that is the task of retention. Its queue has no bound: every entry is a waiting caller,
// and the callers are bounded elsewhere.
//
// When the context of an operation ends before the writer takes it, nothing happens. When it ends
// later, the call returns immediately, and the operation commits or fails as a whole without its
// caller. The store owns slices and maps of its parameters until the next operation has returned.
//
// # How it ends
//
// [Store.Close] completes the queued operations, ends the writer's goroutine, closes the
// connections and releases the directory.
//
// # Example
//
//	st, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dataDir, "laneway.db"), Logger: log})
//	if err != nil {
//		return err
//	}
//	defer st.Close()
//	err = st.Register(ctx, store.Node{ID: nodeID, Exclusive: true})
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.OneWriter = (*Store)(nil)
)

// Config locates the database. Only Path is required.
type Config struct {
	// Path of the database file. It is created with mode 0600 and its directory with 0700 when they
	// do not exist. Two files of SQLite (-wal, -shm) and the lock file are next to it.
	Path string
	// Now is the store's clock; nil = the wall clock of this process, which is the only process
	// that uses the database.
	Now func() time.Time
	// Logger logs repairs and failures of the file; nil = no log.
	Logger *slog.Logger
	// Readers bounds the read connections; 0 = 4.
	Readers int
	// Unsynced commits without waiting for the disk. It is for tests only: a power failure can lose
	// or damage committed data.
	Unsynced bool
	// Before is called on the goroutine of the caller before each operation of the port, with its
	// description ("stop", "start a run"); nil = never. An error from it is returned as the error
	// of the operation, which then does nothing. It is for tests only, to force outages and
	// interleavings.
	Before func(ctx context.Context, doing string) error

	// at is called by the writer at the boundaries of a commit; tests end the process there. nil =
	// never.
	at func(boundary)
}

// boundary is a point in a commit. A crash has a different result at each of them.
type boundary string

const (
	boundaryBegun     boundary = "begun"     // nothing is written
	boundaryApplied   boundary = "applied"   // everything is written, nothing is durable
	boundaryCommitted boundary = "committed" // everything is durable, no caller has a result
)

const defaultReaders = 4

// Store is the embedded store. It is safe for concurrent use; create it with [Open] and end it with
// [Store.Close].
type Store struct {
	sqlstore.Store

	path  string
	file  os.FileInfo // identity of the database file, which detects that the file was replaced
	now   func() time.Time
	log   *slog.Logger
	lock  *fileLock
	write *writer
	read  *reader
	lists *store.Lists
	gate  *store.Gate

	before func(ctx context.Context, doing string) error // from Config
}

// Open locks the data directory for this process, migrates the schema and starts the writer
// goroutine, which ends with [Store.Close]. Errors: [ErrInUse], [ErrNewerSchema], [ErrForeign],
// [migrations.ErrUnreleased], chat.ErrStoreUnavailable. ctx bounds only the opening.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, lock, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{path: cfg.Path, now: cfg.Now, log: cfg.Logger, lock: lock, before: cfg.Before, gate: &store.Gate{}}
	s.Store = sqlstore.New(engine{s})
	if err := s.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, cfg Config) (err error) {
	c, err := openOurs(cfg)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	err = withMigrations(ctx, cfg, false, func(provider *goose.Provider) error { return up(ctx, provider, cfg.Logger) })
	if err != nil {
		return err
	}
	if err := c.refuseUnfinished(); err != nil {
		return err
	}
	if s.file, err = os.Stat(cfg.Path); err != nil {
		return fmt.Errorf("look at the database file: %w", err)
	}
	s.read, s.lists = newReader(cfg), store.NewLists(cfg.Readers)
	s.write = newWriter(context.WithoutCancel(ctx), c, s.gate, cfg)
	return nil
}

// Close refuses further operations, waits for those in progress, copies the log into the database
// file and unlocks the data directory. Later operations get chat.ErrStoreUnavailable. Closing twice
// is harmless.
func (s *Store) Close() error {
	if !s.write.close() {
		return nil
	}
	s.gate.Changed() // so that polls, too, get the error of a closed store
	// Readers first: the last connection to close removes the log, and must be able to write.
	return errors.Join(s.read.close(), s.write.disconnect(), s.lock.release())
}

// Kind is "sqlite".
func (s *Store) Kind() string { return "sqlite" }

// Now is the store's clock.
func (s *Store) Now(context.Context) (time.Time, error) { return instant(s.now().UnixMilli()), nil }

// Ping checks that the writer makes progress, that the file can be written and that it is still the
// file that was opened. It goes to the front of the queue.
func (s *Store) Ping(ctx context.Context) error {
	info, err := os.Stat(s.path)
	if err != nil || !os.SameFile(info, s.file) {
		return &chat.Error{
			Code: chat.CodeStoreUnavailable, Retryable: true, Cause: err,
			Message: "the database file was removed or replaced while the gateway runs: stop the gateway, put the right file back and start again",
		}
	}
	return s.write.do(ctx, urgent("check the database"), func(ctx context.Context, t *tx) error {
		_, err := t.Exec(ctx, `UPDATE nodes SET addr = addr WHERE id = ''`)
		return err
	})
}

// WriterAge is how long the current batch has been running; 0 when the writer is idle.
func (s *Store) WriterAge() time.Duration { return s.write.age() }

// prepare checks cfg, fills in its defaults, creates the directory and the file, and takes the
// lock. It refuses a database that this program must not use.
func prepare(cfg Config) (Config, *fileLock, error) {
	if cfg.Path == "" {
		return cfg, nil, errors.New("the path of the SQLite database is empty: name a file, as in sqlite:laneway.db")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // the default of the injected clock
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Before == nil {
		cfg.Before = func(context.Context, string) error { return nil }
	}
	if cfg.Readers <= 0 {
		cfg.Readers = defaultReaders
	}
	path, err := resolve(cfg.Path)
	if err != nil {
		return cfg, nil, err
	}
	cfg.Path = path
	if err := inspectFile(path); err != nil {
		return cfg, nil, err
	}
	lock, err := lockFile(path)
	if err != nil {
		return cfg, nil, err
	}
	if err := touch(path); err != nil {
		return cfg, nil, errors.Join(err, lock.release())
	}
	return cfg, lock, nil
}

// resolve follows links, so that two names of one file lead to one lock.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the database file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("find the data directory: %w", err)
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// touch creates the file before SQLite does, because SQLite would make it readable for every user;
// its log inherits the mode.
func touch(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the path is the operator's own configuration
	if err != nil {
		return fmt.Errorf("make the database file: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("make the database file: %w", err)
	}
	return nil
}

// ErrInUse is wrapped by the error of [Open] and [Migrate] when another process has this database
// open.
var ErrInUse = errors.New("the database is in use")

// fileLock is the exclusive right to a database file. The operating system releases it when the
// process ends, however it ends.
type fileLock struct{ file *os.File }

// lockFile takes the lock next to the database, or returns an error that names its holder. SQLite's
// own locks would admit a second gateway: they last for a transaction, this one for the life of the
// process.
func lockFile(path string) (*fileLock, error) {
	name := path + ".lock"
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600) // the path is the operator's own configuration
	if err != nil {
		return nil, fmt.Errorf("open the lock file of the database: %w", err)
	}
	if err := tryLock(file); err != nil {
		holder := readHolder(file)
		_ = file.Close()
		if errors.Is(err, errHeld) {
			return nil, fmt.Errorf("%w: the data directory %s belongs to another running gateway%s; stop it, choose another "+
				"directory with --data, or let both share PostgreSQL with --database postgres://…", ErrInUse, filepath.Dir(path), holder)
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return &fileLock{file: file}, writeHolder(file)
}

// release lets the next process take the lock. The file stays: if it were deleted, two processes
// could lock two files of one name.
func (l *fileLock) release() error {
	if err := errors.Join(unlock(l.file), l.file.Close()); err != nil {
		return fmt.Errorf("release the lock file of the database: %w", err)
	}
	return nil
}

func writeHolder(file *os.File) error {
	text := strconv.Itoa(os.Getpid()) + "\n"
	err := file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt([]byte(text), 0)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the lock file of the database: %w", err), file.Close())
	}
	return nil
}

// readHolder is for the error message only: the lock is authoritative, not the number.
func readHolder(file *os.File) string {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, 32))
	pid, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}

// Register creates a new incarnation with a lease; see the port.
func (s *Store) Register(ctx context.Context, n store.Node) error {
	until, err := s.Registered(ctx, n)
	if err == nil {
		s.gate.Leased(n.ID, until)
	}
	return err
}

// Heartbeat extends the lease if it is still valid; see the port.
func (s *Store) Heartbeat(ctx context.Context, nodeID string, draining bool) (store.Beat, error) {
	beat, err := s.Store.Heartbeat(ctx, nodeID, draining)
	if err == nil {
		s.gate.Leased(nodeID, beat.LeaseUntil)
	}
	return beat, err
}

// Unregister is the clean stop; see the port.
func (s *Store) Unregister(ctx context.Context, nodeID string) error {
	s.gate.Leased(nodeID, time.Time{})
	return s.Store.Unregister(ctx, nodeID)
}

// holdCopy holds the gateway of a backup: the database at path, which no process uses.
func holdCopy(ctx context.Context, path string, at int64, h store.Hold) error {
	c, err := openWriting(path, false)
	if err != nil {
		return explain("open the backup", err)
	}
	err = c.until(ctx, "hold the backup", func() error { return c.exec(store.SetHoldSQL, at, h.Who, h.Reason) })
	return errors.Join(err, c.close())
}
