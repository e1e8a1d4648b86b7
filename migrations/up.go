package migrations

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pressly/goose/v3"
)

// Up applies the steps that a database lacks and returns how many that were. It logs each of them at DEBUG and, when they have ended, all of them in one line at
// INFO: the versions before and after, the number of steps, and the time of the steps without that of a wait for another process. Nothing is logged where no step
// was missing. Steps before one that fails are logged and counted, too; they stay applied.
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

// before returns the version that precedes version in list, which is in ascending order; 0 when no version does.
func before(list []*goose.Source, version int64) (previous int64) {
	for _, source := range list {
		if source.Version >= version {
			break
		}
		previous = source.Version
	}
	return previous
}
