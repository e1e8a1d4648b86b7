package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

var (
	_ store.Store      = (*Store)(nil)
	_ store.Progresser = (*Store)(nil)
)

// Config locates the database. Only Path is required.
type Config struct {
	// Path of the database file. It is created with mode 0600 and its directory with 0700 when they do not exist. Two files of SQLite (-wal, -shm) and the lock
	// file are next to it.
	Path string
	// Now is the store's clock; nil = the wall clock of this process, which is the only process that uses the database.
	Now func() time.Time
	// Logger logs repairs and failures of the file; nil = no log.
	Logger *slog.Logger
	// Readers bounds the read connections; 0 = 4.
	Readers int
	// Unsynced commits without waiting for the disk. It is for tests only: a power failure can lose or damage committed data.
	Unsynced bool
	// Before is called on the goroutine of the caller before each operation of the port, with its description ("stop", "start a run"); nil = never. An error
	// from it is returned as the error of the operation, which then does nothing. It is for tests only, to force outages and interleavings.
	Before func(ctx context.Context, doing string) error

	// at is called by the writer at the boundaries of a commit; tests end the process there. nil = never.
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

// Store is the embedded store. It is safe for concurrent use; create it with [Open] and end it with [Store.Close].
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

// Open locks the data directory for this process, migrates the schema and starts the writer goroutine, which ends with [Store.Close]. Errors: [ErrInUse],
// [ErrNewerSchema], [ErrForeign], [migrations.ErrUnreleased], chat.ErrStoreUnavailable. ctx bounds only the opening.
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

// Close refuses further operations, waits for those in progress, copies the log into the database file and unlocks the data directory. Later operations get
// chat.ErrStoreUnavailable. Closing twice is harmless.
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

// Ping checks that the writer makes progress, that the file can be written and that it is still the file that was opened. It goes to the front of the queue.
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

// prepare checks cfg, fills in its defaults, creates the directory and the file, and takes the lock. It refuses a database that this program must not use.
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

// touch creates the file before SQLite does, because SQLite would make it readable for every user; its log inherits the mode.
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
