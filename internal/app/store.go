package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
	"laneway/internal/retry"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/transfer"
	"laneway/migrations"
)

const (
	kindSQLite   = "sqlite"
	kindPostgres = "postgres"
	sqliteName   = "laneway.db"
)

// sqlitePath returns the file of the embedded store.
func sqlitePath(cfg config.Config) string {
	if path, ok := cfg.Database.SQLitePath(); ok && path != "" {
		return path
	}
	return filepath.Join(cfg.Data, sqliteName)
}

// openStore opens the configured store and updates its schema. Several replicas may do that at
// once. A current schema is not changed, so a role without permission to change it suffices. It
// waits for a database that cannot be reached, starts or has no connection left until ctx is done,
// because a machine that boots starts the gateway first; every other refusal ends it. The log has
// one line for each change of the cause. It also waits for a database that answers and takes no
// message: the start rehearses one.
func openStore(ctx context.Context, cfg config.Config, log *slog.Logger) (dispatch.Store, error) {
	if !cfg.Database.IsPostgres() {
		s, err := sqlite.Open(ctx, sqlite.Config{Path: sqlitePath(cfg), Logger: log})
		if err == nil {
			if err = s.Rehearse(ctx); err != nil {
				err = errors.Join(err, s.Close())
			}
		}
		if err != nil {
			return nil, openingStore(err)
		}
		return s, nil
	}
	config := postgres.Config{URL: cfg.Database.Reveal(), MaxConns: cfg.DatabaseConns, Logger: log}
	var s *postgres.Store
	reported := ""
	err := retry.Do(ctx, retry.Options{
		Policy: retry.Policy{Base: time.Second, Max: 30 * time.Second}, Retryable: postgres.WaitHelps,
		Notify: func(err error, _ int, _ time.Duration) {
			if app, ok := errors.AsType[*chat.Error](err); ok && app.Message != reported {
				reported = app.Message
				log.WarnContext(ctx, "waiting for the database", "err", err)
			}
		},
	}, func(ctx context.Context) (err error) {
		if s, err = postgres.Open(ctx, config); errors.Is(err, postgres.ErrOldSchema) {
			if _, err = postgres.MigrateUp(ctx, config.URL, log); err == nil {
				s, err = postgres.Open(ctx, config)
			}
		}
		if err != nil {
			return err
		}
		if err = s.Rehearse(ctx); err != nil {
			err = errors.Join(err, s.Close())
		}
		return err
	})
	if err != nil {
		return nil, openingStore(err)
	}
	return s, nil
}

// ErrUnreleased is the error for a database from before the first release.
var ErrUnreleased = migrations.ErrUnreleased

// LiveNodesError is the error for a step back while gateways use the database.
type LiveNodesError = postgres.LiveNodesError

// Migrate does action (up, down by one step, status) to the configured store and returns every
// step, oldest first. Down returns a *[LiveNodesError] while gateways use the database, unless
// force is set. A SQLite database in use is refused in any case.
func Migrate(ctx context.Context, cfg config.Config, action string, force bool) ([]migrations.Step, error) {
	if cfg.Database.IsPostgres() {
		return migratePostgres(ctx, cfg.Database.Reveal(), action, force)
	}
	direction := map[string]sqlite.Direction{"up": sqlite.Up, "down": sqlite.Down, "status": sqlite.Status}[action]
	return sqlite.Migrate(ctx, sqlite.Config{Path: sqlitePath(cfg)}, direction)
}

func migratePostgres(ctx context.Context, url, action string, force bool) (_ []migrations.Step, err error) {
	switch action {
	case "up":
		_, err = postgres.MigrateUp(ctx, url, nil)
	case "down":
		_, err = postgres.MigrateDown(ctx, url, force)
	}
	if err != nil {
		return nil, err
	}
	return postgres.MigrateStatus(ctx, url)
}

type (
	// CopyOptions are the options of a copy of a store.
	CopyOptions = transfer.Options
	// CopyStep is the progress of a copy.
	CopyStep = transfer.Step
	// CopyResult is the result of a copy.
	CopyResult = transfer.Result
)

