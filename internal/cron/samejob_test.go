package cron

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEachMemberOfAJobIsCompared checks that an end writes the counters alone only when nothing else differs.
func TestEachMemberOfAJobIsCompared(t *testing.T) {
	t.Parallel()
	counters := map[string]bool{}
	for name := range strings.FieldsSeq("RunCount ErrorCount LastRunAt LastState LastError LastErrorClass LastDuration LastDelivery LastDeliveryError " +
		"LastAlertAt ConsecutiveErrors ConsecutiveSkipped Queued RunningAt") {
		counters["State."+name] = true
	}
	pause := func() Job { return Job{Pause: &Pause{}} }
	members := 0
	walkMembers(reflect.TypeFor[Job](), "", nil, func(name string, index []int) {
		members++
		a, b := pause(), pause()
		v := reflect.ValueOf(&b).Elem()
		for _, i := range index {
			if v.Kind() == reflect.Pointer {
				v = v.Elem()
			}
			v = v.Field(i)
		}
		v.Set(anotherValue(t, v.Type()))
		if same := SameBesidesCounters(&a, &b); same != counters[name] {
			t.Errorf("jobs that differ in %s are the same: %v", name, same)
		}
	})
	a, b := pause(), Job{}
	if members < 70 || SameBesidesCounters(&a, &b) || SameBesidesCounters(&b, &a) || !SameBesidesCounters(&a, &a) {
		t.Errorf("%d members were compared; a job with a pause and one without are the same", members)
	}
}

// walkMembers calls f for each member of a struct and of the structs in it.
func walkMembers(of reflect.Type, prefix string, at []int, f func(name string, index []int)) {
	for i := range of.NumField() {
		m := of.Field(i)
		inner, index := m.Type, append(slices.Clip(at), i)
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]() {
			walkMembers(inner, prefix+m.Name+".", index, f)
			continue
		}
		f(prefix+m.Name, index)
	}
}

func anotherValue(t *testing.T, of reflect.Type) reflect.Value {
	t.Helper()
	v := reflect.New(of).Elem()
	switch {
	case of == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.UnixMilli(1).UTC()))
	case v.CanInt():
		v.SetInt(int64(time.Second))
	case of.Kind() == reflect.String:
		v.SetString("x")
	case of.Kind() == reflect.Bool:
		v.SetBool(true)
	case of == reflect.TypeFor[[]byte]():
		v.SetBytes([]byte("x"))
	default:
		t.Fatalf("a member has the type %s: add it", of)
	}
	return v
}
