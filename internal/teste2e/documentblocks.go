package teste2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// block is a fenced block of a document.
type block struct {
	file string
	line int // line of its fence
	lang string
	text string
}

// documents are the pages whose fenced blocks are run.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages of documents: %v", len(pages), err)
	}
	return append([]string{"../../README.md"}, pages...)
}

// blocksOf reads the fenced blocks of a document.
func blocksOf(t *testing.T, path string) (list []block) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var open *block
	for i, line := range strings.Split(string(text), "\n") {
		lang, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{file: filepath.Base(path), line: i + 1, lang: lang}
		case fence:
			list, open = append(list, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		t.Fatalf("%s: the fence of line %d has no end", path, open.line)
	}
	return list
}

// exchange is a command of a document, with its printed output.
type exchange struct {
	command string
	root    bool // has the prompt of root
	prints  []string
}

// exchanges returns the commands of a block. The output of those of the language sh is not compared.
func (b block) exchanges() (list []exchange) {
	for line := range strings.Lines(b.text) {
		line = strings.TrimSuffix(line, "\n")
		command, ordinary := strings.CutPrefix(line, "$ ")
		asRoot, root := strings.CutPrefix(line, "# ")
		switch {
		case b.lang == "sh" && len(list) > 0 && strings.HasSuffix(list[len(list)-1].command, "\\"):
			list[len(list)-1].command += "\n" + line
		case b.lang == "sh" && strings.TrimSpace(line) != "":
			list = append(list, exchange{command: line})
		case b.lang != "console":
		case ordinary:
			list = append(list, exchange{command: command})
		case root:
			list = append(list, exchange{command: asRoot, root: true})
		case len(list) > 0:
			last := &list[len(list)-1]
			last.prints = append(last.prints, line)
		}
	}
	return list
}

// sceneLine is a line of a block of the language terminal: a command on that terminal or on another one (`$ …`), a line that the person types into
// the command (`> …`), or what the terminal shows.
type sceneLine struct{ command, typed, shows string }

// scene returns the lines of a block of the language terminal. The first is the command that stays on the terminal.
func (b block) scene() (lines []sceneLine) {
	for line := range strings.Lines(b.text) {
		line = strings.TrimSpace(line)
		command, is := strings.CutPrefix(line, "$ ")
		typed, types := strings.CutPrefix(line, "> ")
		switch {
		case is:
			lines = append(lines, sceneLine{command: command})
		case types:
			lines = append(lines, sceneLine{typed: typed})
		case line != "":
			lines = append(lines, sceneLine{shows: line})
		}
	}
	return lines
}

// commandless matches a block without a language that looks like commands, so that none is skipped.
var commandless = regexp.MustCompile(`(?m)^(\$ |# |laneway |go run |make |install |useradd |curl )`)

// unsteady are the parts of an output that differ between runs, and their replacements.
var unsteady = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<id>"},
	{regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d(:\d\d)? [A-Z]{3,5}`), "<time>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "<time>"},
	{regexp.MustCompile(`\b1[789]\d{11}\b`), "<time>"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m|h|d)\b`), "<duration>"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "<address>"},
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "<sum>"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// settled returns an output without its unsteady parts, line by line.
func settled(lines []string) (out []string) {
	for _, line := range lines {
		for _, v := range unsteady {
			line = v.pattern.ReplaceAllString(line, v.name)
		}
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// printed reports whether the output of a command matches its document: the same lines except for the unsteady parts. `…` in a line matches
// anything, and as a line any lines.
func printed(want, got []string) bool {
	want, got = settled(want), settled(got)
	if i := slices.Index(want, "…"); i >= 0 {
		rest := want[i+1:]
		return len(got) >= i+len(rest) && printed(want[:i], got[:i]) && printed(rest, got[len(got)-len(rest):])
	}
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(want[i]), "…", ".*")
		if !regexp.MustCompile("^" + pattern + "$").MatchString(got[i]) {
			return false
		}
	}
	return true
}
