package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
	"laneway/internal/store/storetest"
	"laneway/migrations"
)

func TestMigrationsGoUpAndDownAndKeepWhatIsNotTheirs(t *testing.T) {
	t.Parallel()
	cfg := Config{Path: filepath.Join(t.TempDir(), "laneway.db")}
	for _, d := range []Direction{Status, Down} {
		if _, err := Migrate(t.Context(), cfg, d); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s without a database: got %v, want fs.ErrNotExist", d, err)
		}
	}
	for range 2 { // up again after down
		applied(t, cfg, Up, true)
		applied(t, cfg, Up, true)
		applied(t, cfg, Status, true)
		for range applied(t, cfg, Status, true) {
			if _, err := Migrate(t.Context(), cfg, Down); err != nil {
				t.Fatal(err)
			}
		}
		applied(t, cfg, Status, false)
	}
	if _, err := Migrate(t.Context(), cfg, Down); err == nil || !strings.Contains(err.Error(), "no migration to take back") {
		t.Errorf("down at the bottom: got %v", err)
	}
	if _, err := Migrate(t.Context(), cfg, "sideways"); err == nil || !strings.Contains(err.Error(), "up, down or status") {
		t.Errorf("an unknown direction: got %v", err)
	}
	var tables int
	err := outside(t, cfg.Path).QueryRow(`SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'goose_db_version'`).Scan(&tables)
	if err != nil || tables != 0 {
		t.Errorf("%d tables are left after everything was taken back (%v)", tables, err)
	}
}

func TestAStartLogsItsMigrationAsOneLine(t *testing.T) {
	t.Parallel()
	cfg := Config{Path: filepath.Join(t.TempDir(), "laneway.db")}
	logged := func() []string {
		t.Helper()
		var out bytes.Buffer
		cfg := cfg
		cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`level=INFO msg="schema .*`).FindAllString(out.String(), -1)
	}
	first := logged()
	list := applied(t, cfg, Status, true)
	steps := len(list)
	newest, before := list[steps-1].Version, int64(0)
	if steps > 1 {
		before = list[steps-2].Version
	}
	line := func(from, to int64, steps int) string {
		return fmt.Sprintf(`^level=INFO msg="schema migrated" from=%d to=%d steps=%d duration_ms=\d+$`, from, to, steps)
	}
	if len(first) != 1 || !regexp.MustCompile(line(0, newest, steps)).MatchString(first[0]) {
		t.Errorf("the first start logs %q, want one line for %d steps", first, steps)
	}
	if again := logged(); len(again) != 0 {
		t.Errorf("a start with nothing to migrate logs %q", again)
	}
	if _, err := Migrate(t.Context(), cfg, Down); err != nil {
		t.Fatal(err)
	}
	if upgrade := logged(); len(upgrade) != 1 || !regexp.MustCompile(line(before, newest, 1)).MatchString(upgrade[0]) {
		t.Errorf("a start with one new step logs %q", upgrade)
	}
}

// applied migrates and checks that every migration is in the wanted state.
func applied(t *testing.T, cfg Config, d Direction, want bool) []migrations.Step {
	t.Helper()
	list, err := Migrate(t.Context(), cfg, d)
	if err != nil {
		t.Fatalf("%s: %v", d, err)
	}
	if len(list) == 0 {
		t.Fatalf("%s: no migrations", d)
	}
	for _, m := range list {
		if m.Applied != want || m.AppliedAt.IsZero() == want || m.Name == "" || m.Version == 0 {
			t.Errorf("%s: got %+v, want applied %t", d, m, want)
		}
	}
	return list
}

func TestANewerSchemaIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	s := openAt(t, path, nil)
	register(t, s, "node")
	if err := turn(t.Context(), s, "node", "room", "m"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := outside(t, path)
	if _, err := db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Path: path})
	if !errors.Is(err, ErrNewerSchema) || !strings.Contains(err.Error(), "9999") {
		t.Fatalf("got %v, want ErrNewerSchema with the version", err)
	}
	for _, d := range []Direction{Up, Down, Status} {
		if _, err := Migrate(t.Context(), Config{Path: path}, d); !errors.Is(err, ErrNewerSchema) {
			t.Errorf("%s: got %v, want ErrNewerSchema", d, err)
		}
	}
	if _, err := db.Exec(`DELETE FROM goose_db_version WHERE version_id = 9999`); err != nil {
		t.Fatal(err)
	}
	if _, err := openAt(t, path, nil).MessageByID(t.Context(), "m"); err != nil {
		t.Errorf("the refused database lost its content: %v", err)
	}
}

func TestAFileOfAnotherProgramIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	foreign := filepath.Join(dir, "bookmarks.db")
	db := outside(t, foreign)
	if _, err := db.Exec(`CREATE TABLE bookmarks (url TEXT)`); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(foreign)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: foreign}); !errors.Is(err, ErrForeign) {
		t.Errorf("got %v, want ErrForeign", err)
	}
	if after, err := os.ReadFile(foreign); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the other program's file was changed (%v)", err)
	}
	text := filepath.Join(dir, "notes.txt")
	content := strings.Repeat("dear diary, ", 500)
	if err := os.WriteFile(text, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: text}); !errors.Is(err, chat.ErrStoreUnavailable) || !strings.Contains(err.Error(), "not a SQLite database") {
		t.Errorf("got %v, want ErrStoreUnavailable that says what the file is not", err)
	}
	if now, err := os.ReadFile(text); err != nil || string(now) != content {
		t.Errorf("the text file was changed (%v)", err)
	}
	if _, err := Open(t.Context(), Config{}); err == nil {
		t.Error("an empty path was accepted")
	}
}

func TestAFileThatWasReplacedWhileOpenIsNotReady(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "laneway.db")
	s := openAt(t, path, nil)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	aside := path + ".aside"
	if err := os.Rename(path, aside); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, chat.ErrStoreUnavailable) {
		t.Errorf("a removed file: got %v, want ErrStoreUnavailable", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, chat.ErrStoreUnavailable) || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("a replaced file: got %v, want ErrStoreUnavailable with the reason", err)
	}
	if err := os.Rename(aside, path); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("the right file again: %v", err)
	}
}

func TestTheFileIsSetUpForDurability(t *testing.T) {
	t.Parallel()
	s := open(t)
	type pragmas struct{ journal, synchronous, vacuum, busy string }
	got, err := result(t.Context(), s.write, ordinary("read the settings"), func(ctx context.Context, x *tx) (p pragmas, err error) {
		for name, to := range map[string]*string{
			"journal_mode": &p.journal, "synchronous": &p.synchronous, "auto_vacuum": &p.vacuum, "busy_timeout": &p.busy,
		} {
			err := x.query("PRAGMA "+name, func(r sqlstore.Row) error {
				values, err := r.Values()
				*to = fmt.Sprint(values...)
				return err
			})
			if err != nil {
				return p, err
			}
		}
		return p, nil
	})
	if want := (pragmas{"wal", "2", "2", "5000"}); err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
}

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

// TestTheSchemaIsTheReviewedOne makes a change of the schema visible as a change of a file next to
// the migrations.
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

// TestADatabaseFromBeforeTheFirstReleaseIsRefusedAndLeftAlone checks that every way to open it
// fails, and that its file and the log that a crash has left stay unchanged.
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

// crashed creates a database of step 52 as a crashed process leaves it: the last commits are only
// in the log.
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

// TestMessagesOfAnOlderVersionKeepTheirPlace: a replica of the version before writes no columns for
// the order, so those of its messages are read from their bodies.
func TestMessagesOfAnOlderVersionKeepTheirPlace(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, "n")
	accept := func(id string, change func(*store.AcceptParams)) (store.Accepted, error) {
		p := message("n", "room", id)
		p.Queue, p.Message.Content.Options.Typed = scheduler.Settings{Debounce: time.Minute, Cap: 1}, true
		change(&p)
		return s.Accept(t.Context(), p)
	}
	nothing := func(*store.AcceptParams) {}
	first, err := accept("a", nothing)
	if err != nil {
		t.Fatal(err)
	}
	claim := store.Claim{Session: chat.SessionKey{Agent: "main", Rest: "room"}, Node: "n", Epoch: first.Epoch}
	if _, err := s.Start(t.Context(), store.StartParams{Claim: claim, RunID: "a", Lane: "main", Seqs: []int64{1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := accept("b", nothing); err != nil {
		t.Fatal(err)
	}
	if _, err := outside(t, s.path).Exec(`UPDATE inbox SET thread = '', mode = '', flags = -1, size = 0, sender = '{"id":"7"}'`); err != nil {
		t.Fatal(err)
	}
	if a, err := accept("c", nothing); err != nil || len(a.Dropped) > 0 {
		t.Errorf("a message in the window of an older one: %+v, %v", a, err)
	}
	if _, err := accept("d", func(p *store.AcceptParams) { p.Queue.DropNew, p.Message.Content.Sender.ID = true, "8" }); !errors.Is(err, chat.ErrQueueFull) {
		t.Errorf("a message of another sender: %v, want a refusal", err)
	}
}
