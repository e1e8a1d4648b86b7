package teste2e

import (
	"context"
	neturl "net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// documentedGrants returns the statements of docs/operations.md that the owner of the tables runs, for the two roles.
func documentedGrants(t *testing.T, owner, role string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sql\n(GRANT .*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 || !strings.Contains(blocks[0][1], "REVOKE UPDATE, DELETE ON audit_log") {
		t.Fatalf("the document has no grants, or several: %q", blocks)
	}
	grants := regexp.MustCompile(`\blaneway_owner\b`).ReplaceAllString(blocks[0][1], owner)
	return regexp.MustCompile(`\blaneway\b`).ReplaceAllString(grants, role)
}

func execAs(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}

// A gateway works with a role that may only read and write rows, and cannot rewrite the audit log. When the schema has to be changed first,
// it reports who can do that.
func TestAGatewayNeedsNoRightToChangeTables(t *testing.T) {
	t.Parallel()
	owning, running := testpg.Role(t), testpg.Role(t)
	url := testpg.Empty(t)
	address, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	database := strings.TrimPrefix(address.Path, "/")
	if err := execAs(t.Context(), url, "ALTER DATABASE "+database+" OWNER TO "+owning+"; REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT CREATE ON SCHEMA public TO "+owning); err != nil {
		t.Fatal(err)
	}
	asOwner, asRunner := testpg.As(url, owning), testpg.As(url, running)
	owner := Install(t, asOwner, "")
	g := Install(t, asRunner, "agents: {main: {runner: echo, delay: 20s}, quick: {runner: echo}}\ndrain_timeout: 1s\n")
	refused := func(when string) {
		t.Helper()
		err := g.TryStart()
		if err == nil {
			t.Fatalf("%s: it started", when)
		}
		if code := g.current().code; code != 1 || !strings.Contains(err.Error(), "run `laneway migrate up` with the role that owns the tables") {
			t.Errorf("%s: exit code %d\n%v", when, code, err)
		}
	}
	migrate := func(direction string) {
		t.Helper()
		if _, errs, code := owner.CLI(t.Context(), "", "migrate", direction); code != 0 {
			t.Fatalf("migrate %s: %s", direction, errs)
		}
		if direction == "down" {
			return
		}
		if err := execAs(t.Context(), asOwner, documentedGrants(t, owning, running)); err != nil {
			t.Fatal(err)
		}
	}
	refused("an empty database")
	migrate("up")
	migrate("down")
	refused("a schema that is a step behind")
	migrate("up")

	g.Start()
	workEverywhere(t, g, url)
	for _, sql := range []string{"UPDATE audit_log SET who = ''", "DELETE FROM audit_log", "TRUNCATE audit_log", "DROP TABLE audit_log", "CREATE TABLE more (n int)", "UPDATE laneway_migrations SET version_id = 0"} {
		if err := execAs(t.Context(), asRunner, sql); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s as the role of the gateway: %v, want it to be denied", sql, err)
		}
	}
	out, _, code := g.CLI(t.Context(), "", "doctor", "--config", g.config)
	if code != 0 || !strings.Contains(out, "the database role "+running+" may add to audit_log and change nothing in it") {
		t.Errorf("doctor with the role of the gateway: %d\n%s", code, out)
	}
	out, _, _ = owner.CLI(t.Context(), "", "doctor", "--config", owner.config)
	if !strings.Contains(out, "the database role "+owning+" owns audit_log and can rewrite it; give the gateway a role of its own") {
		t.Errorf("doctor with the role of the owner:\n%s", out)
	}
	g.Signal(15)
	if _, code := g.WaitExit(40 * time.Second); code != 0 || strings.Contains(g.Output(), "lacks a right") || strings.Contains(g.Output(), "denied") {
		t.Errorf("exit code %d\n%s", code, g.Output())
	}
}

// workEverywhere makes a gateway use its tables: every change over the protocol, a turn, a wrong credential, a named token, the built-in
// jobs.
func workEverywhere(t *testing.T, g *Gateway, admin string) {
	t.Helper()
	e := newEndings()
	c := mustDial(t, g, e.take)
	asked(t, g, admin)
	made := map[string]string{}
	for _, ch := range changes() {
		raw, err := c.Call(ch.method, ch.params(made), 30*time.Second)
		if err != nil {
			t.Errorf("%s: %v", ch.method, err)
		} else if ch.keep != nil {
			ch.keep(made, raw)
		}
	}
	say(t, c, "agent:quick:a", "turn-1", "hello")
	if got := e.end(t, "turn-1"); got.text != "hello" {
		t.Errorf("a turn ended %+v", got)
	}
	if _, err := Dial(g.URL(), "wrong-secret-0123456789-abcdefghijklm", nil); err == nil {
		t.Error("a wrong token was taken")
	}
	for _, args := range [][]string{
		{"token", "create", "visitor"},
		{"token", "revoke", "visitor"},
		{"scheduler", "run", "ledger retention", "--wait"},
		{"scheduler", "run", "message retention", "--wait"},
		{"status"},
		{"cron", "list"},
		{"cron", "runs"},
		{"sessions", "list"},
	} {
		if out, errs, code := g.CLI(t.Context(), "", args...); code != 0 {
			t.Errorf("laneway %s: exit code %d, %s%s", strings.Join(args, " "), code, out, errs)
		}
	}
	o := OpenOracle(t, g, admin)
	testrun.Eventually(t, "a row about the refused credential", func() bool {
		return o.Count("SELECT count(*) FROM audit_log WHERE verb = 'credential.refused'") == 1
	})
}
