package cron_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

// noon is the moment of the explanations: a Wednesday in winter.
var noon = time.Date(2026, 3, 25, 12, 0, 0, 0, time.UTC)

func clockOf(day, hour, minute int) time.Time {
	return time.Date(2026, 3, day, hour, minute, 0, 0, time.UTC)
}

// explained is the evidence about a job that fires each day at 09:00 UTC since 1 March.
func explained(t *testing.T, change func(e *cron.Evidence, j *cron.Job)) cron.Evidence {
	t.Helper()
	j := cron.Job{
		ID: "j", Name: "digest", Enabled: true, CreatedAt: clockOf(1, 0, 0), Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * *", TZ: "UTC"},
		State: cron.JobState{ActivatedAt: clockOf(1, 0, 0), Plan: cron.Plan{Next: clockOf(26, 9, 0)}},
	}
	e := cron.Evidence{Job: &j, Now: noon}
	change(&e, &j)
	if e.Job == nil {
		return e
	}
	s, err := schedule.Compile(j.Schedule)
	if err != nil {
		t.Fatal(err)
	}
	table := j.Timetable(s)
	e.Timetable = &table
	return e
}

// row is a row of the ledger for 25 March, 09:00.
func row(change func(r *cron.Run)) func(*cron.Evidence, *cron.Job) {
	return func(e *cron.Evidence, _ *cron.Job) {
		r := cron.Run{
			ID: "schedule:j:1", ScheduledFor: clockOf(25, 9, 0), FireAt: clockOf(25, 9, 0), ClaimedAt: clockOf(25, 9, 0), Trigger: cron.TriggerSchedule, SlotCount: 1,
			Lane: "cron",
		}
		change(&r)
		e.Rows = append(e.Rows, r)
	}
}

func ranAt(state cron.RunState) func(*cron.Run) {
	return func(r *cron.Run) {
		r.State, r.StartedAt, r.Duration, r.Attempt = state, clockOf(25, 9, 0).Add(6*time.Millisecond), 6200*time.Millisecond, 1
		r.Delivery = cron.DeliveryDone
	}
}

