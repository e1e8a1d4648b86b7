//go:build compat

package testcompat

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the rows of the table of presets in docs/agents.md")

// presetHeader is the first line of the table in docs/agents.md.
const presetHeader = "| preset | version |"

// presetRow is a row of the table. works are the cells after the version.
type presetRow struct {
	name, version string
	works         []string
}

// cells returns the cells of a line of the table.
func cells(line string) (list []string) {
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		list = append(list, strings.TrimSpace(cell))
	}
	return list
}

// check compares the row with the one in the table, or writes it. The version may differ.
func (r presetRow) check(t *testing.T) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", "agents.md")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(raw), "\n")
	header := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, presetHeader) })
	if header < 0 {
		t.Fatalf("docs/agents.md has no table that begins with %q", presetHeader)
	}
	first := "`" + r.name + "`"
	row := header + slices.IndexFunc(lines[header:], func(line string) bool { return cells(line)[0] == first })
	if row < header {
		t.Fatalf("the table of docs/agents.md has no row of %s", r.name)
	}
	names, was, is := cells(lines[header]), cells(lines[row]), append([]string{first, r.version}, r.works...)
	if len(is) != len(names) {
		t.Fatalf("%d cells for %d columns: %q", len(is), len(names), is)
	}
	if *update && !t.Failed() {
		lines[row] = "| " + strings.Join(is, " | ") + " |"
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i, name := range names {
		if i > 1 && (i >= len(was) || was[i] != is[i]) {
			t.Errorf("%s, %s: %q; docs/agents.md has %q", r.name, name, is[i], was[min(i, len(was)-1)])
		}
	}
}

// npmVersion returns the installed version of a package.
func npmVersion(t *testing.T, dir, pkg string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "node_modules", pkg[:strings.LastIndexByte(pkg, '@')], "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var is struct{ Version string }
	if err := json.Unmarshal(raw, &is); err != nil {
		t.Fatal(err)
	}
	return is.Version
}
