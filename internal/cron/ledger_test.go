package cron

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

// ledgerRun is a run with one ended attempt and, if it runs, an open second one.
func ledgerRun(state RunState) Run {
	r := Run{
		ID: "schedule:j:1", JobID: "j", State: state, Attempt: 1, StartedAt: noon, Node: "n1",
		Attempts: []Attempt{{Number: 1, State: AttemptError, StartedAt: noon, FinishedAt: noon.Add(time.Second), Error: "first", Node: "n1"}},
	}
	switch state {
	case RunRunning:
		r.Attempt, r.Attempts = 2, append(r.Attempts, Attempt{Number: 2, StartedAt: noon.Add(2 * time.Second), Node: "n1"})
	case RunRetrying:
		r.NextAttempt, r.Error = noon.Add(time.Minute), "first"
	default: // the others are as they are
	}
	return r
}

func TestCancellationDependsOnWhereTheRunStands(t *testing.T) {
	t.Parallel()
	now := noon.Add(time.Hour)
	for name, tt := range map[string]struct {
		state      RunState
		reason     Reason
		note       string
		want       RunState
		wantReason Reason
		wantError  string
	}{
		"a run that waits ends":                              {RunQueued, ReasonRemoved, "no more", RunCancelled, ReasonRemoved, "no more"},
		"a run that retries ends with the note":              {RunRetrying, ReasonStopped, "no more", RunCancelled, ReasonStopped, "no more"},
		"without a note it keeps the error of its attempt":   {RunRetrying, "", "", RunCancelled, ReasonStopped, "first"},
		"a run that runs is asked to stop and keeps the why": {RunRunning, ReasonReplaced, "newer", RunRunning, ReasonReplaced, "newer"},
	} {
		r, ok := ledgerRun(tt.state).Cancel(tt.reason, tt.note, now)
		if !ok || r.State != tt.want || r.Reason != tt.wantReason || r.Error != tt.wantError {
			t.Errorf("%s: %t %s %q %q", name, ok, r.State, r.Reason, r.Error)
		}
		if r.State.Final() != r.FinishedAt.Equal(now) || !r.NextAttempt.IsZero() {
			t.Errorf("%s: finished at %s, next at %s", name, r.FinishedAt, r.NextAttempt)
		}
	}
}

func TestEndOfAnAttemptKeepsWhatTheCancellationSaid(t *testing.T) {
	t.Parallel()
	now := noon.Add(time.Hour)
	for name, tt := range map[string]struct {
		reason    Reason
		note      string
		end       AttemptEnd
		state     RunState
		why       Reason
		wantError string
	}{
		"its reason and its note":                       {ReasonReplaced, "newer", AttemptEnd{State: RunCancelled, Reason: ReasonStopped, Error: "stopped"}, RunCancelled, ReasonReplaced, "newer"},
		"the error of the end where it gave no note":    {ReasonReplaced, "", AttemptEnd{State: RunCancelled, Error: "stopped"}, RunCancelled, ReasonReplaced, "stopped"},
		"of a stop from elsewhere the end says it":      {"", "", AttemptEnd{State: RunCancelled, Reason: ReasonRemoved, Error: "stopped"}, RunCancelled, ReasonRemoved, "stopped"},
		"nothing of it when the turn has ended before":  {ReasonStopped, "note", AttemptEnd{State: RunOK}, RunOK, "", ""},
		"a failure that came first is that of the turn": {ReasonStopped, "note", AttemptEnd{State: RunError, Error: "broken"}, RunError, "", "broken"},
	} {
		r := ledgerRun(RunRunning)
		if tt.reason != "" {
			r, _ = r.Cancel(tt.reason, tt.note, now)
		}
		r, ok := r.Ended(&tt.end, "n2", now)
		if !ok || r.State != tt.state || r.Reason != tt.why || r.Error != tt.wantError || r.Node != "n2" {
			t.Errorf("%s: %t %s %q %q %s", name, ok, r.State, r.Reason, r.Error, r.Node)
		}
	}
}

