package teste2e

import (
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// TestSIGTERMDeliversTheTelegramAnswerThatIsBeingMade: the model answers a second after the drain has begun. The process waits for it, shows it once, has
// confirmed the question, and leaves what is written meanwhile to the next process.
func TestSIGTERMDeliversTheTelegramAnswerThatIsBeingMade(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const drain, question, late = 10 * time.Second, "how long does it take?", "are you still there?"
		c := openChatroom(t, database, "    allow: [7]\ndrain_timeout: "+drain.String()+"\n", testtelegram.Config{Drafts: true})
		draining := make(chan struct{})
		release := sync.OnceFunc(func() { close(draining) })
		defer release()
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			<-draining
			return testmodel.Reply{Delay: time.Second, Pieces: []string{"You said: " + call.Last()}}
		})
		c.Start()
		asked := c.Telegram.Say(anna, anna, question)
		if err := c.Model.WaitFor(withTimeout(t, 30*time.Second), 1, 1); err != nil {
			t.Fatal(err)
		}
		c.Signal(syscall.SIGTERM)
		testrun.Eventually(t, "it drains", func() bool { code, _ := c.Get("/readyz"); return code == 503 })
		next := c.Telegram.Say(anna, anna, late)
		release()
		took, code := c.WaitExit(drain + 5*time.Second)
		t.Logf("exit %d after %s", code, took.Round(time.Millisecond))
		if code != 0 || took > drain {
			t.Errorf("exit code %d after %s, want 0 within %s", code, took, drain)
		}
		if n := c.Count(anna, question); n != 1 {
			t.Errorf("at the exit the answer was shown %d times: %q", n, c.Telegram.Texts(anna))
		}
		if confirmed := c.Telegram.Confirmed(); !slices.Contains(confirmed, asked) || slices.Contains(confirmed, next) {
			t.Errorf("updates %v are confirmed, want %d (answered) and not %d (left to the next process)", confirmed, asked, next)
		}
		c.remember()
		c.Start()
		c.Says(anna, late)
		c.rest()
		if n, m := c.Count(anna, question), c.Count(anna, late); n != 1 || m != 1 || len(c.Model.Calls()) != 2 {
			t.Errorf("in the end %d and %d answers by %d calls of the model: %q", n, m, len(c.Model.Calls()), c.Telegram.Texts(anna))
		}
		c.Close()
	})
}
