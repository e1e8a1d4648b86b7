package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"laneway/internal/chat"
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

// behindProxy opens a store with the node n whose connections can lose replies.
func behindProxy(t *testing.T) (*postgres.Store, *testpg.Proxy) {
	t.Helper()
	p := testpg.NewProxy(t, testpg.DB(t))
	s := open(t, postgres.Config{URL: p.URL()})
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Register(t.Context(), store.Node{ID: "n", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	return s, p
}