func TestEndOfAnAttemptCompletesTheOpenOne(t *testing.T) {
	t.Parallel()
	now := noon.Add(time.Minute)
	r, ok := ledgerRun(RunRunning).Ended(&AttemptEnd{
		State: RunRetrying, NextAttempt: now.Add(1500 * time.Microsecond), Error: "a\x00b", ErrorClass: "overloaded", Summary: "partial\x00",
		Attempt: Attempt{Number: 7, State: AttemptError, Error: "a"}, Usage: chat.Usage{InputTokens: 3, OutputTokens: 4, Model: "m"},
		Delivery: DeliveryNot, DeliveryError: "no chat",
	}, "n2", now)
	want := ledgerRun(RunRunning)
	want.State, want.NextAttempt, want.Error, want.ErrorClass, want.Summary = RunRetrying, now.Add(time.Millisecond), "ab", "overloaded", "partial"
	want.Attempts[1] = Attempt{Number: 2, State: AttemptError, StartedAt: noon.Add(2 * time.Second), FinishedAt: now, Error: "a", Node: "n2"}
	want.InputTokens, want.OutputTokens, want.Model, want.Node, want.Delivery, want.DeliveryError = 3, 4, "m", "n2", DeliveryNot, "no chat"
	if !ok || !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v\nwant %+v", r, want)
	}
	if again, ok := r.Ended(&AttemptEnd{State: RunOK}, "n2", now); ok || !reflect.DeepEqual(again, r) {
		t.Errorf("the end of an attempt that has ended makes %+v", again)
	}
}

func TestMessageThatEndsWithoutRunningEndsItsRun(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[chat.Outcome]struct {
		state  RunState
		reason Reason
		err    string
	}{
		chat.OutcomeDead:        {RunInterrupted, "", "why"},
		chat.OutcomeInterrupted: {RunInterrupted, "", "why"},
		chat.OutcomeFailed:      {RunError, "", "why"},
		chat.OutcomeStopped:     {RunCancelled, ReasonStopped, ""},
		chat.OutcomeStale:       {RunCancelled, ReasonStopped, ""},
		chat.OutcomeDropped:     {RunCancelled, ReasonStopped, ""},
	} {
		r, ok := ledgerRun(RunQueued).EndedWaiting(outcome, "why", noon.Add(time.Hour))
		if !ok || r.State != want.state || r.Reason != want.reason || r.Error != want.err || r.Duration != time.Hour {
			t.Errorf("%s: %t %s %q %q %s", outcome, ok, r.State, r.Reason, r.Error, r.Duration)
		}
	}
}

func TestRetryIsTheLastMessageUnderAnotherName(t *testing.T) {
	t.Parallel()
	last := chat.Message{ID: "schedule:j:1", Lane: "cron", ParamsHash: "h", Content: chat.Content{Text: "work"}}
	r, m := ledgerRun(RunRetrying).Retried("n2", last)
	last.ID = "schedule:j:1/2"
	if r.State != RunQueued || !r.NextAttempt.IsZero() || r.Node != "n2" || !reflect.DeepEqual(m, last) {
		t.Errorf("%+v, %+v", r, m)
	}
	if got := RunOfMessage(m.ID); got != r.ID {
		t.Errorf("the message is of run %q", got)
	}
	if got := RunOfMessage("0198-msg"); got != "" {
		t.Errorf("a message of a chat is of run %q", got)
	}
}

func TestACloneOfAJobSharesNothingWithIt(t *testing.T) {
	t.Parallel()
	full := func() Job {
		return Job{
			ID: "j", Pause: &Pause{Note: "away"}, Payload: Payload{Options: []byte("{}")}, Delivery: Delivery{Options: []byte("{}")},
			Alert: Alert{Delivery: Delivery{Options: []byte("{}")}},
		}
	}
	j := full()
	c := j.Clone()
	if !reflect.DeepEqual(c, j) {
		t.Fatalf("got %+v, want %+v", c, j)
	}
	c.Pause.Note = "back"
	for _, options := range [][]byte{c.Payload.Options, c.Delivery.Options, c.Alert.Delivery.Options} {
		options[0] = 'x'
	}
	if !reflect.DeepEqual(j, full()) {
		t.Errorf("a change of the copy made %+v", j)
	}
}

// TestLedgerHoldsInEveryHistory creates random histories of a run and checks the invariants of
// every row.
func TestLedgerHoldsInEveryHistory(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(7, 83))
	reached := map[RunState]int{}
	for range 3000 {
		now := noon
		r := Run{ID: "schedule:j:1", ScheduledFor: noon}.Launched("n1", chat.SessionKey{Agent: "main", Rest: "cron:j"}, now)
		for range 12 {
			now = now.Add(time.Duration(dice.IntN(5000)) * time.Millisecond)
			before := r
			next, changed := randomEvent(dice, r, now)
			if before.State.Final() && (changed || !reflect.DeepEqual(next, before)) {
				t.Fatalf("a run that has ended was changed from %+v to %+v", before, next)
			}
			if !changed && !reflect.DeepEqual(next, before) {
				t.Fatalf("an event that changes nothing made %+v of %+v", next, before)
			}
			if r = next; !consistent(r) {
				t.Fatalf("%+v became %+v", before, r)
			}
			reached[r.State]++
		}
	}
	for _, s := range []RunState{RunQueued, RunRunning, RunRetrying, RunOK, RunError, RunCancelled, RunInterrupted} {
		if reached[s] == 0 {
			t.Errorf("no history has reached %s", s)
		}
	}
}

