package postgres

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"laneway/internal/cron"
)

// TestEveryMemberOfAJobCounts: a change of any member is noticed, except those that the end of a run usually changes.
func TestEveryMemberOfAJobCounts(t *testing.T) {
	t.Parallel()
	usual := map[string]bool{
		"State.RunCount": true, "State.ErrorCount": true, "State.RunningAt": true, "State.LastRunAt": true, "State.LastState": true, "State.LastError": true,
		"State.LastErrorClass": true, "State.LastDuration": true, "State.LastDelivery": true, "State.LastDeliveryError": true, "State.LastAlertAt": true,
		"State.ConsecutiveErrors": true, "State.ConsecutiveSkipped": true, "State.Queued": true,
	}
	checked := 0
	var walk func(path string, v reflect.Value, old *storedJob, next *cron.Job)
	walk = func(path string, v reflect.Value, old *storedJob, next *cron.Job) {
		if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
			for i := range v.NumField() {
				walk(strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), v.Field(i), old, next)
			}
			return
		}
		before := reflect.New(v.Type()).Elem()
		before.Set(v)
		alter(t, path, v)
		if got := usualChange(old, next); got != usual[path] {
			t.Errorf("a change of %s: got usual=%v", path, got)
		}
		v.Set(before)
		checked++
	}
	next := cron.Job{ID: "j"}
	walk("", reflect.ValueOf(&next).Elem(), &storedJob{Job: cron.Job{ID: "j"}}, &next)
	paused := cron.Job{Pause: &cron.Pause{}}
	walk("Pause", reflect.ValueOf(paused.Pause).Elem(), &storedJob{Job: cron.Job{Pause: &cron.Pause{}}}, &paused)
	if checked < 60 {
		t.Fatalf("only %d members were changed", checked)
	}
	if !usualChange(&storedJob{Job: next}, &next) || usualChange(&storedJob{Job: next, broken: "why"}, &next) {
		t.Error("the same job is no usual change, or a broken one is")
	}
}

// alter gives a member another value.
func alter(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Slice:
		v.Set(reflect.ValueOf([]byte("x")))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		v.Set(reflect.ValueOf(time.UnixMilli(5)))
	default:
		t.Fatalf("%s is a %s, which this test cannot change", path, v.Type())
	}
}
