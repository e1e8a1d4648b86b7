package cron

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"laneway/internal/chat"
)

// ledgerRun is a run with one ended attempt and, if it runs, an open second one.
func ledgerRun(state RunState) Run {
	r := Run{
		ID: "schedule:j:1", JobID: "j", State: state, Attempt: 1, StartedAt: noon, Node: "n1",
		Attempts: []Attempt{{Number: 1, State: AttemptError, StartedAt: noon, FinishedAt: noon.Add(time.Second), Error: "first", Node: "n1"}},
	}
	switch state { //nolint:exhaustive // the others are as they are
	case RunRunning:
		r.Attempt, r.Attempts = 2, append(r.Attempts, Attempt{Number: 2, StartedAt: noon.Add(2 * time.Second), Node: "n1"})
	case RunRetrying:
		r.NextAttempt, r.Error = noon.Add(time.Minute), "first"
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

// TestLedgerHoldsInEveryHistory creates random histories of a run and checks the invariants of every row.
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
