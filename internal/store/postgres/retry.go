package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// maxTries is how often an operation is tried in all.
const maxTries = 6

// Codes of errors after which the database has undone everything and the same work may succeed.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeUnique        = "23505"
	codeFence         = "22012" // division by zero: see the package comment
)

// do runs an operation until it succeeds, fails for good, or has been tried maxTries times. Every operation is safe to
// repeat, see store.
func (s *Store) do(ctx context.Context, op string, fn func(context.Context) error) error {
	for try := 1; ; try++ {
		err := fn(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || try == maxTries || !repeatable(err) {
			return fmt.Errorf("%s: %w", op, translate(err))
		}
		s.log.DebugContext(ctx, "database operation is tried again", "op", op, "attempt", try, "err", translate(err))
		if !pause(ctx, try) {
			return fmt.Errorf("%s: %w", op, context.Cause(ctx))
		}
	}
}

// control is do for a control connection.
func (s *Store) control(ctx context.Context, op string, c *control, fn func(*pgx.Conn) error) error {
	return s.do(ctx, op, func(ctx context.Context) error { return c.use(ctx, fn) })
}

// repeatable: conflicts that the database has undone, and connections that broke.
func repeatable(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case codeSerialization, codeDeadlock, codeShutdown, codeCrashShutdown, codeStarting:
			return true
		case codeUnique:
			// Another node was faster with that chat, or with that reply.
			return pgErr.ConstraintName == "outbox_under_way" || pgErr.ConstraintName == "transcript_reply"
		default:
			return false
		}
	}
	return pgconn.SafeToRetry(err) || broken(err)
}

// pause waits 10 ms, 20 ms, … with jitter, and reports whether there is time left to go on.
func pause(ctx context.Context, try int) bool {
	base := 5 * time.Millisecond << try
	timer := time.NewTimer(base/2 + rand.N(base)) //nolint:gosec // jitter needs no secrecy
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
