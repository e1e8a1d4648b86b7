package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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
	// Path of the database file. It is created with mode 0600 and its directory with 0700 when they do not exist; two files of
	// SQLite (-wal, -shm) and the lock file stand beside it.
	Path string
	// Now is the store's clock; nil = the wall clock of this process, which is the only one that uses the database.
	Now func() time.Time
	// Logger logs repairs and failures of the file; nil = no log.
	Logger *slog.Logger
	// Readers bounds the read connections; 0 = 4.
	Readers int
	// Unsynced commits without waiting for the disk. It is for tests only: a power cut can lose or damage what was committed.
	Unsynced bool
	// Before is called on the goroutine of the caller before each operation of the port, with what it does ("stop", "start a run"); nil = never. An error
	// of it is returned as that of the operation, and nothing is done. It is for tests only, which force outages and interleavings with it.
	Before func(ctx context.Context, doing string) error

	// at is called by the writer at the boundaries of a commit; tests end the process there. nil = never.
	at func(boundary)
}

// boundary is a moment of a commit. A crash at each of them has another result.
type boundary string

const (
	boundaryBegun     boundary = "begun"     // nothing is written
	boundaryApplied   boundary = "applied"   // everything is written, nothing is durable
	boundaryCommitted boundary = "committed" // everything is durable, no caller has a result
)

const (
	busyTimeout    = 5 * time.Second // for other programs that have the file open; connections of this process never wait for each other
	defaultReaders = 4
	// walPages is after how much log (4 KiB pages) it is copied into the database. Four times SQLite's default: pages that
	// are written again and again are copied once, and one copy of 16 MiB still takes some ten milliseconds.
	walPages = 4000
	// cacheKiB bounds the pages that the writer keeps. SQLite's 2 MiB are too few for a batch over some hundred sessions.
	cacheKiB = 16 << 10
	// walKeep is how large the log file may stay after a burst, in bytes.
	walKeep = 64 << 20
)

// Store is the embedded store. It is safe for concurrent use; make it with [Open] and end it with [Store.Close].
type Store struct {
	sqlstore.Store

	path  string
	file  os.FileInfo // identity of the database file, which detects that the file was replaced
	now   func() time.Time
	log   *slog.Logger
	lock  *fileLock
	write *writer
	read  *reader
	gate  *store.Gate

	before func(ctx context.Context, doing string) error // of Config
}

// Open takes the data directory for this process, brings the schema up to date and starts the writer goroutine, which
// ends with [Store.Close]. Errors: [ErrInUse], [ErrNewerSchema], [ErrForeign],
// [migrations.ErrUnreleased], chat.ErrStoreUnavailable. ctx bounds the opening only.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, lock, err := prepare(ctx, cfg)
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

func (s *Store) open(ctx context.Context, cfg Config) error {
	address := dsn(cfg.Path, false)
	if cfg.Unsynced {
		address = strings.Replace(address, "_synchronous=FULL", "_synchronous=OFF", 1)
	}
	db, err := sql.Open("sqlite", address)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	// One connection at a time: the writer's, and that of the migrations before it.
	db.SetMaxOpenConns(1)
	if err := migrateUp(ctx, db, cfg.Logger); err != nil {
		return errors.Join(err, db.Close())
	}
	if err := refuseUnfinished(ctx, db); err != nil {
		return errors.Join(err, db.Close())
	}
	if s.file, err = os.Stat(cfg.Path); err != nil {
		return errors.Join(fmt.Errorf("look at the database file: %w", err), db.Close())
	}
	if s.read, err = openReader(cfg); err != nil {
		return errors.Join(err, db.Close())
	}
	s.write = newWriter(context.WithoutCancel(ctx), db, s.gate, cfg)
	return nil
}

// Close takes no further operations, waits for those under way, folds the log into the database file and gives the data directory
// back. Operations that come later get chat.ErrStoreUnavailable. Closing twice is harmless.
func (s *Store) Close() error {
	if !s.write.close() {
		return nil
	}
	// Readers first: the last connection to leave empties the log, and it must be one that may write.
	err := errors.Join(s.read.close(), s.write.db.Close(), s.lock.release())
	s.gate.Changed() // polls get the error of a closed store, too
	if err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

// Kind is "sqlite".
func (s *Store) Kind() string { return "sqlite" }

// Now is the store's clock.
func (s *Store) Now(context.Context) (time.Time, error) { return instant(s.now().UnixMilli()), nil }

// Ping proves that the writer makes progress, that the file can be written and that it still is the file that was opened. It goes to the
// front of the queue.
func (s *Store) Ping(ctx context.Context) error {
	info, err := os.Stat(s.path)
	if err != nil || !os.SameFile(info, s.file) {
		return &chat.Error{
			Code: chat.CodeStoreUnavailable, Retryable: true, Cause: err,
			Message: "the database file was removed or replaced while the gateway runs: stop the gateway, put the right file back and start again",
		}
	}
	return s.write.do(ctx, urgent("check the database"), func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `UPDATE nodes SET addr = addr WHERE id = ''`)
		return err
	})
}

// WriterAge is how long the current batch has been running; 0 when the writer is idle.
func (s *Store) WriterAge() time.Duration { return s.write.age() }

// prepare checks cfg, fills its defaults, makes the directory and the file, and takes the lock. A database from before the first release is refused.
func prepare(ctx context.Context, cfg Config) (Config, *fileLock, error) {
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
	if err := checkReleased(ctx, path); err != nil {
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

// resolve follows links, so that two names of one file meet at one lock.
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

// touch makes the file before SQLite does, because SQLite would make it readable for every user; its log inherits the mode.
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

// dsn is the address of the file for the driver. The path is a URI, so that a question mark in a directory's name stays part of it.
func dsn(path string, readOnly bool) string {
	q := url.Values{}
	q.Set("_busy_timeout", strconv.FormatInt(busyTimeout.Milliseconds(), 10))
	if readOnly {
		q.Set("mode", "ro")
		q.Set("_query_only", "1")
	} else {
		q.Set("mode", "rw")
		q.Set("_auto_vacuum", "2") // incremental: must be set before the first table exists
		q.Set("_journal_mode", "WAL")
		q.Set("_synchronous", "FULL")
		// Overwrites deleted content in the pages that are written anyway. Pages that become free keep theirs until they are used again or returned to the disk;
		// a backup has none of them.
		q.Add("_pragma", "secure_delete(FAST)")
		q.Add("_pragma", "cache_size(-"+strconv.Itoa(cacheKiB)+")")
		q.Add("_pragma", "wal_autocheckpoint("+strconv.Itoa(walPages)+")")
		q.Add("_pragma", "journal_size_limit("+strconv.Itoa(walKeep)+")")
	}
	return address(path, q)
}

// readDSN is the address of the file for a connection that only reads it, but may write another file (a backup).
func readDSN(path string) string {
	return address(path, url.Values{"mode": {"ro"}, "_busy_timeout": {strconv.FormatInt(busyTimeout.Milliseconds(), 10)}})
}

func address(path string, q url.Values) string {
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // a drive letter
	}
	return (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}).String()
}
