package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
)

// Places below the directory.
const (
	outgoingDir = "outgoing"
	turnsDir    = "turns"
)

// abandoned is the age from which no turn can be using its directory: it is longer than any turn may take.
const abandoned = 25 * time.Hour

// Dir is the directory for files. Make it with Open. It is safe for concurrent use.
type Dir struct {
	root *os.Root
	path string // absolute
}

// Open makes the directory if it is missing, accessible to its owner alone, and opens it.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding the directory for files: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for files: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening the directory for files: %w", err)
	}
	return &Dir{root: root, path: path}, nil
}

// Root returns the directory, for code that reads and writes below it. It is closed with the Dir.
func (d *Dir) Root() *os.Root { return d.root }

// Close closes the directory. Its Root and its turns can no longer be used.
func (d *Dir) Close() error { return d.root.Close() }

// NewTurn makes a new, empty directory for the files of one turn. The caller removes it with [Turn.Remove].
func (d *Dir) NewTurn() (*Turn, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("naming the directory of a turn: %w", err)
	}
	name := turnsDir + "/" + id.String()
	if err := d.root.MkdirAll(name, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of a turn: %w", err)
	}
	return &Turn{dir: d, name: name}, nil
}

// Drop deletes files that were taken over and will not be sent. A file that does not exist is not an error.
func (d *Dir) Drop(taken []chat.Attachment) error {
	for _, f := range taken {
		if err := d.root.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a file: %w", err)
		}
	}
	return nil
}

// Sweep removes the directories that crashed turns left. If before is not zero, it also removes files that were last written before it and that
// inUse does not name. It checks ctx between two files. It returns the number of removed files and directories, even with an error. now is from
// the clock of this host, as are the times of files.
func (d *Dir) Sweep(ctx context.Context, now, before time.Time, inUse func(context.Context) ([]string, error)) (int, error) {
	n, err := d.sweepTurns(ctx, now.Add(-abandoned))
	if err != nil || before.IsZero() {
		return n, err
	}
	old, err := d.older(ctx, before)
	if err != nil || len(old) == 0 {
		return n, err
	}
	used, err := inUse(ctx) // called after the list was made: no new row names a file of that age
	if err != nil {
		return n, err
	}
	needed := make(map[string]bool, len(used))
	for _, path := range used {
		needed[filepath.ToSlash(filepath.Clean(path))] = true
	}
	for _, name := range old {
		if needed[name] {
			continue
		}
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		if info, err := d.root.Stat(name); err != nil || !info.ModTime().Before(before) { // removed, or used by a message, since the list was made
			continue
		}
		if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, fmt.Errorf("removing an old file: %w", err)
		}
		n++
	}
	return n, nil
}

func (d *Dir) sweepTurns(ctx context.Context, before time.Time) (n int, err error) {
	entries, err := fs.ReadDir(d.root.FS(), turnsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the directories of turns: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.ModTime().Before(before) { // removed meanwhile, or in use
			continue
		}
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		if err := d.root.RemoveAll(turnsDir + "/" + e.Name()); err != nil {
			return n, fmt.Errorf("removing the directory of a turn: %w", err)
		}
		n++
	}
	return n, nil
}

// older lists the files that were last written before a moment, without those of turns.
func (d *Dir) older(ctx context.Context, before time.Time) (names []string, err error) {
	err = fs.WalkDir(d.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == turnsDir:
			return fs.SkipDir
		case e.IsDir():
			return nil
		}
		if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for old files: %w", err)
	}
	return names, nil
}
