package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
	"laneway/internal/store/storetest"
)

func TestASecondProcessIsRefusedUntilTheFirstHasGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "laneway.db")
	cmd := process(t, "hold", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, out, 1); len(got) != 1 || got[0] != "open" {
		t.Fatalf("the child says %q, want open", got)
	}
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		_, err := Open(t.Context(), Config{Path: name})
		if !errors.Is(err, ErrInUse) {
			t.Fatalf("a second process got %v, want ErrInUse", err)
		}
		for _, word := range []string{"--database", fmt.Sprintf("process %d", cmd.Process.Pid), dir} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("the refusal %q does not say %q", err, word)
			}
		}
	}
	if _, err := Migrate(t.Context(), Config{Path: path}, Down); !errors.Is(err, ErrInUse) {
		t.Errorf("a migration beside a running gateway got %v, want ErrInUse", err)
	}
	if steps, err := Migrate(t.Context(), Config{Path: path}, Status); err != nil || len(steps) == 0 || !steps[len(steps)-1].Applied {
		t.Errorf("the state of the migrations beside a running gateway: %+v, %v", steps, err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	openAt(t, path, nil)
}

func TestASecondStoreInTheSameProcessIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	if _, err := Open(t.Context(), Config{Path: s.path}); !errors.Is(err, ErrInUse) {
		t.Fatalf("got %v, want ErrInUse", err)
	}
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "laneway.db")
	s := openAt(t, path, nil)
	register(t, s, "node")
	for name, want := range map[string]os.FileMode{
		path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600, path + ".lock": 0o600, filepath.Dir(path): 0o700 | os.ModeDir,
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}
}

func TestAPathMayHaveAnyCharacters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "who? 100% #1 ü", "lane&way=.db")
	s := openAt(t, path, nil)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}

// endless is a statement that only an interrupt ends.
const endless = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n`

// TestAReadEndsWithItsContext ends the context while a statement runs. The connection then reads
// the newest state again.
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

// A principal that floods the store with lists takes one reader, and all principals together leave
// two.
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

// polls are the polls for due work of a node; each reports whether it found something.
func polls(ctx context.Context, s *Store, node string) map[string]func() (bool, error) {
	return map[string]func() (bool, error){
		sqlstore.PollSweep: func() (bool, error) {
			l, err := s.Sweep(ctx, store.SweepParams{Node: node, Limit: 10})
			return len(l) > 0, err
		},
		sqlstore.PollFronts: func() (bool, error) {
			l, err := s.Fronts(ctx, store.FrontsParams{Node: node, Limit: 10})
			return len(l) > 0, err
		},
		sqlstore.PollOutgoing: func() (bool, error) {
			l, err := s.ClaimOutgoing(ctx, store.ClaimOutgoingParams{Node: node, Channels: []string{"telegram:1"}, Limit: 10})
			return len(l) > 0, err
		},
		"claim due jobs": func() (bool, error) {
			c, err := s.Claim(ctx, cron.ClaimParams{Node: node, Decide: func(time.Time, []cron.DueJob) []cron.Verdict { return nil }})
			return len(c.Jobs)+len(c.Launched) > 0, err
		},
		sqlstore.PollQuestions: func() (bool, error) {
			l, err := s.TakeQuestions(ctx, store.TakeQuestionsParams{Node: node, Limit: 10})
			return len(l) > 0, err
		},
		sqlstore.PollTasks: func() (bool, error) {
			l, err := s.Tasks(ctx, store.TaskFilter{Left: true, Limit: 10})
			return len(l) > 0, err
		},
	}
}

// TestPollsOfAnIdleStoreReadNothing takes the connections away from a store whose polls rest: they
// return the same results until something changes.
func TestPollsOfAnIdleStoreReadNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, "a")
	all := polls(t.Context(), s, "a")
	for name, look := range all {
		if found, err := look(); found || err != nil {
			t.Fatalf("%s of an empty store: %t, %v", name, found, err)
		}
	}
	s.write.close()
	if err := errors.Join(s.read.close(), s.write.disconnect(), s.lock.release()); err != nil {
		t.Fatal(err)
	}
	for name, look := range all {
		if found, err := look(); found || err != nil {
			t.Errorf("%s without a connection: %t, %v", name, found, err)
		}
	}
	s.gate.Changed()
	for name, look := range all {
		if _, err := look(); !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Errorf("%s after a change got %v, want the error of a closed store", name, err)
		}
	}
}

// TestPollsFindWhatTimeAloneMakesDue lets a poll rest and runs it again one millisecond before and
// at the instant at which its work is due.
func TestPollsFindWhatTimeAloneMakesDue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		poll  string
		after time.Duration
		make  func(ctx context.Context, s *Store) error
	}{
		"a debounce window ends": {sqlstore.PollSweep, 20 * time.Second, func(ctx context.Context, s *Store) error {
			p := message("", "lobby", "1")
			p.Take, p.Message.Content.Options.Typed, p.Queue.Debounce = false, true, 20*time.Second
			_, err := s.Accept(ctx, p)
			return err
		}},
		"the lease of another node ends": {sqlstore.PollSweep, 30 * time.Second, func(ctx context.Context, s *Store) error {
			if err := s.Register(ctx, store.Node{ID: "b", Lease: 30 * time.Second}); err != nil {
				return err
			}
			_, err := s.Accept(ctx, message("b", "lobby", "1"))
			return err
		}},
		"the next attempt of a delivery": {sqlstore.PollOutgoing, 7 * time.Second, func(ctx context.Context, s *Store) error {
			return s.Enqueue(ctx, []store.Outgoing{{Kind: store.KindNotice, Text: "hi", Target: chat.Target{Channel: "telegram:1", ChatID: "7"}, Delay: 7 * time.Second}})
		}},
		"a node dies while it delivers": {sqlstore.PollOutgoing, 30 * time.Second, func(ctx context.Context, s *Store) error {
			if err := s.Register(ctx, store.Node{ID: "b", Lease: 30 * time.Second}); err != nil {
				return err
			}
			err := s.Enqueue(ctx, []store.Outgoing{{Kind: store.KindNotice, Text: "hi", Target: chat.Target{Channel: "telegram:1", ChatID: "7"}}})
			if err == nil {
				_, err = s.ClaimOutgoing(ctx, store.ClaimOutgoingParams{Node: "b", Channels: []string{"telegram:1"}, Limit: 1})
			}
			return err
		}},
		"a node dies with an allowed call": {sqlstore.PollQuestions, 30 * time.Second, func(ctx context.Context, s *Store) error {
			if err := s.Register(ctx, store.Node{ID: "b", Lease: 30 * time.Second}); err != nil {
				return err
			}
			q := store.Question{ID: "q", Owner: "ann", Session: chat.SessionKey{Agent: "main", Rest: "lobby"}, Body: []byte("{}")}
			if err := s.PutQuestion(ctx, q); err != nil {
				return err
			}
			_, err := s.AnswerQuestion(ctx, store.AnswerQuestion{ID: "q", By: "ann", Option: 1, Allow: true, Node: "b"})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openAt(t, migrated(t), nil)
				register(t, s, "a")
				if err := c.make(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				look := polls(t.Context(), s, "a")[c.poll]
				for _, wait := range []time.Duration{0, c.after - time.Millisecond} {
					if time.Sleep(wait); wait >= 0 {
						if found, err := look(); found || err != nil {
							t.Fatalf("after %s it found %t, %v", wait, found, err)
						}
					}
				}
				time.Sleep(time.Millisecond)
				if found, err := look(); !found || err != nil {
					t.Errorf("when it is due it found %t, %v", found, err)
				}
			})
		})
	}
}
