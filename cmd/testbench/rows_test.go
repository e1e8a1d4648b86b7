package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestATableRowHasMedianWorstAndRatio(t *testing.T) {
	t.Parallel()
	samples := parse("goos: linux\nBenchmarkTurn/sessions=1-2 \t 10\t 800 ns/op\t 12 B/op\t 3 allocs/op\nBenchmarkTurn/sessions=1-2 10 1000 ns/op\nBenchmarkTurn/sessions=1-2 10 600 ns/op\nPASS\n")
	r := row{what: "turn", bench: "Turn/sessions=1", metric: "ns/op", unit: "ns", goal: 900}
	line := strings.Join(strings.Fields(r.line(samples[key{r.bench, r.metric}])), " ")
	if want := "| turn | 800 ns | 1000 ns | 900 ns | 1.12 |"; line != want {
		t.Errorf("got %s, want %s", line, want)
	}
	r.more = true
	line = strings.Join(strings.Fields(r.line([]float64{1800, 900, 450})), " ")
	if want := "| turn | 900 ns | 450 ns | 900 ns | 1.00 |"; line != want {
		t.Errorf("got %s, want %s", line, want)
	}
	if line := r.line(nil); !strings.Contains(line, "no figure") {
		t.Errorf("a row without samples: %s", line)
	}
}

// A row without its benchmark has no figure, and the table does not show it as an error.
func TestEachRowHasItsBenchmark(t *testing.T) {
	t.Parallel()
	for _, g := range groups() {
		files, err := filepath.Glob(filepath.Join("..", "..", g.pkg, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no tests (%v)", g.pkg, err)
		}
		var source strings.Builder
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(text)
		}
		for _, r := range g.rows {
			name, _, _ := strings.Cut(r.bench, "/")
			if !strings.Contains(source.String(), "func Benchmark"+name+"(") {
				t.Errorf("%s: %s has no Benchmark%s", r.what, g.pkg, name)
			}
		}
	}
}
