package memory_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/memory"
	"laneway/internal/store/storetest"
)

func open(tb testing.TB, now func() time.Time) storetest.Harness {
	tb.Helper()
	var m *storetest.Mirror
	st := memory.New(memory.Config{Now: now, Before: func(context.Context, string) error {
		m.Changed()
		return nil
	}})
	m = storetest.NewMirror(st)
	tb.Cleanup(func() {
		m.Close()
		if err := st.Close(); err != nil {
			tb.Error(err)
		}
	})
	same := func() store.Store { return st }
	return storetest.Harness{Open: same, Reopen: same, Query: m.Query, Exec: m.Exec}
}

func TestMemoryStore(t *testing.T) {
	t.Parallel()
	// The fake has no hold, and keeps what a deletion leaves: both are promises about databases, which tests make on databases.
	storetest.Run(t, open, "Deletion", "Hold")
}

func TestRecords(t *testing.T) {
	t.Parallel()
	storetest.RunRecords(t, open)
}

func TestClosedStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	st := memory.New(memory.Config{})
	if err := st.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Ping(t.Context()); !errors.Is(err, chat.ErrStoreUnavailable) {
		t.Fatalf("got %v", err)
	}
}

func TestBeforeIsAskedAndItsErrorStopsTheOperation(t *testing.T) {
	t.Parallel()
	var asked []string
	outage := false
	st := memory.New(memory.Config{Before: func(_ context.Context, op string) error {
		asked = append(asked, op)
		if outage {
			return chat.ErrStoreUnavailable
		}
		return nil
	}})
	if err := st.Register(t.Context(), store.Node{ID: "n1"}); err != nil {
		t.Fatal(err)
	}
	outage = true
	if err := st.Unregister(t.Context(), "n1"); !errors.Is(err, chat.ErrStoreUnavailable) {
		t.Fatalf("got %v", err)
	}
	outage = false
	if _, err := st.Heartbeat(t.Context(), "n1"); err != nil {
		t.Fatalf("the refused operation had an effect: %v", err)
	}
	if want := []string{"Register", "Unregister", "Heartbeat"}; !slices.Equal(asked, want) {
		t.Fatalf("asked %v, want %v", asked, want)
	}
}

func TestLeaseRunsOutInVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Config{})
		if err := st.Register(t.Context(), store.Node{ID: "n1", Lease: 15 * time.Second}); err != nil {
			t.Fatal(err)
		}
		<-time.After(14 * time.Second)
		if _, err := st.Heartbeat(t.Context(), "n1"); err != nil {
			t.Fatal(err)
		}
		<-time.After(15 * time.Second)
		if _, err := st.Heartbeat(t.Context(), "n1"); !errors.Is(err, chat.ErrFenced) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestCallersKeepTheirValues(t *testing.T) {
	t.Parallel()
	st := memory.New(memory.Config{})
	key := chat.MainKey("main")
	params := map[string]any{"a": 1}
	in := chat.Message{Session: key, ID: "m1", Content: chat.Content{Text: "x", Options: chat.Options{Params: params}}}
	if _, err := st.Accept(t.Context(), store.AcceptParams{Message: in}); err != nil {
		t.Fatal(err)
	}
	params["a"] = 2
	m, err := st.MessageByID(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	m.Content.Options.Params["a"] = 3
	again, err := st.MessageByID(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Content.Options.Params["a"]; got != 1 {
		t.Fatalf("the stored value became %v", got)
	}
}
