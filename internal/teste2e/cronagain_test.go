package teste2e

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// TestACronCallSentAgainHasOneEffect makes each call that takes an idempotency key, and makes it again after kill -9, on another replica where there can be
// one: the answer is the first one, and nothing changes. The same key with other params is refused.
func TestACronCallSentAgainHasOneEffect(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		other := g
		if database != "" {
			other = Install(t, database, cronConfig)
			other.Start()
		}
		c := connect(t, g)
		job := addJob(t, c, "hourly", map[string]any{"kind": "cron", "expr": "0 * * * *"}, map[string]any{
			"overlap": "concurrent", "payload": map[string]any{"kind": "agentTurn", "message": "sleep 10m"},
		})
		stopped := runByHand(t, c, job.ID)
		now := time.Now().Truncate(time.Hour)
		calls := []struct {
			method        string
			params, other map[string]any
		}{
			{"cron.add", jobParams("made once", at(time.Now().Add(2*time.Second)), nil), map[string]any{"description": "another"}}, // no client could ask for this moment later
			{"cron.run", map[string]any{"id": job.ID}, map[string]any{"mode": "if-enabled"}},
			{"cron.backfill", map[string]any{"id": job.ID, "fromMs": now.Add(-3 * time.Hour).UnixMilli(), "toMs": now.Add(-time.Hour).UnixMilli()}, map[string]any{"maxRuns": 99}},
			{"cron.cancel", map[string]any{"runId": stopped, "reason": "enough"}, map[string]any{"reason": "no"}},
		}
		answers := make([]map[string]any, len(calls))
		for i, call := range calls {
			call.params["idempotencyKey"] = "k1"
			answers[i] = object(t, c, call.method, call.params)
		}
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "the job that was made has run and is gone", func() bool {
			return o.Count("SELECT count(*) FROM cron_jobs WHERE name = 'made once'") == 0
		})
		if _, err := c.Call("cron.update", map[string]any{"id": job.ID, "patch": map[string]any{"schedule": map[string]any{"kind": "cron", "expr": "30 * * * *"}}}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		g.Kill()
		if other == g {
			g.Start()
		}
		c = connect(t, other)
		picture := func() []string {
			return append(o.Rows("SELECT id FROM cron_run_logs WHERE owner <> 'system' ORDER BY id"), o.Rows("SELECT id FROM cron_jobs WHERE owner <> 'system' ORDER BY id")...)
		}
		before, changes := picture(), o.Count("SELECT count(*) FROM audit_log")
		for i, call := range calls {
			var again map[string]any
			testrun.Eventually(t, call.method+" is answered", func() bool { // for a moment after the start it is not registered in its store
				raw, err := c.Call(call.method, call.params, 10*time.Second)
				return err == nil && json.Unmarshal(raw, &again) == nil
			})
			delete(answers[i], "processInstanceId") // says who answers
			delete(again, "processInstanceId")
			if got, want := asJSON(t, again), asJSON(t, answers[i]); got != want {
				t.Errorf("%s again:\n%s\nwas\n%s", call.method, got, want)
			}
			params := maps.Clone(call.params)
			maps.Copy(params, call.other)
			_, err := c.Call(call.method, params, 10*time.Second)
			var refused *WireError
			if !errors.As(err, &refused) || refused.Details["code"] != "IDEMPOTENCY_KEY_REUSED" {
				t.Errorf("%s with the key and other params: %v", call.method, err)
			}
		}
		if after := picture(); asJSON(t, after) != asJSON(t, before) {
			t.Errorf("rows were %q, are %q", before, after)
		}
		if n := o.Count("SELECT count(*) FROM audit_log"); n != changes {
			t.Errorf("%d rows more in the log of changes", n-changes)
		}
	})
}

func runByHand(t *testing.T, c *Client, job string) string {
	t.Helper()
	var run struct{ RunID string }
	if err := c.Into(&run, "cron.run", map[string]any{"id": job}); err != nil || run.RunID == "" {
		t.Fatalf("run %q: %v", run.RunID, err)
	}
	return run.RunID
}

func object(t *testing.T, c *Client, method string, params map[string]any) (out map[string]any) {
	t.Helper()
	if err := c.Into(&out, method, params); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return out
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
