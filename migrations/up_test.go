package migrations_test

import (
	"bytes"
	"database/sql"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"laneway/migrations"
)

func TestUpLogsOneLineForAllStepsAndThoseBeforeAFailure(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "steps.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	files := fstest.MapFS{}
	up := func() (int, []string, error) {
		t.Helper()
		p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		steps, err := migrations.Up(t.Context(), p, slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTimes})))
		return steps, strings.Split(strings.TrimSpace(out.String()), "\n"), err
	}
	step := func(name, statement string) {
		files[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + statement + ";\n")}
	}
	step("00001_a.sql", "CREATE TABLE a (n int)")
	step("00005_b.sql", "CREATE TABLE b (n int)")
	step("00007_c.sql", "CREATE TABLE b (n int)") // which exists
	steps, lines, err := up()
	want := []string{`level=DEBUG msg="schema step applied" version=1`, `level=DEBUG msg="schema step applied" version=5`, `level=INFO msg="schema migrated" from=0 to=5 steps=2`}
	if steps != 2 || err == nil || !slices.Equal(lines, want) {
		t.Errorf("with a step that fails: %d steps, %v, %q", steps, err, lines)
	}
	step("00007_c.sql", "CREATE TABLE c (n int)")
	steps, lines, err = up()
	want = []string{`level=DEBUG msg="schema step applied" version=7`, `level=INFO msg="schema migrated" from=5 to=7 steps=1`}
	if steps != 1 || err != nil || !slices.Equal(lines, want) {
		t.Errorf("the rest: %d steps, %v, %q", steps, err, lines)
	}
	if steps, lines, err = up(); steps != 0 || err != nil || lines[0] != "" {
		t.Errorf("without a missing step: %d steps, %v, %q", steps, err, lines)
	}
}

// withoutTimes removes what differs from run to run.
func withoutTimes(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == "duration_ms" {
		return slog.Attr{}
	}
	return a
}
