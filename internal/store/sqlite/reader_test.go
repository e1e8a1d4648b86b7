package sqlite

import (
	"context"
	"errors"
	"testing"

	"laneway/internal/store/sqlstore"
	"laneway/internal/store/storetest"
)

// endless is a statement that only an interrupt ends.
const endless = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n`

// TestAReadEndsWithItsContext ends the context while a statement runs. The connection then reads the newest state again.
func TestAReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{Path: migrated(t), Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client has gone")
	var used *conn
	err = s.view(ctx, "count for ever", func(_ context.Context, x *tx) error {
		used = x.conn
		go cancel(gone)
		return x.query(endless, func(sqlstore.Row) error { return nil })
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, gone) {
		t.Errorf("got %v, want the end of the context and its cause", err)
	}
	register(t, s, "node")
	err = s.view(t.Context(), "count nodes", func(_ context.Context, x *tx) error {
		if x.conn != used {
			t.Error("an interrupted connection was closed")
		}
		n, err := x.number(`SELECT count(*) FROM nodes`)
		if n != 1 {
			t.Errorf("%d nodes, want 1", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestAVisitorKeepsNothingOfAnEndedChange ends the context of a change that has written.
func TestAVisitorKeepsNothingOfAnEndedChange(t *testing.T) {
	t.Parallel()
	s := open(t)
	v, err := Visit(t.Context(), Config{Path: s.path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	err = visitorEngine{v}.Update(ctx, "write for ever", func(ctx context.Context, x sqlstore.Tx) error {
		if _, err := x.Exec(ctx, `INSERT INTO leases (name, owner) VALUES ('half', 'node')`); err != nil {
			return err
		}
		go cancel()
		_, err := x.Exec(ctx, endless)
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
	err = visitorEngine{v}.View(t.Context(), "count", func(ctx context.Context, x sqlstore.Tx) error {
		return x.Query(ctx, `SELECT count(*) FROM leases`, func(r sqlstore.Row) error {
			var n int
			err := r.Scan(&n)
			if n != 0 {
				t.Errorf("%d rows are left, want none", n)
			}
			return err
		})
	})
	if err != nil {
		t.Error(err)
	}
	register(t, s, "node") // the lock of the change was released
}

// A principal that floods the store with lists takes one reader, and all principals together leave two.
func TestListsLeaveReadersToEverythingElse(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{Path: migrated(t), Readers: 4})
	if err != nil {
		t.Fatal(err)
	}
	storetest.ListsLeaveReaders(t, engine{s}, 4)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
