package cron

import (
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

func readAt(text *string, ms *int64, tz string) (time.Time, error) {
	switch {
	case ms != nil:
		return schedule.AtFromMs(*ms)
	case text != nil:
		return schedule.ParseAt(*text, tz)
	}
	return time.Time{}, schedule.NewInvalid(schedule.FieldAt, schedule.InvalidMissing, "a moment is needed, such as 2027-03-02T08:00:00Z")
}

// finish checks the relations between members of the job.
func (b Border) finish(j Job, m Members) (Job, error) {
	_, newSchedule := m["schedule"]
	_, newDST := m["dst"]
	if err := required(j); err != nil {
		return j, err
	}
	if j.Schedule.Kind != schedule.KindCron && (j.Schedule.Gap != "" || j.Schedule.Fold != "") {
		return j, schedule.NewInvalid("dst", schedule.InvalidChoice, "rules for daylight saving belong to schedules of kind cron; kind %s follows absolute time", j.Schedule.Kind)
	}
	if newSchedule || newDST {
		s, err := schedule.Check(j.Schedule, b.Now, b.Rules)
		if err != nil {
			return j, err
		}
		if err := j.Timetable(s).Check(b.Now); err != nil {
			return j, err
		}
		if j.Schedule.Kind == schedule.KindCron {
			j.Schedule.Expr = strings.Join(strings.Fields(j.Schedule.Expr), " ")
		}
	} else if m["jitterMs"] != nil || m["startsAtMs"] != nil || m["endsAtMs"] != nil || m["maxRuns"] != nil {
		s, err := schedule.Compile(j.Schedule)
		if err != nil {
			return j, err
		}
		if err := j.Timetable(s).Check(b.Now); err != nil {
			return j, err
		}
	}
	if err := j.CheckSettings(); err != nil {
		return j, err
	}
	return j, j.checkPayload()
}

func required(j Job) error {
	for _, f := range []struct {
		name  string
		given bool
	}{{"name", j.Name != ""}, {"schedule", j.Schedule.Kind != ""}, {"sessionTarget", j.Session != ""}, {"payload", j.Payload.Kind != ""}} {
		if !f.given {
			return refuse("must have required property '%s'", f.name)
		}
	}
	return nil
}

func (j Job) checkPayload() error {
	if strings.ContainsRune(j.Payload.Text, 0) {
		return refuse("payload text must not contain U+0000")
	}
	if len(j.Payload.Text) > maxPayloadBytes {
		return chat.Errorf(chat.CodeLimit, "the text of the payload has %d bytes; the limit is %d", len(j.Payload.Text), maxPayloadBytes).
			With("field", "payload").With("limit", maxPayloadBytes)
	}
	switch j.Payload.Kind {
	case PayloadAgentTurn, PayloadScript:
		if strings.TrimSpace(j.Payload.Text) == "" {
			return refuse("the text of the payload must not be blank")
		}
	case PayloadSystemEvent:
		if strings.TrimSpace(j.Payload.Text) == "" {
			return refuse("the text of the payload must not be blank")
		}
		if j.Session == Isolated && !j.Reminds() {
			return refuse("a systemEvent needs the sessionTarget main, current or session:<key>, or the wakeMode next-heartbeat and a delivery to a channel")
		}
	case PayloadCommand:
		if !strings.Contains(string(j.Payload.Options), `"argv"`) {
			return refuse("payload.argv is needed")
		}
	}
	if (j.Payload.Kind == PayloadCommand || j.Payload.Kind == PayloadScript) && j.Session != Isolated {
		return refuse("payloads that run on the host need the sessionTarget isolated")
	}
	return nil
}

// PlanningMembers are the members of a job that decide when it fires.
func PlanningMembers() []string {
	return []string{"schedule", "dst", "startsAtMs", "endsAtMs", "maxRuns"}
}

// Planned reads the members that decide when a job fires, for a preview: into an existing job, as [Border.Apply] does, or into a zero one. The latter has no
// jitter, which depends on the id of the job. Its schedule may be in the past.
func (b Border) Planned(j Job, m Members) (Job, error) {
	for _, name := range PlanningMembers() {
		if raw, given := m[name]; given {
			if err := setters()[name](b, &j, raw, m); err != nil {
				return j, err
			}
		}
	}
	if j.ID == "" {
		j.JitterMs = 0
	}
	if j.Schedule.Kind == "" {
		return j, refuse("id or schedule is needed")
	}
	return j, nil
}
