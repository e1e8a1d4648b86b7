package dispatch_test

import (
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/dispatch"
	"laneway/internal/store"
)

// second adds an agent.
func second(runner agent.Runner) option {
	return func(c *dispatch.Config) {
		c.Agents = append(c.Agents, dispatch.Agent{Info: agent.Info{ID: "second", Runner: "script"}, Runner: runner})
	}
}

// TestARunWaitsForAProcessThatHasItsAgent ends the only process with an agent in the middle of a run. A process that lacks the agent leaves its work, and a
// later one that has it finishes it: one crash is counted, not one for each process that looked.
func TestARunWaitsForAProcessThatHasItsAgent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		c, off := cord(st)
		killed := open(t, c, second(&script{}))
		running, waiting := killed.send("agent:second:main", "sleep 5m"), killed.send("agent:second:main", "waits for the first one")
		killed.send("main", "sleep 1h")
		time.Sleep(time.Second)
		off.Store(true)

		lacking := open(t, st)
		defer lacking.close()
		time.Sleep(time.Minute)
		want(t, "runs of the agent that it has", lacking.active("main"), 1)
		for _, id := range []string{running, waiting} {
			m, err := st.MessageByID(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			want(t, "outcome of "+id+" while no process has the agent", m.Outcome, "")
		}

		having := open(t, st, second(&script{}))
		defer having.close()
		want(t, "outcome of the interrupted run", having.end(running).Outcome, chat.OutcomeAnswered)
		want(t, "outcome of what waited", having.end(waiting).Outcome, chat.OutcomeAnswered)
		m, err := st.MessageByID(t.Context(), running)
		if err != nil {
			t.Fatal(err)
		}
		r, err := st.RunByID(t.Context(), m.RunID)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "state", r.State, store.RunOK)
		want(t, "attempts", r.Attempt, 2)
		want(t, "crashes", r.Crashes, 1)
		killed.abandon()
	})
}

// TestARunInTheSessionOfAnAgentThatThisProcessLacksFails has a job of one agent in a session of another: the rule by which jobs are claimed does not see that.
func TestARunInTheSessionOfAnAgentThatThisProcessLacksFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := openCron(t, newStore(t))
		defer h.close()
		j := h.put(everySecond("j", "hello"), func(j *cron.Job) { j.Session = cron.NamedSession + "agent:second:main" })
		time.Sleep(2 * time.Second)
		runs := h.runs(j.ID)
		if len(runs) == 0 {
			t.Fatal("the job did not run")
		}
		want(t, "state of the attempt", runs[0].Attempts[0].State, cron.AttemptError)
		want(t, "sentence", runs[0].Error, `there is no agent "second" here; the operator can add it to the configuration`)
	})
}
