package cron_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

var inputNow = time.UnixMilli(1_800_000_000_000).UTC()

// inputBorder has the agents main and helper, the channel telegram, the lanes main and cron, and
// every kind of payload.
func inputBorder() cron.Border {
	return cron.Border{
		Now: inputNow, DefaultAgent: "main", Agents: []string{"helper", "main"}, Channels: []string{"telegram"}, Lanes: []string{"main", "cron"},
		Agent:   func(name string) bool { return name == "main" || name == "helper" },
		Channel: func(name string) bool { return name == "telegram" },
		Payload: func(cron.PayloadKind) bool { return true },
		Webhook: func(url string) error {
			if strings.Contains(url, "127.0.0.1") {
				return errors.New("it leads to the gateway")
			}
			return nil
		},
	}
}

func members(t *testing.T, text string) cron.Members {
	t.Helper()
	var m cron.Members
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// inputJob is a job that differs from the default in every member that null resets.
func inputJob(t *testing.T) cron.Job {
	t.Helper()
	j, err := inputBorder().Apply(cron.Job{}, members(t, `{
		"name": "report", "agentId": "helper", "lane": "main", "enabled": false, "atMostOnce": true, "deleteAfterRun": true, "wakeMode": "next-heartbeat",
		"schedule": {"kind": "cron", "expr": " 0  9 * * * ", "tz": "Europe/Paris"}, "dst": {"gap": "skip", "overlap": "both"}, "jitterMs": 5000,
		"sessionTarget": "isolated", "payload": {"kind": "agentTurn", "message": "go", "model": "big", "thinking": "high"},
		"delivery": {"mode": "announce", "channel": "telegram", "to": "7", "threadId": 3},
		"failureAlert": {"after": 4, "cooldownMs": 60000, "includeSkipped": true},
		"overlap": "buffer_one", "missed": {"policy": "fire_all", "maxCatchup": 5, "windowSeconds": 60},
		"retry": {"maxRetries": 1, "baseMs": 1000, "maxMs": 60000}, "timeoutSeconds": 30, "pauseAfterFailures": 3,
		"startsAtMs": 1800000001000, "endsAtMs": 1900000000000, "maxRuns": 9}`))
	if err != nil {
		t.Fatal(err)
	}
	j.ID = "stored"
	return j
}

func TestANewJobHasTheDefaults(t *testing.T) {
	t.Parallel()
	got, err := inputBorder().Apply(cron.Job{}, members(t, `{
		"name": "tea", "schedule": {"kind": "every", "everyMs": 60000}, "sessionTarget": "isolated", "payload": {"kind": "agentTurn", "message": "tea?"}}`))
	want := cron.Job{
		Name: "tea", Agent: "main", Lane: cron.DefaultLane, WakeMode: cron.WakeNow, Enabled: true, Session: cron.Isolated,
		Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000, AnchorMs: inputNow.UnixMilli()},
		Payload:  cron.Payload{Kind: cron.PayloadAgentTurn, Text: "tea?"}, Delivery: cron.Delivery{Mode: cron.DeliverNone},
		Overlap: cron.OverlapSkip, Missed: cron.MissedPolicy{Rule: cron.MissedFireOnce}, Retry: cron.DefaultRetry(),
		Timeout: cron.DefaultTimeout, PauseAfter: cron.DefaultPauseAfter,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

// A patch changes the members that it names; null resets to the default, and applying the same
// patch twice changes nothing more.
func TestMembersOfAJobChangeWhatTheyName(t *testing.T) {
	t.Parallel()
	paused := func(p cron.Pause) func(*cron.Job) { return func(j *cron.Job) { j.Pause = &p } }
	for _, c := range []struct {
		members string
		want    func(j *cron.Job)
	}{
		{`{}`, func(*cron.Job) {}},
		{`{"owner":"x","state":1,"extended":1,"idempotencyKey":"k","key":"k","declarationKey":"k","sessionKey":"k","trigger":null,"pacing":null}`, func(*cron.Job) {}},
		{`{"name":"tea","displayName":"Tea","description":"at\nfive","maxRuns":3,"enabled":true}`, func(j *cron.Job) {
			j.Name, j.DisplayName, j.Description, j.MaxRuns, j.Enabled = "tea", "Tea", "at\nfive", 3, true
		}},
		{`{"overlap":"concurrent","lane":"cron","timeoutSeconds":86400}`, func(j *cron.Job) {
			j.Overlap, j.Lane, j.Timeout = cron.OverlapConcurrent, "cron", cron.MaxTimeout
		}},
		{`{"agentId":null}`, func(j *cron.Job) { j.Agent = "main" }},
		{`{"lane":null}`, func(j *cron.Job) { j.Lane = "cron" }},
		{`{"enabled":null}`, func(j *cron.Job) { j.Enabled = true }},
		{`{"atMostOnce":null}`, func(j *cron.Job) { j.AtMostOnce = false }},
		{`{"deleteAfterRun":null}`, func(j *cron.Job) { j.DeleteAfter = false }},
		{`{"wakeMode":null}`, func(j *cron.Job) { j.WakeMode = "now" }},
		{`{"overlap":null}`, func(j *cron.Job) { j.Overlap = cron.OverlapSkip }},
		{`{"timeoutSeconds":null,"pauseAfterFailures":null}`, func(j *cron.Job) { j.Timeout, j.PauseAfter = cron.DefaultTimeout, cron.DefaultPauseAfter }},
		{`{"startsAtMs":null,"endsAtMs":null,"maxRuns":null,"jitterMs":null}`, func(j *cron.Job) {
			j.StartsAt, j.EndsAt, j.MaxRuns, j.JitterMs = time.Time{}, time.Time{}, 0, 0
		}},
		{`{"dst":{"gap":"run_after"}}`, func(j *cron.Job) { j.Schedule.Gap = "run_after" }},
		{`{"dst":null}`, func(j *cron.Job) { j.Schedule.Gap, j.Schedule.Fold = "", "" }},
		{`{"missed":null}`, func(j *cron.Job) { j.Missed = cron.MissedPolicy{Rule: cron.MissedFireOnce} }},
		{`{"missed":{"policy":"skip"}}`, func(j *cron.Job) { j.Missed.Rule = cron.MissedSkip }},
		{`{"missed":{"maxCatchup":1,"windowSeconds":null}}`, func(j *cron.Job) { j.Missed.MaxCatchup, j.Missed.Window = 1, cron.NoWindow }},
		{`{"missed":{"windowSeconds":0}}`, func(j *cron.Job) { j.Missed.Window = cron.EmptyWindow }},
		{`{"missed":{"windowSeconds":2592000}}`, func(j *cron.Job) { j.Missed.Window = cron.MaxWindow }},
		{`{"retry":null}`, func(j *cron.Job) { j.Retry = cron.DefaultRetry() }},
		{`{"retry":{"maxRetries":0}}`, func(j *cron.Job) { j.Retry.Retries = 0 }},
		{`{"retry":{"baseMs":2000}}`, func(j *cron.Job) { j.Retry.Base = 2 * time.Second }},
		{`{"retry":{"maxMs":90000}}`, func(j *cron.Job) { j.Retry.Max = 90 * time.Second }},
		// A schedule of the same kind keeps the zone, the rules of daylight saving and the jitter;
		// another kind does not.
		{`{"schedule":{"kind":"cron","expr":" 0  8 * * *"}}`, func(j *cron.Job) { j.Schedule.Expr = "0 8 * * *" }},
		{`{"schedule":{"kind":"cron","expr":"0 8 * * *","tz":"UTC","staggerMs":7000}}`, func(j *cron.Job) {
			j.Schedule.Expr, j.Schedule.TZ, j.JitterMs = "0 8 * * *", "UTC", 7000
		}},
		{`{"schedule":{"kind":"cron","expr":"0 8 * * *","staggerMs":6000},"jitterMs":6000}`, func(j *cron.Job) { j.Schedule.Expr, j.JitterMs = "0 8 * * *", 6000 }},
		{`{"schedule":{"kind":"every","everyMs":60000}}`, func(j *cron.Job) {
			j.Schedule = schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000, AnchorMs: inputNow.UnixMilli()}
			j.JitterMs, j.DeleteAfter = 0, false
		}},
		{`{"schedule":{"kind":"at","atMs":1850000000000},"deleteAfterRun":false}`, func(j *cron.Job) {
			j.Schedule = schedule.Spec{Kind: schedule.KindAt, At: time.UnixMilli(1_850_000_000_000).UTC()}
			j.JitterMs, j.DeleteAfter = 0, false
		}},
		{`{"schedule":{"kind":"at","at":"2030-01-01T00:00:00Z"}}`, func(j *cron.Job) {
			j.Schedule = schedule.Spec{Kind: schedule.KindAt, At: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
			j.JitterMs, j.DeleteAfter = 0, true
		}},
		{`{"sessionTarget":"session:agent:helper:x"}`, func(j *cron.Job) { j.Session = "session:agent:helper:x" }},
		{`{"sessionTarget":"current","sessionKey":"agent:main:y"}`, func(j *cron.Job) { j.Session = "session:agent:main:y" }},
		// A payload of the same kind is merged, one of another kind replaced.
		{`{"payload":{"model":"small","thinking":null,"timeoutSeconds":40}}`, func(j *cron.Job) {
			j.Payload.Options, j.Timeout = []byte(`{"model":"small"}`), 40*time.Second
		}},
		{`{"payload":{"timeoutSeconds":40},"timeoutSeconds":40}`, func(j *cron.Job) { j.Timeout = 40 * time.Second }},
		{`{"payload":{"allowUnsafeExternalContent":false}}`, func(*cron.Job) {}},
		{`{"payload":{"kind":"systemEvent","text":"look"}}`, func(j *cron.Job) { j.Payload = cron.Payload{Kind: cron.PayloadSystemEvent, Text: "look"} }},
		{`{"payload":{"message":"coffee?"}}`, func(j *cron.Job) { j.Payload.Text = "coffee?" }},
		{`{"payload":{"kind":"command","argv":["x"]}}`, func(j *cron.Job) {
			j.Payload = cron.Payload{Kind: cron.PayloadCommand, Options: []byte(`{"argv":["x"]}`)}
		}},
		{`{"payload":{"kind":"script","script":"exit"}}`, func(j *cron.Job) { j.Payload = cron.Payload{Kind: cron.PayloadScript, Text: "exit"} }},
		// Another chat has other threads, another channel other chats, another mode another target.
		{`{"delivery":{"bestEffort":true}}`, func(j *cron.Job) { j.Delivery.BestEffort = true }},
		{`{"delivery":{"threadId":null}}`, func(j *cron.Job) { j.Delivery.Thread = "" }},
		{`{"delivery":{"to":"8"}}`, func(j *cron.Job) { j.Delivery.To, j.Delivery.Thread = "8", "" }},
		{`{"delivery":{"channel":"last"}}`, func(j *cron.Job) { j.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "last"} }},
		{`{"delivery":{"mode":"webhook","to":"https://example.org/x"}}`, func(j *cron.Job) {
			j.Delivery = cron.Delivery{Mode: cron.DeliverWebhook, To: "https://example.org/x"}
		}},
		{`{"delivery":null}`, func(j *cron.Job) { j.Delivery = cron.Delivery{Mode: cron.DeliverNone} }},
		{`{"failureAlert":null}`, func(j *cron.Job) { j.Alert = cron.Alert{} }},
		{`{"failureAlert":false}`, func(j *cron.Job) { j.Alert = cron.Alert{Off: true} }},
		{`{"failureAlert":{"cooldownMs":0,"includeSkipped":false}}`, func(j *cron.Job) { j.Alert.Cooldown, j.Alert.IncludeSkipped = 1, false }},
		{`{"failureAlert":{"to":"9","channel":"telegram"}}`, func(j *cron.Job) {
			j.Alert.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram", To: "9"}
		}},
		{`{"paused":null}`, func(*cron.Job) {}},
		{`{"paused":{"note":"away"}}`, paused(cron.Pause{Note: "away", At: inputNow})},
		{`{"paused":{"note":"away","by":"ann","atMs":1700000000000,"untilMs":1800000000001}}`, paused(cron.Pause{
			Note: "away", By: "ann", At: time.UnixMilli(1_700_000_000_000).UTC(), Until: inputNow.Add(time.Millisecond),
		})},
		{`{"paused":{"note":"away","atMs":1900000000000}}`, paused(cron.Pause{Note: "away", At: inputNow})},
		{`{"paused":{"note":"away","untilMs":1800000000000,"enabled":true}}`, func(j *cron.Job) { j.Enabled = true }},
		{`{"paused":{"note":"away","untilMs":1}}`, func(*cron.Job) {}},
	} {
		want := inputJob(t)
		c.want(&want)
		got := inputJob(t)
		for range 2 {
			var err error
			if got, err = inputBorder().Apply(got, members(t, c.members)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v\ngot  %+v\nwant %+v", c.members, err, got, want)
			}
		}
	}
}

// A number of seconds or milliseconds that overflows a duration was taken as a short time.
func TestMembersThatAreRefusedAreNamed(t *testing.T) {
	t.Parallel()
	const wraps = "18446744074" // as seconds, these are 2^64 ns and 290 ms
	for text, part := range map[string]string{
		`{"colour":"red"}`:                          "unexpected property 'colour'",
		`{"nam":"y"}`:                               "unexpected property 'nam'; did you mean name?",
		`{"schedul":{}}`:                            "unexpected property 'schedul'; did you mean schedule?",
		`{"name":null}`:                             "1 to 200 characters",
		`{"name":"a\nb"}`:                           "control",
		`{"enabled":1}`:                             "at /a flag",
		`{"trigger":{}}`:                            "trigger is not supported",
		`{"agentId":"absent"}`:                      "no agent absent here; the agents are helper, main",
		`{"agentId":"mian"}`:                        "; did you mean main?",
		`{"lane":"mian"}`:                           "; did you mean main?",
		`{"delivery":{"channel":"telegarm"}}`:       "; did you mean telegram?",
		`{"lane":"fast"}`:                           "no lane fast; the lanes are main, cron",
		`{"wakeMode":"later"}`:                      "not one of now, next-heartbeat",
		`{"timeoutSeconds":` + wraps + `}`:          "out of range 0-86400",
		`{"timeoutSeconds":-` + wraps + `}`:         "out of range 0-86400",
		`{"retry":{"baseMs":` + wraps + `000}}`:     "out of range 100-600000",
		`{"retry":{"maxMs":` + wraps + `000}}`:      "out of range 1000-3600000",
		`{"retry":{"maxRetries":11}}`:               "out of range 0-10",
		`{"missed":{"maxCatchup":0}}`:               "out of range 1-100",
		`{"missed":{"windowSeconds":-1}}`:           "out of range 0-2592000",
		`{"missed":{"windowSeconds":2592001}}`:      "2592001 is out of range 0-2592000",
		`{"schedule":{"kind":"on-exit"}}`:           "on-exit is not supported",
		`{"schedule":{"kind":"at"}}`:                "a moment is needed",
		`{"schedule":{"kind":"every","everyMs":1}}`: "1000-",
		`{"schedule":{"kind":"every","everyMs":60000},"dst":{"gap":"skip"}}`:         "rules for daylight saving belong to schedules of kind cron",
		`{"schedule":{"kind":"cron","expr":"0 8 * * *","staggerMs":1},"jitterMs":2}`: "are one value",
		`{"jitterMs":3600001}`:                                               "out of range 0-3600000",
		`{"sessionTarget":"current"}`:                                        "needs a sessionKey",
		`{"sessionTarget":"session:agent:absent:x"}`:                         "no agent absent",
		`{"sessionTarget":"attic"}`:                                          "not one of main, isolated",
		`{"payload":{"timeoutSeconds":40},"timeoutSeconds":41}`:              "are one value",
		`{"payload":{"allowUnsafeExternalContent":true}}`:                    "not supported",
		`{"payload":{"script":"x"}}`:                                         "unexpected property 'script'",
		`{"payload":{"mesage":"x"}}`:                                         "unexpected property 'mesage'; did you mean message?",
		`{"payload":{"kind":"command"}}`:                                     "payload.argv is needed",
		`{"schedule":{"kind":"cron","expr":"0 8 * * *"},"jitterMs":3600001}`: "out of range 0-3600000",
		`{"name":7}`:          "at /name",
		`{"overlap":"later"}`: "later is not known",
		`{"maxRuns":-1}`:      "maxRuns",
		`{"payload":{"kind":"script","script":"x"},"sessionTarget":"main"}`:      "need the sessionTarget isolated",
		`{"payload":{"kind":"systemEvent","text":"x"},"wakeMode":"now"}`:         "a systemEvent needs",
		`{"payload":{"kind":"agentTurn","message":" "}}`:                         "the message is empty",
		`{"payload":{"kind":"heartbeat"}}`:                                       "heartbeat is not supported",
		`{"payload":{"kind":"other"}}`:                                           "payload.kind other is not known",
		`{"delivery":7}`:                                                         "at /delivery",
		`{"delivery":{"mode":"shout"}}`:                                          "not one of none, announce and webhook",
		`{"delivery":{"channel":"pigeon"}}`:                                      "the channels are telegram, web",
		`{"delivery":{"to":""}}`:                                                 "needs the id of a chat",
		`{"delivery":{"channel":"web","to":"agent:absent:x"}}`:                   "no agent absent",
		`{"delivery":{"mode":"webhook","to":"ftp://x"}}`:                         "http or https URL",
		`{"delivery":{"mode":"webhook","to":"https://a:b@x/"}}`:                  "without a user name",
		`{"delivery":{"mode":"webhook","to":"http://127.0.0.1/"}}`:               "it leads to the gateway",
		`{"delivery":{"completionDestination":{"mode":"announce"}}}`:             "not known there",
		`{"delivery":{"failureDestination":{"failureDestination":{}}}}`:          "destinations of its own",
		`{"failureAlert":{"after":0}}`:                                           "at least 1",
		`{"delivery":{"channel":"telegram","to":"anna"}}`:                        "anna is not the id of a chat of telegram; write its number, such as telegram:4711",
		`{"delivery":{"channel":"telegram","to":"0"}}`:                           "0 is not the id of a chat",
		`{"delivery":{"channel":"telegram","to":"-100","threadId":"abc"}}`:       "abc is not the id of a topic; write its number, such as telegram:-100:7",
		`{"delivery":{"threadId":-3}}`:                                           "-3 is not the id of a topic",
		`{"failureAlert":{"channel":"telegram","to":"@anna"}}`:                   "@anna is not the id of a chat",
		`{"delivery":{"failureDestination":{"channel":"telegram","to":"anna"}}}`: "anna is not the id of a chat",
		`{"failureAlert":{"channel":"pigeon"}}`:                                  "no channel pigeon",
		`{"paused":{"by":"ann"}}`:                                                "1 to 500 characters",
		`{"paused":{"note":"` + strings.Repeat("x", 501) + `"}}`:                 "1 to 500 characters",
		`{"paused":{"note":"a","by":"\u0000"}}`:                                  "paused.by",
		`{"paused":{"note":"a","untilMs":0}}`:                                    "milliseconds since 1970",
		`{"paused":{"note":"a","atMs":-1}}`:                                      "milliseconds since 1970",
		`{"startsAtMs":1900000000001}`:                                           "endsAt",
		`{"payload":{"message":"` + strings.Repeat("x", 65_537) + `"}}`:          "65537 bytes; the limit is 65536",
		`{"description":"` + strings.Repeat("x", 10_001) + `"}`:                  "names and descriptions",
	} {
		if _, err := inputBorder().Apply(inputJob(t), members(t, text)); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%.80s: got %v, want a refusal with %q", text, err, part)
		}
	}
}

