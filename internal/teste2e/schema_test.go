package teste2e

import (
	"context"
	"database/sql"
	"net/http"
	"strings"
	"testing"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// alter executes a statement on the database of a test, beside the gateway.
func alter(t *testing.T, database, statement string) {
	t.Helper()
	db, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// ready is the answer of /readyz.
func (g *Gateway) ready(t *testing.T, want int, text string) bool {
	t.Helper()
	code, body := g.Get("/readyz")
	return code == want && strings.Contains(body, text)
}

// statusOf returns the status of a gateway on the command line.
func (g *Gateway) statusOf(t *testing.T) string {
	t.Helper()
	out, errs, code := g.CLI(t.Context(), "", "status")
	if code != 0 {
		t.Fatalf("laneway status: %d %s", code, errs)
	}
	return out
}

// Before, a step back of the schema under running gateways made every message fail, while /readyz and status reported no problem.
func TestMigrateDownIsRefusedWhileGatewaysRun(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "")
		g.Start()
		down := []string{"migrate", "down", "--config", g.config}
		if out, errs, code := g.CLI(t.Context(), "", down...); code != 1 || !strings.Contains(errs, "stop") {
			t.Errorf("migrate down under a running gateway: %d %s %s", code, out, errs)
		}
		if !g.ready(t, http.StatusOK, `"migrations":"ok"`) {
			t.Error("the refused step changed something")
		}
		if database == "" {
			return // the lock on the data directory refuses it in any case
		}
		if _, errs, code := g.CLI(t.Context(), "", append(down, "--force")...); code != 2 || !strings.Contains(errs, "--yes") {
			t.Errorf("--force without a terminal: %d %s", code, errs)
		}
		if _, errs, code := g.CLI(t.Context(), "", append(down, "--force", "--yes")...); code != 0 {
			t.Fatalf("--force --yes: %d %s", code, errs)
		}
		if !g.ready(t, http.StatusServiceUnavailable, `"migrations":"failed"`) {
			t.Error("/readyz does not report that a step of the schema is missing")
		}
		if out := g.statusOf(t); !strings.Contains(out, "not healthy") || !strings.Contains(out, "laneway migrate up") {
			t.Errorf("status without a step of the schema:\n%s", out)
		}
		if _, errs, code := g.CLI(t.Context(), "", "migrate", "up", "--config", g.config); code != 0 {
			t.Fatalf("migrate up: %s", errs)
		}
		testrun.Eventually(t, "readiness with the whole schema", func() bool { return g.ready(t, http.StatusOK, "") })
	})
}

// During a rolling upgrade the new program extends the schema; replicas with the old program continue with it.
func TestAReplicaStaysReadyWhenANewerProgramExtendsTheSchema(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	g := Install(t, database, "")
	g.Start()
	alter(t, database, `INSERT INTO laneway_migrations (version_id, is_applied) VALUES (99999, true)`)
	if !g.ready(t, http.StatusOK, `"migrations":"ok"`) {
		code, body := g.Get("/readyz")
		t.Errorf("/readyz with a newer schema: %d %s", code, body)
	}
	if out := g.statusOf(t); strings.Contains(out, "not healthy") {
		t.Errorf("status with a newer schema:\n%s", out)
	}
}

// A database whose disk is full, or that is read-only, answers every read; load balancers and operators must see that it refuses messages.
func TestReadinessNoticesThatMessagesAreRefused(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ code, says string }{
		"a full disk": {"53100", "disk of the database is full"}, "a read-only database": {"25006", "read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusedMessagesAreNoticed(t, row.code, row.says)
		})
	}
}

func refusedMessagesAreNoticed(t *testing.T, code, says string) {
	t.Helper()
	database := testpg.DB(t)
	g := Install(t, database, "")
	g.Start()
	alter(t, database, `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '`+code+`'; END $$;
		CREATE TRIGGER full_disk BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION full_disk()`)
	if a := g.Complete("agent:main:main", "hello"); a.Status != http.StatusServiceUnavailable {
		t.Fatalf("a refused message: %d %s", a.Status, a.Body)
	}
	if !g.ready(t, http.StatusServiceUnavailable, `"database":"failed"`) {
		t.Error("/readyz does not report that messages are refused")
	}
	if out := g.statusOf(t); !strings.Contains(out, "not healthy") || !strings.Contains(out, says) {
		t.Errorf("status while messages are refused:\n%s", out)
	}
	alter(t, database, `DROP TRIGGER full_disk ON inbox`)
	if a := g.Complete("agent:main:main", "hello"); a.Status != http.StatusOK {
		t.Fatalf("a message with space: %d %s", a.Status, a.Body)
	}
	if !g.ready(t, http.StatusOK, "") {
		t.Error("/readyz does not recover with the first message that is stored")
	}
}

// A missing column is named, so that its cause can be found.
func TestAMissingColumnIsNamed(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	g := Install(t, database, "")
	g.Start()
	alter(t, database, `ALTER TABLE inbox RENAME COLUMN params_hash TO params_hash_gone`)
	a := g.Complete("agent:main:main", "hello")
	if a.Status != http.StatusServiceUnavailable || !strings.Contains(a.Body, "params_hash") || !strings.Contains(a.Body, "laneway migrate") {
		t.Errorf("a message without a column: %d %s", a.Status, a.Body)
	}
}
