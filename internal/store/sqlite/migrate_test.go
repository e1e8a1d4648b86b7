package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/store/sqlstore"
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
