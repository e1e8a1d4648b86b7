//go:build compat

package testcompat

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/teste2e"
	"laneway/internal/testtelegram"
)

// cronCommands returns what the command line can do with jobs: every kind of schedule and payload,
// and every way to show a job, to change it and to run it, with exit codes.
func cronCommands(t *testing.T, o *openClaw, version string) {
	t.Helper()
	later := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	turn := []string{"--session", "isolated", "--message", "a job for the echo", "--no-deliver"}
	add := func(name string, args ...string) string {
		t.Helper()
		out := o.check(t, wants{name, append([]string{"cron", "add", "--json", "--name", version + " " + name}, args...), false, 0, name})
		return jobID(t, out)
	}
	every := add("every", append([]string{"--every", "1h"}, turn...)...)
	broken := add("broken", append([]string{"--every", "1h", "--agent", "broken"}, turn...)...)
	add("at", append([]string{"--at", later}, turn...)...)
	add("staggered", append([]string{"--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--stagger", "30s"}, turn...)...)
	add("exact", append([]string{"--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--exact"}, turn...)...)
	add("event", "--every", "2h", "--session", "main", "--system-event", "an hour has passed")
	add("announced", "--every", "3h", "--session", "isolated", "--message", "hi", "--announce")
	add("webhook", "--every", "3h", "--session", "isolated", "--message", "hi", "--webhook", "https://example.org/hook")
	if version != "2026.8.2" {
		first := add("declared", append([]string{"--declaration-key", "declared-" + version, "--every", "4h"}, turn...)...)
		if second := add("declared", append([]string{"--declaration-key", "declared-" + version, "--every", "4h"}, turn...)...); second != first {
			t.Errorf("the same declaration made two jobs, %s and %s", first, second)
		}
	}
	jobCalls(t, o, add("called", append([]string{"--every", "1h"}, turn...)...), add("called too", append([]string{"--every", "1h"}, turn...)...))
	for _, w := range []wants{
		{"list", []string{"cron", "list"}, false, 0, version + " every"},
		{"list all", []string{"cron", "list", "--all", "--json"}, false, 0, every},
		{"get", []string{"cron", "get", every}, false, 0, every},
		{"show by id", []string{"cron", "show", every}, false, 0, "every"},
		{"show by name", []string{"cron", "show", version + " every"}, false, 0, every},
		{"edit", []string{"cron", "edit", every, "--description", "edited from outside"}, false, 0, "edited from outside"},
		{"disable", []string{"cron", "disable", every}, false, 0, ""},
		{"enable", []string{"cron", "enable", every}, false, 0, ""},
		{"run", []string{"cron", "run", every}, false, 0, "manual:" + every},
		{"run when due", []string{"cron", "run", every, "--due"}, false, 1, "not-due"},
		{"run and wait", []string{"cron", "run", every, "--wait"}, false, 0, "succeeded"},
		{"runs", runsOf(version, every), false, 0, "succeeded"},
		{"status", []string{"cron", "status"}, false, 0, "jobs"},
		{"unknown job", []string{"cron", "get", "no-such-job"}, false, 1, "no-such-job"},
		{"run that fails, and wait", []string{"cron", "run", broken, "--wait"}, false, 1, ""},
		{"remove", []string{"cron", "rm", every}, false, 0, ""},
		{"remove again", []string{"cron", "rm", every}, false, 1, "not found"},
		{"system event", []string{"system", "event", "--text", "something happened", "--mode", "now"}, false, 0, ""},
	} {
		o.check(t, w)
	}
}

