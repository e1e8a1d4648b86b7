package cron

import "laneway/internal/cron/schedule"

// OverlapPolicy decides what a fire does while a run of the same job is active.
type OverlapPolicy string

// The overlap policies.
const (
	OverlapSkip           OverlapPolicy = "skip"            // the fire is recorded as skipped; the default
	OverlapConcurrent     OverlapPolicy = "concurrent"      // it runs concurrently, up to MaxConcurrent
	OverlapBufferOne      OverlapPolicy = "buffer_one"      // one fire waits for the end, further ones are skipped
	OverlapCancelPrevious OverlapPolicy = "cancel_previous" // the older runs are cancelled, this one runs
)

// MaxConcurrent bounds the active runs of one job under the policy concurrent.
const MaxConcurrent = 10

// Check refuses an unknown policy with an [*InvalidError]. Empty is skip.
func (p OverlapPolicy) Check() error {
	switch p {
	case "", OverlapSkip, OverlapConcurrent, OverlapBufferOne, OverlapCancelPrevious:
		return nil
	}
	return schedule.NewInvalid("overlap", schedule.InvalidChoice,
		"%s is not known; the policies are skip, concurrent, buffer_one and cancel_previous", schedule.Excerpt(string(p)))
}

// OverlapAction is the action for one fire.
type OverlapAction string

// The actions.
const (
	ActionRun     OverlapAction = "run"     // start it
	ActionSkip    OverlapAction = "skip"    // record it as skipped, with the reason
	ActionBuffer  OverlapAction = "buffer"  // hold it until the active run has ended
	ActionReplace OverlapAction = "replace" // cancel the earlier runs, reason replaced, and start it
)

// Decide decides about one fire of a job. active counts its runs that run, wait for a retry or wait for a lane; buffered counts the fires that this policy
// holds back. The reason is set for [ActionSkip] only. An unknown policy counts as skip.
func (p OverlapPolicy) Decide(active, buffered int) (OverlapAction, Reason) {
	if active+buffered == 0 {
		return ActionRun, ReasonNone
	}
	switch p {
	case OverlapConcurrent:
		if active+buffered < MaxConcurrent {
			return ActionRun, ReasonNone
		}
	case OverlapBufferOne:
		if buffered == 0 {
			return ActionBuffer, ReasonNone
		}
		return ActionSkip, ReasonBufferFull
	case OverlapCancelPrevious:
		return ActionReplace, ReasonNone
	case OverlapSkip:
	}
	return ActionSkip, ReasonOverlap
}
