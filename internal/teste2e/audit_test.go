package teste2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	neturl "net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron/service"
	"laneway/internal/dispatch"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// table returns the method table of a gateway with every backend. No backend is called.
func table(t *testing.T) []gateway.MethodInfo {
	t.Helper()
	srv, err := gateway.New(gateway.Config{Credentials: []auth.Credential{{Name: "gateway", Digest: [32]byte{1}, Scopes: []string{chat.ScopeRead}}}, Jobs: (*service.Service)(nil)},
		(*dispatch.Dispatcher)(nil), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return srv.Methods()
}

// change is one call that changes something. The parameters may depend on earlier calls.
type change struct {
	method, verb string
	params       func(made map[string]string) map[string]any
	keep         func(made map[string]string, answer json.RawMessage)
}

// yearlyJob is a schedule that is not due during a test: an hourly one was due when the tests ran
// at 19:00.
const yearlyJob = `{"kind":"cron","expr":"0 0 29 2 *"}`

// changes calls every audited method once, in an order in which each has an effect.
func changes() []change {
	fixed := func(p map[string]any) func(map[string]string) map[string]any {
		return func(map[string]string) map[string]any { return p }
	}
	of := func(name, made string, more map[string]any) func(map[string]string) map[string]any {
		return func(m map[string]string) map[string]any {
			p := map[string]any{name: m[made]}
			maps.Copy(p, more)
			return p
		}
	}
	keep := func(name string, path ...string) func(map[string]string, json.RawMessage) {
		return func(made map[string]string, raw json.RawMessage) {
			var v any
			_ = json.Unmarshal(raw, &v)
			for _, p := range path {
				m, _ := v.(map[string]any)
				v = m[p]
			}
			made[name] = fmt.Sprint(v)
		}
	}
	job := map[string]any{
		"name": "tea", "schedule": json.RawMessage(yearlyJob), "sessionTarget": "isolated",
		"payload": map[string]any{"kind": "agentTurn", "message": "tea?"},
	}
	leapDay := time.Date(2024, 2, 29, 0, 0, 0, 0, time.Local) // a slot of yearlyJob: a backfill without slots changes nothing and adds no row
	return []change{
		{"cron.add", "cron.add", fixed(job), keep("job", "id")},
		{"cron.create", "cron.add", fixed(map[string]any{"name": "cake", "schedule": json.RawMessage(yearlyJob), "message": "cake?"}), keep("other", "job", "id")},
		{"cron.update", "cron.update", of("id", "job", map[string]any{"patch": map[string]any{"description": "at five"}}), nil},
		{"cron.pause", "cron.pause", of("id", "job", map[string]any{"note": "holidays"}), nil},
		{"cron.resume", "cron.resume", of("id", "job", nil), nil},
		{"cron.run", "cron.run", of("id", "job", nil), keep("run", "runId")},
		{"cron.cancel", "cron.cancel", of("runId", "run", nil), nil},
		{"cron.backfill", "cron.backfill", of("id", "job", map[string]any{"fromMs": leapDay.UnixMilli(), "toMs": leapDay.Add(time.Hour).UnixMilli()}), nil},
		{"cron.toggle", "cron.update", of("jobId", "job", map[string]any{"enabled": false}), nil},
		{"cron.remove", "cron.remove", of("id", "job", nil), nil},
		{"cron.delete", "cron.remove", of("jobId", "other", nil), nil},
		{"channels.pairing.approve", "pair.approve", fixed(map[string]any{"requestId": "asked-1"}), nil},
		{"channels.pairing.dismiss", "pair.dismiss", fixed(map[string]any{"channel": "telegram", "accountId": "7", "requestId": "asked-2"}), nil},
		{"channels.pairing.revoke", "pair.revoke", fixed(map[string]any{"senderId": "1"}), nil},
		{"sessions.reset", "sessions.reset", fixed(map[string]any{"key": "diary"}), nil},
		{"sessions.delete", "sessions.delete", fixed(map[string]any{"key": "diary"}), nil},
	}
}

// asked adds two people with open requests for access to the tables, as a channel would.
func asked(t *testing.T, g *Gateway, database string) {
	t.Helper()
	driver, dsn := "pgx", database
	if database == "" {
		driver, dsn = "sqlite", "file:"+g.SQLite()+"?_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	now := time.Now().UnixMilli()
	for i := range 2 {
		_, err := db.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO pairings (code, id, channel, user_id, chat_id, name, created_at, expires_at)
			VALUES ('CODE000%d', 'asked-%d', 'telegram:7', %d, %d, 'anna', %d, %d)`, i, i+1, i+1, i+1, now, now+3_600_000))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Every audited method of the table adds one row to the audit log: who, what, from where, which
// request. A call that is refused, or that only reads, adds no row.
func TestEveryChangeOverTheWireLeavesOneRow(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo, delay: 20s}}\n")
		g.Start()
		c, err := Dial(g.URL(), g.Token(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		asked(t, g, database)
		rows := func() []string {
			return OpenOracle(t, g, database).Rows("SELECT verb, who, peer, request_id, object FROM audit_log ORDER BY at, id")
		}
		done, made := map[string]bool{}, map[string]string{}
		for _, ch := range changes() {
			done[ch.method] = true
			before := len(rows())
			raw, err := c.Call(ch.method, ch.params(made), 30*time.Second)
			if err != nil {
				t.Fatalf("%s: %v", ch.method, err)
			}
			if ch.keep != nil {
				ch.keep(made, raw)
			}
			now := rows()
			if len(now) != before+1 {
				t.Errorf("%s left %d rows: %q", ch.method, len(now)-before, now[before:])
				continue
			}
			part := strings.Split(now[before], "|")
			if part[0] != ch.verb || part[1] != "gateway" || part[2] != "127.0.0.1" || !strings.HasPrefix(part[3], "c-") || part[4] == "" {
				t.Errorf("%s left %q, want verb %s of gateway at 127.0.0.1", ch.method, now[before], ch.verb)
			}
		}
		before := len(rows())
		for _, m := range table(t) {
			switch {
			case m.Audited && !done[m.Name]:
				t.Errorf("%s is marked and this test does not call it", m.Name)
			case m.Scope == chat.ScopeAdmin && !m.Audited && !strings.HasSuffix(m.Name, ".list"):
				t.Errorf("%s changes something and is not marked", m.Name)
			case m.Scope == chat.ScopeRead:
				_, _ = c.Call(m.Name, map[string]any{}, 30*time.Second) // with or without required params
			case m.Audited:
				if _, err := c.Call(m.Name, map[string]any{"id": "none", "key": 7}, 30*time.Second); err == nil {
					t.Errorf("%s took nonsense", m.Name)
				}
			}
		}
		if now := rows(); len(now) != before {
			t.Errorf("reads and refusals left %q", now[before:])
		}
	})
}

// A reload that changes the configuration adds one row; one that does not adds none.
func TestAReloadThatChangesSomethingIsLogged(t *testing.T) {
	t.Parallel()
	g := Install(t, "", "lanes: {main: 3}\n")
	g.Start()
	rows := func() []string {
		return OpenOracle(t, g, "").Rows("SELECT who, object, before_hash <> after_hash FROM audit_log WHERE verb = 'config.reload'")
	}
	reloads := func(n int) func() bool {
		return func() bool { return strings.Count(g.Output(), "the configuration was read again") == n }
	}
	g.Signal(syscall.SIGHUP)
	testrun.Eventually(t, "a reload without a change", reloads(1))
	raw, err := os.ReadFile(g.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(g.config, []byte(strings.Replace(string(raw), "main: 3", "main: 7", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	g.Signal(syscall.SIGHUP)
	testrun.Eventually(t, "a reload with a change", reloads(2))
	if got := rows(); len(got) != 1 || got[0] != "host|lanes and queue|1" {
		t.Errorf("rows %q", got)
	}
}

// documentedGrants returns the statements of docs/postgres-and-replicas.md that the owner of the
// tables runs, for the two roles.
func documentedGrants(t *testing.T, owner, role string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/postgres-and-replicas.md")
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

// A gateway works with a role that may only read and write rows, and cannot rewrite the audit log.
// When the schema has to be changed first, it reports who can do that.
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

// workEverywhere makes a gateway use its tables: every change over the protocol, a turn, a wrong
// credential, a named token, the built-in jobs.
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