func TestEachAnswerAboutASlotIsOneSentenceWithItsFigures(t *testing.T) {
	t.Parallel()
	nine := clockOf(25, 9, 0)
	berlin, err := schedule.LoadZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	skipped := func(reason cron.Reason) func(*cron.Evidence, *cron.Job) {
		return row(func(r *cron.Run) { r.State, r.Reason = cron.RunSkipped, reason })
	}
	acts := map[string][]cron.Act{
		"paused": {cron.ActResume}, "switched off": {cron.ActResume}, "disabled": {cron.ActResume}, "it failed": {cron.ActRun}, "its process died": {cron.ActRun},
		"missed": {cron.ActBackfill, cron.ActEdit}, "missed by the policy": {cron.ActBackfill, cron.ActEdit}, "missed beyond the catch-up": {cron.ActBackfill, cron.ActEdit},
		"missed without its agent": {cron.ActBackfill}, "a row of an outage of seconds": {cron.ActBackfill}, "it waits": {cron.ActRuns},
		"overlap": {cron.ActEdit}, "buffer": {cron.ActEdit}, "a gap": {cron.ActEdit}, "invalid": {cron.ActEdit},
	}
	for name, c := range map[string]struct {
		at     time.Time
		change func(e *cron.Evidence, j *cron.Job)
		why    cron.Why
		text   string
	}{
		"it ran": {nine, row(ranAt(cron.RunOK)), cron.WhyRan, "It ran at 09:00:00, 6 ms late, for 6.2 s, and its answer was delivered."},
		"it ran by hand": {
			nine, row(func(r *cron.Run) { ranAt(cron.RunOK)(r); r.FireAt = time.Time{} }), cron.WhyRan,
			"It ran at 09:00:00, for 6.2 s, and its answer was delivered.",
		},
		"it ran and nothing arrived": {nine, row(func(r *cron.Run) {
			ranAt(cron.RunOK)(r)
			r.Delivery, r.DeliveryError, r.Attempt = cron.DeliveryNot, "the bot was blocked", 2
		}), cron.WhyRan, "It ran at 09:00:00, 6 ms late, for 6.2 s, in 2 attempts, and its answer was not delivered: the bot was blocked."},
		"it failed": {
			nine, row(func(r *cron.Run) { ranAt(cron.RunError)(r); r.Error = "the model refused the key" }), cron.WhyFailed,
			"It ran at 09:00:00, 6 ms late, for 6.2 s and failed: the model refused the key.",
		},
		"its process died": {
			nine, row(func(r *cron.Run) { ranAt(cron.RunInterrupted)(r); r.Error = "the gateway ended three times" }), cron.WhyInterrupted,
			"It ran at 09:00:00, 6 ms late, for 6.2 s, and its process ended before it did: the gateway ended three times.",
		},
		"it runs": {nine, row(func(r *cron.Run) { ranAt(cron.RunRunning)(r); r.Node = "gw-1" }), cron.WhyRunning, "It has been running since 09:00:00 (attempt 1) on gw-1."},
		"it retries": {nine, row(func(r *cron.Run) {
			ranAt(cron.RunRetrying)(r)
			r.Error, r.NextAttempt = "overloaded", clockOf(25, 12, 1)
		}), cron.WhyRetrying, "Attempt 1 failed (overloaded); the next one is at 12:01:00."},
		"it waits": {nine, row(func(r *cron.Run) { r.State = cron.RunQueued }), cron.WhyWaiting, "It was claimed at 09:00:00 and waits for its lane (cron) or its session."},
		"overlap":  {nine, skipped(cron.ReasonOverlap), cron.WhySkipped, "Another run of the job was active, and the job skips such slots."},
		"buffer":   {nine, skipped(cron.ReasonBufferFull), cron.WhySkipped, "A slot of the job waited already, and the job keeps one."},
		"budget":   {nine, skipped(cron.ReasonBudget), cron.WhySkipped, "The runs of the day, or a budget of tokens or money, were used up."},
		"a row of the pause": {clockOf(21, 9, 0), row(func(r *cron.Run) {
			r.State, r.Reason, r.ScheduledFor, r.SlotUntil, r.SlotCount = cron.RunSkipped, cron.ReasonPaused, clockOf(20, 9, 0), clockOf(24, 9, 0), 5
		}), cron.WhyPaused, "The job was paused (5 slots from Fri 20 Mar 09:00 to Tue 24 Mar 09:00)."},
		"a row of an outage of seconds": {nine, row(func(r *cron.Run) {
			r.State, r.Reason, r.SlotUntil, r.SlotCount = cron.RunMissed, cron.ReasonNoAgent, clockOf(25, 9, 0).Add(2*time.Second), 2
		}), cron.WhyMissed, "No replica had the agent of the job, until the slot was older than the catch-up window of the job (2 slots from 09:00:00 to 09:00:02)."},
		"paused": {
			nine, func(_ *cron.Evidence, j *cron.Job) {
				j.Pause = &cron.Pause{By: "ann", Note: "holidays", At: clockOf(24, 8, 0)}
			}, cron.WhyPaused,
			"The job has been paused since Tue 24 Mar 08:00 by ann (holidays).",
		},
		"missed": {nine, func(e *cron.Evidence, j *cron.Job) {
			row(func(r *cron.Run) {
				r.State, r.Reason, r.ClaimedAt = cron.RunMissed, cron.ReasonWindow, clockOf(25, 10, 21)
			})(e, j)
			e.Outages = []cron.Outage{{From: clockOf(25, 8, 58), Until: clockOf(25, 10, 21)}}
		}, cron.WhyMissed, "No replica fired jobs from 08:58:00 to 10:21:00. When one was back the slot was 1 h 21 min old, which is more than the catch-up window of the job."},
		"missed by the policy": {
			nine, row(func(r *cron.Run) { r.State, r.Reason = cron.RunMissed, cron.ReasonPolicy }), cron.WhyMissed,
			"No replica fired jobs then. When one was back the policy of the job ran a newer slot, or none.",
		},
		"missed without its agent": {
			nine, row(func(r *cron.Run) { r.State, r.Reason = cron.RunMissed, cron.ReasonNoAgent }), cron.WhyMissed,
			"No replica had the agent of the job, until the slot was older than the catch-up window of the job.",
		},
		"missed beyond the catch-up": {
			nine, row(func(r *cron.Run) { r.State, r.Reason = cron.RunMissed, cron.ReasonMaxCatchup }), cron.WhyMissed,
			"No replica fired jobs then. When one was back more slots had passed than the job catches up.",
		},
		"no replica": {nine, func(e *cron.Evidence, j *cron.Job) {
			e.Outages, j.State.Next = []cron.Outage{{From: clockOf(25, 8, 58)}}, nine
		}, cron.WhyNoReplica, "No replica has fired jobs since Wed 25 Mar 08:58."},
		"held": {nine, func(e *cron.Evidence, j *cron.Job) { e.Held, j.State.Next = true, nine }, cron.WhyHeld, "The gateway is held, so no job starts."},
		"stopped": {nine, row(func(r *cron.Run) {
			r.State, r.Reason, r.Error = cron.RunCancelled, cron.ReasonStopped, "ann wanted quiet"
		}), cron.WhyCancelled, "It was stopped: ann wanted quiet."},
		"replaced":  {nine, row(func(r *cron.Run) { r.State, r.Reason = cron.RunCancelled, cron.ReasonReplaced }), cron.WhyCancelled, "A newer run of the job took its place."},
		"its end":   {nine, row(func(r *cron.Run) { r.State, r.Reason = cron.RunCancelled, cron.ReasonRemoved }), cron.WhyCancelled, "The job was removed while the run waited or ran."},
		"removed":   {nine, func(e *cron.Evidence, _ *cron.Job) { e.Job = nil }, cron.WhyRemoved, "The job was removed, and the ledger has no slot at that time."},
		"invalid":   {nine, func(_ *cron.Evidence, j *cron.Job) { j.Invalid = "the zone Mars/Base is not known" }, cron.WhyInvalid, "The stored job cannot be understood: the zone Mars/Base is not known."},
		"too early": {clockOf(1, 9, 0).AddDate(0, 0, -1), func(*cron.Evidence, *cron.Job) {}, cron.WhyMadeLater, "The job was made at Sun 1 Mar 00:00. The next slot is Thu 26 Mar 09:00."},
		"the start of an interval": {clockOf(25, 9, 30), func(_ *cron.Evidence, j *cron.Job) {
			j.Schedule, j.CreatedAt = schedule.Spec{Kind: schedule.KindEvery, EveryMs: 3_600_000, AnchorMs: clockOf(25, 9, 30).UnixMilli()}, clockOf(25, 9, 30)
		}, cron.WhyMadeLater, "The job was made at Wed 25 Mar 09:30. The next slot is Wed 25 Mar 12:30."},
		"the start of a new interval": {clockOf(25, 9, 30), func(_ *cron.Evidence, j *cron.Job) {
			j.Schedule, j.State.ActivatedAt = schedule.Spec{Kind: schedule.KindEvery, EveryMs: 3_600_000, AnchorMs: clockOf(25, 9, 30).UnixMilli()}, clockOf(25, 9, 30)
		}, cron.WhyMadeLater, "The schedule is in force since Wed 25 Mar 09:30."},
		"no slot": {
			clockOf(25, 10, 0), func(*cron.Evidence, *cron.Job) {}, cron.WhyUnplanned,
			"The schedule has no slot at this time. The nearest slots are Wed 25 Mar 09:00 and Thu 26 Mar 09:00.",
		},
		"another schedule": {clockOf(24, 10, 0), func(e *cron.Evidence, j *cron.Job) {
			j.State.ActivatedAt, e.Changes = clockOf(24, 16, 10), []cron.JobChange{{At: clockOf(24, 16, 10), Who: "ann", Verb: "cron.update"}}
		}, cron.WhyChanged, "The present schedule has no slot at this time; it was changed at Tue 24 Mar 16:10 by ann."},
		"a gap": {time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC), func(e *cron.Evidence, j *cron.Job) {
			j.Schedule = schedule.Spec{Kind: schedule.KindCron, Expr: "30 2 * * *", TZ: "Europe/Berlin", Gap: schedule.GapSkip}
			e.Now = noon.AddDate(0, 0, 7)
			e.Zone = berlin
		}, cron.WhyClock, "The clock went forward at Sun 29 Mar 03:00 and the wall time did not exist; the job skips such slots. " +
			"The nearest slots are Sat 28 Mar 02:30 and Mon 30 Mar 02:30."},
		"disabled": {nine, func(e *cron.Evidence, j *cron.Job) {
			j.Enabled, e.Changes = false, []cron.JobChange{{At: clockOf(25, 9, 30), Who: "bob", Verb: "cron.update"}}
		}, cron.WhyDisabled, "The job is disabled, last changed at Wed 25 Mar 09:30 by bob."},
		"switched off": {nine, func(_ *cron.Evidence, j *cron.Job) {
			j.Enabled, j.AutoDisabled, j.State.ConsecutiveErrors, j.State.LastError = false, true, 10, "the model refused the key"
		}, cron.WhyDisabled, "The job was switched off after 10 failures in a row: the model refused the key."},
		"after its end": {nine, func(_ *cron.Evidence, j *cron.Job) { j.EndsAt = clockOf(20, 0, 0) }, cron.WhyEnded, "The job ended at Fri 20 Mar 00:00."},
		"beyond its end": {
			clockOf(28, 9, 0), func(_ *cron.Evidence, j *cron.Job) { j.EndsAt = clockOf(27, 0, 0) }, cron.WhyEnded,
			"The job ends at Fri 27 Mar 00:00.",
		},
		"all its runs": {nine, func(_ *cron.Evidence, j *cron.Job) { j.MaxRuns, j.State.Fired, j.Enabled = 3, 3, false }, cron.WhyEnded, "The job has had its 3 runs."},
		"forgotten":    {clockOf(2, 9, 0), func(e *cron.Evidence, _ *cron.Job) { e.Kept = clockOf(10, 0, 0) }, cron.WhyForgotten, "The ledger keeps its rows since Tue 10 Mar 00:00 only."},
		"kept and without a row": {
			clockOf(11, 9, 0), func(e *cron.Evidence, _ *cron.Job) { e.Kept = clockOf(10, 0, 0) }, cron.WhyUnknown,
			"The ledger has no row for this slot, and nothing explains it.",
		},
		"coming": {clockOf(26, 9, 0), func(*cron.Evidence, *cron.Job) {}, cron.WhyNotDue, "It is due in 21 h."},
		"due now": {clockOf(25, 12, 0), func(_ *cron.Evidence, j *cron.Job) {
			j.Schedule.Expr, j.State.Next = "0 12 * * *", clockOf(25, 12, 0)
		}, cron.WhyWaiting, "It has been due for 0 ms and is not claimed yet."},
		"nothing explains it": {nine, func(*cron.Evidence, *cron.Job) {}, cron.WhyUnknown, "The ledger has no row for this slot, and nothing explains it."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := cron.Explain(c.at, explained(t, c.change))
			if x.Why != c.why || x.Text != c.text {
				t.Errorf("got  %s: %s\nwant %s: %s", x.Why, x.Text, c.why, c.text)
			}
			if want := acts[name]; !slices.Equal(x.Cure.Acts, want) || len(want) > 0 && !strings.Contains(x.Cure.Text, "laneway ") {
				t.Errorf("the cure %q offers %q, want %q and a command", x.Cure.Text, x.Cure.Acts, want)
			}
		})
	}
}