func randomEvent(dice *rand.Rand, r Run, now time.Time) (Run, bool) {
	switch dice.IntN(7) {
	case 0, 1:
		if r.State == RunQueued {
			return r.Began(AttemptStart{RunID: r.ID, Attempt: r.Attempt + 1, Node: "n1"}, now)
		}
	case 2:
		ends := []RunState{RunOK, RunError, RunRetrying, RunQueued, RunCancelled, RunInterrupted}
		if r.State == RunRunning {
			return r.Ended(&AttemptEnd{State: ends[dice.IntN(len(ends))], NextAttempt: now.Add(time.Second), Attempt: Attempt{State: AttemptError}}, "n1", now)
		}
	case 3:
		return r.WaitsAgain(now)
	case 4:
		if r.State == RunRetrying {
			r, _ = r.Retried("n2", chat.Message{})
			return r, true
		}
	case 5:
		if dice.IntN(3) == 0 {
			return r.Cancel(ReasonStopped, "", now)
		}
	case 6:
		if r.State == RunQueued && dice.IntN(3) == 0 {
			return r.EndedWaiting(chat.OutcomeDead, "why", now)
		}
	}
	return r, false
}

// consistent reports whether a row is one that the tables and the lists can have.
func consistent(r Run) bool {
	open := 0
	for i, a := range r.Attempts {
		if a.Number != i+1 || (a.State == "") != a.FinishedAt.IsZero() {
			return false
		}
		if a.State == "" {
			open++
		}
	}
	return (open == 1) == (r.State == RunRunning) && open <= 1 && r.State.Final() == !r.FinishedAt.IsZero() &&
		(r.State == RunRetrying) == !r.NextAttempt.IsZero() && len(r.Attempts) == r.Attempt && r.StartedAt.IsZero() == (r.Attempt == 0) && r.Duration >= 0
}

// endedRun are the properties of an ended run that its job uses.
type endedRun struct {
	state    RunState
	class    string
	delivery DeliveryStatus
	trigger  Trigger
}

func TestPeopleGetAlertsAboutFailuresThatNothingMakesGood(t *testing.T) {
	t.Parallel()
	bad := endedRun{state: RunError, class: "timeout", delivery: DeliveryNotRequested, trigger: TriggerSchedule}
	dead := endedRun{state: RunInterrupted, class: string(chat.FailDead), delivery: DeliveryNotRequested, trigger: TriggerSchedule}
	well := endedRun{state: RunOK, delivery: DeliveryNotRequested, trigger: TriggerSchedule}
	noticed, byHand := bad, bad
	noticed.delivery, byHand.trigger = DeliveryNot, TriggerManual
	for name, tt := range map[string]struct {
		kind schedule.Kind
		off  bool
		runs []endedRun
		want []AlertKind
	}{
		"a recurring job after two failures in a row":   {schedule.KindEvery, false, []endedRun{bad, bad, bad}, []AlertKind{AlertNone, AlertFailing, AlertNone}},
		"and when it works again":                       {schedule.KindEvery, false, []endedRun{bad, bad, well, well}, []AlertKind{AlertNone, AlertFailing, AlertRecovered, AlertNone}},
		"a reminder at once":                            {schedule.KindAt, false, []endedRun{bad}, []AlertKind{AlertFailing}},
		"a reminder whose notice was delivered instead": {schedule.KindAt, false, []endedRun{noticed}, []AlertKind{AlertNone}},
		"a reminder that a person ran by hand and sees": {schedule.KindAt, false, []endedRun{byHand}, []AlertKind{AlertNone}},
		"a run that ends its process at once":           {schedule.KindEvery, false, []endedRun{dead, well}, []AlertKind{AlertFailing, AlertNone}},
		"the caller who disabled it":                    {schedule.KindAt, true, []endedRun{bad}, []AlertKind{AlertNone}},
		"when the job is switched off":                  {schedule.KindEvery, false, []endedRun{bad, bad, bad, bad}, []AlertKind{AlertNone, AlertFailing, AlertNone, AlertDisabled}},
	} {
		j := Job{ID: "j", Name: "digest", Schedule: schedule.Spec{Kind: tt.kind}, Alert: Alert{Off: tt.off}, PauseAfter: 4, Enabled: true}
		now := time.UnixMilli(1_700_000_000_000)
		for i, r := range tt.runs {
			next, alert := j.After(Run{State: r.state, ErrorClass: r.class, Error: "broken", Delivery: r.delivery, Trigger: r.trigger}, now)
			if alert != tt.want[i] {
				t.Errorf("%s: run %d alerts %q, want %q", name, i+1, alert, tt.want[i])
			}
			j = *next
			now = now.Add(time.Minute)
		}
		if len(tt.runs) == 4 && tt.want[3] == AlertDisabled && (j.Enabled || !j.AutoDisabled || !j.State.NextRunAt.IsZero()) {
			t.Errorf("%s: %+v", name, j)
		}
	}
}

