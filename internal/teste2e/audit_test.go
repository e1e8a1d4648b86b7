package teste2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/testrun"
)

// table returns the method table of a gateway with every backend. No backend is called.
func table(t *testing.T) []gateway.MethodInfo {
	t.Helper()
	srv, err := gateway.New(gateway.Config{Credentials: []auth.Credential{{Name: "gateway", Digest: [32]byte{1}, Scopes: []string{chat.ScopeRead}}}},
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

// yearlyJob is a schedule that is not due during a test: an hourly one was due when the tests ran at 19:00.
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

// Every audited method of the table adds one row to the audit log: who, what, from where, which request. A call that is refused, or that
// only reads, adds no row.
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
