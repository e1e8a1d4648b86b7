package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/storetest"
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

// template is the content of a database file with the newest schema and no rows. The migrations run
// once per process instead of once per test; migrate_test.go covers them.
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

// outside is a connection to the database file outside of the store, for tests that inspect or
// damage it.
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

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness)
}

// harness is a store in a directory of its own, and a separate connection to its tables.
func harness(tb testing.TB, now func() time.Time) storetest.Harness {
	tb.Helper()
	path := migrated(tb)
	s := reopen(tb, nil, path, now)
	tb.Cleanup(func() { // one for all handles: the suite uses the last one in a cleanup
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	below := outside(tb, path) // one for all statements of a test, because each new connection first parses the whole schema
	// Processes keep what they have read of a transcript, so no operation may change an entry.
	if _, err := below.Exec(`CREATE TRIGGER entries_are_final BEFORE UPDATE ON transcript
		BEGIN SELECT RAISE(ABORT, 'an entry of a transcript was changed'); END`); err != nil {
		tb.Fatal(err)
	}
	return storetest.Harness{
		Open: func() store.Store { return s },
		Reopen: func() store.Store {
			s = reopen(tb, s, path, now)
			return s
		},
		Query: func(tb testing.TB, text string, args ...any) [][]any {
			tb.Helper()
			return storetest.Query(tb, below, text, args...)
		},
		Exec: func(tb testing.TB, text string) {
			tb.Helper()
			if _, err := below.Exec(text); err != nil {
				tb.Fatalf("%s: %v", text, err)
			}
			s.gate.Changed() // the writer would notice it with its next transaction
		},
	}
}

func reopen(tb testing.TB, old *Store, path string, now func() time.Time) *Store {
	tb.Helper()
	if old != nil {
		if err := old.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	s, err := Open(tb.Context(), Config{Path: path, Now: now})
	if err != nil {
		tb.Fatal(err)
	}
	if _, benchmark := tb.(*testing.B); !benchmark {
		s.Recent, s.Loose = 2, 1 // so that a few entries reach each step of a search
	}
	return s
}

func BenchmarkCron(b *testing.B) {
	storetest.BenchCron(b, harness, os.Getenv("LANEWAY_BENCH_LARGE") != "")
}

// BenchmarkSearch searches 1,000,000 messages on request, or the number in LANEWAY_BENCH_MESSAGES,
// else a few.
func BenchmarkSearch(b *testing.B) {
	messages := 2_000
	if os.Getenv("LANEWAY_BENCH_LARGE") != "" {
		messages = 1_000_000
	}
	if n, err := strconv.Atoi(os.Getenv("LANEWAY_BENCH_MESSAGES")); err == nil {
		messages = n
	}
	storetest.BenchSearch(b, harness, messages)
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	storetest.RunCredentials(t, harness)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	storetest.RunRecords(t, harness)
}

func visit(t *testing.T, path string) *Visitor {
	t.Helper()
	v, err := Visit(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return v
}

func TestVisitorChangesTokensWhileTheGatewayRuns(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	running := reopen(t, nil, path, nil)
	t.Cleanup(func() { _ = running.Close() })
	v := visit(t, path)
	token := store.Credential{Name: "anna", Digest: sha256.Sum256([]byte("x")), Scopes: []string{"operator.read"}, Visible: "all"}
	if err := v.CreateCredential(t.Context(), token, store.ChangedBy{Who: "cli"}); err != nil {
		t.Fatal(err)
	}
	if list, err := running.Credentials(t.Context()); err != nil || len(list) != 1 || list[0].Name != "anna" {
		t.Errorf("the gateway sees %+v, %v", list, err)
	}
	if err := v.CreateCredential(t.Context(), token, store.ChangedBy{Who: "cli"}); !errors.Is(err, chat.ErrConflict) {
		t.Errorf("again: %v", err)
	}
	if err := running.RevokeCredential(t.Context(), "anna", store.ChangedBy{Who: "gateway"}); err != nil {
		t.Fatal(err)
	}
	if list, err := v.Credentials(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the visitor sees %+v, %v", list, err)
	}
	if err := v.RevokeCredential(t.Context(), "anna", store.ChangedBy{Who: "cli"}); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestVisitorMakesNoDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "laneway.db")
	if _, err := Visit(t.Context(), Config{Path: path}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || len(found) != 0 {
		t.Errorf("it made %v", found)
	}
}

func TestVisitorRefusesAnOldSchema(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	if _, err := Migrate(t.Context(), Config{Path: path}, Down); err != nil {
		t.Fatal(err)
	}
	if _, err := Visit(t.Context(), Config{Path: path}); !errors.Is(err, ErrOldSchema) {
		t.Errorf("got %v", err)
	}
}

// A backup that is served next to its original must not act, while the original continues.
func TestABackupIsHeldAndItsOriginalIsNot(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	s := reopen(t, nil, path, nil)
	defer func() { _ = s.Close() }()
	dest := filepath.Join(t.TempDir(), "copy.db")
	if err := Backup(t.Context(), path, dest); err != nil {
		t.Fatal(err)
	}
	v, err := Visit(t.Context(), Config{Path: dest})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = v.Close() }()
	h, err := v.Hold(t.Context())
	if err != nil || h == nil || h.Who != "laneway backup" || h.Since.IsZero() {
		t.Fatalf("the backup has the hold %+v, %v", h, err)
	}
	if h, err := s.Hold(t.Context()); err != nil || h != nil {
		t.Fatalf("the original has the hold %+v, %v", h, err)
	}
	if err := v.SetHold(t.Context(), nil, store.ChangedBy{Who: "cli"}); err != nil {
		t.Fatal(err)
	}
	if h, err := v.Hold(t.Context()); err != nil || h != nil {
		t.Fatalf("the released backup has the hold %+v, %v", h, err)
	}
}
