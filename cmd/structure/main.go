// Command structure prints figures about the structure of the packages: the largest types, the
// words of comments, the calls of one message across files, and the lines of source and of tests.
//
//	go run ./cmd/structure
//	go run ./cmd/structure -walk internal/dispatch.Dispatcher.Receive
//
// # What is counted
//
// Product: Go files that are neither tests nor test support. Test support is a package whose path
// has a part that begins with "test" or ends with "test", and this program. Generated files are not
// counted.
//
// Methods: the methods that are declared with a type as receiver, value or pointer. Store adapters
// are printed but have no bound.
//
// Words: the text of the product's comments is split at everything but letters and apostrophes.
// "Persons" are somebody, nobody, stranger, whoever, anybody and everybody; "tell" forms are all
// forms of to tell, to hear and to say. Both are given per 1,000 words of comment.
//
// Walk: the static calls that are reachable from one function, both branches of every condition, in
// the order of the source, depth first. The body of each function is entered once. A call counts
// when its target is declared in another file than the caller. It counts as a return when the file
// of the target has been entered before. The walk does not follow calls through interfaces, because
// a store, a runner and a channel are separate subjects. It stays inside the packages of -in. The
// scheduler is not among them, because only one call enters it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	var (
		root   = flag.String("root", ".", "directory of the module")
		start  = flag.String("walk", "internal/dispatch.Dispatcher.Receive", "function at which the walk begins: package.Type.Method or package.Function")
		within = flag.String("in", "internal/dispatch,internal/events,internal/outbox,internal/ownership", "packages that the walk stays in")
		steps  = flag.Bool("steps", false, "print each counted call of the walk")
		top    = flag.Int("top", 10, "how many types are listed")
	)
	flag.Parse()
	if err := report(os.Stdout, options{root: *root, start: *start, within: strings.Split(*within, ","), steps: *steps, top: *top}); err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
}

type options struct {
	root, start string
	within      []string
	steps       bool
	top         int
}

// report analyses the module and prints every figure.
func report(w io.Writer, o options) error {
	m, err := load(o.root)
	if err != nil {
		return err
	}
	types := m.types()
	fmt.Fprintln(w, "types with the most methods")
	for _, t := range types[:min(o.top, len(types))] {
		note := ""
		if t.adapter {
			note = "   (store adapter: no bound)"
		}
		fmt.Fprintf(w, "  %4d  %s.%s%s\n", t.methods, t.pkg, t.name, note)
	}
	words := m.words()
	fmt.Fprintf(w, "words of comments of the product: %d\n", words.total)
	fmt.Fprintf(w, "  persons (somebody, nobody, stranger, whoever, anybody, everybody): %d, %.2f per 1,000\n", words.persons, words.per(words.persons))
	fmt.Fprintf(w, "  forms of tell, hear and say: %d, %.2f per 1,000\n", words.tells, words.per(words.tells))
	lines := m.lines()
	fmt.Fprintf(w, "lines: product %d (comments %.1f %%), tests and their support %d, ratio %.2f\n",
		lines.product, 100*float64(lines.comment)/float64(max(lines.product, 1)), lines.tests, float64(lines.tests)/float64(max(lines.product, 1)))
	fmt.Fprintf(w, "packages of the product: %d\n", m.packages())
	return walk(w, m, o)
}
