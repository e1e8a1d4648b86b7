package cron

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func members(t *testing.T, text string) Members {
	t.Helper()
	m := Members{}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

const plainJob = `{"name":"tea","schedule":{"kind":"every","everyMs":60000},"sessionTarget":"isolated","payload":{"kind":"agentTurn","message":"tea?"}}`

// ourBorder has one agent, two lanes and no channel.
func ourBorder() Border {
	return Border{
		Now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), DefaultAgent: "main", Lanes: []string{"main", "cron"},
		Agent: func(id string) bool { return id == "main" }, Channel: func(string) bool { return false }, Payload: func(PayloadKind) bool { return false },
	}
}

func TestANewJobHasTheDefaults(t *testing.T) {
	t.Parallel()
	j, err := ourBorder().Apply(Job{}, members(t, plainJob))
	if err != nil {
		t.Fatal(err)
	}
	if j.Agent != "main" || j.Lane != DefaultLane || !j.Enabled || j.Overlap != OverlapSkip || j.Missed.Rule != MissedFireOnce || j.Timeout != DefaultTimeout ||
		j.Retry != DefaultRetry() || j.PauseAfter != DefaultPauseAfter || j.Delivery.Mode != DeliverNone || j.DeleteAfter {
		t.Errorf("the job: %+v", j)
	}
}

// A patch changes what it names; null is the default again, and the same patch twice changes nothing more.
func TestAPatchChangesWhatItNames(t *testing.T) {
	t.Parallel()
	b := ourBorder()
	made, err := b.Apply(Job{}, members(t, plainJob))
	if err != nil {
		t.Fatal(err)
	}
	made.ID = "j"
	for patch, changed := range map[string]func(want *Job){
		`{"overlap":"concurrent"}`:          func(j *Job) { j.Overlap = OverlapConcurrent },
		`{"timeoutSeconds":30}`:             func(j *Job) { j.Timeout = 30 * time.Second },
		`{"description":"at five"}`:         func(j *Job) { j.Description = "at five" },
		`{"retry":{"maxRetries":0}}`:        func(j *Job) { j.Retry.Retries = 0 },
		`{"missed":{"policy":"fire_all"}}`:  func(j *Job) { j.Missed.Rule = MissedFireAll },
		`{"lane":"main"}`:                   func(j *Job) { j.Lane = "main" },
		`{"payload":{"message":"coffee?"}}`: func(j *Job) { j.Payload.Text = "coffee?" },
		`{"enabled":false}`:                 func(j *Job) { j.Enabled = false },
		`{"maxRuns":3}`:                     func(j *Job) { j.MaxRuns = 3 },
		`{"overlap":null,"lane":null}`:      func(*Job) {},
	} {
		want := made
		changed(&want)
		got := made
		for range 2 {
			if got, err = b.Apply(got, members(t, patch)); err != nil {
				t.Fatalf("%s: %v", patch, err)
			}
		}
		if RevisionOf(got) != RevisionOf(want) {
			t.Errorf("%s makes %+v, want %+v", patch, got, want)
		}
	}
}

func TestTheBorderRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for patch, sentence := range map[string]string{
		`{"colour":"red"}`: "unexpected property 'colour'", `{"agentId":"absent"}`: "absent", `{"lane":"fast"}`: "fast", `{"overlap":"later"}`: "later",
		`{"payload":{"kind":"script","script":"rm"}}`: "script", `{"delivery":{"mode":"announce","channel":"smoke","to":"1"}}`: "smoke",
		`{"timeoutSeconds":-1}`: "timeoutSeconds", `{"retry":{"maxRetries":-1}}`: "retry", `{"name":""}`: "name", `{"name":7}`: "name",
		`{"schedule":{"kind":"every","everyMs":10}}`: "out of range 1000-", `{"dst":{"gap":"skip"}}`: "daylight", `{"maxRuns":-1}`: "maxRuns",
	} {
		made, err := ourBorder().Apply(Job{}, members(t, plainJob))
		if err != nil {
			t.Fatal(err)
		}
		made.ID = "j"
		if _, err = ourBorder().Apply(made, members(t, patch)); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%s: %v, want a sentence with %q", patch, err, sentence)
		}
	}
}