// CopyStore copies the whole content of from into to, and verifies that both are equal. A copy that
// was interrupted continues when it is called again. While a gateway uses one of the two, it
// changes nothing and returns a *[LiveNodesError] or an error wrapping sqlite.ErrInUse.
func CopyStore(ctx context.Context, from, to config.DatabaseURL, o CopyOptions) (_ *CopyResult, err error) {
	source, err := openSide(ctx, from, false)
	if err != nil {
		return nil, fmt.Errorf("opening the source: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := openSide(ctx, to, true)
	if err != nil {
		return nil, fmt.Errorf("opening the target: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	return transfer.Copy(ctx, source, target, o)
}

// openSide opens one side of a copy.
func openSide(ctx context.Context, at config.DatabaseURL, write bool) (transfer.Side, error) {
	if path, ok := at.SQLitePath(); ok {
		open := sqlite.OpenSource
		if write {
			open = sqlite.OpenTarget
		}
		side, err := open(ctx, sqlite.Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		return side, nil
	}
	open := postgres.OpenSource
	if write {
		open = postgres.OpenTarget
	}
	side, err := open(ctx, at.Reveal())
	if err != nil {
		return nil, err
	}
	return side, nil
}

// Database returns the address of the configured store, even when it is the default.
func Database(cfg config.Config) (config.DatabaseURL, error) {
	if cfg.Database.IsSet() {
		return cfg.Database, nil
	}
	var at config.DatabaseURL
	if err := at.UnmarshalText([]byte("sqlite:" + sqlitePath(cfg))); err != nil {
		return at, fmt.Errorf("finding the configured store: %w", err)
	}
	return at, nil
}

// ErrPostgresBackup refuses a backup of a database that has its own tools.
var ErrPostgresBackup = errors.New("the database is PostgreSQL: back it up with pg_dump or a base backup, and the directory attachments of the data directory with it")

// BackupResult is what a backup contains.
type BackupResult struct {
	// Dir is usable as a data directory.
	Dir string
	// DatabaseBytes is the size of the database in it, Files the number of files of conversations,
	// FileBytes their size.
	DatabaseBytes, FileBytes int64
	Files                    int
}

// Backup copies the SQLite database, the files of conversations and the token of the data directory
// into the new directory dir, while a gateway may use them. It creates dir only when the backup is
// complete.
func Backup(ctx context.Context, cfg config.Config, dir string) (*BackupResult, error) {
	if cfg.Database.IsPostgres() {
		return nil, ErrPostgresBackup
	}
	if _, err := os.Lstat(dir); err == nil {
		return nil, fmt.Errorf("%s exists: name a new directory", dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the backup: %w", err)
	}
	partial, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".partial-")
	if err != nil {
		return nil, fmt.Errorf("making the directory of the backup: %w", err)
	}
	b := backup{cfg: cfg, dir: partial, result: &BackupResult{Dir: dir}}
	if err := b.run(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(partial))
	}
	if err := os.Rename(partial, dir); err != nil {
		return nil, errors.Join(fmt.Errorf("naming the backup: %w", err), os.RemoveAll(partial))
	}
	return b.result, nil
}

type backup struct {
	cfg    config.Config
	dir    string
	result *BackupResult
}

// run copies the files before and after the database. If a row of the copied database names a file,
// the file either existed before or was added before the copy of the database and is found by the
// second pass. A gateway removes no file whose row is unfinished.
func (b *backup) run(ctx context.Context) error {
	if err := b.files(ctx); err != nil {
		return err
	}
	dest := filepath.Join(b.dir, sqliteName)
	if err := sqlite.Backup(ctx, sqlitePath(b.cfg), dest); err != nil {
		return err
	}
	info, err := os.Stat(dest)
	if err != nil {
		return fmt.Errorf("looking at the backup: %w", err)
	}
	b.result.DatabaseBytes = info.Size()
	if err := b.files(ctx); err != nil {
		return err
	}
	_, err = copyFile(config.TokenPath(b.cfg.Data), config.TokenPath(b.dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the token may be elsewhere
		return fmt.Errorf("copying the token: %w", err)
	}
	return nil
}

// files copies the files of conversations that are not in the backup yet. It skips the directories
// of running turns: a turn that runs again has a new one.
func (b *backup) files(ctx context.Context) error {
	from := filepath.Join(b.cfg.Data, attachmentsDir)
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed since its directory was listed
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		name := strings.TrimPrefix(strings.TrimPrefix(path, from), string(filepath.Separator))
		if entry.IsDir() {
			if name == turnsDir {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(b.dir, attachmentsDir, name), 0o700)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		return b.file(path, filepath.Join(b.dir, attachmentsDir, name))
	})
	if err != nil {
		return fmt.Errorf("copying the files of conversations: %w", err)
	}
	return nil
}

// turnsDir has the directories of running turns, see package files.
const turnsDir = "turns"

func (b *backup) file(from, to string) error {
	n, err := copyFile(from, to)
	switch {
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist): // copied by the first pass; removed since it was listed
		return nil
	case err != nil:
		return err
	}
	b.result.Files++
	b.result.FileBytes += n
	return nil
}

// copyFile creates the file to with the content of from, and syncs it.
func copyFile(from, to string) (n int64, err error) {
	in, err := os.Open(from) // below the data directory
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }()                                     // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // the operator's own choice
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(out, in)
	return n, errors.Join(err, out.Sync(), out.Close())
}

// SetHold holds every gateway on the configured store. Each gateway applies it at its next
// heartbeat. by says who requested it, and from where.
func SetHold(ctx context.Context, cfg config.Config, reason, by string) error {
	return withHold(ctx, cfg, func(s store.Admin) error {
		return s.SetHold(ctx, &store.Hold{Who: by, Reason: reason}, store.ChangedBy{Who: "cli", Peer: by})
	})
}

// Released describes the work that starts with a release.
type Released struct {
	// Hold is nil when the gateway is not held.
	Hold *store.Hold
	// Outgoing counts messages that are sent, Unfinished those whose turns run.
	Outgoing, Unfinished int
	// Jobs counts jobs with due slots. Runs of them run; Missed are recorded without a run, by the
	// policy of each job.
	Jobs, Runs, Missed int
}

// Sentence describes it for people.
func (r Released) Sentence() string {
	return fmt.Sprintf("%d outgoing messages are sent, %d unfinished messages run, and of %d jobs that are due %d slots run and %d are recorded as missed",
		r.Outgoing, r.Unfinished, r.Jobs, r.Runs, r.Missed)
}

// WhatIsHeld returns the work that a release would start now.
func WhatIsHeld(ctx context.Context, cfg config.Config) (r Released, err error) {
	err = withHold(ctx, cfg, func(s store.Admin) error {
		if r.Hold, err = s.Hold(ctx); err != nil || r.Hold == nil {
			return err
		}
		w, err := s.Held(ctx)
		r.Outgoing, r.Unfinished = w.Outgoing, w.Unfinished
		for _, j := range w.Due {
			r.add(j, w)
		}
		return err
	})
	return r, err
}

// add counts the slots of a job. An invalid job runs nothing.
func (r *Released) add(j cron.Job, w store.HeldWork) {
	compiled, err := schedule.Compile(j.Schedule)
	if err != nil || j.Pause != nil {
		return
	}
	t := j.Timetable(compiled)
	d := t.Decide(j.DueSlot(t, w.Now))
	r.Jobs++
	r.Runs += len(d.Runs)
	for _, span := range d.Missed {
		r.Missed += int(span.Count)
	}
}

// ReleaseHold ends the hold. by is as in [SetHold].
func ReleaseHold(ctx context.Context, cfg config.Config, by string) error {
	return withHold(ctx, cfg, func(s store.Admin) error {
		return s.SetHold(ctx, nil, store.ChangedBy{Who: "cli", Peer: by})
	})
}

func withHold(ctx context.Context, cfg config.Config, do func(store.Admin) error) error {
	s, err := openCommandStore(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// openingStore says what failed, unless the error is the cause in a sentence.
func openingStore(err error) error {
	if errors.Is(err, sqlite.ErrInUse) {
		return err
	}
	return fmt.Errorf("opening the store: %w", err)
}
