package dispatch_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// signs returns when the typing sign was shown, as time since began.
func (p *postbox) signs(began time.Time) []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []time.Duration
	for _, at := range p.typings {
		out = append(out, at.Sub(began))
	}
	return out
}

// The sign is shown at the beginning and every four seconds, and never after the turn has ended or was cancelled, for every kind of end.
func TestTypingIsShownUntilTheTurnEnds(t *testing.T) {
	const every = 4 * time.Second
	for name, c := range map[string]struct {
		text    string
		stop    time.Duration // after which /stop is sent; 0 = never
		timeout time.Duration // of the turn; 0 = the default
		outcome chat.Outcome
		last    time.Duration // the last sign; the turn ends, or is cancelled, between it and the next one
	}{
		"answered":            {text: "sleep 18s", outcome: chat.OutcomeAnswered, last: 16 * time.Second},
		"answered at once":    {text: "hello", outcome: chat.OutcomeAnswered},
		"failed":              {text: "fail", outcome: chat.OutcomeFailed},
		"panicked":            {text: "panic", outcome: chat.OutcomeFailed},
		"stopped":             {text: "sleep 1h", stop: 10 * time.Second, outcome: chat.OutcomeStopped, last: 8 * time.Second},
		"timed out":           {text: "sleep 1h", timeout: 10 * time.Second, outcome: chat.OutcomeFailed, last: 8 * time.Second},
		"deaf to the stop":    {text: "deaf 1m", stop: 10 * time.Second, outcome: chat.OutcomeStopped, last: 8 * time.Second},
		"deaf to the timeout": {text: "deaf 1m", timeout: 10 * time.Second, outcome: chat.OutcomeAnswered, last: 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inDispatcher(t, func(t *testing.T, h *harness) {
				began := time.Now()
				id := h.send("box:direct:7", c.text, replyTo("7"), func(m *chat.Message) { m.Content.Options.TimeoutMs = c.timeout.Milliseconds() })
				if c.stop > 0 {
					time.Sleep(c.stop)
					h.end(h.send("box:direct:7", "/stop", replyTo("7")))
				}
				want(t, "outcome", h.end(id).Outcome, c.outcome)
				time.Sleep(2 * time.Minute)
				var expect []time.Duration
				for at := time.Duration(0); at <= c.last; at += every {
					expect = append(expect, at)
				}
				if got := h.box.signs(began); !slices.Equal(got, expect) {
					t.Errorf("typing was shown at %v, want %v", got, expect)
				}
			})
		})
	}
}

// TestAJobShowsNoTyping: no person waits for the answer of a job.
func TestAJobShowsNoTyping(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(once("quiet", "sleep 20s", time.Second), deliverTo(cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "7"}))
		time.Sleep(time.Minute)
		synctest.Wait()
		wantList(t, "the chat reads", h.box.texts("7"), []string{"begun"})
		if got := h.box.signs(time.Now()); len(got) != 0 {
			t.Errorf("typing was shown %d times", len(got))
		}
	})
}
