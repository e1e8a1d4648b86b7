package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// Traced is cfg with a tracer of its statements.
func Traced(cfg Config, t pgx.QueryTracer) Config {
	cfg.tracer = t
	return cfg
}

// BoundSearch limits how many of the newest entries a search reads without the word index.
func (s *Store) BoundSearch(recent int) { s.Recent = recent }

// TurnStatements is how many statements a connection for turns has planned.
func TurnStatements() int64 { return int64(len(turnStatements())) }

// Unchanged reports whether the store has the same state in memory as when it was opened: no
// goroutine for hints.
func (s *Store) Unchanged() bool {
	s.wake.mu.Lock()
	defer s.wake.mu.Unlock()
	return !s.wake.sending && !s.wake.listening
}

// IdleTime is how long a connection of the pools stays open without use.
func (s *Store) IdleTime() time.Duration { return s.pool.Config().MaxConnIdleTime }

// WarmConns is how many connections for turns are kept open.
func (s *Store) WarmConns() int { return int(s.turns.Config().MinConns) }

// EachConnection opens every connection that the store may have, all at the same time, and calls fn
// for each with its purpose.
func (s *Store) EachConnection(ctx context.Context, fn func(purpose string, conn *pgx.Conn) error) error {
	var faults []error
	for purpose, pool := range map[string]*pgxpool.Pool{"turns": s.turns, "everything else": s.pool} {
		for range pool.Config().MaxConns {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return err
			}
			defer conn.Release()
			faults = append(faults, fn(purpose, conn.Conn()))
		}
	}
	for purpose, c := range map[string]*control{"heartbeats": s.beat, "stops": s.ctrl} {
		faults = append(faults, c.use(ctx, func(conn *pgx.Conn) error { return fn(purpose, conn) }))
	}
	listener, err := pgx.ConnectConfig(ctx, s.wake.cfg)
	if err != nil {
		return err
	}
	return errors.Join(errors.Join(faults...), fn("hints", listener), listener.Close(ctx))
}

// Engine runs transactions on the store's connections.
func (s *Store) Engine() sqlstore.Engine { return engine{s} }

func TestTranslate(t *testing.T) {
	t.Parallel()
	code := func(code string) error { return fmt.Errorf("exec: %w", &pgconn.PgError{Code: code}) }
	for name, tt := range map[string]struct {
		err        error
		want       error
		sentence   string
		repeatable bool
	}{
		"read-only":                       {err: code("25006"), want: chat.ErrStoreUnavailable, sentence: sentenceReadOnly},
		"disk full":                       {err: code("53100"), want: chat.ErrStoreUnavailable, sentence: sentenceFull},
		"connections":                     {err: code("53300"), want: chat.ErrStoreUnavailable, sentence: sentenceTooMany},
		"out of memory":                   {err: code("53200"), want: chat.ErrStoreUnavailable, sentence: sentenceScarce},
		"I/O error":                       {err: code("58030"), want: chat.ErrStoreUnavailable, sentence: sentenceScarce},
		"shutdown":                        {err: code("57P01"), want: chat.ErrStoreUnavailable, sentence: sentenceRestart, repeatable: true},
		"starting":                        {err: code("57P03"), want: chat.ErrStoreUnavailable, sentence: sentenceRestart, repeatable: true},
		"timeout":                         {err: code("57014"), want: chat.ErrStoreUnavailable, sentence: sentenceSlow},
		"lock timeout":                    {err: code("55P03"), want: chat.ErrStoreUnavailable, sentence: sentenceSlow},
		"password":                        {err: code("28P01"), want: chat.ErrStoreUnavailable, sentence: sentenceRefused},
		"no database":                     {err: code("3D000"), want: chat.ErrStoreUnavailable, sentence: sentenceRefused},
		"no table":                        {err: code("42P01"), want: store.ErrSchema, sentence: fmt.Sprintf(sentenceSchema, "")},
		"protocol":                        {err: code("08006"), want: chat.ErrStoreUnavailable, sentence: sentenceAway},
		"end of stream":                   {err: io.ErrUnexpectedEOF, want: chat.ErrStoreUnavailable, sentence: sentenceAway, repeatable: true},
		"closed":                          {err: net.ErrClosed, want: chat.ErrStoreUnavailable, sentence: sentenceAway, repeatable: true},
		"deadlock":                        {err: code("40P01"), want: chat.ErrStoreUnavailable, sentence: sentenceSlow, repeatable: true},
		"serialization":                   {err: code("40001"), want: chat.ErrStoreUnavailable, sentence: sentenceSlow, repeatable: true},
		"syntax":                          {err: code("42601")},
		"cancelled":                       {err: context.Canceled, want: context.Canceled},
		"application":                     {err: chat.ErrQueueFull, want: chat.ErrQueueFull},
		"a chat with a message under way": {err: &pgconn.PgError{Code: "23505", ConstraintName: "outbox_under_way"}, repeatable: true},
		"duplicate":                       {err: &pgconn.PgError{Code: "23505", ConstraintName: "inbox_dedupe"}, repeatable: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := translate(tt.err)
			if tt.want != nil && !errors.Is(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if tt.want == nil && !errors.Is(got, tt.err) {
				t.Errorf("got %v, want it unchanged", got)
			}
			if app, ok := errors.AsType[*chat.Error](got); tt.sentence != "" && (!ok || app.Message != tt.sentence || !app.Retryable) {
				t.Errorf("got %#v, want a retryable error that says %q", got, tt.sentence)
			}
			if repeatable(tt.err) != tt.repeatable {
				t.Errorf("repeatable is %v", !tt.repeatable)
			}
		})
	}
	if translate(nil) != nil {
		t.Error("no error became one")
	}
}

