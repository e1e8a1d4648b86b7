package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/store/storetest"
	"laneway/internal/testpg"
	"laneway/migrations"
)

func TestMigrateUpDownUp(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), testpg.Empty(t)
	if list, err := postgres.MigrateStatus(ctx, url); err != nil || len(list) == 0 || list[0].Applied {
		t.Fatalf("status of an empty database: %+v, %v", list, err)
	}
	if made := query(t, url, `SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public'`); len(made) > 0 {
		t.Fatalf("reading the status made %v", made)
	}
	steps, err := postgres.MigrateUp(ctx, url, nil)
	if err != nil || steps == 0 {
		t.Fatalf("up: %d steps, %v", steps, err)
	}
	for range steps {
		if version, err := postgres.MigrateDown(ctx, url, false); err != nil || version == 0 {
			t.Fatalf("down: version %d, %v", version, err)
		}
	}
	if version, err := postgres.MigrateDown(ctx, url, false); err != nil || version != 0 {
		t.Fatalf("down from nothing: version %d, %v", version, err)
	}
	left := query(t, url, `SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'public' AND c.relkind = 'r' AND relname <> 'laneway_migrations'`)
	if len(left) > 0 {
		t.Fatalf("tables that down has left: %v", left)
	}
	if again, err := postgres.MigrateUp(ctx, url, nil); err != nil || again != steps {
		t.Fatalf("up again: %d steps, %v", again, err)
	}
	list, err := postgres.MigrateStatus(ctx, url)
	if err != nil || len(list) != steps || !list[0].Applied || list[0].Version != migrations.First {
		t.Fatalf("status %+v, %v", list, err)
	}
}

func TestAMigrationIsLoggedAsOneLine(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), testpg.Empty(t)
	up := func() (int, string) {
		t.Helper()
		var out bytes.Buffer
		steps, err := postgres.MigrateUp(ctx, url, slog.New(slog.NewTextHandler(&out, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return steps, out.String()
	}
	line := func(from, to int64, steps int) *regexp.Regexp {
		return regexp.MustCompile(fmt.Sprintf(`^time=\S+ level=INFO msg="schema migrated" from=%d to=%d steps=%d duration_ms=\d+\n$`, from, to, steps))
	}
	all, first := up()
	list, err := postgres.MigrateStatus(ctx, url)
	if err != nil || len(list) != all {
		t.Fatalf("%d steps applied: %+v, %v", all, list, err)
	}
	newest, before := list[all-1].Version, int64(0)
	if all > 1 {
		before = list[all-2].Version
	}
	if !line(0, newest, all).MatchString(first) {
		t.Errorf("%d steps: %q, want one line", all, first)
	}
	if steps, again := up(); steps != 0 || again != "" {
		t.Errorf("%d steps: %q, want none and no line", steps, again)
	}
	if _, err := postgres.MigrateDown(ctx, url, false); err != nil {
		t.Fatal(err)
	}
	if steps, upgrade := up(); steps != 1 || !line(before, newest, 1).MatchString(upgrade) {
		t.Errorf("%d steps: %q, want one line for one step", steps, upgrade)
	}
}

func TestManyMigrateAtOnce(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), testpg.Empty(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := postgres.MigrateUp(ctx, url, nil); err != nil {
				t.Errorf("up: %v", err)
			}
		})
	}
	all.Wait()
	s := open(t, postgres.Config{URL: url})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusesAnotherSchema(t *testing.T) {
	t.Parallel()
	empty, newer := testpg.Empty(t), testpg.DB(t)
	exec(t, newer, `INSERT INTO laneway_migrations (version_id, is_applied) VALUES (99999, true)`)
	for url, want := range map[string]string{empty: "laneway migrate up", newer: "install a newer laneway"} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: url})
		if !errors.Is(err, store.ErrSchema) || !errors.Is(err, chat.ErrStoreUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a refusal that says %q", err, want)
		}
	}
}

func TestAddressStaysSecret(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://amelia:hunter2@127.0.0.1:1/laneway?sslmode=disable",
		"postgres://amelia:hunter2@127.0.0.1:port/laneway",
		"host=127.0.0.1 port=1 user=amelia password=hunter2 dbname=laneway sslmode=nonsense",
	} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: url})
		if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "amelia") {
			t.Errorf("got %v, want an error without user and password", err)
		}
	}
}

var update = flag.Bool("update", false, "write migrations/postgres.schema.txt again")

