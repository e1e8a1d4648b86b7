// Package migrations holds the schema of both stores as numbered steps. The files are embedded, so
// a binary always carries the schema that it was built for. internal/store/postgres and
// internal/store/sqlite run them, with [Up] in this direction.
package migrations

import (
	"context"
	"embed"
	"errors"
	"log/slog"
	"path"
	"time"

	"github.com/pressly/goose/v3"
)

// Postgres holds the steps for Postgres below postgres/.
//
//go:embed postgres/*.sql
var Postgres embed.FS

// SQLite holds the steps for SQLite below sqlite/.
//
//go:embed sqlite/*.sql
var SQLite embed.FS

// Step is one numbered change of the schema.
type Step struct {
	Version int64
	Name    string
	Applied bool
	// AppliedAt is zero for a step that is not applied.
	AppliedAt time.Time
}

// Steps lists the steps of a database, oldest first.
func Steps(ctx context.Context, p *goose.Provider) ([]Step, error) {
	status, err := p.Status(ctx)
	list := make([]Step, 0, len(status))
	for _, s := range status {
		list = append(list, Step{Version: s.Source.Version, Name: path.Base(s.Source.Path), Applied: s.State == goose.StateApplied, AppliedAt: s.AppliedAt})
	}
	return list, err
}

// Up applies the steps that a database lacks and returns how many that were. It logs each of them
// at DEBUG and, when they have ended, all of them in one line at INFO: the versions before and
// after, the number of steps, and the time of the steps without that of a wait for another process.
// Nothing is logged where no step was missing. Steps before one that fails are logged and counted,
// too; they stay applied.
func Up(ctx context.Context, p *goose.Provider, log *slog.Logger) (steps int, err error) {
	done, err := p.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		done = partial.Applied
	}
	if len(done) == 0 {
		return 0, err
	}
	var took time.Duration
	for _, step := range done {
		took += step.Duration
		log.DebugContext(ctx, "schema step applied", "version", step.Source.Version, "duration_ms", step.Duration.Milliseconds())
	}
	log.InfoContext(ctx, "schema migrated", "from", before(p.ListSources(), done[0].Source.Version), "to", done[len(done)-1].Source.Version,
		"steps", len(done), "duration_ms", took.Milliseconds())
	return len(done), err
}

// before returns the version that precedes version in list, which is in ascending order; 0 when no
// version does.
func before(list []*goose.Source, version int64) (previous int64) {
	for _, source := range list {
		if source.Version >= version {
			break
		}
		previous = source.Version
	}
	return previous
}

// First is the number of the first step. There was no release with an earlier one.
const First = 100

// ErrUnreleased is what to do with a database from before the first release.
var ErrUnreleased = errors.New("the database is from before laneway 0.1.0, and this program can neither use nor change it: " +
	"export what you need with the program that made it (such as laneway cron export), and name a new database with --database")

// CheckReleased returns [ErrUnreleased] when version, the newest applied step of a database, is
// from before the first release. 0 = the database has no step.
func CheckReleased(version int64) error {
	if version > 0 && version < First {
		return ErrUnreleased
	}
	return nil
}
