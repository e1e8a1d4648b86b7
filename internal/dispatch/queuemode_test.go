package dispatch_test

import (
	"slices"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
)

// The test reads the mode of sessions without a configured mode.
func TestASessionWithoutAChannelInItsKeyQueuesAsTheWeb(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := open(t, newStore(t), func(c *dispatch.Config) {
			c.Queue = func(_, channel, _ string) dispatch.QueueRules {
				modes := map[string]scheduler.QueueMode{"web": scheduler.ModeCollect, "hook": scheduler.ModeInterrupt, "box": scheduler.ModeSteer}
				return dispatch.QueueRules{Settings: scheduler.Settings{Mode: modes[channel]}}
			}
		})
		defer h.close()
		for session, mode := range map[string]chat.QueueMode{
			"main": chat.ModeCollect, "any name": chat.ModeCollect, "hook:ci": chat.ModeInterrupt, "api:ci": chat.ModeQueue, "box:direct:7": chat.ModeSteer, "cron:job:run": chat.ModeQueue,
		} {
			h.end(h.send(session, "hello"))
			s, err := h.d.Session(t.Context(), h.msg(session, "x").Session, "")
			if err != nil {
				t.Fatal(err)
			}
			want(t, "mode of "+session, s.Mode, mode)
		}
	})
}

// The words of package chat must be those of the scheduler, which imports no other package of this module.
func TestTheSchedulerKnowsEveryQueueMode(t *testing.T) {
	t.Parallel()
	var known []chat.QueueMode
	for _, m := range scheduler.QueueModes() {
		known = append(known, chat.QueueMode(m))
	}
	if !slices.Equal(known, chat.QueueModes()) {
		t.Errorf("the scheduler has %v, chat has %v", known, chat.QueueModes())
	}
}
