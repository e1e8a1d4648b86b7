// Command testbench runs the benchmarks for the documented figures of laneway and prints one table:
// median, worst and goal of each row.
//
//	go run ./cmd/testpg -- go run ./cmd/testbench [-count 5] [-run REGEXP] [-once]
//
// Figures of shared machines are noisy: quote medians, and compare only runs of the same machine. A
// slow machine is not a failure; the exit code is 1 only when a benchmark breaks. -once runs every
// benchmark once, so that they keep working.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

func main() {
	count := flag.Int("count", 5, "how often each benchmark runs")
	only := flag.String("run", ".", "rows whose name matches")
	once := flag.Bool("once", false, "one iteration each, to see that they work")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, options{count: *count, only: *only, once: *once})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbench:", err)
		os.Exit(1)
	}
}

type options struct {
	count int
	only  string
	once  bool
}

// run runs the groups of benchmarks one after the other, so that they do not disturb each other,
// and prints the rows of each group when it has ended.
func run(ctx context.Context, out io.Writer, o options) error {
	match, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	_, _ = fmt.Fprintf(out, "%s, %s/%s, %d processors, %d runs each\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.count)
	_, _ = fmt.Fprintf(out, "| %-58s | %12s | %12s | %12s | %6s |\n|%s|%s|%s|%s|%s|\n", "what", "median", "worst", "goal", "ratio",
		strings.Repeat("-", 60), strings.Repeat("-", 14), strings.Repeat("-", 14), strings.Repeat("-", 14), strings.Repeat("-", 8))
	for _, g := range groups() {
		rows := g.matching(match)
		if len(rows) == 0 {
			continue
		}
		samples, err := bench(ctx, g, o)
		if err != nil {
			return err
		}
		for _, r := range rows {
			_, _ = fmt.Fprintln(out, r.line(samples[key{r.bench, r.metric}]))
		}
	}
	return nil
}

// bench runs one group and returns its figures.
func bench(ctx context.Context, g group, o options) (map[key][]float64, error) {
	benchtime, count := g.benchtime, o.count
	if o.once {
		benchtime, count = "1x", 1
	}
	args := []string{"test", "-run", "^$", "-bench", g.bench, "-benchmem", "-benchtime", benchtime, "-count", strconv.Itoa(count), "-timeout", "60m", g.pkg}
	cmd := exec.CommandContext(ctx, "go", args...) // the arguments are constants of this program
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return parse(string(text)), nil
}
