package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/retry"
	"laneway/internal/store/sqlstore"
)

// maxTries bounds the tries of an operation, the first included.
const maxTries = 6

// Error codes after which the database has undone everything and the same operation may succeed.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeUnique        = "23505"
)

// do runs an operation until it succeeds, fails permanently, or has been tried maxTries times. Every operation is safe to repeat, see store.
func (s *Store) do(ctx context.Context, op string, fn func(context.Context) error) error {
	err := retry.Do(ctx, retry.Options{
		// 10 ms, 20 ms, … up to 160 ms, plus or minus half, so that transactions that conflicted once do not conflict again.
		Policy: retry.Policy{Base: 10 * time.Millisecond, Max: 160 * time.Millisecond, Spread: 0.5}, Attempts: maxTries,
		Retryable: func(err error) bool { return ctx.Err() == nil && repeatable(err) },
		Notify: func(err error, attempt int, _ time.Duration) {
			s.log.DebugContext(ctx, "database operation is tried again", "op", op, "attempt", attempt, "err", translate(err))
		},
	}, fn)
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case cause != nil && errors.Is(err, cause): // no further try was made: the error of the last one is useless to the caller
		return fmt.Errorf("%s: %w", op, cause)
	}
	return fmt.Errorf("%s: %w", op, translate(err))
}

// control is do for a control connection.
func (s *Store) control(ctx context.Context, op string, c *control, fn func(*pgx.Conn) error) error {
	return s.do(ctx, op, func(ctx context.Context) error { return c.use(ctx, fn) })
}

// repeatable reports conflicts that the database has undone, broken connections, and transactions that may be committed.
func repeatable(err error) bool {
	if errors.Is(err, sqlstore.ErrUnknown) {
		return true
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case codeSerialization, codeDeadlock, codeShutdown, codeCrashShutdown, codeStarting:
			return true
		case codeUnique:
			// Another transaction was faster with that chat, that reply or that message.
			return slices.Contains([]string{"outbox_under_way", "transcript_reply", "inbox_message", "inbox_dedupe"}, pgErr.ConstraintName)
		default:
			return false
		}
	}
	return errors.Is(err, sqlstore.ErrAgain) || pgconn.SafeToRetry(err) || broken(err)
}
