package cli

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"laneway/internal/wire"
)

// laneway cron edit shows no JSON for values that a flag has set.
func TestAnEditShowsJobsAsTheyAreListed(t *testing.T) {
	t.Parallel()
	const job = `{"name":"digest","agentId":"main","sessionTarget":"isolated","overlap":"skip","jitterMs":0,"timeoutSeconds":600,"dst":{"gap":"run_after","overlap":"first"},
		"schedule":{"kind":"cron","expr":"0 9 * * 1-5","tz":"Europe/Berlin"},"payload":{"kind":"agentTurn","message":"Write the\ndigest"},
		"delivery":{"mode":"announce","channel":"telegram","to":"7"},"endsAtMs":1811808000000,"failureAlert":{"after":2},"retry":{"maxRetries":3,"delayMs":1000},"missed":{"policy":"skip"}}`
	retries, jitter, no, three := 5, 90*time.Second, 0, 3
	cases := map[string]struct {
		flags jobFlags
		want  []string
	}{
		"cron": {
			jobFlags{scheduleFlags: scheduleFlags{Cron: "30 9 * * 1-5", TZ: "Asia/Tokyo"}},
			[]string{"schedule: weekdays at 09:00, Berlin → weekdays at 09:30, Tokyo"},
		},
		"expression": {jobFlags{scheduleFlags: scheduleFlags{Cron: "1 9 * * *"}}, []string{"schedule: weekdays at 09:00, Berlin → daily at 09:01, Berlin"}},
		"every":      {jobFlags{scheduleFlags: scheduleFlags{Every: new(90 * time.Minute)}}, []string{"schedule: weekdays at 09:00, Berlin → every 1h30m"}},
		"message":    {jobFlags{Message: "Write a short digest"}, []string{"message: Write the digest → Write a short digest"}},
		"spaces":     {jobFlags{Message: "Write the digest"}, []string{`message: "Write the\ndigest" → "Write the digest"`}},
		"deliver":    {jobFlags{Deliver: "telegram:8:3"}, []string{"answers to: telegram:7 → telegram:8:3"}},
		"session":    {jobFlags{Deliver: "web:agent:main:main"}, []string{"answers to: telegram:7 → web:agent:main:main"}},
		"webhook":    {jobFlags{Webhook: "https://a.example/"}, []string{"answers to: telegram:7 → https://a.example/"}},
		"plain": {
			jobFlags{Name: "news", Agent: "coder", Session: "main", Overlap: "buffer_one"},
			[]string{"agent: main → coder", "name: digest → news", "overlap: skip → buffer_one", "session: isolated → main"},
		},
		"numbers": {jobFlags{Jitter: &jitter, Timeout: 2 * time.Hour, Retries: &retries}, []string{"jitter: 0s → 1m30s", "retries: 3 → 5", "timeout: 10m → 2h"}},
		"rules": {
			jobFlags{Missed: "fire_once", MissedWindow: &jitter, MissedMost: &three, scheduleFlags: scheduleFlags{DSTGap: "skip", DSTOverlap: "first"}},
			[]string{"dst-gap: run_after → skip", "missed-most: - → 3", "missed: skip → fire_once", "missed-window: - → 1m30s"},
		},
		"bounds": {
			jobFlags{scheduleFlags: scheduleFlags{From: "2027-03-02T08:00", Until: unbounded, MaxRuns: &three}},
			[]string{"until: 2027-06-01T00:00:00Z → -", "max-runs: - → 3", "from: - → 2027-03-02T08:00"},
		},
		"alert":    {jobFlags{AlertAfter: &three, AlertTo: "telegram:7"}, []string{"alert-after: 2 → 3", "alert-to: - → telegram", "alert-to: - → 7"}},
		"no alert": {jobFlags{AlertAfter: &no}, []string{`failureAlert: {"after":2} → false`}},
		"nothing":  {jobFlags{Message: "Write the\ndigest", Missed: "skip"}, nil},
	}
	for name, c := range cases {
		var old map[string]any
		if err := json.Unmarshal([]byte(job), &old); err != nil {
			t.Fatal(err)
		}
		members, err := c.flags.members()
		if err != nil {
			t.Fatal(err)
		}
		fillSchedule(old, members)
		if got := differences(old, members); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := differences(map[string]any{}, map[string]any{"retry": map[string]any{"maxRetries": 5}}); !slices.Equal(got, []string{"retries: - → 5"}) {
		t.Errorf("a member that the job does not have: %q", got)
	}
}

func TestTheDistanceOfAScheduleIsNotRounded(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]string{
		5_400_000: "every 1h30m", 90_000: "every 1m30s", 3_600_000: "every 1h", 172_800_000: "every 2d", 180_000_000: "every 50h", 1_500: "every 1.5s",
	} {
		if got := scheduleOf(wire.Job{Schedule: wire.JobSchedule{Kind: "every", EveryMs: ms}}); got != want {
			t.Errorf("%d ms: got %q, want %q", ms, got, want)
		}
	}
}

