package archtest_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// longLine is how many characters two lines of a document may have in common at their beginning.
const longLine = 60

// TestNoDocumentSaysAThingTwice finds what a merge leaves when both sides changed a paragraph, a
// row or a section: headings with the same words below the same heading, rows with the same first
// cell in one table, and lines that begin with the same 60 characters. Blocks of code repeat
// themselves for good reasons.
func TestNoDocumentSaysAThingTwice(t *testing.T) {
	t.Parallel()
	pages := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pages++
		if head, _, _ := strings.Cut(string(text), "\n\n## "); strings.Contains(head, "`make generate`") {
			return nil // a part that two methods share stands at both; `make generated` compares such a page with its source
		}
		for _, fault := range repeated(string(text)) {
			t.Errorf("%s:%s", strings.TrimPrefix(path, "../../"), fault)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages < 50 {
		t.Errorf("only %d documents were found", pages)
	}
}

// repeated are the repetitions in a document, each with the number of its line.
func repeated(text string) (faults []string) {
	lines, cells, headings := map[string]int{}, map[string]int{}, map[string]int{}
	var above [7]string // the headings above a line, by level
	code := false
	note := func(seen map[string]int, key string, n int, what string) {
		if first := seen[key]; first > 0 {
			faults = append(faults, fmt.Sprintf("%d: %s line %d", n, what, first))
			return
		}
		seen[key] = n
	}
	for i, line := range strings.Split(text, "\n") {
		if fence := strings.HasPrefix(strings.TrimSpace(line), "```"); fence || code {
			code = code != fence
			continue
		}
		marks := line[:len(line)-len(strings.TrimLeft(line, "#"))]
		level := len(marks)
		cell, _, isRow := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		switch isRow = isRow && strings.HasPrefix(line, "|"); {
		case level > 0 && level < len(above) && strings.HasPrefix(line[level:], " "):
			above[level] = line
			clear(above[level+1:])
			note(headings, strings.Join(above[:], "\n"), i+1, "repeats the heading of")
		case isRow:
			if name := strings.TrimSpace(cell); strings.Trim(name, "-: ") != "" {
				note(cells, name, i+1, "repeats the first cell of")
			}
			continue
		case len([]rune(line)) > longLine:
			note(lines, string([]rune(line)[:longLine]), i+1, "begins as")
		}
		clear(cells) // the table has ended
	}
	return faults
}

// A reader who meets a state or a reason looks it up on one page.
func TestThePageOfStatesHasEveryStateAndReason(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/states-and-reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for path, types := range map[string][]string{
		"../chat/message.go": {"Outcome"},
		"../chat/event.go":   {"FailReason"},
		"../cron/run.go":     {"RunState", "Reason", "DeliveryStatus"},
	} {
		for _, value := range constantsOf(t, path, types) {
			want++
			if !strings.Contains(string(page), "\n| `"+value+"` |") {
				t.Errorf("docs/states-and-reasons.md has no row of %s (%s)", value, path)
			}
		}
	}
	if rows := strings.Count(string(page), "\n| `"); rows != want {
		t.Errorf("the page has %d rows, and the code has %d states and reasons", rows, want)
	}
}

// constantsOf returns the values of the string constants that a file declares of some types.
func constantsOf(t *testing.T, path string, types []string) (values []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); !ok || !slices.Contains(types, name.Name) {
			return false
		}
		for _, v := range spec.Values {
			if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if value, err := strconv.Unquote(lit.Value); err == nil && value != "" {
					values = append(values, value)
				}
			}
		}
		return false
	})
	if len(values) == 0 {
		t.Fatalf("%s has no constants of %q", path, types)
	}
	return values
}
