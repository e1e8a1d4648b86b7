package cron_test

import (
	"testing"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

// BenchmarkDecodeParts covers the parts of a stored job, which are decoded at every claim and at the end of each of its runs.
func BenchmarkDecodeParts(b *testing.B) {
	parts, err := cron.EncodeParts(cron.Job{
		Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000}, Payload: cron.Payload{Kind: cron.PayloadAgentTurn, Text: "write the digest"},
		Retry: cron.DefaultRetry(), Timeout: cron.DefaultTimeout,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var j cron.Job
		if err := cron.DecodeParts(parts, &j); err != nil {
			b.Fatal(err)
		}
	}
}
