package gateway_test

import (
	"context"
	"testing"

	"laneway/internal/cron"
	"laneway/internal/gateway"
)

// filler is a backend whose backfills need as many mebibytes as MaxRuns.
type filler struct{ target }

func (filler) CronBackfill(_ context.Context, p cron.BackfillParams, _ gateway.Caller) ([]cron.BackfillFire, error) {
	return nil, p.Spend(p.MaxRuns << 20)
}

// A backfill of a job with a long text stores many times the bytes of its params.
func TestABackfillTakesTheBytesOfItsRunsFromTheAllowance(t *testing.T) {
	t.Parallel()
	h := newFakeBackend(t)
	b := serve(t, h, struct {
		*fakeBackend
		filler
	}{h, filler{}})
	s := b.login(annaToken)
	backfill := func(mebibytes int) *frameError {
		t.Helper()
		return s.call("cron.backfill", params{"id": "job", "fromMs": 1, "toMs": 2, "maxRuns": mebibytes}).Error
	}
	if e := backfill(15); e != nil {
		t.Errorf("15 MiB of 16: %+v", e)
	}
	if e := backfill(15); e == nil || e.Details["allowance"] != "bytes" || !e.Retryable {
		t.Errorf("15 MiB more: %+v", e)
	}
	other := b.login(ottoToken)
	if e := other.call("cron.backfill", params{"id": "job", "fromMs": 1, "toMs": 2, "maxRuns": 100}).Error; e == nil || e.Details["allowance"] != "bytes" {
		t.Errorf("more than a minute's allowance in one call: %+v", e)
	}
}
