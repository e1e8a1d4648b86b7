package dispatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

func TestAFailureThatDoesNotPassIsNotTriedAgain(t *testing.T) {
	for _, c := range []struct {
		reason            chat.FailReason
		retries, attempts int
		last              cron.AttemptState
	}{
		{chat.FailBadRequest, 3, 1, cron.AttemptError},
		{chat.FailRefusal, 3, 1, cron.AttemptError},
		{chat.FailAuth, 3, 1, cron.AttemptError},
		{chat.FailContextLength, 3, 1, cron.AttemptError},
		{chat.FailTimeout, 3, 4, cron.AttemptTimeout},
		{chat.FailOverloaded, 3, 4, cron.AttemptError},
		{chat.FailOverloaded, 1, 2, cron.AttemptError},
		{chat.FailOverloaded, 0, 1, cron.AttemptError},
	} {
		t.Run(string(c.reason), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := openCron(t, newStore())
				h.put(once("bad", "fail "+string(c.reason), time.Second), func(j *cron.Job) { j.Retry.Retries = c.retries })
				after(10 * time.Minute)
				runs := h.runs("bad")
				if len(runs) != 1 || runs[0].State != cron.RunError || runs[0].ErrorClass != string(c.reason) || len(runs[0].Attempts) != c.attempts {
					t.Fatalf("runs: %+v", runs)
				}
				for i, a := range runs[0].Attempts {
					if a.Number != i+1 || a.State != c.last || a.ErrorClass != string(c.reason) {
						t.Errorf("attempt %d: %+v", i+1, a)
					}
				}
				want(t, "calls of the agent", len(h.runner.texts()), c.attempts)
				want(t, "errors in a row", h.job("bad").State.ConsecutiveErrors, 1)
				h.close()
			})
		})
	}
}
