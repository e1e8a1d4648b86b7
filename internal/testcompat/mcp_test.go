//go:build compat

package testcompat

import (
	"cmp"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/teste2e"
	"laneway/internal/testmodel"
	"laneway/internal/testtelegram"
)

// The tested versions of the client and of the conformance suite.
const (
	mcpVersion         = "1.32.0"
	conformanceVersion = "0.1.16"
)

// mcpScript is the program of an agent (its message is http or stdio) or, without a turn, a client
// with a credential. It calls every listed tool. In a turn, the tools that create or send run
// first, because after reading text from outside they would require the approval of a person.
const mcpScript = `
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import assert from "node:assert";
import { readFileSync } from "node:fs";
const how = process.argv[2] || readFileSync(0, "utf8").trim();
const token = process.env.LANEWAY_MCP_TOKEN || process.env.TOKEN;
const url = new URL(process.env.LANEWAY_MCP_URL || process.env.BASE + "/mcp");
const ofTurn = Boolean(process.env.LANEWAY_MCP_TOKEN);
const note = "a note over " + how;
const every = [
  ["remind", { when: "tomorrow 15:00", text: "call Ada over " + how }, /^Reminder /],
  ["cron", { action: "list" }, new RegExp("call Ada over " + how)],
  ["message", { text: note }, /^The text is on its way/],
  ["sessions", { action: "list" }, /agent:main:/],
  ["send_file", { name: how + ".txt", text: "apples over " + how }, /is on its way/],
  ["history_search", { query: ofTurn ? how : note }, ofTurn ? new RegExp("user: " + how) : new RegExp("assistant: " + note)],
  ["spawn", { task: "repeat", wait: true }, /the spawned turn was here/],
  ["delegate", { agent: "sister", task: "the sister repeats " + how }, new RegExp("the sister repeats " + how)],
];
if (how === "repeat") {
  console.log("the spawned turn was here");
  process.exit(0);
}
const connected = async (token) => {
  const client = new Client({ name: "compat", version: "1" });
  const transport = how === "http"
    ? new StreamableHTTPClientTransport(url, { requestInit: { headers: { Authorization: "Bearer " + token } } })
    : new StdioClientTransport({
      command: process.env.LANEWAY, args: ofTurn ? ["mcp"] : ["mcp", "--url", url.origin],
      env: { ...(ofTurn ? { LANEWAY_MCP_URL: url.href, LANEWAY_MCP_TOKEN: token } : { LANEWAY_TOKEN: token }), PATH: process.env.PATH, HOME: process.env.HOME },
    });
  await client.connect(transport);
  return client;
};
const client = await connected(token);
const { tools } = await client.listTools();
for (const tool of tools) assert(tool.inputSchema.type === "object" && every.some(([name]) => name === tool.name), tool.name + " is not called");
assert.deepStrictEqual(tools.map((t) => t.name).sort(), (ofTurn ? every.map(([name]) => name) : ["cron", "history_search", "message", "remind", "sessions"]).sort());
const wrong = await client.callTool({ name: "remind", arguments: { now: 1 } });
assert(wrong.isError && /there is no argument/.test(wrong.content[0].text), JSON.stringify(wrong));
await assert.rejects(client.callTool({ name: "fly", arguments: {} }));
for (const [name, args, want] of every) {
  if (!tools.some((t) => t.name === name)) continue;
  let result, until = Date.now() + 30000;
  do { // what was sent is found when it is delivered
    result = await client.callTool({ name, arguments: args });
    assert(!result.isError, name + ": " + JSON.stringify(result));
  } while (!want.test(result.content[0].text.trim()) && !ofTurn && Date.now() < until && await new Promise((done) => setTimeout(done, 200, true)));
  assert(want.test(result.content[0].text.trim()), name + ": " + JSON.stringify(result));
}
await client.close();
await assert.rejects(connected("wrong"));
console.log("called " + tools.length + " tools over " + how);
`

// mcpClient returns a directory with the client from npm and [mcpScript].
func mcpClient(t *testing.T) (dir string) {
	t.Helper()
	dir = npmInstall(t, []string{"@modelcontextprotocol/sdk@" + mcpVersion})
	if err := os.WriteFile(filepath.Join(dir, "try.mjs"), []byte(mcpScript), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestOfficialMCPClient lists and calls every tool of a credential with the client from npm, over
// HTTP and through laneway mcp.
func TestOfficialMCPClient(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		dir := mcpClient(t)
		g := installGateway(t, database, secrets+"agents: {main: {runner: echo, script: true}}\n")
		g.Start()
		o := teste2e.OpenOracle(t, g, database)
		for _, how := range []string{"http", "stdio"} {
			out, code := run(t, append(os.Environ(), "TOKEN="+writeToken, "BASE="+g.URL(), "LANEWAY="+teste2e.Binary(t)), "node", filepath.Join(dir, "try.mjs"), how)
			if code != 0 || !strings.Contains(out, "called 5 tools over "+how) {
				t.Errorf("exit code %d\n%s", code, out)
			}
			for _, query := range []string{
				"SELECT count(*) FROM cron_jobs WHERE name = 'call Ada over " + how + "'", "SELECT count(*) FROM transcript WHERE content = 'a note over " + how + "'",
			} {
				if n := o.Count(query); n != 1 {
					t.Errorf("%s: %d, want 1", query, n)
				}
			}
		}
	})
}