// tablesSQL, columnsSQL and indexesSQL read the schema in the order of its creation.
const (
	tablesSQL = `SELECT c.relname::text, CASE WHEN c.relpersistence = 'u' THEN ' UNLOGGED' ELSE '' END || COALESCE(' WITH (' || array_to_string(c.reloptions, ', ') || ')', '')
		FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> 'laneway_migrations' ORDER BY c.oid`
	columnsSQL = `SELECT a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || CASE WHEN l.collname <> 'default' THEN ' COLLATE ' || l.collname ELSE '' END
			|| CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END || COALESCE(' DEFAULT ' || replace(pg_get_expr(d.adbin, d.adrelid), '::text', ''), '')
			|| CASE a.attidentity WHEN 'a' THEN ' ALWAYS IDENTITY' WHEN 'd' THEN ' IDENTITY' ELSE '' END
		FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum LEFT JOIN pg_collation l ON l.oid = a.attcollation
		WHERE a.attrelid = '%s'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`
	constraintsSQL = `SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = '%s'::regclass AND contype <> 'n' ORDER BY contype DESC, conname`
	indexesSQL     = `SELECT replace(pg_get_indexdef(i.indexrelid), '::text', '') FROM pg_index i WHERE i.indrelid = '%s'::regclass AND NOT i.indisprimary ORDER BY i.indexrelid`
)

// TestTheSchemaIsTheReviewedOne makes a change of the schema visible as a change of a file next to
// the migrations.
func TestTheSchemaIsTheReviewedOne(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	onTable := regexp.MustCompile(`^CREATE (.*) ON public\.\w+ (USING btree )?`)
	var text strings.Builder
	for _, table := range query(t, url, tablesSQL) {
		fmt.Fprintf(&text, "table %s%s\n", table[0], table[1])
		for _, q := range []string{columnsSQL, constraintsSQL, indexesSQL} {
			for _, row := range query(t, url, fmt.Sprintf(q, table[0])) {
				fmt.Fprintf(&text, "    %s\n", onTable.ReplaceAllString(fmt.Sprint(row[0]), "$1 "))
			}
		}
	}
	storetest.ReviewedSchema(t, filepath.Join("..", "..", "..", "migrations", "postgres.schema.txt"), text.String(), *update)
}

// TestADatabaseFromBeforeTheFirstReleaseIsRefusedAndLeftAlone checks that every way to open it
// fails, and that it keeps its tables and rows.
func TestADatabaseFromBeforeTheFirstReleaseIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	url := testpg.Empty(t)
	exec(t, url, `CREATE TABLE laneway_migrations (id integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY, version_id bigint NOT NULL, is_applied boolean NOT NULL,
		tstamp timestamp NOT NULL DEFAULT now()); INSERT INTO laneway_migrations (version_id, is_applied) VALUES (0, true), (1, true), (52, true);
		CREATE TABLE nodes (id text NOT NULL PRIMARY KEY)`)
	content := func() []string {
		rows := query(t, url, `SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace UNION ALL SELECT version_id::text FROM laneway_migrations ORDER BY 1`)
		list := make([]string, 0, len(rows))
		for _, row := range rows {
			list = append(list, fmt.Sprint(row[0]))
		}
		return list
	}
	before := content()
	for doing, do := range map[string]func(context.Context) error{
		"open":   func(ctx context.Context) error { _, err := postgres.Open(ctx, postgres.Config{URL: url}); return err },
		"up":     func(ctx context.Context) error { _, err := postgres.MigrateUp(ctx, url, nil); return err },
		"down":   func(ctx context.Context) error { _, err := postgres.MigrateDown(ctx, url, true); return err },
		"status": func(ctx context.Context) error { _, err := postgres.MigrateStatus(ctx, url); return err },
		"source": func(ctx context.Context) error { _, err := postgres.OpenSource(ctx, url); return err },
		"target": func(ctx context.Context) error { _, err := postgres.OpenTarget(ctx, url); return err },
	} {
		if err := do(t.Context()); !errors.Is(err, migrations.ErrUnreleased) {
			t.Errorf("%s: got %v, want ErrUnreleased", doing, err)
		}
	}
	if now := content(); !slices.Equal(now, before) {
		t.Errorf("the refused database was changed: %q, before %q", now, before)
	}
}

func TestACompactionGivesBackWhatDeletedRowsHaveLeft(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	exec(t, url, "ALTER TABLE transcript SET (autovacuum_enabled = false, toast.autovacuum_enabled = false)") // otherwise the server would free the space first
	s := open(t, postgres.Config{URL: url})
	defer func() { _ = s.Close() }()
	key := chat.SessionKey{Agent: "main", Rest: "room"}
	for range 10 {
		var entries []chat.TranscriptEntry
		for i := range 500 {
			entries = append(entries, chat.TranscriptEntry{Role: chat.RoleUser, Text: strings.Repeat(fmt.Sprint(i, " "), 200)})
		}
		if _, err := s.AppendTranscript(t.Context(), key, "ann", entries); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.DeleteSession(t.Context(), store.DeleteParams{Session: key}); err != nil {
		t.Fatal(err)
	}
	report, err := s.Compact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(report, "0.0 MiB") || !strings.Contains(report, "MiB given back to the disk") || !strings.Contains(report, "tables vacuumed") || strings.Contains(report, "left out") {
		t.Errorf("the report is %q", report)
	}
	t.Log(report)
}

func TestACompactionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.Config{URL: testpg.DB(t)})
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithCancelCause(t.Context())
	ends := errors.New("the process ends")
	cancel(ends)
	if report, err := s.Compact(ctx); err == nil {
		t.Errorf("it continued: %q", report)
	}
}
