package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// Jobs are changed so that slots end without running. Clients of every replica must receive one
// finished event for each finished row of the ledger. A pause that ends by itself is an updated
// event.
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
			t.Errorf("replica %d heard of the ends\n%s\nthe ledger has\n%s", i, strings.Join(got, "\n"),
				strings.Join(o.Rows("SELECT id, state, reason, started_at, finished_at FROM cron_run_logs WHERE owner <> 'system' ORDER BY id"), "\n"))
		}
	}
}

// watchCron starts the gateways and connects a client to each, until every one of them receives the
// cron events of the first.
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

// Runs of jobs wait in sessions with long turns, and each operation of a session ends them. Clients
// of every replica receive one finished event for each run.
func TestARunThatAMessageOperationEndsIsAnEvent(t *testing.T) {
	t.Parallel()
	const config = cronConfig + "queue: {cap: 2, drop: old}\n"
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		messageEndsAreEvents(t, "", Install(t, "", config))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		database := testpg.DB(t)
		messageEndsAreEvents(t, database, Install(t, database, config), Install(t, database, config))
	})
}

func messageEndsAreEvents(t *testing.T, database string, all ...*Gateway) {
	t.Helper()
	heard, clients := watchCron(t, all)
	c, last := clients[0], clients[len(clients)-1]
	operations := map[string]func(session, id, run string){
		"abort": func(session, id, run string) {
			object(t, c, "chat.abort", map[string]any{"sessionKey": session, "runId": run})
		},
		"stopall": func(session, id, _ string) { say(t, last, session, "stop"+id, "/stopall") },
		"drop": func(session, id, _ string) {
			for i := range 2 {
				say(t, last, session, fmt.Sprint("drops", i, id), "hello")
			}
		},
		"interrupt": func(session, id, _ string) {
			object(t, c, "chat.send", map[string]any{"sessionKey": session, "message": "hello", "idempotencyKey": "cuts" + id, "queueMode": "interrupt"})
		},
		"reset":  func(session, _, _ string) { object(t, c, "sessions.reset", map[string]any{"key": session}) },
		"delete": func(session, _, _ string) { object(t, c, "sessions.delete", map[string]any{"key": session}) },
	}
	o := OpenOracle(t, all[0], database)
	var want []string
	for name, end := range operations {
		session := "agent:main:" + name
		say(t, c, session, "long"+name, "sleep 10m")
		testrun.Eventually(t, "the turn runs", func() bool {
			return o.Count("SELECT count(*) FROM runs WHERE state = 'running' AND session_key = '"+session+"'") == 1
		})
		job := addJob(t, c, name, every(time.Hour), map[string]any{"sessionTarget": "session:" + session})
		run := runByHand(t, last, job.ID)
		want = append(want, run)
		end(session, name, run)
	}
	slices.Sort(want)
	over := func() []string {
		return o.Rows("SELECT id FROM cron_run_logs WHERE state = 'cancelled' AND reason = 'stopped' AND started_at IS NULL ORDER BY id")
	}
	defer func() {
		if t.Failed() {
			t.Logf("the ledger:\n%s", strings.Join(o.Rows("SELECT job_name, id, state, reason, started_at FROM cron_run_logs WHERE owner <> 'system' ORDER BY job_name"), "\n"))
		}
	}()
	testrun.Eventually(t, "the runs end without having begun", func() bool { return slices.Equal(over(), want) })
	for i := range all {
		deadline := time.Now().Add(3 * time.Second)
		for !slices.Equal(heard[i].finished(), want) && time.Now().Before(deadline) {
			pause(50 * time.Millisecond)
		}
		if got := heard[i].finished(); !slices.Equal(got, want) {
			t.Errorf("clients of replica %d got the ends\n%s\nthe ledger has\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// cronEvents collects the cron events of one connection, by their subject.
type cronEvents struct {
	mu   sync.Mutex
	seen map[string][]map[string]any
}

func (e *cronEvents) take(ev Event) {
	if ev.Name != "cron" {
		return
	}
	var p map[string]any
	if json.Unmarshal(ev.Payload, &p) != nil {
		return
	}
	key := fmt.Sprint(p["action"])
	if run, ok := p["runId"].(string); ok {
		key += " " + run
	} else if job, ok := p["job"].(map[string]any); ok {
		key += fmt.Sprint(" ", p["jobId"], " ", job["configRevision"])
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen == nil {
		e.seen = map[string][]map[string]any{}
	}
	e.seen[key] = append(e.seen[key], p)
}

func (e *cronEvents) keys() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.seen))
}

func (e *cronEvents) has(prefix string, n int) bool {
	count := 0
	for _, key := range e.keys() {
		if strings.HasPrefix(key, prefix) {
			count++
		}
	}
	return count >= n
}

func toggle(t *testing.T, c *Client, job string) {
	t.Helper()
	for _, enabled := range []bool{false, true} {
		if _, err := c.Call("cron.toggle", map[string]any{"jobId": job, "enabled": enabled}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// Programs distinguish refusals by their codes, and find the subject in the details.
func TestRefusalsOfCronHaveCodesOfTheirOwn(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		c := connect(t, g)
		yearly := map[string]any{"kind": "cron", "expr": "0 0 1 1 *", "tz": "UTC"}
		one, two := addJob(t, c, "one", yearly, nil), addJob(t, c, "two", yearly, nil)
		with := func(members map[string]any) map[string]any {
			p := jobParams("bad", yearly, nil)
			maps.Copy(p, members)
			return p
		}
		for _, call := range []struct {
			code, method string
			params       map[string]any
			details      map[string]any // nil = only the name must exist
		}{
			{"CRON_JOB_NOT_FOUND", "cron.get", map[string]any{"id": "none"}, map[string]any{"jobId": "none"}},
			{"CRON_JOB_NOT_FOUND", "cron.cancel", map[string]any{"id": "none"}, map[string]any{"jobId": "none"}},
			{"CRON_RUN_NOT_FOUND", "cron.cancel", map[string]any{"runId": "none"}, map[string]any{"runId": "none"}},
			{"CRON_JOB_CHANGED", "cron.update", map[string]any{"id": one.ID, "patch": map[string]any{"name": "uno"}, "expectedConfigRevision": "stale"}, map[string]any{"expectedConfigRevision": "stale", "actualConfigRevision": nil}},
			{"CRON_KEY_CONFLICT", "cron.update", map[string]any{"id": two.ID, "patch": map[string]any{"name": "one"}}, map[string]any{"jobId": two.ID, "key": nil}},
			{"CRON_INVALID_SCHEDULE", "cron.add", with(map[string]any{"schedule": map[string]any{"kind": "cron", "expr": "99 * * * *"}}), map[string]any{"field": nil, "reason": nil}},
			{"CRON_INVALID_SCHEDULE", "cron.update", map[string]any{"id": one.ID, "patch": map[string]any{"schedule": map[string]any{"kind": "cron", "expr": "0 9 * * *", "tz": "Mars/Base"}}}, map[string]any{"field": nil, "reason": nil}},
			{"CRON_UNSUPPORTED", "cron.add", with(map[string]any{"trigger": map[string]any{"kind": "poll"}}), map[string]any{"field": "trigger"}},
			{"CRON_PAYLOAD_DISABLED", "cron.add", with(map[string]any{"payload": map[string]any{"kind": "command", "argv": []string{"true"}}}), map[string]any{"kind": "command", "enableWith": "LANEWAY_CRON_PAYLOADS=command"}},
		} {
			_, err := c.Call(call.method, call.params, 10*time.Second)
			refusal, ok := errors.AsType[*WireError](err)
			if !ok || refusal.Code != "INVALID_REQUEST" || refusal.Details["code"] != call.code || refusal.Retryable {
				t.Errorf("%s %v: %v (%+v), want %s", call.method, call.params, err, refusal, call.code)
				continue
			}
			for name, want := range call.details {
				if got := refusal.Details[name]; got == nil || got == "" || (want != nil && got != want) {
					t.Errorf("%s: the detail %s is %v, want %v", call.code, name, got, want)
				}
			}
		}
	})
}
