package cron

import (
	"time"

	"laneway/internal/cron/schedule"
)

// MissedRule decides which of the slots that passed while no process could fire still run.
type MissedRule string

// The rules for missed slots.
const (
	MissedSkip     MissedRule = "skip"      // no slot
	MissedFireOnce MissedRule = "fire_once" // the newest inside the window; the default
	MissedFireAll  MissedRule = "fire_all"  // the newest MaxCatchup inside the window, oldest first
)

// Bounds and defaults of a [MissedPolicy].
const (
	DefaultMaxCatchup = 10
	MaxMaxCatchup     = 100
	DefaultWindow     = time.Hour
	MaxWindow         = 30 * 24 * time.Hour
)

// Special values of [MissedPolicy.Window].
const (
	NoWindow    time.Duration = -1 // no slot is too old
	EmptyWindow time.Duration = 1  // every missed slot is too old; the meaning of zero seconds on the wire
)

// MissedPolicy is the rule with its numbers. The zero value means the defaults.
type MissedPolicy struct {
	Rule MissedRule // "" is fire_once
	// MaxCatchup bounds fire_all, 1 to 100. 0 means 10.
	MaxCatchup int
	// Window is the maximum age of a slot that still runs, up to 30 days. 0 is the default: no limit for an at, an hour otherwise. See [NoWindow],
	// [EmptyWindow].
	Window time.Duration
}

// For fills in the defaults for a kind of schedule. An at has only one slot, which always runs, so skip does not apply to it.
func (p MissedPolicy) For(k schedule.Kind) MissedPolicy {
	if p.Rule == "" || (k == schedule.KindAt && p.Rule == MissedSkip) {
		p.Rule = MissedFireOnce
	}
	if p.MaxCatchup == 0 {
		p.MaxCatchup = DefaultMaxCatchup
	}
	if p.Window == 0 {
		p.Window = DefaultWindow
		if k == schedule.KindAt {
			p.Window = NoWindow
		}
	}
	return p
}

// Check refuses an unknown rule and numbers out of bounds with an [*InvalidError].
func (p MissedPolicy) Check() error {
	switch p.Rule {
	case "", MissedSkip, MissedFireOnce, MissedFireAll:
	default:
		return schedule.NewInvalid("missed.policy", schedule.InvalidChoice, "%s is not known; the policies are skip, fire_once and fire_all", schedule.Excerpt(string(p.Rule)))
	}
	if p.MaxCatchup < 0 || p.MaxCatchup > MaxMaxCatchup {
		return schedule.NewInvalid("missed.maxCatchup", schedule.InvalidRange, "%d is out of range 1-%d", p.MaxCatchup, MaxMaxCatchup)
	}
	if p.Window != NoWindow && (p.Window < 0 || p.Window > MaxWindow) {
		return schedule.NewInvalid("missed.windowSeconds", schedule.InvalidRange, "%d is out of range 0-%d", int64(p.Window/time.Second), int64(MaxWindow/time.Second))
	}
	return nil
}
