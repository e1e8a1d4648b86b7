package teste2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// Jobs are changed so that slots end without running. Clients of every replica must receive one finished event for each finished row of the
// ledger. A pause that ends by itself is an updated event.
func TestEveryEndOfASlotIsAnEvent(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		everyEndIsAnEvent(t, "", Install(t, "", cronConfig))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		database := testpg.DB(t)
		everyEndIsAnEvent(t, database, Install(t, database, cronConfig), Install(t, database, cronConfig))
	})
}

func everyEndIsAnEvent(t *testing.T, database string, all ...*Gateway) {
	t.Helper()
	heard, clients := watchCron(t, all)
	c, o := clients[0], OpenOracle(t, all[0], database)
	paused := addJob(t, c, "paused", every(time.Second), nil)
	object(t, c, "cron.pause", map[string]any{"id": paused.ID, "note": "a while"})
	resumes := addJob(t, c, "resumes", every(time.Second), nil)
	object(t, c, "cron.pause", map[string]any{"id": resumes.ID, "note": "a moment", "untilMs": time.Now().Add(3 * time.Second).UnixMilli()})
	stopped := addJob(t, c, "stopped", every(time.Hour), saying("sleep 10m"))
	object(t, c, "cron.cancel", map[string]any{"runId": runByHand(t, c, stopped.ID)})
	moved := addJob(t, c, "moved", at(time.Now().Add(4*time.Second)), map[string]any{"deleteAfterRun": false})
	testrun.Eventually(t, "the slot is claimed", func() bool {
		return o.Count("SELECT count(*) FROM cron_run_logs WHERE job_id = '"+moved.ID+"'") == 1
	})
	object(t, c, "cron.update", map[string]any{"id": moved.ID, "patch": map[string]any{"schedule": at(time.Now().Add(time.Hour))}})
	for i := range all {
		testrun.Eventually(t, fmt.Sprintf("replica %d hears that the pause has ended", i), func() bool { return heard[i].enabled(resumes.ID) })
	}
	object(t, c, "cron.resume", map[string]any{"id": paused.ID})
	for _, j := range []jobView{paused, resumes} {
		object(t, c, "cron.remove", map[string]any{"id": j.ID, "cancelRunning": true})
	}
	over := func() []string {
		return o.Rows("SELECT id FROM cron_run_logs WHERE owner <> 'system' AND finished_at IS NOT NULL ORDER BY id")
	}
	testrun.Eventually(t, "nothing runs", func() bool { return o.Count(unfinished) == 0 })
	if n := o.Count("SELECT count(*) FROM cron_run_logs WHERE reason = 'paused'"); n < 2 {
		t.Errorf("%d rows of pauses, want that of each pause", n)
	}
	for i := range all {
		deadline := time.Now().Add(10 * time.Second)
		for !slices.Equal(heard[i].finished(), over()) && time.Now().Before(deadline) {
			pause(50 * time.Millisecond)
		}
		if got, want := heard[i].finished(), over(); !slices.Equal(got, want) {
			t.Errorf("replica %d heard of the ends\n%s\nthe ledger has\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// watchCron starts the gateways and connects a client to each, until every one of them receives the cron events of the first.
func watchCron(t *testing.T, all []*Gateway) (heard []*cronEvents, clients []*Client) {
	t.Helper()
	for i, g := range all {
		heard = append(heard, &cronEvents{})
		g.Start()
		c, err := Dial(g.URL(), g.Token(), heard[i].take)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	c := clients[0]
	warm := addJob(t, c, "warm", map[string]any{"kind": "cron", "expr": "0 0 1 1 *"}, nil)
	for i := range all {
		testrun.Eventually(t, "every replica listens", func() bool {
			toggle(t, c, warm.ID)
			return heard[i].has("updated "+warm.ID, 1)
		})
	}
	return heard, clients
}

// enabled reports whether an event showed that a job was changed to one that fires.
func (e *cronEvents) enabled(job string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, list := range e.seen {
		for _, p := range list {
			if view, ok := p["job"].(map[string]any); ok && strings.HasPrefix(key, "updated "+job) && view["enabled"] == true {
				return true
			}
		}
	}
	return false
}

// finished lists the runs with a finished event, each as often as it arrived.
func (e *cronEvents) finished() (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(e.seen)) {
		if run, ok := strings.CutPrefix(key, "finished "); ok {
			for range e.seen[key] {
				out = append(out, run)
			}
		}
	}
	return out
}
