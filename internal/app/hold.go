package app

import (
	"context"
	"errors"
	"fmt"

	"laneway/internal/config"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// SetHold holds every gateway on the configured store. Each gateway applies it at its next heartbeat. by says who requested it, and from
// where.
func SetHold(ctx context.Context, cfg config.Config, reason, by string) error {
	return withHold(ctx, cfg, func(s commandStore) error {
		return s.SetHold(ctx, &store.Hold{Who: by, Reason: reason}, store.ChangedBy{Who: "cli", Peer: by})
	})
}

// Released describes the work that starts with a release.
type Released struct { //nolint:recvcheck // add changes it, the others only read it
	// Hold is nil when the gateway is not held.
	Hold *store.Hold
	// Outgoing counts messages that are sent, Unfinished those whose turns run.
	Outgoing, Unfinished int
	// Jobs counts jobs with due slots. Runs of them run; Missed are recorded without a run, by the policy of each job.
	Jobs, Runs, Missed int
}

// Sentence describes it for people.
func (r Released) Sentence() string {
	return fmt.Sprintf("%d outgoing messages are sent, %d unfinished messages run, and of %d jobs that are due %d slots run and %d are recorded as missed",
		r.Outgoing, r.Unfinished, r.Jobs, r.Runs, r.Missed)
}

// WhatIsHeld returns the work that a release would start now.
func WhatIsHeld(ctx context.Context, cfg config.Config) (r Released, err error) {
	err = withHold(ctx, cfg, func(s commandStore) error {
		if r.Hold, err = s.Hold(ctx); err != nil || r.Hold == nil {
			return err
		}
		w, err := s.Held(ctx)
		r.Outgoing, r.Unfinished = w.Outgoing, w.Unfinished
		for _, j := range w.Due {
			r.add(j, w)
		}
		return err
	})
	return r, err
}

// add counts the slots of a job. An invalid job runs nothing.
func (r *Released) add(j cron.Job, w store.HeldWork) {
	compiled, err := schedule.Compile(j.Schedule)
	if err != nil || j.Pause != nil {
		return
	}
	t := j.Timetable(compiled)
	d := t.Decide(j.Claim(t, w.Now))
	r.Jobs++
	r.Runs += len(d.Runs)
	for _, span := range d.Missed {
		r.Missed += int(span.Count)
	}
}

// ReleaseHold ends the hold. by is as in [SetHold].
func ReleaseHold(ctx context.Context, cfg config.Config, by string) error {
	return withHold(ctx, cfg, func(s commandStore) error {
		return s.SetHold(ctx, nil, store.ChangedBy{Who: "cli", Peer: by})
	})
}

func withHold(ctx context.Context, cfg config.Config, do func(commandStore) error) error {
	s, err := openCommandStore(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}
