package teste2e

import (
	"errors"
	"maps"
	"testing"
	"time"
)

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
