package schedule

import (
	"time"
)

const (
	// MaxEvery is the longest interval, ten years of 365 days.
	MaxEvery = 315_360_000_000 * time.Millisecond

	fieldEvery  = "schedule.everyMs"
	fieldAnchor = "schedule.anchorMs"
	lastMilli   = lastSecond*1000 + 999
)

func compileEvery(s Spec) (Schedule, error) {
	if s.EveryMs < 1 || s.EveryMs > MaxEvery.Milliseconds() {
		return Schedule{}, NewInvalid(fieldEvery, InvalidRange, "%d is out of range 1-%d", s.EveryMs, MaxEvery.Milliseconds())
	}
	if s.AnchorMs < 0 || s.AnchorMs > latestAt().UnixMilli() {
		return Schedule{}, NewInvalid(fieldAnchor, InvalidRange, "%d is out of range 0-%d", s.AnchorMs, latestAt().UnixMilli())
	}
	return Schedule{spec: Spec{Kind: KindEvery, EveryMs: s.EveryMs, AnchorMs: s.AnchorMs}}, nil
}

// everyUntil counts the slots up to and including an instant. Instants are clamped to the representable years, so this cannot overflow.
func (s Schedule) everyUntil(at time.Time) int64 {
	ms := clampMilli(at)
	if ms < s.spec.AnchorMs {
		return 0
	}
	return (ms-s.spec.AnchorMs)/s.spec.EveryMs + 1
}

// nextEvery is slot k, where k slots have passed.
func (s Schedule) nextEvery(after time.Time) (int64, bool) {
	if after.Unix() > lastSecond {
		return 0, false
	}
	ms := s.spec.AnchorMs + s.everyUntil(after)*s.spec.EveryMs
	return ms, ms <= lastMilli
}

// clampMilli is the Unix time in milliseconds, rounded down.
func clampMilli(t time.Time) int64 {
	switch seconds := t.Unix(); {
	case seconds < 0:
		return -1
	case seconds > lastSecond:
		return lastMilli
	default:
		return t.UnixMilli()
	}
}
