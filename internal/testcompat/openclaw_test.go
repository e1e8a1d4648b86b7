//go:build compat

package testcompat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"laneway/internal/teste2e"
)

// openClaw is one unmodified version of the command line with its own home directory.
type openClaw struct {
	dir, program string
	env          []string
	url          string
}

func commandLine(t *testing.T, g *teste2e.Gateway, dir, pkg string) *openClaw {
	t.Helper()
	return &openClaw{
		dir: dir, program: filepath.Join(dir, "node_modules", pkg, "openclaw.mjs"), url: "ws" + strings.TrimPrefix(g.URL(), "http"),
		env: []string{"HOME=" + t.TempDir(), "PATH=" + filepath.Dir(node(dir)) + ":" + os.Getenv("PATH"), "TERM=xterm-256color", "NO_COLOR=1"},
	}
}

// with runs the command line; more is additional environment.
func (o *openClaw) with(t *testing.T, more []string, args ...string) (string, int) {
	t.Helper()
	return run(t, slices.Concat(o.env, more), node(o.dir), append([]string{o.program}, args...)...)
}

func (o *openClaw) fromEnvironment() []string {
	return []string{"OPENCLAW_GATEWAY_URL=" + o.url, "OPENCLAW_GATEWAY_TOKEN=" + adminToken}
}

func (o *openClaw) flags() []string { return []string{"--url", o.url, "--token", adminToken} }

// wants is one call of the command line and its expected result.
type wants struct {
	name string
	args []string
	// environment: the gateway is named there, because the command has no flags for it.
	environment bool
	code        int
	says        string
}

func (o *openClaw) check(t *testing.T, w wants) string {
	t.Helper()
	args, env := w.args, o.fromEnvironment()
	if !w.environment {
		args, env = slices.Concat(args, o.flags()), nil
	}
	out, code := o.with(t, env, args...)
	if code != w.code || !strings.Contains(out, w.says) {
		t.Errorf("%s: openclaw %s\nexit code %d, want %d with %q:\n%s", w.name, strings.Join(w.args, " "), code, w.code, w.says, out)
	}
	return out
}

// calls has params for every method that the table may have.
func calls() map[string]string {
	const session = `"sessionKey":"agent:main:calls"`
	return map[string]string{
		"agent":             `{` + session + `,"message":"hi","idempotencyKey":"calls-agent"}`,
		"chat.send":         `{` + session + `,"message":"hi","idempotencyKey":"calls-send"}`,
		"chat.history":      `{` + session + `}`,
		"chat.abort":        `{` + session + `}`,
		"wake":              `{"mode":"next-heartbeat","text":"hi"}`,
		"sessions.describe": `{"key":"agent:main:calls"}`,
		"sessions.reset":    `{"key":"agent:main:calls"}`,
		"sessions.delete":   `{"key":"agent:main:calls"}`,
		"sessions.search":   `{"query":"hi"}`,
		"questions.answer":  `{"id":"none","option":1}`,
		"tasks.get":         `{"id":"none"}`,
		"tasks.stop":        `{"id":"none"}`,
		"health":            `{"probe":true}`,
		"cron.add":          `{"name":"c","schedule":{"kind":"every","everyMs":3600000},"sessionTarget":"isolated","wakeMode":"now","payload":{"kind":"agentTurn","message":"hi"}}`,
		"cron.create":       `{"name":"d","schedule":{"kind":"every","everyMs":3600000},"message":"hi"}`,
		"cron.preview":      `{"schedule":{"kind":"cron","expr":"0 9 * * *"}}`,
	}
}

// needsJob are the methods whose params name a job; their calls are those of jobCalls.
func needsJob(method string) bool {
	return slices.Contains([]string{
		"cron.update", "cron.remove", "cron.run", "cron.get", "cron.cancel", "cron.pause", "cron.resume", "cron.backfill", "cron.delete", "cron.toggle",
	}, method)
}

// methods returns the names in the table of methods, from the generated description.
func methods(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Methods []struct{ Name string } }
	if err := json.Unmarshal(raw, &doc); err != nil || len(doc.Methods) == 0 {
		t.Fatalf("the description of the protocol: %v, %d methods", err, len(doc.Methods))
	}
	var names []string
	for _, m := range doc.Methods {
		names = append(names, m.Name)
	}
	return names
}

// foreignScope names the methods for which the command line requests a scope that only OpenClaw has, and the scope that they need here. The gateway
// has three scopes and ignores other names, so the call is refused. The terminal interface requests operator.read.
func foreignScope(method string) string {
	return map[string]string{
		"question.list": "operator.read", "plugin.approval.list": "operator.read", "channels.pairing.list": "operator.admin",
		"channels.pairing.approve": "operator.admin", "channels.pairing.dismiss": "operator.admin",
	}[method]
}

func versions() map[string]string {
	return map[string]string{"2026.9.6": "openclaw", "2026.8.2": "openclaw-2026-8-2"}
}

func TestOpenClawCommandLine(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		dir := clients(t)
		g := begin(t, database, "limits: {chat: 0, cron_writes: 0}\n")
		for version, pkg := range versions() {
			t.Run(version, func(t *testing.T) { commands(t, commandLine(t, g, dir, pkg), version, methods(t)) })
		}
	})
}

func commands(t *testing.T, o *openClaw, version string, table []string) {
	t.Helper()
	for _, w := range []wants{
		{"version", []string{"--version"}, true, 0, version},
		{"health", []string{"health"}, true, 0, ""},
		{"gateway health", []string{"gateway", "health"}, false, 0, "OK"},
		{"agent", []string{"agent", "--message", "a word for the echo", "--session-key", "agent:main:cli"}, true, 0, "a word for the echo"},
		{"unknown method", []string{"gateway", "call", "no.such.method"}, false, 1, "unknown method: no.such.method"},
	} {
		o.check(t, w)
	}
	out, code := o.with(t, nil, "gateway", "health", "--url", o.url, "--password", password)
	if code != 0 || !strings.Contains(out, "OK") {
		t.Errorf("with the password: exit code %d\n%s", code, out)
	}
	out, code = o.with(t, nil, "gateway", "call", "status", "--url", o.url, "--token", "wrong")
	if code == 0 || !strings.Contains(out, "unauthorized: gateway token mismatch") {
		t.Errorf("with a wrong token: exit code %d\n%s", code, out)
	}
	for _, method := range table {
		if needsJob(method) {
			continue
		}
		params := calls()[method]
		if params == "" {
			params = "{}"
		}
		w := wants{"call of " + method, []string{"gateway", "call", method, "--json", "--params", params}, false, 0, ""}
		if scope := foreignScope(method); scope != "" {
			w.code, w.says = 1, "missing scope: "+scope
		}
		if method == "channels.pairing.revoke" { // no person has been let in
			w.code, w.says = 1, "must have required property 'senderId'"
		}
		out := o.check(t, w)
		if !json.Valid([]byte(out)) {
			t.Errorf("gateway call %s --json printed no JSON:\n%s", method, out)
		}
	}
	t.Run("cron", func(t *testing.T) { cronCommands(t, o, version) })
}
