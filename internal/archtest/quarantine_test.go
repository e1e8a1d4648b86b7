package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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

// TestNoTestIsSelectedByItsName: which test runs when depends on its directory and on
// testing.Short().
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

var (
	// rewritesLog are statements that change or remove rows of the log of changes.
	rewritesLog = regexp.MustCompile(`(?is)\b(update|delete\s+from|truncate(\s+table)?)\s+(only\s+)?("?public"?\.)?"?audit_log\b|\binsert\s+into\s+audit_log\b[^;]*\bdo\s+update\b|\breplace\s+into\s+audit_log\b`)
	// openEnd are statements whose table comes from elsewhere, so that this test cannot see which
	// it is. FOR UPDATE and DO UPDATE name none. The words of prose are not in capitals.
	openEnd = regexp.MustCompile(`(?s)(\b(?:FOR|DO|NO\s+KEY)\s+)?\b(?:UPDATE|DELETE\s+FROM|TRUNCATE(?:\s+TABLE)?|REPLACE\s+INTO)\s*(?:%[a-z]|"?$)`)
)

// byAge is the one statement that removes rows of the log of changes: its retention.
const byAge = "WITH old AS MATERIALIZED (SELECT id FROM audit_log WHERE at < $1 ORDER BY at {limit $2}) DELETE FROM audit_log WHERE id IN (SELECT id FROM old)"

// logFault returns what is wrong with a piece of SQL, "" = nothing.
func logFault(sql string) string {
	if strings.Join(strings.Fields(sql), " ") == byAge {
		return ""
	}
	if found := rewritesLog.FindString(sql); found != "" {
		return "audit_log is only ever added to: " + strings.Join(strings.Fields(found), " ")
	}
	for _, found := range openEnd.FindAllStringSubmatch(sql, -1) {
		if found[1] == "" {
			return "name the table in the statement: " + strings.TrimSpace(found[0])
		}
	}
	return ""
}

// No statement of a store or a migration changes a row of the log of changes; a row leaves by its
// age only.
func TestRowsLeaveTheLogOfChangesByAgeOnly(t *testing.T) {
	t.Parallel()
	mentions := 0
	look := func(path, sql string) {
		if strings.Contains(sql, "audit_log") {
			mentions++
		}
		if fault := logFault(sql); fault != "" {
			t.Errorf("%s: %s", path, fault)
		}
	}
	for _, p := range list(t, "./internal/store/...") {
		if support(p.ImportPath) {
			continue
		}
		for _, file := range p.GoFiles {
			for _, sql := range literals(t, filepath.Join(p.Dir, file)) {
				look(file, sql)
			}
		}
	}
	files, err := filepath.Glob("../../migrations/*/*.sql")
	if err != nil || len(files) < 2 {
		t.Fatalf("found the migrations %q, %v", files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		look(path, string(text))
	}
	if mentions < 6 {
		t.Errorf("audit_log is mentioned in %d places; that is not all of the stores", mentions)
	}
}

// literals are the texts in a file of source.
func literals(t *testing.T, path string) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
		}
		return true
	})
	return all
}

func TestRewritingTheLogIsSeen(t *testing.T) {
	t.Parallel()
	for sql, wrong := range map[string]bool{
		"UPDATE audit_log SET who = $1":                                       true,
		"delete\n\tfrom audit_log where at < ?":                               true,
		"DELETE FROM ONLY public.audit_log":                                   true,
		"TRUNCATE audit_log":                                                  true,
		"TRUNCATE TABLE audit_log":                                            true,
		"INSERT INTO audit_log (id) VALUES (1) ON CONFLICT DO UPDATE SET a=1": true,
		"REPLACE INTO audit_log (id) VALUES (1)":                              true,
		"WITH gone AS (DELETE FROM audit_log RETURNING 1) SELECT 1":           true,
		byAge:                             false,
		byAge + "; DELETE FROM audit_log": true,
		"DELETE FROM ":                    true,
		"UPDATE %s SET at = 1":            true,
		"x = 1; DELETE FROM \"":           true,
		"SELECT 1 FROM a FOR UPDATE":      false,
		"SELECT 1 FOR NO KEY UPDATE":      false,
		"ON CONFLICT DO UPDATE SET a=1":   false,
		"DELETE FROM audit_log_copy":      false,
		"UPDATE sessions SET a = 1":       false,
		"INSERT INTO audit_log (id) VALUES ($1); UPDATE runs SET a = 1": false,
		"the last update": false,
	} {
		if fault := logFault(sql); (fault != "") != wrong {
			t.Errorf("%q: %q, want a fault: %v", sql, fault, wrong)
		}
	}
}