func TestCuresNameTheJobAsAShellNeedsIt(t *testing.T) {
	t.Parallel()
	nine := clockOf(25, 9, 0)
	missed := row(func(r *cron.Run) {
		r.State, r.Reason, r.ClaimedAt = cron.RunMissed, cron.ReasonWindow, clockOf(25, 11, 21)
	})
	for name, c := range map[string]struct {
		change func(e *cron.Evidence, j *cron.Job)
		want   string
	}{
		"a word":       {func(_ *cron.Evidence, j *cron.Job) { j.Pause = &cron.Pause{At: clockOf(24, 8, 0)} }, "laneway cron resume digest"},
		"a sentence":   {func(_ *cron.Evidence, j *cron.Job) { j.Name, j.Enabled = "ann's tea", false }, `laneway cron edit 'ann'\''s tea' '{"enabled":true}'`},
		"like a flag":  {func(_ *cron.Evidence, j *cron.Job) { j.Name, j.Pause = "--all", &cron.Pause{At: clockOf(24, 8, 0)} }, "laneway cron resume j"},
		"a name twice": {func(e *cron.Evidence, j *cron.Job) { e.Ref, j.Pause = "j", &cron.Pause{At: clockOf(24, 8, 0)} }, "laneway cron resume j"},
		"missed": {
			missed, "run the slot: laneway cron backfill digest --from 2026-03-25T09:00:00.000Z --to 2026-03-25T09:00:01.000Z; or make the window longer: laneway cron edit digest --missed-window 3h",
		},
		"many missed": {row(func(r *cron.Run) {
			r.State, r.Reason, r.SlotCount, r.SlotUntil = cron.RunMissed, cron.ReasonMaxCatchup, 5, clockOf(25, 13, 0)
		}), "--to 2026-03-25T13:00:01.000Z; or catch up with more slots: laneway cron edit digest --missed-most 15"},
		"removed": {func(e *cron.Evidence, j *cron.Job) { row(ranAt(cron.RunError))(e, j); e.Job = nil }, ""},
	} {
		if cure := cron.Explain(nine, explained(t, c.change)).Cure; !strings.Contains(cure.Text, c.want) || c.want == "" && cure.Text != "" {
			t.Errorf("%s: the cure is %q, want %q", name, cure.Text, c.want)
		}
	}
}

