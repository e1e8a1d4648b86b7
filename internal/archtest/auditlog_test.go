package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	// rewritesLog are statements that change or remove rows of the log of changes.
	rewritesLog = regexp.MustCompile(`(?is)\b(update|delete\s+from|truncate(\s+table)?)\s+(only\s+)?("?public"?\.)?"?audit_log\b|\binsert\s+into\s+audit_log\b[^;]*\bdo\s+update\b|\breplace\s+into\s+audit_log\b`)
	// openEnd are statements whose table comes from elsewhere, so that this test cannot see which it is. FOR UPDATE and DO UPDATE name none. The words of
	// prose are not in capitals.
	openEnd = regexp.MustCompile(`(?s)(\b(?:FOR|DO|NO\s+KEY)\s+)?\b(?:UPDATE|DELETE\s+FROM|TRUNCATE(?:\s+TABLE)?|REPLACE\s+INTO)\s*(?:%[a-z]|"?$)`)
)

// logFault returns what is wrong with a piece of SQL, "" = nothing.
func logFault(sql string) string {
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

// The program has no statement that changes or removes a row of the log of changes, in no store and in no migration.
func TestTheLogOfChangesIsOnlyAddedTo(t *testing.T) {
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
		"DELETE FROM ":                  true,
		"UPDATE %s SET at = 1":          true,
		"x = 1; DELETE FROM \"":         true,
		"SELECT 1 FROM a FOR UPDATE":    false,
		"SELECT 1 FOR NO KEY UPDATE":    false,
		"ON CONFLICT DO UPDATE SET a=1": false,
		"DELETE FROM audit_log_copy":    false,
		"UPDATE sessions SET a = 1":     false,
		"INSERT INTO audit_log (id) VALUES ($1); UPDATE runs SET a = 1": false,
		"the last update": false,
	} {
		if fault := logFault(sql); (fault != "") != wrong {
			t.Errorf("%q: %q, want a fault: %v", sql, fault, wrong)
		}
	}
}