func TestAFailureIsReportedInOneSentence(t *testing.T) {
	t.Parallel()
	j := Job{Name: "digest", State: JobState{ConsecutiveErrors: 1, LastError: "the answer took too long"}}
	if got, want := AlertFailing.Sentence(j), `The job "digest" has failed: the answer took too long.`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	j.State.DeliveryPause = DeliveryPause{Since: time.UnixMilli(1), Reason: "blocked", Channel: "telegram:1", ChatID: "7"}
	if got, want := AlertGone.Sentence(j), `The answers of the job "digest" are not sent any more: the chat 7 of telegram:1 accepts no messages (blocked). `+
		`The job continues, and its answers are kept; give it another destination, or resume it when the chat can be reached again.`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	j.State.ConsecutiveErrors = 3
	if got, want := AlertFailing.Sentence(j), `The job "digest" has failed 3 times in a row: the answer took too long.`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestANoteToAPersonEndsWithOneMark(t *testing.T) {
	t.Parallel()
	for last, end := range map[string]string{
		"no such host":                        "no such host.",
		"The operator has to check settings.": "check settings.",
		"cut ...":                             "cut.",
		"again?":                              "again?",
		"stop!. ":                             "stop!",
		"größer als 1 GB":                     "als 1 GB.",
	} {
		j := Job{Name: "digest", State: JobState{ConsecutiveErrors: 1, LastError: last}}
		if got := AlertFailing.Sentence(j); !strings.HasSuffix(got, end) {
			t.Errorf("%q: %q", last, got)
		}
		if got := AlertDisabled.Sentence(j); got != `The job "digest" has failed and is switched off: `+sentence(last)+" Enable it when the cause is gone." || strings.Contains(got, "..") {
			t.Errorf("%q: %q", last, got)
		}
	}
	for _, alert := range []AlertKind{AlertSkipping, AlertBudget, AlertRecovered, AlertGone, AlertExpired} {
		if got := alert.Sentence(Job{Name: "digest"}); !strings.HasSuffix(got, ".") || strings.HasSuffix(got, "..") {
			t.Errorf("%s: %q", alert, got)
		}
	}
}

func TestTheMessageOfARunIsThePayloadOfItsJob(t *testing.T) {
	t.Parallel()
	slot := time.Date(2026, 7, 1, 7, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(j *Job, r *PlannedRun)
		want   func(m *chat.Content)
	}{
		"as planned":                 {func(*Job, *PlannedRun) {}, func(*chat.Content) {}},
		"late by less than a minute": {func(_ *Job, r *PlannedRun) { r.Late = lateNote - 1 }, func(*chat.Content) {}},
		"late":                       {func(_ *Job, r *PlannedRun) { r.Late = lateNote }, func(m *chat.Content) { m.Text = "go\n\n(planned for 2026-07-01 09:00 +02:00)" }},
		"late by hand":               {func(_ *Job, r *PlannedRun) { r.Late, r.Trigger = time.Hour, TriggerManual }, func(*chat.Content) {}},
		"backfill": {func(j *Job, r *PlannedRun) { j.Schedule.TZ, r.Trigger = "UTC", TriggerBackfill }, func(m *chat.Content) {
			m.Text = "go\n\n(planned for 2026-07-01 07:00 +00:00)"
		}},
		"in a zone that is not known any more": {func(j *Job, r *PlannedRun) { j.Schedule.TZ, r.Late = "Mars/Base", time.Hour }, func(m *chat.Content) {
			m.Text = "go\n\n(planned for 2026-07-01 07:00 +00:00)"
		}},
		"without a limit": {func(j *Job, _ *PlannedRun) { j.Timeout = 0 }, func(m *chat.Content) { m.Options.TimeoutMs = -1 }},
		"at most once":    {func(j *Job, _ *PlannedRun) { j.AtMostOnce = true }, func(m *chat.Content) { m.Options.AtMostOnce = true }},
		"without text":    {func(j *Job, _ *PlannedRun) { j.Payload = Payload{Kind: PayloadCommand} }, func(m *chat.Content) { m.Text = "command" }},
		"an event":        {func(j *Job, _ *PlannedRun) { j.Payload.Kind = PayloadSystemEvent }, func(m *chat.Content) { m.System = true }},
		"options of a turn": {func(j *Job, _ *PlannedRun) { j.Payload.Options = []byte(`{"model":"big","thinking":"high"}`) }, func(m *chat.Content) {
			m.Options.Model, m.Options.Thinking = "big", "high"
		}},
		"options of its runner": {func(j *Job, _ *PlannedRun) { j.Payload.Options = []byte(`{"model":"big","lightContext":true}`) }, func(m *chat.Content) {
			m.Options.Model, m.Options.Params = "big", map[string]any{"lightContext": true}
		}},
		"options that are not JSON": {func(j *Job, _ *PlannedRun) { j.Payload.Options = []byte(`{`) }, func(*chat.Content) {}},
	} {
		j := Job{
			ID: "j", Name: "digest", Timeout: time.Minute, Payload: Payload{Kind: PayloadAgentTurn, Text: "go"},
			Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * *", TZ: "Europe/Berlin"},
		}
		r := PlannedRun{Fire: schedule.Fire{Slot: slot, At: slot}, Trigger: TriggerSchedule}
		c.change(&j, &r)
		want := chat.Content{
			Text: "go", Sender: chat.Sender{ID: "cron:j", Name: "digest"}, Options: chat.Options{NoMerge: true, Mode: chat.ModeQueue, TimeoutMs: 60_000},
		}
		c.want(&want)
		if got := j.content(r); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
}

func FuzzRunID(f *testing.F) {
	f.Add("manual:a:1")
	f.Add("schedule:019c2a7e-41d0-7c2b-9a55-7be0c1d2e3f4:1803974400000")
	f.Fuzz(func(t *testing.T, id string) {
		trigger, job, slot, err := ParseRunID(id)
		if err != nil {
			if !errors.Is(err, schedule.ErrInvalid) {
				t.Fatalf("%q is refused with %v", id, err)
			}
			return
		}
		if again := RunID(trigger, job, slot); again != id {
			t.Fatalf("%q becomes %q", id, again)
		}
	})
}

// TestEachMemberOfAJobIsCompared checks that an end writes the counters alone only when nothing
// else differs.
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
	case of == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte("x"))
	default:
		t.Fatalf("a member has the type %s: add it", of)
	}
	return v
}

