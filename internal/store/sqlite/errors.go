package sqlite

import (
	"context"
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	zombiezen "zombiezen.com/go/sqlite"

	"laneway/internal/chat"
)

// errClosed is the error of operations after Close.
var errClosed = &chat.Error{Code: chat.CodeStoreUnavailable, Message: "the database is closed because the gateway is stopping", Retryable: true}

// failure is an error from the engine.
type failure struct {
	code zombiezen.ResultCode // without its extension
	error
}

// Unwrap supports errors.Is.
func (f *failure) Unwrap() error { return f.error }

func engineError(err error) error { return &failure{zombiezen.ErrCode(err).ToPrimary(), err} }

// primary is the engine's result code without its extension, 0 for errors that are not from the engine.
func primary(err error) zombiezen.ResultCode {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	if e, ok := errors.AsType[*driver.Error](err); ok { // from a migration
		return zombiezen.ResultCode(e.Code() & 0xff)
	}
	return zombiezen.ResultOK
}

// unavailable returns the sentence for a failure of the environment. Every other error of the engine is a defect of this program.
func unavailable(err error) (sentence string, ok bool) {
	switch primary(err) {
	case zombiezen.ResultFull:
		return "the disk is full: free space where the database lies; nothing was stored", true
	case zombiezen.ResultIOErr:
		return "the disk reported an error: check the disk of the data directory", true
	case zombiezen.ResultReadOnly, zombiezen.ResultPerm, zombiezen.ResultAuth:
		return "the database cannot be written: check the permissions of the data directory and whether its disk is mounted read-only", true
	case zombiezen.ResultCantOpen:
		return "the database file cannot be opened: check that the data directory exists and belongs to this user", true
	case zombiezen.ResultBusy, zombiezen.ResultLocked, zombiezen.ResultProtocol:
		return "the database is locked by another program: end the program that has the database file open", true
	case zombiezen.ResultCorrupt, zombiezen.ResultNotADB:
		return "the database file is damaged or is not a SQLite database: restore it from a backup", true
	case zombiezen.ResultNoMem:
		return "there is not enough memory for the database", true
	default:
		return "", false
	}
}

// explain maps an error to the port's closed set. Domain errors and context errors stay unchanged, failures of the environment become chat.ErrStoreUnavailable
// with a sentence, and all other errors are wrapped with the operation.
func explain(doing string, err error) error {
	if _, known := errors.AsType[*chat.Error](err); known || err == nil {
		return err
	}
	if sentence, ok := unavailable(err); ok {
		return &chat.Error{
			Code: chat.CodeStoreUnavailable, Message: sentence, Retryable: true,
			RetryAfter: chat.ErrStoreUnavailable.RetryAfter, Cause: fmt.Errorf("%s: %w", doing, err),
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// connectionLost reports whether the state of the writer's connection is uncertain after err ended a transaction. A refusal, a full disk
// and a lock of another process leave it usable; after any other error of the engine the writer opens a new connection, so that a repaired
// disk needs no restart.
func connectionLost(err error) bool {
	switch primary(err) {
	case zombiezen.ResultOK, zombiezen.ResultFull, zombiezen.ResultBusy, zombiezen.ResultConstraint:
		return false
	default:
		return true
	}
}

// ended is the error of an operation whose context ended: the context's error, with its cause if it has one.
func ended(ctx context.Context, doing string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w (%w)", doing, err, cause)
}

// outcome is the error of an operation that the end of ctx interrupted.
func outcome(ctx context.Context, doing string, err error) error {
	if err != nil && ctx.Err() != nil {
		return ended(ctx, doing)
	}
	return explain(doing, err)
}