func TestSentencesOfSecondsShowSeconds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec schedule.Spec
		want string
	}{
		"an expression": {schedule.Spec{Kind: schedule.KindCron, Expr: "*/20 0 9 * * *", TZ: "UTC"}, "The nearest slots are Wed 25 Mar 09:00:40 and Thu 26 Mar 09:00:00."},
		"an interval":   {schedule.Spec{Kind: schedule.KindEvery, EveryMs: 90_000, AnchorMs: clockOf(25, 9, 59).UnixMilli()}, "The nearest slots are Wed 25 Mar 10:59:00 and Wed 25 Mar 11:00:30."},
		"of minutes":    {schedule.Spec{Kind: schedule.KindCron, Expr: "0 0 9 * * *", TZ: "UTC"}, "The nearest slots are Wed 25 Mar 09:00 and Thu 26 Mar 09:00."},
	} {
		x := cron.Explain(clockOf(25, 11, 0).Add(5*time.Second), explained(t, func(_ *cron.Evidence, j *cron.Job) { j.Schedule = c.spec }))
		if !strings.HasSuffix(x.Text, c.want) {
			t.Errorf("%s: got %q, want %q", name, x.Text, c.want)
		}
	}
}

func TestARowOfItsOwnIsSaidBeforeOneByHandAndOneForManySlots(t *testing.T) {
	t.Parallel()
	e := explained(t, func(e *cron.Evidence, j *cron.Job) {
		row(func(r *cron.Run) {
			r.ID, r.State, r.SlotCount, r.SlotUntil = "many", cron.RunMissed, 9, clockOf(25, 10, 0)
		})(e, j)
		row(func(r *cron.Run) { r.ID, r.State, r.Trigger = "hand", cron.RunOK, cron.TriggerManual })(e, j)
		row(func(r *cron.Run) { r.ID, r.State = "own", cron.RunError })(e, j)
	})
	for _, want := range []string{"own", "hand", "many"} {
		if got := cron.Explain(clockOf(25, 9, 0), e).RunID; got != want {
			t.Errorf("the row %q explains the slot, want %q", got, want)
		}
		e.Rows = e.Rows[:len(e.Rows)-1]
	}
}