func TestTheStateOfAJobIsTheFirstReasonNotToFireOrSend(t *testing.T) {
	t.Parallel()
	gone, pause := &wire.JobDeliveryPaused{Reason: "blocked"}, &wire.JobPause{}
	for want, j := range map[string]wire.Job{
		"invalid": {Invalid: "no fields", Paused: pause}, "paused": {Paused: pause}, "disabled": {DeliveryPaused: gone},
		"enabled, not sent: blocked": {Enabled: true, DeliveryPaused: gone}, "enabled": {Enabled: true},
	} {
		if got := stateOf(j); got != want {
			t.Errorf("%+v is %q, want %q", j, got, want)
		}
	}
}

func TestTheOrderOfAListOfJobsIsTheGateways(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		c    cronList
		want map[string]any
	}{
		{cronList{}, map[string]any{}},
		{cronList{Sort: "next", Query: "tea"}, map[string]any{"sortBy": "nextRunAtMs", "query": "tea"}},
		{cronList{Sort: "last", Only: "failing"}, map[string]any{"sortBy": "lastRunAtMs", "sortDir": "desc", "condition": "failing"}},
		{cronList{Sort: "failing", Agent: "main", Target: "telegram"}, map[string]any{"sortBy": "failing", "sortDir": "desc", "agentId": "main", "target": "telegram"}},
		{cronList{Sort: "name"}, map[string]any{"sortBy": "name"}},
	} {
		tt.want["includeDisabled"], tt.want["includeSystem"], tt.want["extended"] = false, false, true
		if got := tt.c.params(); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%+v asks for %v, want %v", tt.c, got, tt.want)
		}
	}
}

func TestARefusedJobIsReportedInTheWordsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	for refusal, want := range map[string]string{
		"schedule.everyMs: 10 is out of range 1000-315360000000":   "--every: 10ms is out of range 1s to 87600h (3650 days)",
		"schedule.everyMs: 90000 is out of range 3600000-1":        "--every: 1m30s is out of range 1h to 1ms",
		"jitterMs: 7200000 is out of range 0-3600000":              "--jitter: 2h is out of range 0s to 1h",
		"timeoutSeconds: 90000 is out of range 0-86400":            "--timeout: 25h is out of range 0s to 24h",
		"schedule.expr: minute 99 is out of range 0-59":            "--cron: minute 99 is out of range 0-59",
		"schedule.tz: not a known time zone: Mars/Base":            "--tz: not a known time zone: Mars/Base",
		"schedule.at is in the past: choose a later moment":        "--at is in the past: choose a later moment",
		"at /name: must have 1 to 200 characters":                  "--name: must have 1 to 200 characters",
		"at /payload/message: must be string":                      "--message: must be string",
		"retry.maxRetries: 99 is out of range 0-10":                "--retries: 99 is out of range 0-10",
		"the gateway has 50 jobs: remove some first":               "the gateway has 50 jobs: remove some first",
		"payload.script: must be string":                           "payload.script: must be string",
		"delivery.to must be an http or https URL":                 "--webhook: must be an http or https URL",
		"sessionTarget attic is not one of main and isolated":      "--session: attic is not one of main and isolated",
		"schedule.expr: use a schedule of kind every with everyMs": "--cron: use --every",
		"forbidden": "forbidden",
		"schedule.everyMs: 99999999999999999999 is too much": "--every: 99999999999999999999 is too much",
	} {
		cause := errors.New(refusal)
		if got := inFlags(cause); got.Error() != want || !errors.Is(got, cause) {
			t.Errorf("%q is told as %q, want %q", refusal, got, want)
		}
	}
}
