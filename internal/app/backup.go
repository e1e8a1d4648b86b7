package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"laneway/internal/config"
	"laneway/internal/store/sqlite"
)

// ErrPostgresBackup refuses a backup of a database that has its own tools.
var ErrPostgresBackup = errors.New("the database is PostgreSQL: back it up with pg_dump or a base backup, and the directory attachments of the data directory with it")

// BackupResult is what a backup contains.
type BackupResult struct {
	// Dir is usable as a data directory.
	Dir string
	// DatabaseBytes is the size of the database in it, Files the number of files of conversations, FileBytes their size.
	DatabaseBytes, FileBytes int64
	Files                    int
}

// Backup copies the SQLite database, the files of conversations and the token of the data directory into the new directory dir, while a
// gateway may use them. It creates dir only when the backup is complete.
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

// run copies the files before and after the database. If a row of the copied database names a file, the file either existed before or was
// added before the copy of the database and is found by the second pass. A gateway removes no file whose row is unfinished.
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

// files copies the files of conversations that are not in the backup yet. It skips the directories of running turns: a turn that runs again
// has a new one.
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
	in, err := os.Open(from) //nolint:gosec // below the data directory
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }()                                     // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator's own choice
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(out, in)
	return n, errors.Join(err, out.Sync(), out.Close())
}