// TestOfficialMCPClientInATurn calls every tool of a turn, as the program of an agent to which a
// person writes in Telegram.
func TestOfficialMCPClientInATurn(t *testing.T) {
	teste2e.NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		dir := mcpClient(t)
		program, err := exec.LookPath("node")
		if err != nil {
			t.Fatalf("node is not here; install Node.js: %v", err)
		}
		const anna = 7
		telegram := testtelegram.New(testtelegram.Config{})
		telegram.AddPrivate(anna, "Anna")
		api := httptest.NewServer(telegram)
		t.Cleanup(api.Close)
		t.Cleanup(api.CloseClientConnections) // polls hang
		g := installGateway(t, database, fmt.Sprintf("agents:\n  main: {runner: command, command: [%q, %q], env: {LANEWAY: %q}}\n  sister: {runner: echo}\n"+
			"channels: {telegram: {token: %q, api_url: %q, poll_timeout: 5s, allow: [%d]}}\n",
			program, filepath.Join(dir, "try.mjs"), teste2e.Binary(t), telegram.Token(), api.URL, anna))
		g.Start()
		for _, how := range []string{"http", "stdio"} {
			telegram.Say(anna, anna, "/new") // after answers of other agents, a tool that acts would ask
			telegram.Say(anna, anna, how)
			want := []string{"called 8 tools over " + how, "a note over " + how, how + ".txt: apples over " + how}
			shown := func() (list []string) {
				for _, m := range telegram.Messages(anna) {
					text := strings.TrimSpace(m.Text)
					if m.File != nil {
						text = m.File.Name + ": " + string(m.File.Content)
					}
					if slices.Contains(want, text) {
						list = append(list, text)
					}
				}
				return slices.Sorted(slices.Values(list))
			}
			slices.Sort(want)
			if !eventually(t, time.Minute, func() bool { return slices.Equal(shown(), want) }) {
				t.Errorf("Anna reads %q, want %q each once", telegram.Texts(anna), want)
			}
		}
		o := teste2e.OpenOracle(t, g, database)
		for query, want := range map[string]int{
			"SELECT count(*) FROM cron_jobs WHERE name LIKE 'call Ada over %'":                                   2,
			"SELECT count(*) FROM inbox WHERE parent IS NOT NULL AND lane = 'subagent' AND outcome = 'answered'": 2,
			"SELECT count(*) FROM inbox WHERE parent IS NOT NULL AND lane = 'team' AND outcome = 'answered'":     2,
			"SELECT count(*) FROM turn_rounds": 0,
		} {
			if n := o.Count(query); n != want {
				t.Errorf("%s: %d, want %d", query, n, want)
			}
		}
	})
}

// The reasons for exceptions.
const (
	noSuchTool  = "calls a tool of the suite's own example server; the gateway has its own tools"
	noResources = "the gateway serves tools, and no resources"
	noPrompts   = "the gateway serves tools, and no prompts"
	noQuestions = "a request stands alone: the server cannot ask its client back (sampling, elicitation)"
)

// exceptions are the scenarios of the conformance suite that test features that the gateway does
// not have, each with its reason.
func exceptions() map[string]string {
	return map[string]string{
		"completion-complete":    "completes arguments of prompts and resources, of which the gateway has none",
		"tools-call-simple-text": noSuchTool, "tools-call-image": noSuchTool, "tools-call-audio": noSuchTool, "tools-call-embedded-resource": noSuchTool,
		"tools-call-mixed-content": noSuchTool, "tools-call-with-logging": noSuchTool, "tools-call-error": noSuchTool, "tools-call-with-progress": noSuchTool,
		"tools-call-sampling": noQuestions, "tools-call-elicitation": noQuestions, "elicitation-sep1034-defaults": noQuestions, "elicitation-sep1330-enums": noQuestions,
		"resources-read-text": noResources, "resources-read-binary": noResources, "resources-templates-read": noResources, "resources-subscribe": noResources,
		"resources-unsubscribe": noResources,
		"resources-list":        noResources, "prompts-list": noPrompts,
		"logging-set-level":  "the gateway sends no log messages to clients, so there is no level to set",
		"prompts-get-simple": noPrompts, "prompts-get-with-args": noPrompts, "prompts-get-embedded-resource": noPrompts, "prompts-get-with-image": noPrompts,
	}
}

