package teste2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// canary returns a secret that is recognisable everywhere.
func canary(name string) string { return "canary-" + name + "-0123456789-abcdefghij" }

// planted are secrets in all places where an operator or a client can put them: the configuration,
// the environment, headers, the URL, a frame.
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

// withSecrets is an installation with a secret in every setting that can have one. No process
// listens at the addresses of its models.
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

// Secrets that were planted everywhere are found nowhere: not in logs at level debug, answers,
// metrics, rows, or files, after valid and invalid calls and a failure of every agent.
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

// rotateTime limits the time until a new secret in a file is valid; it includes the delays of the
// race detector and busy machines.
const rotateTime = 5 * time.Second

// replaceFile replaces a file atomically, as an operator should.
func replaceFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	draft := path + ".next"
	if err := os.WriteFile(draft, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(draft, path); err != nil {
		t.Fatal(err)
	}
}

// A new token in the file takes effect without a restart, on every replica that reads it: the old
// one is refused and its sockets are closed; other credentials are not affected.
func TestAnotherTokenInTheFileActsWithoutARestart(t *testing.T) {
	t.Parallel()
	const reader = "reader-token-Hg5Fd3Sa1Po9Iu7Yt"
	const second = "second-token-Zk7Qw3Rt9Yb2Nc5Vm8Xa"
	for store, replicas := range map[string]int{"sqlite": 1, "postgres": 2} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			database := ""
			if store == "postgres" {
				database = testpg.DB(t)
			}
			file := filepath.Join(t.TempDir(), "token")
			replaceFile(t, file, strongToken+"\n", 0o600)
			var all []*Gateway
			for range replicas {
				g := Install(t, database, manySockets+"token_file: "+file+"\nread_token: "+reader+"\n")
				g.Start()
				all = append(all, g)
			}
			n := 60
			var old, others []*bare
			for _, g := range all {
				old = append(old, openAll(t, g, strongToken, n)...)
				others = append(others, openAll(t, g, reader, 3)...)
			}
			replaceFile(t, file, second+"\n", 0o600)
			began := time.Now()
			var closing sync.WaitGroup
			var last atomic.Int64
			for i, b := range old {
				closing.Go(func() {
					if code := b.end(4 * rotateTime); code != 1008 {
						t.Errorf("socket %d was closed with %d, want 1008", i, code)
					}
					took := time.Since(began)
					for most := last.Load(); int64(took) > most && !last.CompareAndSwap(most, int64(took)); most = last.Load() {
					}
				})
			}
			closing.Wait()
			t.Logf("figure: %d sockets on %d replicas were closed %s after the exchange of their token", len(old), replicas, time.Duration(last.Load()).Round(time.Millisecond))
			if took := time.Duration(last.Load()); took > rotateTime {
				t.Errorf("the last socket was closed after %s, want %s", took, rotateTime)
			}
			for _, g := range all {
				if _, err := Dial(g.URL(), strongToken, nil); err == nil || !strings.Contains(err.Error(), "gateway token mismatch") {
					t.Errorf("the old token: %v, want a refusal", err)
				}
				connectWith(t, g, second)
			}
			for i, b := range others {
				if err := b.request("h", "health", map[string]any{}); err != nil {
					t.Fatal(err)
				}
				if _, err := b.answer("h"); err != nil {
					t.Errorf("socket %d of another credential: %v", i, err)
				}
			}
			rows := OpenOracle(t, all[0], database).Rows(`SELECT who, verb, object FROM audit_log WHERE verb = 'token.rotate'`)
			if len(rows) != replicas {
				t.Errorf("the log of changes has %v, want a row of each of %d replicas", rows, replicas)
			}
		})
	}
}

// connectWith is a client with a token, closed with the test.
func connectWith(t *testing.T, g *Gateway, token string) *Client {
	t.Helper()
	c, err := Dial(g.URL(), token, nil)
	if err != nil {
		t.Fatal(fmt.Errorf("connecting: %w", err))
	}
	t.Cleanup(c.Close)
	return c
}

var metricsAddress = regexp.MustCompile(`"serving metrics" address=(127\.0\.0\.1:\d+)`)

// Profiles show internals; no gateway serves them by default, and none on the main listener.
func TestProfilesAreOnTheMetricsListenerAndOnlyOnRequest(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		setting := ""
		if on {
			setting = "pprof: true\n"
		}
		g := Install(t, "", setting, "--metrics-listen", "127.0.0.1:0")
		g.Start()
		at := metricsAddress.FindStringSubmatch(g.Output())
		if at == nil {
			t.Fatalf("the metrics listener is not named:\n%s", g.Output())
		}
		if code := status(t, "http://"+at[1]+"/metrics"); code != http.StatusOK {
			t.Errorf("/metrics: %d", code)
		}
		want := http.StatusNotFound
		if on {
			want = http.StatusOK
		}
		if code := status(t, "http://"+at[1]+"/debug/pprof/"); code != want {
			t.Errorf("pprof %t: the metrics listener answers %d, want %d", on, code, want)
		}
		if code := status(t, g.URL()+"/debug/pprof/"); code != http.StatusNotFound {
			t.Errorf("pprof %t: the main listener answers %d", on, code)
		}
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
