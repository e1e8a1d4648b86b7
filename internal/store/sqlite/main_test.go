package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(child(role))
	}
	goleak.VerifyTestMain(m)
}

// open makes a store in a directory of its own and closes it at the end of the test.
func open(tb testing.TB) *Store {
	tb.Helper()
	return openAt(tb, migrated(tb), nil)
}

// template is the content of a database file with the newest schema and no rows. The migrations run once per process instead of once per test; migrate_test.go
// covers them.
var template = sync.OnceValues(func() (text []byte, err error) {
	dir, err := os.MkdirTemp("", "laneway-template-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "laneway.db")
	s, err := Open(context.Background(), Config{Path: path})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil { // this copies the log into the file
		return nil, err
	}
	return os.ReadFile(path)
})

// migrated is the path of an empty database with the newest schema, in a directory of its own.
func migrated(tb testing.TB) string {
	tb.Helper()
	text, err := template()
	if err != nil {
		tb.Fatalf("making the database template: %v", err)
	}
	path := filepath.Join(tb.TempDir(), "laneway.db")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func openAt(tb testing.TB, path string, now func() time.Time) *Store {
	tb.Helper()
	s, err := Open(tb.Context(), Config{Path: path, Now: now})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

// outside is a connection to the database file outside of the store, for tests that inspect or damage it.
func outside(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_busy_timeout=5000")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Errorf("close the outside connection: %v", err)
		}
	})
	return db
}

func register(tb testing.TB, s *Store, id string) {
	tb.Helper()
	if err := s.Register(tb.Context(), store.Node{ID: id, Lease: time.Hour}); err != nil {
		tb.Fatal(err)
	}
}

// message is a typed message whose dedupe key is its id.
func message(node, room, id string) store.AcceptParams {
	return store.AcceptParams{Node: node, Take: true, Message: chat.Message{
		Session: chat.SessionKey{Agent: "main", Rest: room}, ID: id, Dedupe: "key:" + id, Lane: "main", Principal: "ann", Channel: "web",
		Content: chat.Content{Text: "hello", Sender: chat.Sender{ID: "7", Name: "Ann"}},
	}}
}

// turn takes a message through accept, start and finish with one reply.
func turn(ctx context.Context, s *Store, node, room, id string) error {
	return turnAccepted(ctx, s, node, room, id, func() {})
}

// turnAccepted is turn, and calls accepted when the message is durable.
func turnAccepted(ctx context.Context, s *Store, node, room, id string, accepted func()) error {
	p := message(node, room, id)
	a, err := s.Accept(ctx, p)
	if err != nil {
		return err
	}
	accepted()
	c := store.Claim{Session: p.Message.Session, Node: a.Owner, Epoch: a.Epoch}
	if _, err := s.Start(ctx, store.StartParams{Claim: c, RunID: id, Lane: "main", Seqs: []int64{a.Seq}}); err != nil {
		return err
	}
	_, err = s.Finish(ctx, store.FinishParams{
		Claim: c, RunID: id, State: store.RunOK, Outcome: chat.OutcomeAnswered, Preview: "hi",
		Outgoing: []store.Outgoing{{Kind: store.KindReply, Text: "hi", Session: c.Session, Target: chat.Target{Channel: "telegram:1", ChatID: room}}},
	})
	return err
}

// yield runs other goroutines while a test waits for a state that has no channel.
func yield() { runtime.Gosched() }
