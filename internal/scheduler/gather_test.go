package scheduler_test

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/scheduler"
)

// Consecutive messages that gather wait for one turn; a person's message between them keeps its own turn.
func TestMessagesThatGatherShareATurn(t *testing.T) {
	t.Parallel()
	for _, mode := range scheduler.QueueModes() {
		if mode == scheduler.ModeInterrupt {
			continue // a message in this mode ends waiting messages
		}
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var j journal
				s := newScheduler(t, config{Run: takes(&j, time.Second)})
				for i, word := range []string{"run", "t1", "t2", "person", "t3", "u1", "t4", "t5"} {
					it := item{ID: strconv.Itoa(i), Payload: word, Sender: word[:1], Gathers: len(word) == 2, Settings: &scheduler.Settings{Mode: mode}}
					submit(t, s, it)
				}
				pass(time.Minute)
				drain(t, s)
				want := []string{"0s run", "1s t1+t2", "2s person", "3s t3", "4s u1", "5s t4+t5"}
				if got := j.take(); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}
