package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// Codes that mean that the database cannot be used right now.
const (
	codeReadOnly      = "25006"
	codeDiskFull      = "53100"
	codeTooMany       = "53300"
	codeShutdown      = "57P01"
	codeCrashShutdown = "57P02"
	codeStarting      = "57P03"
	codeCancelled     = "57014"
	codeLockTimeout   = "55P03"
	codeNoTable       = "42P01"
	codeNoColumn      = "42703"
	codeNoDatabase    = "3D000"
	codeNoRight       = "42501"
	codeNoStatement   = "26000"
	codeStatementKept = "42P05"
)

// codeProtocol is the code with which poolers refuse transactions and prepared statements.
const codeProtocol = "08P01"

// wantedEncoding is that of a database in which every message can be stored.
const wantedEncoding = "UTF8"

// The sentences for operators. None contains an address, a user or a password.
const (
	sentenceAway     = "the database cannot be reached: check that it runs and that the address is right"
	sentenceReadOnly = "the database is read-only, perhaps a standby: point laneway at the primary"
	sentenceFull     = "the disk of the database is full: free space there; laneway then continues by itself"
	sentenceTooMany  = "the database has no connection left: raise its max_connections or lower database_conns; a gateway needs at least five connections"
	sentenceRestart  = "the database is starting or stopping: laneway tries again by itself"
	sentenceSlow     = "the database did not answer in time: check its locks and load"
	sentenceRefused  = "the database refuses the login: check user, password and database name"
	sentenceSchema   = "the database lacks a part of laneway's schema (%s): run `laneway migrate up`; `laneway migrate status` lists the steps"
	sentenceRight    = "the role of the database lacks a right: give it those that docs/postgres-and-replicas.md lists"
	sentenceNotOwner = "the schema is older than this program, and this role of the database may not change it: run `laneway migrate up` with the role that owns the tables"
	sentencePooler   = "a connection pooler between laneway and the database keeps no sessions: set its pool_mode to session, or give laneway the address of the database itself"
	sentenceEncoding = "the database has the encoding %s, in which not every message can be stored: make one with CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0," +
		" and move the content with pg_dump and pg_restore"
	sentenceScarce = "the database is out of memory or another resource: look at its log"
)

// translate maps errors of the driver to those of the port. Errors of the application and of the
// context stay unchanged.
func translate(err error) error {
	if err == nil {
		return nil
	}
	var app *chat.Error
	if errors.As(err, &app) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		if err := translateCode(pgErr, err); errors.As(err, &app) || !errors.Is(err, sqlstore.ErrUnknown) {
			return err
		}
		return unavailable(sentenceAway, pgErr)
	}
	if broken(err) || pgconn.SafeToRetry(err) {
		return unavailable(sentenceAway, bare(err))
	}
	return err
}

func translateCode(pgErr *pgconn.PgError, err error) error {
	if pgErr.Code == codeNoTable || pgErr.Code == codeNoColumn {
		// The server's message names the table or column of this program, and no value.
		return unavailable(fmt.Sprintf(sentenceSchema, pgErr.Message), fmt.Errorf("%w: %w", store.ErrSchema, pgErr))
	}
	if sentence := sentenceFor(pgErr.Code); sentence != "" {
		return unavailable(sentence, pgErr)
	}
	return err
}

func sentenceFor(code string) string {
	switch code {
	case codeReadOnly:
		return sentenceReadOnly
	case codeDiskFull:
		return sentenceFull
	case codeTooMany:
		return sentenceTooMany
	case codeShutdown, codeCrashShutdown, codeStarting:
		return sentenceRestart
	case codeCancelled, codeLockTimeout, codeSerialization, codeDeadlock:
		return sentenceSlow
	case codeNoDatabase:
		return sentenceRefused
	case codeNoRight:
		return sentenceRight
	case codeNoStatement, codeStatementKept, codeProtocol:
		return sentencePooler
	}
	return sentenceForClass(code)
}

func sentenceForClass(code string) string {
	switch {
	case strings.HasPrefix(code, "28"):
		return sentenceRefused
	case strings.HasPrefix(code, "53"):
		return sentenceScarce
	case strings.HasPrefix(code, "08"):
		return sentenceAway
	case strings.HasPrefix(code, "58"):
		return sentenceScarce
	default:
		return ""
	}
}

// unknownOutcome reports whether a transaction that ended with an error may be committed, which
// only the reply to its COMMIT tells: the connection broke, the wait ended, or the server ended the
// session instead of replying (FATAL, as 57P01 and 57P02 of a server that stops or has crashed).
func unknownOutcome(err error, atCommit bool) bool {
	if err == nil || !atCommit || pgconn.SafeToRetry(err) { // nothing was sent
		return false
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return slices.Contains([]string{"FATAL", "PANIC"}, cmp.Or(pgErr.SeverityUnlocalized, pgErr.Severity))
	}
	return broken(err) || pgconn.Timeout(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// broken reports whether the connection failed, as opposed to the statement.
func broken(err error) bool {
	var (
		connect *pgconn.ConnectError
		network net.Error
	)
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "conn closed")
}

// bare removes the outer message of a failed connect, which names user, host and database, and the
// repeated ones of several tries: the driver tries with and without TLS.
func bare(err error) error {
	connect, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err
	}
	cause := connect.Unwrap()
	if tries, several := cause.(interface{ Unwrap() []error }); several { // of this error alone
		same := func(a, b error) bool { return a.Error() == b.Error() }
		return errors.Join(slices.CompactFunc(tries.Unwrap(), same)...)
	}
	return cause
}

// WaitHelps reports whether a database that was not opened may be opened later without a change by
// an operator: it cannot be reached, starts, is a standby that may be promoted, or has no
// connection or other resource left.
func WaitHelps(err error) bool {
	var app *chat.Error
	if !errors.As(err, &app) {
		return false
	}
	switch app.Message {
	case sentenceAway, sentenceReadOnly, sentenceFull, sentenceTooMany, sentenceRestart, sentenceSlow, sentenceScarce:
		return true
	}
	return false
}

func unavailable(sentence string, cause error) *chat.Error {
	return &chat.Error{
		Code: chat.CodeStoreUnavailable, Message: sentence, Retryable: true, RetryAfter: time.Second, Cause: cause,
	}
}

// maxTries bounds the tries of an operation, the first included.
const maxTries = 6

// Error codes after which the database has undone everything and the same operation may succeed.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeUnique        = "23505"
)

// do runs an operation until it succeeds, fails permanently, or has been tried maxTries times.
// Every operation is safe to repeat, see store.
func (s *Store) do(ctx context.Context, op string, fn func(context.Context) error) error {
	err := retry.Do(ctx, retry.Options{
		// 10 ms, 20 ms, … up to 160 ms, plus or minus half, so that transactions that conflicted
		// once do not conflict again.
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

// repeatable reports conflicts that the database has undone, broken connections, and transactions
// that may be committed.
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
