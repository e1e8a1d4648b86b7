package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const (
	mostQuarantined = 5
	longestStay     = 14 * 24 * time.Hour
)

// TestTheQuarantineIsSmallAndShort: each line is a date, a test that exists, and a reason.
func TestTheQuarantineIsSmallAndShort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("quarantine.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range quarantineFaults(string(text), time.Now(), testNames(t)) {
		t.Error(fault)
	}
}

func TestALargeOrLongQuarantineIsRefused(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 20, 12, 0, 0, 0, time.UTC)
	names := map[string]bool{"TestA": true}
	for text, want := range map[string]string{
		"# a comment\n\n2026-05-10 TestA waits too short\n": "",
		"2026-05-01 TestA waits too short":                  "longer than",
		"2026-06-01 TestA waits too short":                  "in the future",
		"2026-05-10 TestB waits too short":                  "no test",
		"2026-05-10 TestA":                                  "a reason",
		"soon TestA waits too short":                        "date",
		strings.Repeat("2026-05-10 TestA too slow\n", 6):    "at most",
	} {
		if got := strings.Join(quarantineFaults(text, now, names), "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func quarantineFaults(text string, now time.Time, names map[string]bool) (faults []string) {
	lines := 0
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		lines++
		part := strings.SplitN(line, " ", 3)
		if len(part) < 3 {
			faults = append(faults, fmt.Sprintf("%q has not a date, a test and a reason", line))
			continue
		}
		since, err := time.Parse(time.DateOnly, part[0])
		switch {
		case err != nil:
			faults = append(faults, fmt.Sprintf("%q begins with no date: %v", line, err))
		case now.Sub(since) > longestStay:
			faults = append(faults, fmt.Sprintf("%s is in quarantine for longer than %d days: repair or delete it", part[1], longestStay/(24*time.Hour)))
		case since.After(now):
			faults = append(faults, fmt.Sprintf("the date of %s is in the future", part[1]))
		}
		if !names[part[1]] {
			faults = append(faults, part[1]+" is the name of no test")
		}
	}
	if lines > mostQuarantined {
		faults = append(faults, fmt.Sprintf("%d tests are in quarantine, at most %d may be", lines, mostQuarantined))
	}
	return faults
}

// testNames are the names of all tests of the module.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, top := range []string{"cmd", "internal", "migrations", "docs", "bench"} {
		err := filepath.WalkDir(filepath.Join("..", "..", top), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range declared.FindAllSubmatch(text, -1) {
				names[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// TestNoTestIsSelectedByItsName: which test runs when depends on its directory and on testing.Short().
func TestNoTestIsSelectedByItsName(t *testing.T) {
	t.Parallel()
	files := []string{"../../Makefile", "../../.ci/run"}
	scripts, err := filepath.Glob("../../scripts/*")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	names := testNames(t)
	word := regexp.MustCompile(`\bTest[A-Z]\w*`)
	selects := regexp.MustCompile(`-(run|skip) ['"]?\^?\(?\w`) // a variable begins with $
	for _, file := range append(files, scripts...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range word.FindAllString(string(text), -1) {
			if names[name] {
				t.Errorf("%s names %s", file, name)
			}
		}
		for n, line := range strings.Split(string(text), "\n") {
			if selects.MatchString(line) {
				t.Errorf("%s:%d selects tests by a pattern of its own: %s", file, n+1, strings.TrimSpace(line))
			}
		}
	}
}
