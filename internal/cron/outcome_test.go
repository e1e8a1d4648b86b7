package cron

import (
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

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
	for _, alert := range []AlertKind{AlertSkipping, AlertBudget, AlertRecovered, AlertGone} {
		if got := alert.Sentence(Job{Name: "digest"}); !strings.HasSuffix(got, ".") || strings.HasSuffix(got, "..") {
			t.Errorf("%s: %q", alert, got)
		}
	}
}
