package migrations_test

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"laneway/migrations"
)

// TestBothEnginesHaveTheSameSteps: the files have the same names, and none is from before the first
// release.
func TestBothEnginesHaveTheSameSteps(t *testing.T) {
	t.Parallel()
	names := func(files fs.FS, dir string) []string {
		list, err := fs.Glob(files, dir+"/*.sql")
		if err != nil || len(list) == 0 {
			t.Fatalf("%s: %v, %v", dir, list, err)
		}
		for i, name := range list {
			list[i] = path.Base(name)
		}
		return list
	}
	postgres, sqlite := names(migrations.Postgres, "postgres"), names(migrations.SQLite, "sqlite")
	if !slices.Equal(postgres, sqlite) {
		t.Errorf("PostgreSQL has %q, SQLite %q", postgres, sqlite)
	}
	if postgres[0] != "00100_init.sql" || migrations.First != 100 {
		t.Errorf("the first step is %s, its number %d", postgres[0], migrations.First)
	}
}

// Databases of a release have run its steps, so the files do not change: a later version adds one.
func TestReleasedStepsDoNotChange(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{ // since 0.1.0
		"postgres/00100_init.sql": "0b3e98296c62c90b4e0926b2cc3b5ee6b2680a775372ec34262162601d272f4f",
		"sqlite/00100_init.sql":   "2d2b72d1341300add6623b4f082ec4a64d937eee4f7ae7c6007eb4385fadb3d0",
	} {
		content, err := os.ReadFile(name)
		if got := fmt.Sprintf("%x", sha256.Sum256(content)); err != nil || got != want {
			t.Errorf("%s has the sum %s, want that of the release; add a step instead (%v)", name, got, err)
		}
	}
}

// table is what both engines have in common of a table, as the reviewed texts have it.
type table struct{ columns, indexes []string }

// reviewed reads one of the texts. Types are left out, and booleans have one form; so have
// identities, which are the rowid on SQLite.
func reviewed(t *testing.T, name string) map[string]*table {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	column := regexp.MustCompile(`^    ([a-z_]+) (?:text|integer|bigint|boolean|double precision|tsvector)(?: COLLATE C)?((?: NOT NULL)?)((?: DEFAULT .*)?)(?: (?:ALWAYS )?IDENTITY)?$`)
	index := regexp.MustCompile(`^    ((?:UNIQUE )?INDEX) (\w+) `)
	tables := map[string]*table{}
	var current *table
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "table "); ok {
			name, _, _ = strings.Cut(name, " ")
			current = &table{}
			tables[name] = current
		} else if m := column.FindStringSubmatch(line); m != nil {
			current.columns = append(current.columns, m[1]+m[2]+strings.NewReplacer("false", "0", "true", "1", "'-1'::integer", "-1").Replace(m[3]))
		} else if m := index.FindStringSubmatch(line); m != nil {
			current.indexes = append(current.indexes, m[1]+" "+m[2])
		}
	}
	return tables
}

// TestBothEnginesHaveTheSameTables: tables, their columns in order with what is required and what
// is the default, and the names of indexes. What follows an engine's full-text search, or what only
// one engine needs, is named here.
func TestBothEnginesHaveTheSameTables(t *testing.T) {
	t.Parallel()
	own := map[string][]string{
		"postgres": {
			"allowances", "search_progress", "search_transcripts", "search_entries", "UNIQUE INDEX outbox_under_way", "INDEX cron_runs_times",
		},
		"sqlite": {
			"search_state", "transcript_words", "INDEX runs_session", "UNIQUE INDEX outbox_id", "INDEX outbox_failed", "INDEX cron_runs_planned", "INDEX cron_runs_finished",
		},
	}
	seen := map[string]bool{}
	shared := func(engine string) map[string]*table {
		tables := reviewed(t, engine+".schema.txt")
		for name, one := range tables {
			if slices.Contains(own[engine], name) {
				seen[name] = true
				delete(tables, name)
			}
			one.indexes = slices.DeleteFunc(one.indexes, func(index string) bool {
				mine := slices.Contains(own[engine], index)
				seen[index] = seen[index] || mine
				return mine
			})
		}
		return tables
	}
	postgres, sqlite := shared("postgres"), shared("sqlite")
	if a, b := slices.Sorted(maps.Keys(postgres)), slices.Sorted(maps.Keys(sqlite)); !slices.Equal(a, b) || len(a) == 0 {
		t.Fatalf("PostgreSQL has the tables %q, SQLite %q", a, b)
	}
	for name, one := range postgres {
		other := sqlite[name]
		if !slices.Equal(one.columns, other.columns) || len(one.columns) == 0 {
			t.Errorf("%s: PostgreSQL has the columns %q, SQLite %q", name, one.columns, other.columns)
		}
		if !slices.Equal(one.indexes, other.indexes) {
			t.Errorf("%s: PostgreSQL has the indexes %q, SQLite %q", name, one.indexes, other.indexes)
		}
	}
	for _, name := range slices.Concat(own["postgres"], own["sqlite"]) {
		if !seen[name] {
			t.Errorf("%s is named here and exists no more", name)
		}
	}
}

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
