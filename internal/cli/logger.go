package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"laneway/internal/config"
	"laneway/internal/secret"
)

// newLogger writes the log of the gateway to w. Secrets have a type that is never printed; this handler is a second protection, for output
// of other libraries that contains one. It also returns the set of secrets, so that the caller can add those of a file that changed.
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

// knownSecrets is the set of secrets that the log redacts. All handlers derived from one share it. clean is safe for concurrent use; at
// most one goroutine may call add at a time.
type knownSecrets struct {
	texts   []string // used only by add, longest first
	replace atomic.Pointer[strings.Replacer]
}

// minRedacted is the minimum length in bytes of a secret that is redacted: a password of three letters would be part of ordinary words.
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

// any keeps a value unchanged unless its text contains a secret. Then the redacted text is logged instead.
func (r redactor) any(key string, value slog.Value) slog.Attr {
	text := fmt.Sprintf("%+v", value.Any())
	if clean := r.known.clean(text); clean != text {
		return slog.String(key, clean)
	}
	return slog.Attr{Key: key, Value: value}
}
