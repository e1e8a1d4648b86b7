package dispatch

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// lineUp offers numbered messages in the given order and returns the order in which the scheduler started them.
func lineUp(t *testing.T, waitsBefore func(seq int64) bool, offered []int64) []int64 {
	t.Helper()
	ctx, end := context.WithCancelCause(t.Context())
	defer end(errors.New("over"))
	var started []int64
	s, err := scheduler.New(ctx, scheduler.Config[work]{Run: func(_ context.Context, turn *scheduler.Turn[work]) error {
		started = append(started, turn.SeqTo())
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := &order{current: func(store.Claim) bool { return true }}
	key := chat.MainKey("main")
	for _, seq := range offered {
		it := scheduler.Item[work]{
			Session: key.String(), ID: strconv.FormatInt(seq, 10), Seq: seq,
			Payload: work{claim: store.Claim{Session: key, Epoch: 1}},
		}
		h.offer(s, it, !waitsBefore(seq))
	}
	synctest.Wait()
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if len(h.lines[key].parked) > 0 {
		t.Errorf("%d messages are still parked", len(h.lines[key].parked))
	}
	return started
}

// The messages of one session are offered in every order, as by concurrent callers. The first one has no predecessor, each other one waits
// for its predecessor.
func TestMessagesReachTheSchedulerInTheirOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(rt, "n")
		order := rapid.Permutation(numbers(n)).Draw(rt, "order")
		synctest.Test(t, func(t *testing.T) {
			got := lineUp(t, func(seq int64) bool { return seq > 1 }, order)
			if !slices.Equal(got, numbers(n)) {
				t.Errorf("offered as %v they started as %v", order, got)
			}
		})
	})
}

func numbers(n int) []int64 {
	var all []int64
	for i := range n {
		all = append(all, int64(i+1))
	}
	return all
}
