package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"laneway/internal/config"
	"laneway/internal/secret"
)

// newLogger writes the log of the gateway to w. Secrets have a type that is never printed; this
// handler is a second protection, for output of other libraries that contains one. It also returns
// the set of secrets, so that the caller can add those of a file that changed.
func newLogger(w io.Writer, loaded *config.Loaded, creds config.Credentials) (*slog.Logger, *knownSecrets) {
	options := &slog.HandlerOptions{Level: logLevel(loaded.Config.Log.Level)}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if loaded.Config.Log.Format == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	r := newRedactor(handler, append(loaded.Secrets(), callerSecrets(creds)...))
	return slog.New(r), r.known
}

func callerSecrets(c config.Credentials) []secret.Secret {
	return []secret.Secret{c.Token, c.Password, c.WriteToken, c.ReadToken}
}

func logLevel(name string) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return slog.LevelInfo // the configuration refuses every other name
	}
	return level
}

// redactor replaces known secrets in messages and attributes.
type redactor struct {
	next  slog.Handler
	known *knownSecrets
}

// knownSecrets is the set of secrets that the log redacts. All handlers derived from one share it.
// clean is safe for concurrent use; at most one goroutine may call add at a time.
type knownSecrets struct {
	texts   []string // used only by add, longest first
	replace atomic.Pointer[strings.Replacer]
}

// minRedacted is the minimum length in bytes of a secret that is redacted: a password of three
// letters would be part of ordinary words.
const minRedacted = 6

func newRedactor(next slog.Handler, secrets []secret.Secret) redactor {
	known := &knownSecrets{}
	known.replace.Store(strings.NewReplacer())
	known.add(secrets)
	return redactor{next: next, known: known}
}

// add adds secrets to the set. Old ones are kept, because they may still be in use elsewhere.
func (k *knownSecrets) add(secrets []secret.Secret) {
	before := len(k.texts)
	for _, s := range secrets {
		if text := s.Reveal(); len(text) >= minRedacted && !slices.Contains(k.texts, text) {
			k.texts = append(k.texts, text)
		}
	}
	if len(k.texts) == before {
		return
	}
	slices.SortFunc(k.texts, func(a, b string) int { return len(b) - len(a) }) // a secret may be part of a longer one
	pairs := make([]string, 0, 2*len(k.texts))
	for _, text := range k.texts {
		pairs = append(pairs, text, secret.Redacted)
	}
	k.replace.Store(strings.NewReplacer(pairs...))
}

func (k *knownSecrets) clean(text string) string { return k.replace.Load().Replace(text) }

// Enabled calls the wrapped handler.
func (r redactor) Enabled(ctx context.Context, level slog.Level) bool {
	return r.next.Enabled(ctx, level)
}

// Handle redacts a record and passes it on.
func (r redactor) Handle(ctx context.Context, record slog.Record) error {
	clean := slog.NewRecord(record.Time, record.Level, r.known.clean(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(r.attr(a))
		return true
	})
	return r.next.Handle(ctx, clean)
}

// WithAttrs redacts the attributes once.
func (r redactor) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = r.attr(a)
	}
	return redactor{next: r.next.WithAttrs(clean), known: r.known}
}

// WithGroup opens a group in the wrapped handler.
func (r redactor) WithGroup(name string) slog.Handler {
	return redactor{next: r.next.WithGroup(name), known: r.known}
}

func (r redactor) attr(a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindString:
		return slog.String(a.Key, r.known.clean(value.String()))
	case slog.KindGroup:
		group := make([]slog.Attr, 0, len(value.Group()))
		for _, member := range value.Group() {
			group = append(group, r.attr(member))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(group...)}
	case slog.KindAny:
		return r.any(a.Key, value)
	default:
		return slog.Attr{Key: a.Key, Value: value}
	}
}

// any keeps a value unchanged unless its text contains a secret. Then the redacted text is logged
// instead.
func (r redactor) any(key string, value slog.Value) slog.Attr {
	text := fmt.Sprintf("%+v", value.Any())
	if clean := r.known.clean(text); clean != text {
		return slog.String(key, clean)
	}
	return slog.Attr{Key: key, Value: value}
}

const (
	// maxLogFile is the maximum size of one log file in bytes.
	maxLogFile = 64 << 20
	// olderLog is the suffix of the previous file.
	olderLog = ".1"
	// lookAtLogFile is the interval at which the log checks whether its file is still at its path.
	lookAtLogFile = time.Second
)

// logFile writes the log to a file. A full file is renamed to the previous one, which it replaces.
// If another program moves the file away, it is created again within a second. Records that cannot
// be written to the file go to the fallback. A slog handler writes one record at a time, so no lock
// is needed.
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
		return fmt.Errorf("%s is not a regular file", l.path)
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

// reopen creates the file again. If that fails, the log goes to the fallback, and the next check
// tries again.
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

// openLog returns the destination of a gateway's log: the configured file, or standard error. The
// caller calls closeLog when the gateway has ended.
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
