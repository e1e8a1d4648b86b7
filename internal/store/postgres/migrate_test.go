package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
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
