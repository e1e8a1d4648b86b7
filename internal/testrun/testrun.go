// Package testrun has the common settings of the tests of all packages: how large a run is, the
// seeds of random histories, and how long a test waits for a condition.
//
// A test has two sizes: the usual one, which decides whether a change lands, and the long one of
// `make chaos`, which sets [LongVariable]. Random histories begin at the seed in [SeedVariable]
// (1); a test prints the seed of a history that failed.
//
// No test measures how fast the machine is: it waits for a condition by [Eventually], or for at
// most [Patience] where it waits itself.
package testrun

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// LongVariable makes histories long; any value but "" does.
	LongVariable = "LANEWAY_TEST_LONG"
	// SeedVariable is the first seed of random histories; with it a test runs one history.
	SeedVariable = "LANEWAY_TEST_SEED"
	// Patience is the bound of a wait on a busy machine. It is not a guarantee of the product.
	Patience = 5 * time.Minute
)

// Long reports whether the long histories of `make chaos` were requested.
func Long() bool { return os.Getenv(LongVariable) != "" } // the Makefile sets it

// Size returns usual, or long in `make chaos`.
func Size[T any](usual, long T) T {
	if Long() {
		return long
	}
	return usual
}

// Seeds returns the first seed and the number of random histories: starting at 1, or only the one
// in [SeedVariable].
func Seeds(tb testing.TB, usual, long uint64) (first, n uint64) {
	tb.Helper()
	text := os.Getenv(SeedVariable) // a person sets it
	if text == "" {
		return 1, Size(usual, long)
	}
	first, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		tb.Fatalf("%s=%q is not a seed: %v", SeedVariable, text, err)
	}
	return first, 1
}

// Eventually waits until a condition holds that other goroutines or processes bring about, and
// fails the test after [Patience]. what completes the sentence "not reached: …".
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			tb.Fatalf("not reached within %s: %s", Patience, what)
		}
	}
}

// Counted returns what a counter or gauge has counted, by the values of its labels in the order of
// their names; zeros are left out.
func Counted(tb testing.TB, r prometheus.Gatherer, name string) map[string]int {
	tb.Helper()
	families, err := r.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	counted := map[string]int{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if n := int(m.GetCounter().GetValue() + m.GetGauge().GetValue()); n != 0 {
				counted[strings.Join(values, " ")] = n
			}
		}
	}
	return counted
}
