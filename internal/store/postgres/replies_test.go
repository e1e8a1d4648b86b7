package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

// lossTime bounds the wait of a client for a reply that never arrives.
const lossTime = 3 * time.Second

// losses are all ways in which the reply of a COMMIT is lost.
func losses(t *testing.T, test func(t *testing.T, l testpg.Loss)) {
	t.Helper()
	for name, m := range map[string]testpg.Manner{"Cut": testpg.Cut, "Silence": testpg.Silence, "Shutdown": testpg.Shutdown, "Crash": testpg.Crash} {
		for _, undone := range []bool{false, true} {
			part := map[bool]string{false: "Applied", true: "Undone"}[undone]
			t.Run(name+part, func(t *testing.T) {
				t.Parallel()
				test(t, testpg.Loss{Manner: m, Undone: undone})
			})
		}
	}
}

// takenAgain repeats an operation in tries of their own until its result is there.
func takenAgain[T any](t *testing.T, op func(ctx context.Context) (T, error)) (out T) {
	t.Helper()
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), lossTime)
		out, err := op(ctx)
		cancel()
		switch {
		case err == nil:
			return out
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, chat.ErrStoreUnavailable):
			t.Fatal(err)
		}
	}
	t.Fatal("five tries had no result")
	return out
}

func lost(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	default:
		t.Fatal("no reply was lost: the operation has no such COMMIT")
	}
}

func TestClaimOutgoingFindsWhatItTook(t *testing.T) {
	t.Parallel()
	losses(t, func(t *testing.T, l testpg.Loss) {
		t.Helper()
		s, p := behindProxy(t)
		row := store.Outgoing{ID: "o1", Kind: store.KindReply, Target: chat.Target{Channel: "box", ChatID: "1"}, Text: "hello"}
		if err := s.Enqueue(t.Context(), []store.Outgoing{row}); err != nil {
			t.Fatal(err)
		}
		l.Marker = "SET state = 'sending'"
		done := p.Lose(l)
		rows := takenAgain(t, func(ctx context.Context) ([]store.Outgoing, error) {
			return s.ClaimOutgoing(ctx, store.ClaimOutgoingParams{Node: "n", Channels: []string{"box"}, Limit: 10})
		})
		lost(t, done)
		if len(rows) != 1 || rows[0].ID != "o1" || rows[0].Attempt != 1 || rows[0].MaybeSent {
			t.Fatalf("claimed %+v, want o1 in its first attempt", rows)
		}
	})
}

func TestClaimLaunchesWhatItCommitted(t *testing.T) {
	t.Parallel()
	losses(t, func(t *testing.T, l testpg.Loss) {
		t.Helper()
		s, p := behindProxy(t)
		addJobs(t, p.URL(), 2)
		l.Marker = "UPDATE cron_jobs AS j SET next_slot"
		done := p.Lose(l)
		found := map[string]bool{}
		for range 2 {
			c := takenAgain(t, func(ctx context.Context) (cron.Claimed, error) {
				return s.Claim(ctx, cron.ClaimParams{Node: "n", Limit: 500, Decide: decideOnce})
			})
			for _, launched := range c.Launched {
				found[launched.Run.ID] = true
			}
		}
		lost(t, done)
		if len(found) != 2 {
			t.Fatalf("the claims launched %v, want both runs", found)
		}
	})
}

// What a sweep took is found by the sweep or by the read of unknown messages that follows it.
func TestSweepFindsWhatItTook(t *testing.T) {
	t.Parallel()
	losses(t, func(t *testing.T, l testpg.Loss) {
		t.Helper()
		s, p := behindProxy(t)
		orphan(t, s, p.URL())
		l.Marker = "epoch = s.epoch + 1"
		done := p.Lose(l)
		taken := takenAgain(t, func(ctx context.Context) ([]store.Taken, error) {
			return s.Sweep(ctx, store.SweepParams{Node: "n", Limit: 10})
		})
		if len(taken) == 0 {
			taken = takenAgain(t, func(ctx context.Context) ([]store.Taken, error) {
				return s.Hinted(ctx, "n", func(chat.SessionKey) int64 { return 0 }, 10)
			})
		}
		lost(t, done)
		if len(taken) != 1 || len(taken[0].Messages) != 1 || taken[0].Messages[0].MessageID != "m1" {
			t.Fatalf("taken %+v, want m1", taken)
		}
	})
}

