package cron

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/cron/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at reads an instant for a test.
func at(tb testing.TB, text string) time.Time {
	tb.Helper()
	got, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		tb.Fatalf("test instant: %v", err)
	}
	return got
}

func mustCompile(tb testing.TB, s schedule.Spec) schedule.Schedule {
	tb.Helper()
	sched, err := schedule.Compile(s)
	if err != nil {
		tb.Fatalf("Compile(%+v): %v", s, err)
	}
	return sched
}

func cronSpec(expr, tz string) schedule.Spec {
	return schedule.Spec{Kind: schedule.KindCron, Expr: expr, TZ: tz}
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func refused(t *testing.T, name string, err error, field string, reason schedule.InvalidReason, sentence string) {
	t.Helper()
	var got *schedule.InvalidError
	if !errors.As(err, &got) || !errors.Is(err, schedule.ErrInvalid) {
		t.Errorf("%s: err = %v, want an InvalidError", name, err)
		return
	}
	if got.Field != field || got.Reason != reason || !strings.Contains(got.Error(), sentence) {
		t.Errorf("%s: %s (field %s, reason %s), want %q in it (field %s, reason %s)",
			name, got, got.Field, got.Reason, sentence, field, reason)
	}
}

func wantFires(t *testing.T, name string, got []schedule.Fire, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d fires %v, want %v", name, len(got), got, want)
		return
	}
	for i, w := range want {
		if !got[i].Slot.Equal(at(t, w)) {
			t.Errorf("%s: fire %d at %s, want %s", name, i, got[i].Slot, w)
		}
	}
}
