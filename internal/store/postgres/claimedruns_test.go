package postgres

import (
	"runtime"
	"testing"
	"weak"

	"laneway/internal/cron"
)

// TestARunThatNeverStartsKeepsNoOtherOfItsClaimInMemory: the bound of what is remembered counts runs, and a claim has hundreds.
func TestARunThatNeverStartsKeepsNoOtherOfItsClaimInMemory(t *testing.T) {
	t.Parallel()
	c := newClaimedRuns()
	started := func() weak.Pointer[claimedRun] {
		c.add([]*claimedRun{{run: cron.Run{ID: "starts"}}, {run: cron.Run{ID: "never starts"}}})
		return weak.Make(c.take("starts"))
	}()
	runtime.GC()
	if started.Value() != nil {
		t.Error("a run that has started is still in memory")
	}
	if c.take("never starts") == nil {
		t.Error("the other run is not remembered")
	}
}