// conformance returns the program of the suite.
func conformance(t *testing.T) string {
	t.Helper()
	dir := npmInstall(t, []string{"@modelcontextprotocol/conformance@" + conformanceVersion})
	return filepath.Join(dir, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
}

var scenarioLine = regexp.MustCompile(`(?m)^([✓✗]) ([a-z0-9-]+): `)

// TestMCPConformance runs the official suite against /mcp, through a proxy that adds the
// credential, which the suite cannot send. A failing scenario must be an exception, and an
// exception must fail.
func TestMCPConformance(t *testing.T) {
	dir := clients(t)
	suite := conformance(t)
	g := installGateway(t, "", secrets+"agents: {main: {runner: echo}}\n")
	g.Start()
	to, err := url.Parse(g.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the suite sends hosts that must be refused
		r.Out.Header.Set("Authorization", "Bearer "+writeToken)
	}})
	defer proxy.Close()
	out, code := run(t, os.Environ(), node(dir), suite, "server", "--url", proxy.URL+"/mcp")
	results := scenarioLine.FindAllStringSubmatch(out, -1)
	if len(results) < 25 {
		t.Fatalf("the suite did not run: exit code %d\n%s", code, out)
	}
	known, failed := exceptions(), 0
	for _, line := range results {
		passed, name := line[1] == "✓", line[2]
		switch reason, excepted := known[name]; {
		case !passed && !excepted:
			t.Errorf("%s fails:\n%s", name, out)
		case passed && excepted:
			t.Errorf("%s passes and is an exception: %s", name, reason)
		case !passed:
			failed++
		}
	}
	if failed != len(known) {
		t.Errorf("%d of %d exceptions were tried", failed, len(known))
	}
}

// clientExceptions are the scenarios of the suite for clients that test what the gateway does not
// do as a client of other servers, each with its reason; a name that ends with a slash stands for
// all below it.
func clientExceptions() map[string]string {
	return map[string]string{
		"elicitation-sep1034-client-defaults": "the gateway declares no capability of a client, so servers cannot ask (elicitation)",
		"auth/":                               "the operator gives each server a token; the gateway does not log in by OAuth",
		"auth/resource-mismatch":              "", // a client that stops at the refusal passes
	}
}

// clientScript is a client for the suite, which calls it with the address of its server: a gateway
// whose agent has the tools of that server, and one message to it.
const clientScript = `#!/bin/sh
dir=$(mktemp -d) && export HOME="$dir" LANEWAY_CONFIG="$dir/laneway.yaml"
trap 'kill "$pid"; wait "$pid"; rm -rf "$dir"' EXIT
printf '%%s\n' "listen: ['127.0.0.1:$((20000 + $$ %% 10000))']" 'metrics_listen: "off"' "data: $dir/data" \
  'agents: {main: {runner: openai, base_url: "%[2]s/v1", model: m, tools: "off", mcp: [suite]}}' \
  "mcp: {servers: {suite: {url: '$1', tools: [add_numbers, test_reconnection, test_client_elicitation_defaults, test-tool], timeout: 10s}}}" >"$LANEWAY_CONFIG"
chmod 600 "$LANEWAY_CONFIG"
%[1]s serve >"$dir/log" 2>&1 & pid=$!
for _ in $(seq 200); do %[1]s status >/dev/null 2>&1 && break; sleep 0.1; done
%[1]s agents; %[1]s send --timeout 20s "Call the tool."
`

// TestMCPConformanceOfTheClient runs the official suite for clients against the gateway as a client
// of other servers. A failing scenario must be an exception, and an exception must fail.
func TestMCPConformanceOfTheClient(t *testing.T) {
	teste2e.NeedsProcesses(t)
	dir, suite := clients(t), conformance(t)
	model := testmodel.Start(t)
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		args := map[string]string{"suite_add_numbers": `{"a":5,"b":3}`}
		if len(call.Tools) == 0 || call.Messages[len(call.Messages)-1].Role == "tool" {
			return testmodel.Reply{Pieces: []string{"done"}}
		}
		return testmodel.Reply{Calls: []testmodel.ToolCall{{ID: "call00001", Name: call.Tools[0], Args: cmp.Or(args[call.Tools[0]], "{}")}}}
	})
	script := filepath.Join(t.TempDir(), "client.sh")
	if err := os.WriteFile(script, fmt.Appendf(nil, clientScript, teste2e.Binary(t), model.URL()), 0o700); err != nil {
		t.Fatal(err)
	}
	list, _ := run(t, os.Environ(), node(dir), suite, "list", "--client")
	_, list, _ = strings.Cut(list, "Client scenarios")
	names := regexp.MustCompile(`(?m)^  - (\S+)`).FindAllStringSubmatch(list, -1)
	if len(names) < 20 {
		t.Fatalf("the suite has %d scenarios:\n%s", len(names), list)
	}
	for _, name := range names {
		t.Run(name[1], func(t *testing.T) {
			out, code := run(t, os.Environ(), node(dir), suite, "client", "--command", script, "--scenario", name[1])
			why, listed := clientExceptions()[name[1]]
			if group, _, ok := strings.Cut(name[1], "/"); ok && !listed {
				why = clientExceptions()[group+"/"]
			}
			if (code == 0) != (why == "") {
				t.Errorf("exit code %d, and the reason of an exception is %q\n%s", code, why, out)
			}
		})
	}
}
