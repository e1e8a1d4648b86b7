package cli

import (
	"errors"
	"testing"
)

func TestARefusedJobIsReportedInTheWordsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	for refusal, want := range map[string]string{
		"schedule.everyMs: 10 is out of range 1000-315360000000":   "--every: 10ms is out of range 1s to 87600h (3650 days)",
		"schedule.everyMs: 90000 is out of range 3600000-1":        "--every: 1m30s is out of range 1h to 1ms",
		"jitterMs: 7200000 is out of range 0-3600000":              "--jitter: 2h is out of range 0s to 1h",
		"timeoutSeconds: 90000 is out of range 0-86400":            "--timeout: 25h is out of range 0s to 24h",
		"schedule.expr: minute 99 is out of range 0-59":            "--cron: minute 99 is out of range 0-59",
		"schedule.tz: not a known time zone: Mars/Base":            "--tz: not a known time zone: Mars/Base",
		"schedule.at is in the past: choose a later moment":        "--at: in the past: choose a later moment",
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
