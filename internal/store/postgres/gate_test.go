package postgres_test

import (
	"context"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

// TestPollsOfAnIdleReplicaShareOneStatement checks that the polls of a second are one statement, that the next poll sees a change of this process, and that one
// of another replica is seen within the second.
func TestPollsOfAnIdleReplicaShareOneStatement(t *testing.T) {
	t.Parallel()
	url, r := testpg.DB(t), &trips{}
	s := open(t, postgres.Traced(postgres.Config{URL: url, WarmConns: -1}, r))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Register(t.Context(), store.Node{ID: "n", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	found := 0
	look := func() {
		t.Helper()
		out, err := s.ClaimOutgoing(t.Context(), store.ClaimOutgoingParams{Node: "n", Channels: []string{"web"}, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		found += len(out)
	}
	polls := func() {
		t.Helper()
		if _, err := s.Sweep(t.Context(), store.SweepParams{Node: "n", Limit: 10}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Hinted(t.Context(), "n", func(chat.SessionKey) int64 { return 0 }, 10); err != nil {
			t.Fatal(err)
		}
		look()
	}
	polls()
	r.list = nil
	for range 20 {
		polls()
	}
	if len(r.list) > 3 { // a slow machine may need more than a second
		t.Errorf("twenty rounds of polls were %d round trips: %q", len(r.list), r.list)
	}
	send := func(ctx context.Context, s *postgres.Store) {
		t.Helper()
		o := store.Outgoing{Kind: store.KindNotice, Text: "now", Target: chat.Target{Channel: "web", ChatID: "1"}}
		if err := s.Enqueue(ctx, []store.Outgoing{o}); err != nil {
			t.Fatal(err)
		}
	}
	send(t.Context(), s)
	if look(); found != 1 {
		t.Errorf("the next poll found %d rows, want the one that this process has added", found)
	}
	exec(t, url, `UPDATE outbox SET state = 'delivered', done_at = 1`)
	other := open(t, postgres.Config{URL: url, WarmConns: -1})
	polls()
	send(t.Context(), other)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(3 * time.Second); found < 2 && time.Now().Before(end); {
		look()
		<-again.C
	}
	if found != 2 {
		t.Errorf("the polls of three seconds found %d rows, want that of another replica too", found)
	}
}