func TestAPayloadThatRunsOnTheHostIsDisabledUntilItIsEnabled(t *testing.T) {
	t.Parallel()
	b := inputBorder()
	b.Payload = func(cron.PayloadKind) bool { return false }
	for _, kind := range []string{"command", "script"} {
		_, err := b.Apply(inputJob(t), members(t, `{"payload":{"kind":"`+kind+`"}}`))
		if err == nil || !strings.Contains(err.Error(), "enable it with LANEWAY_CRON_PAYLOADS="+kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestAJobWithoutWhatItNeedsIsRefused(t *testing.T) {
	t.Parallel()
	all := map[string]any{
		"name": "x", "schedule": map[string]any{"kind": "every", "everyMs": 60_000}, "sessionTarget": "main",
		"payload": map[string]any{"kind": "agentTurn", "message": "go"},
	}
	for missing := range all {
		given := map[string]any{}
		for name, value := range all {
			if name != missing {
				given[name] = value
			}
		}
		text, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		_, err = inputBorder().Apply(cron.Job{}, members(t, string(text)))
		if want := fmt.Sprintf("must have required property '%s'", missing); err == nil || err.Error() != want {
			t.Errorf("without %s: got %v, want %s", missing, err, want)
		}
	}
}

func TestThePreviewOfNoScheduleIsRefused(t *testing.T) {
	t.Parallel()
	b := inputBorder()
	if _, err := b.Planned(cron.Job{}, cron.Members{}); chat.CodeOf(err) != chat.CodeInvalid {
		t.Errorf("got %v", err)
	}
	j, err := b.Planned(cron.Job{}, members(t, `{"schedule":{"kind":"cron","expr":"0 9 * * *"},"dst":{"gap":"skip"}}`))
	if want := (schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * *", TZ: "UTC", Gap: "skip"}); err != nil || j.Schedule != want {
		t.Errorf("got %+v, %v, want %+v", j.Schedule, err, want)
	}
}

// A zone that does not exist was accepted where the kind of the schedule does not use it.
func TestAnUnknownZoneIsRefusedForEveryKind(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"every": `{"kind":"every","everyMs":60000,"tz":"Mars/Base"}`,
		"at":    `{"kind":"at","atMs":1900000000000,"tz":"Mars/Base"}`,
		"cron":  `{"kind":"cron","expr":"0 9 * * *","tz":"Mars/Base"}`,
	} {
		_, err := cron.Border{Now: time.UnixMilli(1_800_000_000_000)}.Planned(cron.Job{}, cron.Members{"schedule": json.RawMessage(text)})
		if bad, ok := errors.AsType[*schedule.InvalidError](err); !ok || bad.Field != "schedule.tz" {
			t.Errorf("%s: got %v, want a refusal of schedule.tz", name, err)
		}
	}
}

func TestDestinationsAreCheckedMergedAndRemoved(t *testing.T) {
	t.Parallel()
	border := cron.Border{
		Now: time.Now(), DefaultAgent: "main", Agent: func(string) bool { return true }, Channel: func(name string) bool { return name == "telegram" },
		Channels: []string{"telegram"},
		Webhook: func(url string) error {
			if strings.Contains(url, "localhost") {
				return errors.New("not there")
			}
			return nil
		},
	}
	apply := func(j cron.Job, delivery string) (cron.Job, error) {
		return border.Apply(j, cron.Members{
			"name": json.RawMessage(`"n"`), "schedule": json.RawMessage(`{"kind":"every","everyMs":60000}`), "sessionTarget": json.RawMessage(`"isolated"`),
			"payload": json.RawMessage(`{"kind":"agentTurn","message":"m"}`), "delivery": json.RawMessage(delivery),
		})
	}
	for _, bad := range []string{
		`{"failureDestination":{"channel":"pigeon","to":"1"}}`, `{"failureDestination":{"channel":"telegram"}}`, `{"failureDestination":{"mode":"webhook"}}`,
		`{"failureDestination":{"mode":"webhook","to":"http://localhost/x"}}`, `{"failureDestination":{"mode":"none"}}`, `{"failureDestination":7}`,
		`{"completionDestination":{"channel":"telegram","to":"1","mode":"announce"}}`, `{"completionDestination":{"mode":"webhook","to":"file:///x"}}`,
		`{"completionDestination":{"mode":"webhook","to":"https://a.example","completionDestination":{}}}`, `{"mode":"webhook","to":"http://localhost/x"}`,
	} {
		var refused *chat.Error
		if j, err := apply(cron.Job{}, bad); !errors.As(err, &refused) || refused.Code != chat.CodeInvalid {
			t.Errorf("%s: %+v, %v", bad, j.Delivery, err)
		}
	}
	j, err := apply(cron.Job{}, `{"mode":"announce","channel":"telegram","to":"1","failureDestination":{"channel":"telegram","to":"2","threadId":3},"completionDestination":{"mode":"webhook","to":"https://a.example/x"}}`)
	if err != nil {
		t.Fatal(err)
	}
	j.ID = "id"
	failure, ok := j.Delivery.Failure()
	if !ok || failure.Mode != cron.DeliverAnnounce || failure.Channel != "telegram" || failure.To != "2" || failure.Thread != "3" {
		t.Errorf("failures go to %+v, %t", failure, ok)
	}
	if done, ok := j.Delivery.Completion(); !ok || done.Mode != cron.DeliverWebhook || done.To != "https://a.example/x" {
		t.Errorf("completions go to %+v, %t", done, ok)
	}
	if j, err = apply(j, `{"mode":"none","failureDestination":null}`); err != nil {
		t.Fatal(err)
	}
	_, fails := j.Delivery.Failure()
	_, completes := j.Delivery.Completion()
	if fails || !completes || j.Delivery.To != "" {
		t.Errorf("after the change: %+v", j.Delivery)
	}
	if j, err = apply(j, `{"completionDestination":null}`); err != nil || j.Delivery.Options != nil {
		t.Errorf("after the removal: %+v, %v", j.Delivery, err)
	}
}

func TestADeliveryThatDoesNotResolveIsRefused(t *testing.T) {
	t.Parallel()
	border := cron.Border{
		Now: time.Now(), DefaultAgent: "main", Agent: func(id string) bool { return id == "main" }, Channels: []string{"telegram"},
		Channel: func(name string) bool { return name == "telegram" },
	}
	topic := cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram", To: "-5", Thread: "7", Account: "a"}
	web := cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "web", To: "agent:main:main"}
	for _, c := range []struct {
		old      cron.Delivery
		delivery string
		want     cron.Delivery
		refused  string
	}{
		{delivery: `{"mode":"announce","channel":"web","to":"agent:main:main"}`, want: web},
		{delivery: `{"mode":"announce","channel":"web"}`, want: cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "web"}},
		{delivery: `{"mode":"announce","channel":"web","to":"agent","threadId":"main:main"}`, refused: "a session has no threads"},
		{delivery: `{"mode":"announce","channel":"web","to":"agent:main"}`, refused: "delivery.channel: web needs a session key"},
		{delivery: `{"mode":"announce","channel":"web","to":"agent:gone:main"}`, refused: "there is no agent"},
		{delivery: `{"mode":"announce","channel":"telegram"}`, refused: "delivery.channel: telegram needs the id of a chat"},
		{old: topic, delivery: `{"channel":"web","to":"agent:main:main"}`, want: web},
		{old: topic, delivery: `{"channel":"web","to":"agent:gone:main"}`, refused: "there is no agent"},
		{old: topic, delivery: `{"to":"8"}`, want: cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram", To: "8", Account: "a"}},
		{old: topic, delivery: `{"to":"-5"}`, want: topic},
		{old: topic, delivery: `{"bestEffort":true}`, want: cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram", To: "-5", Thread: "7", Account: "a", BestEffort: true}},
		{old: topic, delivery: `{"threadId":null}`, want: cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram", To: "-5", Account: "a"}},
		{old: web, delivery: `{"channel":"telegram"}`, refused: "needs the id of a chat"},
	} {
		j, err := border.Apply(cron.Job{Delivery: c.old}, cron.Members{
			"name": json.RawMessage(`"n"`), "schedule": json.RawMessage(`{"kind":"every","everyMs":60000}`), "sessionTarget": json.RawMessage(`"isolated"`),
			"payload": json.RawMessage(`{"kind":"agentTurn","message":"m"}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		j.ID, j.Delivery = "id", c.old
		j, err = border.Apply(j, cron.Members{"delivery": json.RawMessage(c.delivery)})
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%+v changed by %s: %v, want %q in it", c.old, c.delivery, err, c.refused)
			}
		case err != nil || !reflect.DeepEqual(j.Delivery, c.want):
			t.Errorf("%+v changed by %s: %+v, %v, want %+v", c.old, c.delivery, j.Delivery, err, c.want)
		}
	}
}

// TestAJobBelongsToTheConversationOfItsAnswers covers the ways in which jobs and conversations are
// connected.
func TestAJobBelongsToTheConversationOfItsAnswers(t *testing.T) {
	t.Parallel()
	announce := func(channel, to, thread string) cron.Delivery {
		return cron.Delivery{Mode: cron.DeliverAnnounce, Channel: channel, To: to, Thread: thread}
	}
	for name, tt := range map[string]struct {
		job  cron.Job
		key  string
		want bool
	}{
		"topic":                {cron.Job{Session: cron.Isolated, Delivery: announce("telegram:666", "-5", "3")}, "telegram:group:-5:topic:3", true},
		"another topic":        {cron.Job{Session: cron.Isolated, Delivery: announce("telegram:666", "-5", "4")}, "telegram:group:-5:topic:3", false},
		"the group of a topic": {cron.Job{Session: cron.Isolated, Delivery: announce("telegram", "-5", "3")}, "telegram:group:-5", false},
		"private chat":         {cron.Job{Session: cron.Isolated, Delivery: announce("telegram:666", "7", "")}, "telegram:group:-5", false},
		"web session":          {cron.Job{Session: cron.Isolated, Delivery: announce("web", "agent:main:notes", "")}, "notes", true},
		"another web session":  {cron.Job{Session: cron.Isolated, Delivery: announce("web", "agent:main:notes", "")}, "diary", false},
		"named session":        {cron.Job{Session: cron.NamedSession + "agent:main:notes"}, "notes", true},
		"main session":         {cron.Job{Session: cron.Main}, "main", true},
		"the last route":       {cron.Job{Session: cron.Isolated, Delivery: announce("last", "", "")}, "main", true},
		"no delivery":          {cron.Job{Session: cron.Isolated}, "main", false},
		"webhook":              {cron.Job{Session: cron.Isolated, Delivery: cron.Delivery{Mode: cron.DeliverWebhook, To: "https://a.example"}}, "main", false},
	} {
		tt.job.Agent = "main"
		key, err := chat.ParseSessionKey(tt.key, "main")
		if err != nil {
			t.Fatal(err)
		}
		if got := tt.job.In(key); got != tt.want {
			t.Errorf("%s: got %t, want %t", name, got, tt.want)
		}
	}
}
