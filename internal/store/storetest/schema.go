package storetest

import (
	"os"
	"strings"
	"testing"
)

// ReviewedSchema compares the schema of an engine with the file next to the migrations, or writes that file.
func ReviewedSchema(tb testing.TB, path, schema string, write bool) {
	tb.Helper()
	schema = "The tables, columns and indexes that the migrations make. After a new migration write it again: make schema\n\n" + schema
	if write {
		if err := os.WriteFile(path, []byte(schema), 0o600); err != nil {
			tb.Fatal(err)
		}
		return
	}
	content, err := os.ReadFile(path) //nolint:gosec // a file of the repository
	if err != nil {
		tb.Fatal(err)
	}
	have, want := strings.Split(schema, "\n"), strings.Split(string(content), "\n")
	for i := range max(len(have), len(want)) {
		if i >= len(have) || i >= len(want) || have[i] != want[i] {
			line := func(list []string) string { return strings.Join(list[min(i, len(list)):min(i+1, len(list))], "") }
			tb.Fatalf("%s, line %d: the schema has %q, the file %q; if the change is meant: make schema", path, i+1, line(have), line(want))
		}
	}
}
