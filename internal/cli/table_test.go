package cli

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// The table of a command line has only the command with which it begins. Help and errors must be the same as with the whole table.
func TestTheTableOfOneCommandAnswersAsTheWholeOneDoes(t *testing.T) {
	t.Parallel()
	whole := newTableBench(t, &commands{})
	lines := [][]string{{}, {"statu"}, {"--help"}, {"-q"}, {"--", "status"}, {"--no-notes", "status", "--help"}, {"status", "cron", "list"}, {"cron", "status"}}
	err := kong.Visit(whole.parser.Model, func(node kong.Visitable, next kong.Next) error {
		if n, ok := node.(*kong.Node); ok && n.Type == kong.CommandNode {
			words := strings.Fields(strings.TrimPrefix(n.Path(), "laneway "))
			for _, more := range [][]string{{"--help"}, {"--no-such-flag"}, {"one", "more", "word", "than", "any", "command"}, {"-q", "-h"}} {
				lines = append(lines, append(slices.Clip(words), more...))
			}
		}
		return next(nil)
	})
	if err != nil || len(lines) < 200 {
		t.Fatalf("%d command lines, %v", len(lines), err)
	}
	parts := map[reflect.Type]*tableBench{}
	for _, line := range lines {
		table := tableFor(line)
		part := parts[reflect.TypeOf(table)]
		if part == nil {
			part = newTableBench(t, table)
			parts[reflect.TypeOf(table)] = part
		}
		if got, want := part.answer(line), whole.answer(line); got != want {
			t.Errorf("laneway %s:\n%s\nwith the whole table:\n%s", strings.Join(line, " "), got, want)
		}
	}
	if len(parts) != len(whole.parser.Model.Children)+1 {
		t.Errorf("%d tables for %d commands", len(parts), len(whole.parser.Model.Children))
	}
}

// tableBench is a parser of one table and its output.
type tableBench struct {
	*bench
	parser *kong.Kong
}

func newTableBench(t *testing.T, table any) *tableBench {
	t.Helper()
	b := newBench("")
	parser, err := newParser(b.env, table)
	if err != nil {
		t.Fatal(err)
	}
	return &tableBench{b, parser}
}

// answer returns what the parser prints and returns for a command line; no command runs.
func (b *tableBench) answer(line []string) (text string) {
	b.stdout.Reset()
	b.stderr.Reset()
	defer func() {
		if stop, ok := recover().(exitNow); ok {
			text = "exits with " + strconv.Itoa(int(stop)) + "\n" + b.stdout.String() + b.stderr.String()
		}
	}()
	parsed, err := b.parser.Parse(line)
	if err != nil {
		return explainUsage(err, line).Error()
	}
	return "runs " + parsed.Command()
}