// orphan stores the message m1 of a node that has died.
func orphan(t *testing.T, s *postgres.Store, url string) {
	t.Helper()
	if err := s.Register(t.Context(), store.Node{ID: "dead", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Accept(t.Context(), message("dead", chat.MainKey("main"), "m1")); err != nil {
		t.Fatal(err)
	}
	exec(t, url, `UPDATE nodes SET lease_until = 0, lease_ms = 0 WHERE id = 'dead'`)
}

// Two replicas sweep, and the first one receives no reply: exactly one of them has the message.
func TestSweepOfTwoReplicasLosesNothing(t *testing.T) {
	t.Parallel()
	losses(t, func(t *testing.T, l testpg.Loss) {
		t.Helper()
		url := testpg.DB(t)
		s, p := behindProxyOf(t, url)
		other := open(t, postgres.Config{URL: url})
		t.Cleanup(func() { _ = other.Close() })
		if err := other.Register(t.Context(), store.Node{ID: "other", Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
		orphan(t, s, url)
		l.Marker = "epoch = s.epoch + 1"
		done := p.Lose(l)
		found := 0
		read := func(s *postgres.Store, node string) {
			for _, op := range []func(ctx context.Context) ([]store.Taken, error){
				func(ctx context.Context) ([]store.Taken, error) {
					return s.Sweep(ctx, store.SweepParams{Node: node, Limit: 10})
				},
				func(ctx context.Context) ([]store.Taken, error) {
					return s.Hinted(ctx, node, func(chat.SessionKey) int64 { return int64(found) }, 10)
				},
			} {
				found += len(takenAgain(t, op))
			}
		}
		read(s, "n")
		lost(t, done)
		read(other, "other")
		if found != 1 {
			t.Fatalf("the message was found %d times, want once", found)
		}
	})
}

func TestTakeQuestionsFindsWhatItTook(t *testing.T) {
	t.Parallel()
	losses(t, func(t *testing.T, l testpg.Loss) {
		t.Helper()
		s, p := behindProxy(t)
		exec(t, p.URL(), `INSERT INTO tool_questions (id, owner, state, node, asked_at, expires_at, call, result) VALUES ('q1', 'ann', 'allowed', 'dead', 1, 2, '[]', '')`)
		l.Marker = "UPDATE tool_questions SET node"
		done := p.Lose(l)
		list := takenAgain(t, func(ctx context.Context) ([]store.Question, error) {
			return s.TakeQuestions(ctx, store.TakeQuestionsParams{Node: "n", Limit: 10})
		})
		lost(t, done)
		if len(list) != 1 || list[0].ID != "q1" {
			t.Fatalf("taken %+v, want q1", list)
		}
	})
}

// A turn whose steps have lost replies gets the results of the first commits.
func TestStepsOfATurnAreRepeated(t *testing.T) {
	t.Parallel()
	for name, marker := range map[string]string{"Accept": "INSERT INTO inbox", "Start": "INSERT INTO runs", "Finish": "UPDATE runs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			losses(t, func(t *testing.T, l testpg.Loss) {
				t.Helper()
				if l.Manner == testpg.Silence {
					return // only the deadline of a caller ends it, and these calls have none
				}
				s, p := behindProxy(t)
				l.Marker = marker
				done := p.Lose(l)
				if err := turn(t.Context(), s, "n", chat.MainKey("main"), "m1"); err != nil {
					t.Fatal(err)
				}
				lost(t, done)
				if left := query(t, p.URL(), `SELECT state FROM runs WHERE ended_at IS NULL`); len(left) > 0 {
					t.Errorf("runs without an end: %v", left)
				}
			})
		})
	}
}

// behindProxy opens a store with the node n whose connections can lose replies.
func behindProxy(t *testing.T) (*postgres.Store, *testpg.Proxy) {
	t.Helper()
	return behindProxyOf(t, testpg.DB(t))
}

// behindProxyOf is behindProxy for a database.
func behindProxyOf(t *testing.T, url string) (*postgres.Store, *testpg.Proxy) {
	t.Helper()
	p := testpg.NewProxy(t, url)
	s := open(t, postgres.Config{URL: p.URL()})
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Register(t.Context(), store.Node{ID: "n", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return s, p
}