func TestPolicyIsTheRuleThatDecided(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 25, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		run  Run
		job  *Job
		want string
	}{
		"an ordinary run":    {Run{State: RunOK, Trigger: TriggerSchedule}, &Job{}, ""},
		"overlap":            {Run{Reason: ReasonOverlap}, nil, "overlap skip"},
		"too many at once":   {Run{Reason: ReasonOverlap}, &Job{Overlap: OverlapConcurrent}, "overlap concurrent"},
		"a full buffer":      {Run{Reason: ReasonBufferFull}, nil, "overlap buffer_one"},
		"replaced":           {Run{Reason: ReasonReplaced}, nil, "overlap cancel_previous"},
		"a gap":              {Run{Reason: ReasonGap}, nil, "dst-gap skip"},
		"too old":            {Run{Reason: ReasonWindow}, nil, "missed-window"},
		"too many":           {Run{Reason: ReasonMaxCatchup}, nil, "missed-most"},
		"caught up":          {Run{State: RunOK, Trigger: TriggerCatchup, ClaimedAt: at}, &Job{}, "missed fire_once"},
		"the job is gone":    {Run{Trigger: TriggerCatchup, ClaimedAt: at}, nil, "missed"},
		"the job is changed": {Run{Reason: ReasonPolicy, ClaimedAt: at}, &Job{UpdatedAt: at.Add(1)}, "missed"},
		"the rule skips":     {Run{Reason: ReasonPolicy}, &Job{Schedule: schedule.Spec{Kind: schedule.KindCron}, Missed: MissedPolicy{Rule: MissedSkip}}, "missed skip"},
	} {
		if got := c.run.Policy(c.job); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
