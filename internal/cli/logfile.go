package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"laneway/internal/config"
)

const (
	// maxLogFile is the maximum size of one log file in bytes.
	maxLogFile = 64 << 20
	// olderLog is the suffix of the previous file.
	olderLog = ".1"
	// lookAtLogFile is the interval at which the log checks whether its file is still at its path.
	lookAtLogFile = time.Second
)

// logFile writes the log to a file. A full file is renamed to the previous one, which it replaces. If another program moves the file away,
// it is created again within a second. Records that cannot be written to the file go to the fallback. A slog handler writes one record at a
// time, so no lock is needed.
type logFile struct {
	path     string
	limit    int64 // bytes of one file
	fallback io.Writer
	now      func() time.Time

	f      *os.File // nil = it could not be opened
	size   int64
	looked time.Time
}

// openLogFile opens the log file and creates it if needed. Only its user and group can read it.
func openLogFile(path string, limit int64, fallback io.Writer, now func() time.Time) (*logFile, error) {
	l := &logFile{path: path, limit: limit, fallback: fallback, now: now, looked: now()}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("the log file cannot be used: %w; name a file that the gateway may write: log.file", err)
	}
	return l, nil
}

func (l *logFile) open() error {
	if info, err := os.Stat(l.path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", l.path)
	}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640) //nolint:gosec // the group of the service may read its log
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // nothing was written
		return err
	}
	l.f, l.size = f, info.Size()
	return nil
}

// Write appends one record.
func (l *logFile) Write(record []byte) (int, error) {
	if l.now().Sub(l.looked) >= lookAtLogFile {
		l.looked = l.now()
		if !l.inPlace() {
			l.reopen()
		}
	}
	if l.size > 0 && l.size+int64(len(record)) > l.limit && os.Rename(l.path, l.path+olderLog) == nil {
		l.reopen()
	}
	if l.f == nil {
		return l.fallback.Write(record)
	}
	n, err := l.f.Write(record)
	l.size += int64(n)
	if err != nil {
		return l.fallback.Write(record)
	}
	return n, nil
}

// inPlace reports whether the open file is still the one at the path.
func (l *logFile) inPlace() bool {
	if l.f == nil {
		return false
	}
	named, err := os.Stat(l.path)
	if err != nil {
		return false
	}
	ours, err := l.f.Stat()
	return err == nil && os.SameFile(named, ours)
}

// reopen creates the file again. If that fails, the log goes to the fallback, and the next check tries again.
func (l *logFile) reopen() {
	_ = l.Close() // each record was written when Write returned
	if err := l.open(); err != nil {
		_, _ = fmt.Fprintf(l.fallback, "laneway: the log file cannot be used: %s\n", err) // no other output is available
	}
}

// Close closes the file.
func (l *logFile) Close() error {
	if l.f == nil {
		return nil
	}
	f := l.f
	l.f = nil
	return f.Close()
}

// openLog returns the destination of a gateway's log: the configured file, or standard error. The caller calls closeLog when the gateway
// has ended.
func (env *environment) openLog(loaded *config.Loaded) (log io.Writer, closeLog func(), err error) {
	path := loaded.Config.Log.File
	if path == "" {
		return env.stderr, func() {}, nil
	}
	file, err := openLogFile(path, maxLogFile, env.stderr, time.Now)
	if err != nil {
		return nil, nil, err
	}
	return file, func() { _ = file.Close() }, nil // each record was written when Write returned
}