// The driver tries each address with and without TLS, and its error has a line for each try.
func TestRefusedConnectionIsSaidOnce(t *testing.T) {
	t.Parallel()
	_, err := pgx.Connect(t.Context(), "postgres://u@127.0.0.1:1/x?sslmode=prefer")
	if strings.Count(err.Error(), "refused") < 2 {
		t.Fatalf("the driver says it once: %v", err)
	}
	if got := translate(err).Error(); strings.Count(got, "refused") != 1 || strings.Count(got, "dial error") != 1 {
		t.Errorf("the sentence is %q", got)
	}
}

// Only the reply to a COMMIT tells whether a transaction is committed; a server that stops ends the
// session with a FATAL error instead.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	fatal := func(severity, code string) error {
		return fmt.Errorf("exec: %w", &pgconn.PgError{SeverityUnlocalized: severity, Severity: severity, Code: code})
	}
	for name, tt := range map[string]struct {
		err   error
		known bool // the outcome is known
	}{
		"shutdown":              {err: fatal("FATAL", "57P01")},
		"crash":                 {err: fatal("FATAL", "57P02")},
		"any end of a session":  {err: fatal("FATAL", "57P05")},
		"panic":                 {err: fatal("PANIC", "58030")},
		"a broken connection":   {err: io.ErrUnexpectedEOF},
		"a wait that ended":     {err: fmt.Errorf("timeout: %w", context.DeadlineExceeded)},
		"a caller that left":    {err: context.Canceled},
		"a failed statement":    {err: fatal("ERROR", "23505"), known: true},
		"a serialization error": {err: fatal("ERROR", "40001"), known: true},
		"a refusal of our own":  {err: chat.ErrQueueFull, known: true},
		"no error":              {known: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if unknownOutcome(tt.err, true) == tt.known {
				t.Errorf("at the commit: unknown is %v", tt.known)
			}
			if unknownOutcome(tt.err, false) {
				t.Error("before the commit: unknown")
			}
			if lost := fmt.Errorf("%w: %w", sqlstore.ErrUnknown, tt.err); !tt.known && !repeatable(lost) {
				t.Error("it is not repeated")
			}
		})
	}
}

// TestArraysAreEncodedAsPgxDoes compares the encodings byte for byte.
func TestArraysAreEncodedAsPgxDoes(t *testing.T) {
	t.Parallel()
	ours, theirs := pgtype.NewMap(), pgtype.NewMap()
	useArrayCodec(ours)
	for _, c := range []struct {
		oid  uint32
		list any
	}{
		{pgtype.TextArrayOID, []string(nil)},
		{pgtype.TextArrayOID, []string{}},
		{pgtype.TextArrayOID, []string{""}},
		{pgtype.TextArrayOID, []string{"a", "", "NULL", `{"b"}`, "ключ", strings.Repeat("long ", 10_000)}},
		{pgtype.Int8ArrayOID, []int64(nil)},
		{pgtype.Int8ArrayOID, []int64{}},
		{pgtype.Int8ArrayOID, []int64{0, -1, 1 << 62, -1 << 63}},
		{pgtype.BoolArrayOID, []bool{true, false}},
		{pgtype.VarcharArrayOID, []string{"another type"}},
	} {
		for _, before := range [][]byte{nil, []byte("before"), make([]byte, 3, 4096)} {
			got, gotErr := ours.Encode(c.oid, pgtype.BinaryFormatCode, c.list, bytes.Clone(before))
			want, wantErr := theirs.Encode(c.oid, pgtype.BinaryFormatCode, c.list, bytes.Clone(before))
			if gotErr != nil || wantErr != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
				t.Errorf("%T of %v after %d bytes: got %d bytes %v, pgx has %d %v", c.list, c.list, len(before), len(got), gotErr, len(want), wantErr)
			}
		}
		got, gotErr := ours.Encode(c.oid, pgtype.TextFormatCode, c.list, nil)
		want, wantErr := theirs.Encode(c.oid, pgtype.TextFormatCode, c.list, nil)
		if gotErr != nil || wantErr != nil || !bytes.Equal(got, want) {
			t.Errorf("%v as text: got %q %v, pgx has %q %v", c.list, got, gotErr, want, wantErr)
		}
	}
}
