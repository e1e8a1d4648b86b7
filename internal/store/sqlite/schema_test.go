package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"laneway/internal/store/storetest"
	"laneway/migrations"
)

var update = flag.Bool("update", false, "write migrations/sqlite.schema.txt again")

// tablesSQL, columnsSQL and indexesSQL read the schema in the order of its creation.
const (
	tablesSQL = `SELECT s.name, CASE WHEN t.strict THEN ' STRICT' ELSE '' END || CASE WHEN t.wr THEN ' WITHOUT ROWID' ELSE '' END,
			CASE WHEN t.type = 'virtual' THEN s.sql ELSE '' END
		FROM sqlite_schema s JOIN pragma_table_list t ON t.name = s.name AND t.schema = 'main'
		WHERE s.type = 'table' AND t.type <> 'shadow' AND s.name NOT LIKE 'sqlite_%' AND s.name <> 'goose_db_version' ORDER BY s.rowid`
	columnsSQL = `SELECT name || ' ' || lower(type) || CASE WHEN "notnull" OR pk > 0 THEN ' NOT NULL' ELSE '' END || coalesce(' DEFAULT ' || dflt_value, '')
		FROM pragma_table_info(?) ORDER BY cid`
	keySQL     = `SELECT coalesce('PRIMARY KEY (' || group_concat(name, ', ') || ')', '') FROM (SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk)`
	indexesSQL = `SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL ORDER BY rowid`
)

// TestTheSchemaIsTheReviewedOne makes a change of the schema visible as a change of a file next to the migrations.
func TestTheSchemaIsTheReviewedOne(t *testing.T) {
	t.Parallel()
	db := outside(t, migrated(t))
	var text strings.Builder
	for _, table := range storetest.Query(t, db, tablesSQL) {
		fmt.Fprintf(&text, "table %s%s\n", table[0], table[1])
		if virtual := fmt.Sprint(table[2]); virtual != "" {
			fmt.Fprintf(&text, "    %s\n", strings.Join(strings.Fields(virtual), " "))
			continue
		}
		for _, q := range []string{columnsSQL, keySQL, indexesSQL} {
			for _, row := range storetest.Query(t, db, q, table[0]) {
				line := strings.Join(strings.Fields(strings.TrimPrefix(fmt.Sprint(row[0]), "CREATE ")), " ")
				fmt.Fprintf(&text, "    %s\n", strings.Replace(line, " ON "+fmt.Sprint(table[0])+" (", " (", 1))
			}
		}
	}
	storetest.ReviewedSchema(t, filepath.Join("..", "..", "..", "migrations", "sqlite.schema.txt"), text.String(), *update)
}

// TestADatabaseFromBeforeTheFirstReleaseIsRefusedAndLeftAlone checks that every way to open it fails, and that its file and the log that a crash has left stay
// unchanged.
func TestADatabaseFromBeforeTheFirstReleaseIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "laneway.db")
	crashed(t, path)
	before := map[string][]byte{}
	for _, name := range []string{path, path + "-wal"} {
		content, err := os.ReadFile(name)
		if err != nil || len(content) == 0 {
			t.Fatalf("%s: %d bytes, %v", name, len(content), err)
		}
		before[name] = content
	}
	cfg := Config{Path: path}
	migrate := func(d Direction) func(context.Context) error {
		return func(ctx context.Context) error { _, err := Migrate(ctx, cfg, d); return err }
	}
	for doing, do := range map[string]func(context.Context) error{
		"open": func(ctx context.Context) error { _, err := Open(ctx, cfg); return err },
		"up":   migrate(Up), "down": migrate(Down), "status": migrate(Status),
		"visit":  func(ctx context.Context) error { _, err := Visit(ctx, cfg); return err },
		"backup": func(ctx context.Context) error { return Backup(ctx, path, filepath.Join(dir, "copy.db")) },
		"source": func(ctx context.Context) error { _, err := OpenSource(ctx, cfg); return err },
		"target": func(ctx context.Context) error { _, err := OpenTarget(ctx, cfg); return err },
	} {
		if err := do(t.Context()); !errors.Is(err, migrations.ErrUnreleased) {
			t.Errorf("%s: got %v, want ErrUnreleased", doing, err)
		}
	}
	for name, content := range before {
		if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, content) {
			t.Errorf("%s was changed: %d bytes were %d (%v)", filepath.Base(name), len(now), len(content), err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "copy.db")); err == nil {
		t.Error("the refused backup left a file")
	}
}

// crashed creates a database of step 52 as a crashed process leaves it: the last commits are only in the log.
func crashed(t *testing.T, path string) {
	t.Helper()
	alive := filepath.Join(t.TempDir(), "alive.db")
	db, err := sql.Open("sqlite", "file:"+alive+"?_journal_mode=WAL")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	db.SetMaxOpenConns(1)
	for _, statement := range []string{
		`PRAGMA journal_mode = WAL`,
		`CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY AUTOINCREMENT, version_id INTEGER NOT NULL, is_applied INTEGER NOT NULL,
			tstamp TIMESTAMP DEFAULT (datetime('now')))`,
		`CREATE TABLE nodes (id TEXT NOT NULL PRIMARY KEY)`,
		`INSERT INTO goose_db_version (version_id, is_applied) VALUES (0, 1), (1, 1), (52, 1)`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, end := range []string{"", "-wal"} {
		content, err := os.ReadFile(alive + end)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+end, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
