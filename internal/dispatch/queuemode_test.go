package dispatch_test

import (
	"testing"

	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
)

// TestASessionWithoutAChannelInItsKeyQueuesAsTheWeb reads the mode of sessions that nobody has given one.
func TestASessionWithoutAChannelInItsKeyQueuesAsTheWeb(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := open(t, newStore(), func(c *dispatch.Config) {
			c.Queue = func(_, channel, _ string) scheduler.Settings {
				return map[string]scheduler.Settings{
					"web": {Mode: scheduler.ModeCollect}, "hook": {Mode: scheduler.ModeInterrupt}, "box": {Mode: scheduler.ModeSteer},
				}[channel]
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