// jobCalls returns the calls about a job for gateway call, with either name of its id. The last
// ones remove the job.
func jobCalls(t *testing.T, o *openClaw, job, other string) {
	t.Helper()
	from := time.Now().Add(-3 * time.Hour).UnixMilli()
	for _, c := range []struct{ method, params, says string }{
		{"cron.get", `{"id":%q}`, job},
		{"cron.get", `{"jobId":%q}`, job},
		{"cron.update", `{"id":%q,"patch":{"description":"called"}}`, "called"},
		{"cron.pause", `{"id":%q,"note":"called"}`, job},
		{"cron.resume", `{"jobId":%q}`, job},
		{"cron.toggle", `{"jobId":%q,"enabled":false}`, job},
		{"cron.toggle", `{"id":%q,"enabled":true}`, job},
		{"cron.backfill", `{"id":%q,"dryRun":true,"fromMs":` + strconv.FormatInt(from, 10) + `,"toMs":` + strconv.FormatInt(from+7_200_000, 10) + `}`, ""},
		{"cron.run", `{"jobId":%q,"mode":"force"}`, "manual:" + job},
		{"cron.cancel", `{"id":%q}`, ""},
		{"cron.remove", `{"id":%q}`, ""},
		{"cron.delete", `{"jobId":%q}`, ""},
	} {
		id := job
		if c.method == "cron.delete" {
			id = other
		}
		w := wants{"call of " + c.method, []string{"gateway", "call", c.method, "--json", "--params", fmt.Sprintf(c.params, id)}, false, 0, c.says}
		if out := o.check(t, w); !json.Valid([]byte(out)) {
			t.Errorf("gateway call %s --json printed no JSON:\n%s", c.method, out)
		}
	}
}

func runsOf(version, id string) []string {
	if version == "2026.8.2" {
		return []string{"cron", "runs", "--id", id}
	}
	return []string{"cron", "runs", id}
}

// jobID returns the id from the output of `cron add --json`, whether or not the job is wrapped.
func jobID(t *testing.T, out string) string {
	t.Helper()
	var printed struct {
		ID  string
		Job struct{ ID string }
	}
	if start := strings.Index(out, "{"); start >= 0 {
		out = out[start:]
	}
	if err := json.Unmarshal([]byte(out), &printed); err != nil || printed.ID+printed.Job.ID == "" {
		t.Errorf("cron add printed no job: %v\n%s", err, out)
	}
	if printed.ID == "" {
		return printed.Job.ID
	}
	return printed.ID
}

// aPicture is a PNG of one pixel.
const aPicture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

var askedToApprove = regexp.MustCompile(`laneway pair approve ([A-Z2-7]{8})`)

// The dashboard must show the names of Telegram users instead of their numbers, and their photos as
// pictures.
func TestDashboardShowsPeopleOfTelegramAndTheirPhotos(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const anna = 70001
		dir := clients(t)
		telegram := testtelegram.New(testtelegram.Config{})
		telegram.AddPrivate(anna, "Anna")
		api := httptest.NewServer(telegram)
		t.Cleanup(api.CloseClientConnections) // a hanging poll must not delay the end of the test
		t.Cleanup(api.Close)
		g := begin(t, database, fmt.Sprintf("channels: {telegram: {token: %q, api_url: %q, poll_timeout: 2s}}\n", telegram.Token(), api.URL))
		says := func(what string, pattern *regexp.Regexp) (found []string) {
			t.Helper()
			ok := eventually(t, 30*time.Second, func() bool {
				for _, text := range telegram.Texts(anna) {
					if m := pattern.FindStringSubmatch(text); m != nil {
						found = m
					}
				}
				return found != nil
			})
			if !ok {
				t.Fatalf("%s: the bot wrote %q", what, telegram.Texts(anna))
			}
			return found
		}
		telegram.Say(anna, anna, "Hello?")
		code := says("a code", askedToApprove)[1]
		if out, errs, exit := g.CLI(t.Context(), "", "pair", "approve", code, "--token", adminToken); exit != 0 {
			t.Fatalf("pair approve: %s %s", out, errs)
		}
		says("the approval", regexp.MustCompile("You can now use this bot"))
		photo, err := base64.StdEncoding.DecodeString(aPicture)
		if err != nil {
			t.Fatal(err)
		}
		telegram.AddFile("cat", photo)
		telegram.Say(anna, anna, "", testtelegram.With("caption", "a cat"), testtelegram.With("photo", []any{
			map[string]any{"file_id": "cat", "file_unique_id": "ucat", "width": 1, "height": 1, "file_size": len(photo)},
		}))
		says("the answer", regexp.MustCompile("a cat"))
		args := []string{filepath.Join(dir, "dashboardpeople.mjs"), socketURL(g), adminToken, "User 70001 · Telegram"}
		if shots := os.Getenv("LANEWAY_TEST_SHOTS"); shots != "" {
			args = append(args, shots)
		}
		drive(t, nil, node(dir), args...)
	})
}

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

// foreignScope names the methods for which the command line requests a scope that only OpenClaw
// has, and the scope that they need here. The gateway has three scopes and ignores other names, so
// the call is refused. The terminal interface requests operator.read.
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
