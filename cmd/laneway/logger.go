package main

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

// newLogger writes the log of the gateway to w. Secrets have a type that hides them; this handler is the second wall, for texts of
// other people's libraries that carry one inside.
func newLogger(w io.Writer, loaded *config.Loaded, creds config.Credentials) (*slog.Logger, *wall) {
	options := &slog.HandlerOptions{Level: logLevel(loaded.Config.Log.Level)}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if loaded.Config.Log.Format == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	r := newRedactor(handler, append(loaded.Secrets(), callerSecrets(creds)...))
	return slog.New(r), r.wall
}

func callerSecrets(c config.Credentials) []secret.Secret {
	return []secret.Secret{c.Token, c.Password, c.WriteToken, c.ReadToken}
}

func logLevel(name string) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return slog.LevelInfo // the configuration has refused every other name
	}
	return level
}

// redactor replaces known secrets in messages and attributes.
type redactor struct {
	next slog.Handler
	wall *wall
}

// wall knows the secrets; all handlers that come from one share it. It is safe for concurrent use, except that one goroutine at a time teaches it.
type wall struct {
	texts   []string // of learn alone, longest first
	replace atomic.Pointer[strings.Replacer]
}

// minRedacted keeps the wall from eating ordinary words: a password of three letters would turn up everywhere.
const minRedacted = 6

func newRedactor(next slog.Handler, secrets []secret.Secret) redactor {
	w := &wall{}
	w.replace.Store(strings.NewReplacer())
	w.learn(secrets)
	return redactor{next: next, wall: w}
}

// learn adds secrets to those that are replaced. Old ones stay: they may still be in force elsewhere.
func (w *wall) learn(secrets []secret.Secret) {
	known := len(w.texts)
	for _, s := range secrets {
		if text := s.Reveal(); len(text) >= minRedacted && !slices.Contains(w.texts, text) {
			w.texts = append(w.texts, text)
		}
	}
	if len(w.texts) == known {
		return
	}
	slices.SortFunc(w.texts, func(a, b string) int { return len(b) - len(a) }) // a secret may be a part of a longer one
	pairs := make([]string, 0, 2*len(w.texts))
	for _, text := range w.texts {
		pairs = append(pairs, text, secret.Redacted)
	}
	w.replace.Store(strings.NewReplacer(pairs...))
}

func (w *wall) clean(text string) string { return w.replace.Load().Replace(text) }

// Enabled is that of the handler behind.
func (r redactor) Enabled(ctx context.Context, level slog.Level) bool {
	return r.next.Enabled(ctx, level)
}

// Handle passes a cleaned record on.
func (r redactor) Handle(ctx context.Context, record slog.Record) error {
	clean := slog.NewRecord(record.Time, record.Level, r.wall.clean(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(r.attr(a))
		return true
	})
	return r.next.Handle(ctx, clean)
}

// WithAttrs cleans the attributes once.
func (r redactor) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = r.attr(a)
	}
	return redactor{next: r.next.WithAttrs(clean), wall: r.wall}
}

// WithGroup opens a group in the handler behind.
func (r redactor) WithGroup(name string) slog.Handler {
	return redactor{next: r.next.WithGroup(name), wall: r.wall}
}

func (r redactor) attr(a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindString:
		return slog.String(a.Key, r.wall.clean(value.String()))
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

// any keeps a value as it is unless its text holds a secret: then the text, cleaned, is logged in its place.
func (r redactor) any(key string, value slog.Value) slog.Attr {
	text := fmt.Sprintf("%+v", value.Any())
	if clean := r.wall.clean(text); clean != text {
		return slog.String(key, clean)
	}
	return slog.Attr{Key: key, Value: value}
}
