package sqlitetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAStoreInABubbleLivesInVirtualTime opens stores in two bubbles, because no state of the first
// may be left in the second.
func TestAStoreInABubbleLivesInVirtualTime(t *testing.T) {
	t.Parallel()
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			st := sqlitetest.Open(t, sqlite.Config{})
			if err := st.Register(t.Context(), store.Node{ID: "a"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if _, err := st.Heartbeat(t.Context(), "a", false); !errors.Is(err, chat.ErrFenced) {
				t.Errorf("a heartbeat an hour after the lease got %v", err)
			}
			if now, err := st.Now(t.Context()); err != nil || !now.Equal(time.Now().Truncate(time.Millisecond)) {
				t.Errorf("the store's clock is %s, %v", now, err)
			}
		})
	}
}

// TestAnErrorBeforeAnOperationIsItsResultAndNothingIsDone forces a failure of a write and of a
// read.
func TestAnErrorBeforeAnOperationIsItsResultAndNothingIsDone(t *testing.T) {
	t.Parallel()
	down, broken := true, errors.New("broken")
	var doing []string
	st := sqlitetest.Open(t, sqlite.Config{Before: func(_ context.Context, what string) error {
		if doing = append(doing, what); down {
			return broken
		}
		return nil
	}})
	if err := st.Register(t.Context(), store.Node{ID: "a"}); !errors.Is(err, broken) {
		t.Errorf("a write got %v", err)
	}
	if _, err := st.Cluster(t.Context()); !errors.Is(err, broken) {
		t.Errorf("a read got %v", err)
	}
	down = false
	if c, err := st.Cluster(t.Context()); err != nil || len(c.Nodes) != 0 {
		t.Errorf("nodes afterwards: %+v, %v", c.Nodes, err)
	}
	if len(doing) != 3 || doing[0] == doing[1] || doing[1] != doing[2] {
		t.Errorf("the operations were %q", doing)
	}
}
