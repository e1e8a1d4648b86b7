package teste2e

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/testrun"
)

// canary returns a secret that is recognisable everywhere.
func canary(name string) string { return "canary-" + name + "-0123456789-abcdefghij" }

// planted are secrets in all places where an operator or a client can put them: the configuration, the environment, headers, the URL, a
// frame.
func planted() map[string]string {
	all := map[string]string{}
	for _, name := range []string{
		"token", "password", "write", "read", "hook", "apikey", "apikeyenv", "commandenv", "telegram",
		"wrongtoken", "bearer", "cookie", "query", "upgrade", "hooksignature", "webhooksecret", "webhooktoken",
	} {
		all[name] = canary(name)
	}
	return all
}

// withSecrets is an installation with a secret in every setting that can have one. No process listens at the addresses of its models.
func withSecrets(t *testing.T, database string) *Gateway {
	t.Helper()
	g := Install(t, database, strings.Join([]string{
		"token: " + canary("token"), "write_token: " + canary("write"), "log: {level: debug}", "limits: {chat: 0, cron_writes: 0, hooks: 0}",
		"hooks: {deploy: {secret: " + canary("hook") + "}}",
		"cron: {webhook_secret: " + canary("webhooksecret") + ", webhook_token: " + canary("webhooktoken") + "}",
		"agents:",
		"  main: {runner: echo, script: true}",
		"  broken: {runner: openai, base_url: \"http://127.0.0.1:1/v1\", model: m, api_key: " + canary("apikey") + ", timeout: 2s}",
		"  broken2: {runner: anthropic, base_url: \"http://127.0.0.1:1\", model: m, api_key_env: SOME_KEY, timeout: 2s}",
		"  child: {runner: command, command: [\"sh\", \"-c\", \"exit 3\"], env: {SECRET: " + canary("commandenv") + "}}",
		"",
	}, "\n"))
	g.env = append(g.env, "LANEWAY_PASSWORD="+canary("password"), "LANEWAY_READ_TOKEN="+canary("read"), "SOME_KEY="+canary("apikeyenv"),
		"LANEWAY_METRICS_LISTEN=main", "TELEGRAM_TOKEN_OF_ANOTHER="+canary("telegram"))
	g.fresh = true // the log of a first start is searched, too
	return g
}

// Secrets that were planted everywhere are found nowhere: not in logs at level debug, answers, metrics, rows, or files, after valid and
// invalid calls and a failure of every agent.
func TestPlantedSecretsAreFoundNowhere(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := withSecrets(t, database)
		g.Start()
		var heard []string
		hear := func(text string) { heard = append(heard, text) }
		c, err := Dial(g.URL(), canary("token"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		call := func(method string, params map[string]any) {
			raw, err := c.Call(method, params, 60*time.Second)
			hear(fmt.Sprint(string(raw), err))
		}
		secrets := planted()
		secrets["named"] = g.named(t, "ann")
		dialWhenKnown(t, g, secrets["named"], nil).Close()
		for _, agent := range []string{"main", "broken", "broken2", "child"} {
			id := "say-" + agent
			call("agent", map[string]any{"sessionKey": "agent:" + agent + ":main", "message": "fail", "idempotencyKey": id})
			call("agent", map[string]any{"sessionKey": "agent:" + agent + ":main", "message": "panic", "idempotencyKey": "panic-" + agent})
			call("cron.add", map[string]any{
				"name": "told " + agent, "schedule": map[string]any{"kind": "at", "at": time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)}, "agentId": agent,
				"payload": map[string]any{"kind": "agentTurn", "message": "hello"}, "delivery": map[string]any{"mode": "webhook", "to": "https://127.0.0.1:1/hook"},
			})
			call("cron.add", map[string]any{
				"name": id, "schedule": map[string]any{"kind": "every", "everyMs": 3_600_000}, "sessionTarget": "isolated", "agentId": agent,
				"payload": map[string]any{"kind": "agentTurn", "message": "hello"},
			})
		}
		for _, m := range table(t) {
			for _, p := range []map[string]any{{}, {"key": "main", "sessionKey": "main", "id": "x", "jobId": "x"}} {
				if m.Scope != chat.ScopeAdmin || len(p) == 0 {
					call(m.Name, p)
				}
			}
		}
		g.knockWithSecrets(t, hear)
		testrun.Eventually(t, "all turns to end", func() bool {
			return OpenOracle(t, g, database).Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0
		})
		out, errs, _ := g.CLI(t.Context(), "", "serve", "--config", g.config, "--print-config")
		hear(out + errs)
		out, errs, _ = g.CLI(t.Context(), "", "doctor", "--config", g.config)
		hear(out + errs)
		hear(g.metrics(t, canary("read")))
		g.Signal(syscall.SIGHUP)
		g.Signal(syscall.SIGTERM)
		g.WaitExit(60 * time.Second)
		if !strings.Contains(g.Output(), "DEBUG") && !strings.Contains(g.Output(), "level=debug") {
			t.Errorf("the log is not at level debug:\n%.2000s", g.Output())
		}
		search := Search{Database: database, Secrets: secrets, Heard: heard, Own: []string{"token"}}
		for _, place := range search.In(t, g) {
			t.Error(place)
		}
		search.Heard = []string{"x" + canary("query") + "x"}
		if len(search.In(t, g)) != 1 {
			t.Error("the search finds nothing")
		}
	})
}

// knockWithSecrets sends wrong secrets wherever a client can send one.
func (g *Gateway) knockWithSecrets(t *testing.T, hear func(string)) {
	t.Helper()
	if _, err := Dial(g.URL(), canary("wrongtoken"), nil); err == nil {
		t.Error("a wrong token was taken")
	} else {
		hear(err.Error())
	}
	for _, path := range []string{"/", "/ws", "/healthz", "/readyz", "/metrics", "/dashboard", "/v1/models", "/v1/chat/completions", "/hooks/deploy", "/hooks/none", "/nothing", "/debug/pprof/"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, "BREW"} {
			req, err := http.NewRequestWithContext(t.Context(), method, g.URL()+path+"?token="+canary("query"), strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+canary("bearer"))
			req.Header.Set("Cookie", "token="+canary("cookie"))
			req.Header.Set("X-Laneway-Signature", "t=1,v1="+canary("hooksignature"))
			_, text := roundTrip(t, req)
			hear(text)
		}
	}
	b, err := upgrade(g.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_ = b.text(`{"type":"req","id":"1","method":"connect","params":{"minProtocol":4,"maxProtocol":4,"auth":{"password":"` + canary("upgrade") + `"},"client":{"id":"` + canary("upgrade") + `","version":"1","platform":"x","mode":"test"}}}`)
	if data, err := b.until(`"type":"res"`); err == nil {
		hear(string(data))
	}
}
