package scheduler_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets LANEWAY_TEST_SEEDS, the number of random histories, reach the property tests too.
func TestMain(m *testing.M) {
	if n := os.Getenv("LANEWAY_TEST_SEEDS"); n != "" {
		if err := flag.Set("rapid.checks", n); err != nil {
			fmt.Fprintf(os.Stderr, "LANEWAY_TEST_SEEDS=%q is not a positive number: %v\n", n, err)
			os.Exit(2)
		}
	}
	goleak.VerifyTestMain(m)
}
