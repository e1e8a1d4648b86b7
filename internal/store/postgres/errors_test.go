package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

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

// Only the reply to a COMMIT tells whether a transaction is committed; a server that stops ends the session with a FATAL error instead.
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