func TestTheNewestSlotOfAJobThatHadNoneIsTheNextOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		made, want time.Time
	}{
		"a slot has passed": {clockOf(1, 0, 0), clockOf(25, 9, 0)},
		"no slot passed":    {clockOf(25, 10, 0), clockOf(26, 9, 0)},
		"made at a slot":    {clockOf(25, 9, 0), clockOf(26, 9, 0)},
	} {
		e := explained(t, func(_ *cron.Evidence, j *cron.Job) { j.CreatedAt = c.made })
		if got := e.Newest(); !got.Equal(c.want) {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func ExampleTimetable_Decide() {
	s, err := schedule.Compile(schedule.Spec{Kind: schedule.KindCron, Expr: "0 * * * *", TZ: "UTC"})
	if err != nil {
		fmt.Println(err)
		return
	}
	planned := time.Date(2027, 3, 26, 9, 0, 0, 0, time.UTC)
	d := cron.Timetable{Schedule: s, JobID: "digest"}.Decide(cron.DueSlot{
		Planned: planned,
		Now:     planned.Add(3*time.Hour + 10*time.Minute),
	})
	for _, r := range d.Runs {
		fmt.Println("run", r.Slot.Format("15:04"), r.Trigger, r.Late)
	}
	for _, m := range d.Missed {
		fmt.Println("missed", m.Count, m.Reason)
	}
	fmt.Println("next", d.Next.Slot.Format("15:04"))
	// Output:
	// run 12:00 catchup 10m0s
	// missed 3 window
	// next 13:00
}
