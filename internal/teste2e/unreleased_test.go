package teste2e

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"
)

// A database from before the first release cannot be migrated. Every command that would use it reports that, and what to do, and does not
// change it.
func TestADatabaseFromBeforeTheFirstReleaseIsRefused(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "")
		within := withTimeout(t, time.Minute)
		if _, errs, code := g.CLI(within, "", "migrate", "up", "--config", g.config); code != 0 {
			t.Fatalf("migrate up: %d %s", code, errs)
		}
		makeOld(within, t, g, database)
		before := fileOf(t, g, database)
		commands := [][]string{{"serve"}, {"migrate", "up"}, {"migrate", "down"}, {"migrate", "status"}, {"migrate", "status", "--json"}, {"token", "list"}, {"hold"}, {"release", "--yes"}}
		if database == "" {
			commands = append(commands, []string{"backup", t.TempDir() + "/copy"})
		}
		for _, command := range commands {
			_, errs, code := g.CLI(within, "", append(command, "--config", g.config)...)
			if code != 78 || !strings.Contains(errs, "before laneway 0.1.0") || !strings.Contains(errs, "cron export") || strings.Count(errs, "\n") != 1 {
				t.Errorf("%q: %d %s, want 78 and one sentence", command, code, errs)
			}
		}
		if out, _, code := g.CLI(within, "", "doctor", "--config", g.config); code != 1 || !strings.Contains(out, "before laneway 0.1.0") {
			t.Errorf("doctor: %d %s", code, out)
		}
		if now := fileOf(t, g, database); !bytes.Equal(now, before) {
			t.Error("the refused database was changed")
		}
	})
}

// makeOld gives the database the number of a step from before the first release.
func makeOld(ctx context.Context, t *testing.T, g *Gateway, database string) {
	t.Helper()
	driver, dsn, table := "pgx", database, "laneway_migrations"
	if database == "" {
		driver, dsn, table = "sqlite", "file:"+g.SQLite(), "goose_db_version"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `UPDATE `+table+` SET version_id = 52 WHERE version_id <> 0`); err != nil {
		t.Fatal(err)
	}
}

// fileOf returns the content of a SQLite database; empty for PostgreSQL.
func fileOf(t *testing.T, g *Gateway, database string) []byte {
	t.Helper()
	if database != "" {
		return nil
	}
	content, err := os.ReadFile(g.SQLite())
	if err != nil || len(content) == 0 {
		t.Fatalf("%d bytes, %v", len(content), err)
	}
	return content
}
