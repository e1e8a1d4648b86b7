package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"laneway/internal/retry"
)

type logsCmd struct {
	Config string `help:"Configuration file of the gateway on this host; default as for laneway serve." placeholder:"FILE" type:"path"`
	File   string `help:"The file to read; default log.file of the configuration, else the systemd journal." placeholder:"FILE" type:"path"`
	Unit   string `help:"The systemd unit." default:"laneway" placeholder:"UNIT"`
	Lines  int    `help:"How many lines to show." short:"n" default:"100" placeholder:"N"`
	Follow bool   `help:"Follow new lines until Ctrl-C." short:"f"`
}

const (
	// maxLogLines is the largest value of --lines.
	maxLogLines = 100_000
	// logPause is the poll interval with --follow.
	logPause = 250 * time.Millisecond
)

// Run shows the file, or executes the program that reads the journal.
func (c *logsCmd) Run(ctx context.Context, env *environment) error {
	if c.Lines < 0 || c.Lines > maxLogLines {
		return usageError(fmt.Sprintf("--lines must be between 0 and %d", maxLogLines))
	}
	path := c.File
	if path == "" {
		loaded, err := clientFlags{Config: c.Config}.local(env)
		if err != nil {
			return err
		}
		path = loaded.Config.Log.File
	}
	if path == "" {
		return c.journal(env)
	}
	return c.show(ctx, env, path)
}

// journal replaces this process by journalctl, which checks the permissions of the user.
func (c *logsCmd) journal(env *environment) error {
	program := lookPath(env, "journalctl")
	if program == "" {
		return errors.New("there is no log.file in the configuration and no journalctl on this host; a gateway that was started in a terminal writes its log there")
	}
	env.note("this is the journal of the unit " + c.Unit + "; a gateway that was started in a terminal writes its log there, or into log.file")
	args := []string{"journalctl", "--unit=" + c.Unit, "--lines=" + strconv.Itoa(c.Lines), "--output=cat", "--no-pager"}
	if c.Follow {
		args = append(args, "--follow")
	}
	if err := env.exec(program, args, env.environ()); err != nil {
		return fmt.Errorf("starting %s: %w", program, err)
	}
	return nil
}

// lookPath finds a program in the directories of PATH, or returns "".
func lookPath(env *environment, name string) string {
	path, _ := env.lookupEnv("PATH")
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); filepath.IsAbs(file) && err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return file
		}
	}
	return ""
}

// show prints the last lines of a file, including those of the previous file if needed.
func (c *logsCmd) show(ctx context.Context, env *environment, path string) error {
	f, err := os.Open(path) // the file that the configuration names
	if err != nil {
		return unreadableLog(path, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	from, found, err := lastLines(f, c.Lines)
	if err != nil {
		return unreadableLog(path, err)
	}
	if found < c.Lines {
		if err := showOlder(env.stdout, path+olderLog, c.Lines-found); err != nil {
			return err
		}
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return unreadableLog(path, err)
	}
	if _, err := io.Copy(env.stdout, f); err != nil {
		return unreadableLog(path, err)
	}
	if !c.Follow {
		return nil
	}
	return follow(ctx, env.stdout, f, path)
}

// showOlder prints the last n lines of the previous file, if it exists.
func showOlder(out io.Writer, path string, n int) error {
	f, err := os.Open(path) // the file that the configuration names
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unreadableLog(path, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	from, _, err := lastLines(f, n)
	if err == nil {
		_, err = f.Seek(from, io.SeekStart)
	}
	if err == nil {
		_, err = io.Copy(out, f)
	}
	if err != nil {
		return unreadableLog(path, err)
	}
	return nil
}

// follow prints what is appended to the file, and continues with the next file when it was
// replaced, until ctx is done.
func follow(ctx context.Context, out io.Writer, f *os.File, path string) error {
	defer func() { _ = f.Close() }() // it was only read
	for {
		if err := retry.Sleep(ctx, logPause); err != nil {
			return nil
		}
		next := replaced(f, path) // checked first: the rest of the old file is printed before it is closed
		if _, err := io.Copy(out, f); err != nil {
			return unreadableLog(path, err)
		}
		if next == nil {
			continue
		}
		_ = f.Close() // it was only read
		f = next
	}
}

// replaced opens the file at the path if it is another one or was truncated; nil = it is the same.
func replaced(f *os.File, path string) *os.File {
	named, err := os.Stat(path)
	if err != nil {
		return nil // between the old and the new file
	}
	open, err := f.Stat()
	if err != nil {
		return nil
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil || os.SameFile(named, open) && named.Size() >= at {
		return nil
	}
	next, err := os.Open(path) // the file that the configuration names
	if err != nil {
		return nil
	}
	return next
}

// lastLines returns the offset of the last n lines of a file, and their number.
func lastLines(f io.ReadSeeker, n int) (from int64, found int, err error) {
	const piece = 64 << 10
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return end, 0, err
	}
	buf := make([]byte, piece)
	for at := end; at > 0; {
		size := min(at, piece)
		at -= size
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			return 0, 0, err
		}
		if _, err := io.ReadFull(f, buf[:size]); err != nil {
			return 0, 0, err
		}
		for i := bytes.LastIndexByte(buf[:size], '\n'); i >= 0; i = bytes.LastIndexByte(buf[:i], '\n') {
			if place := at + int64(i) + 1; place < end {
				if found++; found == n {
					return place, found, nil
				}
			}
		}
	}
	if end > 0 {
		found++
	}
	return 0, found, nil
}

// unreadableLog explains why a log was not shown.
func unreadableLog(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the log %s cannot be read: permission denied; run the command as root or as the user of the gateway", path)
	}
	return fmt.Errorf("the log %s cannot be read: %w", path, rootCause(err))
}
