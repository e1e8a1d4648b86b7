package gateway_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway"
)

// target answers every call with an error that names the job of the call.
type target struct{ gateway.CronBackend }

func meant(id string) error { return chat.Errorf(chat.CodeInvalid, "target %q", id) }

func (target) SubscribeCron(func(cron.Event), func() bool) (cancel func()) { return func() {} }

func (target) CronUpdate(_ context.Context, id string, _ cron.Members, _ string, _ gateway.Caller) (cron.Job, error) {
	return cron.Job{}, meant(id)
}

func (target) CronRemove(_ context.Context, id string, _ bool, _ gateway.Caller) error {
	return meant(id)
}

func (target) CronPause(_ context.Context, id, _ string, _ time.Time, _ gateway.Caller) (cron.Job, error) {
	return cron.Job{}, meant(id)
}

func (target) CronResume(_ context.Context, id string, _ gateway.Caller) (cron.Job, error) {
	return cron.Job{}, meant(id)
}

func (target) CronGet(_ context.Context, id string, _ gateway.Caller) (cron.Job, error) {
	return cron.Job{}, meant(id)
}

func (target) CronRuns(_ context.Context, f cron.RunFilter, _ gateway.Caller) (cron.RunPage, error) {
	return cron.RunPage{}, meant(f.JobID)
}

func (target) CronRun(_ context.Context, id string, _ cron.RunMode, _ gateway.Caller, _ *chat.IdempotencyKey) (runID, reason string, err error) {
	return "", "", meant(id)
}

func (target) CronCancel(_ context.Context, p cron.CancelParams, _ gateway.Caller) ([]string, error) {
	return nil, meant(p.JobID)
}

func (target) CronPreview(_ context.Context, id string, _ cron.Members, _ time.Time, _ int, _ gateway.Caller) (cron.Preview, error) {
	return cron.Preview{}, meant(id)
}

func (target) CronExplain(_ context.Context, p cron.ExplainParams, _ gateway.Caller) (cron.Explained, error) {
	return cron.Explained{}, meant(p.ID)
}

func (target) CronBackfill(_ context.Context, p cron.BackfillParams, _ gateway.Caller) ([]cron.BackfillFire, error) {
	return nil, meant(p.ID)
}

// Every method with a job as its target accepts it as id and as jobId: either, or both when they are equal.
func TestEveryCronMethodTakesEitherNameOfItsTarget(t *testing.T) {
	t.Parallel()
	h := newFakeBackend(t)
	b := serve(t, h, struct {
		*fakeBackend
		target
	}{h, target{}}, func(c *gateway.Config) { c.CronWritesPerMinute = -1 })
	s := b.login(adminToken)
	without := map[string]string{ // the answers to calls without a target; the other methods require it
		"cron.cancel":  "invalid cron.cancel params: must have either runId or id",
		"cron.preview": "invalid cron.preview params: must have id or schedule",
		"cron.runs":    `target ""`,
	}
	var tried []string
	for _, m := range b.srv.Methods() {
		if !strings.HasPrefix(m.Name, "cron.") || slices.Contains([]string{"cron.add", "cron.create", "cron.list", "cron.status"}, m.Name) {
			continue
		}
		tried = append(tried, m.Name)
		none, ok := without[m.Name]
		if !ok {
			none = "invalid " + m.Name + " params: must have required property 'id'"
		}
		for _, tc := range []struct {
			ids  params
			want string
		}{
			{params{"id": "one"}, `target "one"`},
			{params{"jobId": "one"}, `target "one"`},
			{params{"id": "one", "jobId": "one"}, `target "one"`},
			{params{"id": "one", "jobId": "two"}, "invalid " + m.Name + " params: at /jobId: must be the same as id, or absent"},
			{params{"id": "one", "jobId": 1}, "invalid " + m.Name + " params: at /jobId: must be string"},
			{params{"jobId": strings.Repeat("x", 129)}, "invalid " + m.Name + " params: at /jobId: must NOT have more than 128 characters"},
			{params{"jobId": ""}, "invalid " + m.Name + " params: at /jobId: must NOT have fewer than 1 characters"},
			{params{}, none},
		} {
			for _, f := range m.Params.Fields { // other required members of the method
				if v, ok := map[string]any{"patch": params{}, "note": "n", "enabled": false, "fromMs": 1, "toMs": 2}[f.Name]; ok && f.Required {
					tc.ids[f.Name] = v
				}
			}
			if f := s.call(m.Name, tc.ids); f.OK || f.Error.Message != tc.want {
				t.Errorf("%s %v: ok %v, %+v, want %q", m.Name, tc.ids, f.OK, f.Error, tc.want)
			}
		}
	}
	if len(tried) < 12 {
		t.Errorf("the table has only %v", tried)
	}
}
