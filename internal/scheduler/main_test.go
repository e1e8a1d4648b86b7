package scheduler_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/testrun"
)

// TestMain sets the number of histories of the property tests in a long run.
func TestMain(m *testing.M) {
	if testrun.Long() {
		if err := flag.Set("rapid.checks", "10000"); err != nil {
			os.Exit(2)
		}
	}
	goleak.VerifyTestMain(m)
}
