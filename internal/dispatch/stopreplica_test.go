package dispatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// The stop is requested in a process that does not run the turn, on a store without hints. The heartbeat of the process that runs it reads
// the stop, and the end has its reason.
func TestAStopFromAnotherProcessKeepsItsReason(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for scope, reason := range map[store.StopScope]string{store.StopOne: "stop", store.StopAll: "stopall"} {
			st := newStore(t)
			owner, other := open(t, st), open(t, st)
			id := owner.send("main", "sleep 1h")
			synctest.Wait()
			if _, err := other.d.Stop(t.Context(), store.StopParams{Session: chat.MainKey("main"), Scope: scope, By: "gateway"}); err != nil {
				t.Fatal(err)
			}
			asked := time.Now()
			end := owner.end(id)
			want(t, "outcome", end.Outcome, chat.OutcomeStopped)
			want(t, "reason", end.Reason, reason)
			if waited := time.Since(asked); waited > 4*time.Second {
				t.Errorf("the heartbeat brought the stop after %s", waited)
			}
			other.close()
			owner.close()
		}
	})
}
