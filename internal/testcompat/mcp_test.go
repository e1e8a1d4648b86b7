//go:build compat

package testcompat

import (
	"context"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"laneway/internal/teste2e"
)

// The versions of the client and of the conformance suite that were tried.
const (
	mcpVersion         = "1.32.0"
	conformanceVersion = "0.1.16"
)

const mcpScript = `
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import assert from "node:assert";
const every = {
  cron: { action: "list" }, message: { text: "a note" }, remind: { when: "tomorrow 15:00", text: "call Ada" }, sessions: { action: "list" },
};
const requestInit = { headers: { Authorization: "Bearer " + process.env.TOKEN } };
for (const transport of [
  new StreamableHTTPClientTransport(new URL(process.env.BASE + "/mcp"), { requestInit }),
  new StdioClientTransport({ command: process.env.LANEWAY, args: ["mcp", "--url", process.env.BASE], env: { LANEWAY_TOKEN: process.env.TOKEN, PATH: process.env.PATH, HOME: process.env.HOME } }),
]) {
  const client = new Client({ name: "compat", version: "1" });
  await client.connect(transport);
  const { tools } = await client.listTools();
  for (const [name, args] of Object.entries(every)) {
    assert(tools.some((t) => t.name === name && t.inputSchema.type === "object"), name + " is not listed");
    const result = await client.callTool({ name, arguments: args });
    assert(!result.isError && result.content[0].text, name + ": " + JSON.stringify(result));
  }
  const wrong = await client.callTool({ name: "remind", arguments: { now: 1 } });
  assert(wrong.isError && /there is no argument/.test(wrong.content[0].text), JSON.stringify(wrong));
  await assert.rejects(client.callTool({ name: "fly", arguments: {} }));
  await client.close();
}
const refused = new Client({ name: "compat", version: "1" });
await assert.rejects(refused.connect(new StreamableHTTPClientTransport(new URL(process.env.BASE + "/mcp"), { requestInit: { headers: { Authorization: "Bearer wrong" } } })));
console.log("all well");
`

// npmRun installs packages of npm into a directory and returns a function that runs programs in it.
func npmRun(ctx context.Context, t *testing.T, packages ...string) func(env []string, name string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	run := func(env []string, name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(nil, "npm", append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts"}, packages...)...); err != nil {
		t.Fatalf("the npm registry cannot be reached or npm is missing, so the official client was not tried: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "try.mjs"), []byte(mcpScript), 0o600); err != nil {
		t.Fatal(err)
	}
	return run
}

// TestOfficialMCPClient lets the client of npm list and call every tool, over HTTP and through laneway mcp.
func TestOfficialMCPClient(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		run := npmRun(ctx, t, "@modelcontextprotocol/sdk@"+mcpVersion)
		g := teste2e.Install(t, database, secrets+"agents: {main: {runner: echo, script: true}}\n")
		g.Start()
		out, err := run([]string{"TOKEN=" + writeToken, "BASE=" + g.URL(), "LANEWAY=" + teste2e.Binary(t)}, "node", "try.mjs")
		if err != nil || !strings.Contains(out, "all well") {
			t.Errorf("%v\n%s", err, out)
		}
		if n := teste2e.OpenOracle(t, g, database).Count("SELECT count(*) FROM cron_jobs WHERE name = 'call Ada'"); n != 1 {
			t.Errorf("%d reminders of the same time and text, want 1", n)
		}
	})
}

// The reasons of exceptions.
const (
	noSuchTool  = "calls a tool of the suite's own example server; the gateway has its own tools"
	noResources = "the gateway serves tools, and no resources"
	noPrompts   = "the gateway serves tools, and no prompts"
	noQuestions = "a request stands alone: the server cannot ask its client back (sampling, elicitation)"
)

// exceptions are the scenarios of the conformance suite that need what the gateway does not have, each with its reason.
func exceptions() map[string]string {
	return map[string]string{
		"completion-complete":    "completes arguments of prompts and resources, of which the gateway has none",
		"tools-call-simple-text": noSuchTool, "tools-call-image": noSuchTool, "tools-call-audio": noSuchTool, "tools-call-embedded-resource": noSuchTool,
		"tools-call-mixed-content": noSuchTool, "tools-call-with-logging": noSuchTool, "tools-call-error": noSuchTool, "tools-call-with-progress": noSuchTool,
		"tools-call-sampling": noQuestions, "tools-call-elicitation": noQuestions, "elicitation-sep1034-defaults": noQuestions, "elicitation-sep1330-enums": noQuestions,
		"resources-read-text": noResources, "resources-read-binary": noResources, "resources-templates-read": noResources, "resources-subscribe": noResources,
		"resources-unsubscribe": noResources,
		"prompts-get-simple":    noPrompts, "prompts-get-with-args": noPrompts, "prompts-get-embedded-resource": noPrompts, "prompts-get-with-image": noPrompts,
	}
}

var scenarioLine = regexp.MustCompile(`(?m)^([✓✗]) ([a-z0-9-]+): `)

// TestMCPConformance runs the official suite against /mcp, through a proxy that adds the credential, which the suite cannot send. A scenario that fails has to be an
// exception, and an exception has to fail.
func TestMCPConformance(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	dir := clients(t)
	run := npmRun(ctx, t, "@modelcontextprotocol/conformance@"+conformanceVersion)
	g := teste2e.Install(t, "", secrets+"agents: {main: {runner: echo}}\n")
	g.Start()
	to, err := url.Parse(g.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the suite sends hosts that have to be refused
		r.Out.Header.Set("Authorization", "Bearer "+writeToken)
	}})
	defer proxy.Close()
	out, err := run(nil, node(dir), "node_modules/@modelcontextprotocol/conformance/dist/index.js", "server", "--url", proxy.URL+"/mcp")
	results := scenarioLine.FindAllStringSubmatch(out, -1)
	if len(results) < 25 {
		t.Fatalf("the suite did not run: %v\n%s", err, out)
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
