//go:build compat

package testcompat

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"laneway/internal/teste2e"
)

// openAIVersion is the tested version of the client.
const openAIVersion = "7.55.0"

const openAIScript = `
import OpenAI, { toFile } from "openai";
import assert from "node:assert";
const client = new OpenAI({ apiKey: process.env.TOKEN, baseURL: process.env.BASE });
const models = [];
for await (const m of client.models.list()) models.push(m.id);
assert(models.includes("laneway/main"), models.join());
const messages = [{ role: "system", content: "be kind" }, { role: "user", content: "one two three" }];
const whole = await client.chat.completions.create({ model: "laneway", messages });
assert.equal(whole.choices[0].message.content, "one two three");
assert.equal(whole.choices[0].finish_reason, "stop");
const stream = await client.chat.completions.create({ model: "laneway/main", messages, stream: true, stream_options: { include_usage: true } });
let text = "", usage = 0;
for await (const chunk of stream) { text += chunk.choices[0]?.delta?.content ?? ""; if (chunk.usage) usage++; }
assert.equal(text, "one two three");
assert.equal(usage, 1);
const first = await client.responses.create({ model: "laneway", instructions: "be kind", input: "one two" });
assert.equal(first.output_text, "one two");
assert.equal(first.status, "completed");
const next = await client.responses.create({ model: "laneway/main", input: "three", previous_response_id: first.id, stream: true });
let said = "", last;
for await (const event of next) { if (event.type === "response.output_text.delta") said += event.delta; last = event; }
assert.equal(said, "three");
assert.equal(last.type, "response.completed");
assert.equal(last.response.output[0].content[0].text, "three");
const followed = client.responses.stream({ model: "main", input: "four five", conversation: "talk" });
assert.equal((await followed.finalResponse()).output_text, "four five");
const png = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const seen = await client.chat.completions.create({ model: "laneway", messages: [{ role: "user", content: [{ type: "text", text: "look" }, { type: "image_url", image_url: { url: png } }] }] });
assert.match(seen.choices[0].message.content, /^look/);
const shown = await client.responses.create({ model: "laneway", stream: true, input: [{ role: "user", content: [{ type: "input_text", text: "look" }, { type: "input_image", image_url: png, detail: "auto" }] }] });
for await (const event of shown) last = event;
assert.match(last.response.output[0].content[0].text, /^look/);
const sent = await client.files.create({ purpose: "user_data", file: await toFile(Buffer.from("a,b"), "table.csv") });
assert.equal(sent.filename, "table.csv");
assert.equal(sent.bytes, 3);
assert.equal(await (await client.files.content(sent.id)).text(), "a,b");
const listed = [];
for await (const f of client.files.list()) listed.push(f.id);
assert(listed.includes(sent.id), listed.join());
await client.responses.create({ model: "laneway", input: [{ role: "user", content: [{ type: "input_text", text: "add" }, { type: "input_file", file_id: sent.id }] }] });
await assert.rejects(client.responses.create({ model: "laneway", input: "x", previous_response_id: "resp_0" }), (e) => e instanceof OpenAI.NotFoundError && e.param === "previous_response_id");
const page = await client.files.list({ limit: 1, purpose: "user_data" });
assert.deepEqual(page.data.map((f) => f.id), [sent.id]);
assert.equal((await client.files.delete(sent.id)).deleted, true);
await assert.rejects(client.files.retrieve(sent.id), OpenAI.NotFoundError);
const kept = await client.responses.retrieve(first.id);
assert.equal(kept.output_text ?? kept.output[0].content[0].text, "one two");
await assert.rejects(client.responses.delete(first.id), (e) => e.status === 409 && /sessions delete/.test(e.message));
const alone = await client.responses.create({ model: "laneway", input: "six" });
const again = await client.responses.create({ model: "laneway", input: [{ role: "user", content: "six" }, { type: "item_reference", id: alone.output[0].id }, { role: "user", content: "seven" }] });
assert.equal(again.output_text, "seven");
await client.responses.delete(alone.id);
await assert.rejects(client.responses.retrieve(alone.id), OpenAI.NotFoundError);
assert.equal((await client.models.retrieve("laneway/main")).id, "laneway/main");
await assert.rejects(client.files.retrieve("file-0"), OpenAI.NotFoundError);
await assert.rejects(client.chat.completions.create({ model: "gpt-4o", messages }), (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
await assert.rejects(client.chat.completions.create({ model: "laneway", messages: [{ role: "user", content: "fail refusal" }] }), (e) => e.status === 400 && e.code === "content_filter");
await assert.rejects(client.chat.completions.create({ model: "laneway", messages: [{ role: "user", content: "fail bad_request" }] }), (e) => e.status === 502 && e.code === "run_failed");
await assert.rejects(new OpenAI({ apiKey: "wrong", baseURL: process.env.BASE }).models.list(), OpenAI.AuthenticationError);
console.log("all well");
`

// installOpenAI fetches the client into a directory of the test, and returns a function that runs a
// program there.
func installOpenAI(ctx context.Context, t *testing.T) (dir string, run func(env []string, name string, args ...string) (string, error)) {
	t.Helper()
	dir = t.TempDir()
	run = func(env []string, name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(nil, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "openai@"+openAIVersion); err != nil {
		t.Fatalf("the npm registry cannot be reached or npm is missing, so the official client was not tried: %v\n%s", err, out)
	}
	return dir, run
}

// OpenAI's client from npm calls the gateway: models, completions and responses, whole and
// streamed, images, files, and errors as classes of the client.
func TestOfficialOpenAIClient(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		dir, run := installOpenAI(ctx, t)
		if err := os.WriteFile(filepath.Join(dir, "try.mjs"), []byte(openAIScript), 0o600); err != nil {
			t.Fatal(err)
		}
		g := installGateway(t, database, secrets+"agents: {main: {runner: echo, script: true}}\n")
		g.Start()
		out, err := run([]string{"TOKEN=" + writeToken, "BASE=" + g.URL() + "/v1"}, "node", "try.mjs")
		if err != nil || !strings.Contains(out, "all well") {
			t.Errorf("%v\n%s", err, out)
		}
		if n := teste2e.OpenOracle(t, g, database).Count("SELECT count(*) FROM inbox"); n != 12 {
			t.Errorf("%d messages were accepted, want 12: a run that failed must not be sent again", n)
		}
	})
}

// fence matches a code block of a document.
var fence = regexp.MustCompile("(?s)```(js|bash)\n(.*?)```")

// TestExamplesOfTheOpenAIPage runs every JavaScript and curl example of docs/openai.md and
// docs/openai-files.md against the gateway, unchanged except for the address.
func TestExamplesOfTheOpenAIPage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	dir, run := installOpenAI(ctx, t)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "openai.md"))
	files, bad := os.ReadFile(filepath.Join("..", "..", "docs", "openai-files.md"))
	if err := errors.Join(err, bad); err != nil {
		t.Fatal(err)
	}
	g := installGateway(t, "", secrets+"agents: {main: {runner: echo}}\n")
	g.Start()
	env := []string{"LANEWAY_TOKEN=" + writeToken}
	ran := map[string]int{}
	for i, block := range fence.FindAllStringSubmatch(string(page)+string(files), -1) {
		code := strings.ReplaceAll(block[2], "http://127.0.0.1:18790", g.URL())
		if strings.HasPrefix(code, "laneway ") { // needs access to the store; the tests of the commands cover it
			continue
		}
		name := filepath.Join(dir, fmt.Sprintf("example-%d.%s", i, map[string]string{"js": "mjs", "bash": "sh"}[block[1]]))
		if err := os.WriteFile(name, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		program := map[string][]string{"js": {"node", name}, "bash": {"bash", "-e", name}}[block[1]]
		if out, err := run(env, program[0], program[1:]...); err != nil || strings.TrimSpace(out) == "" {
			t.Errorf("example %d (%s): %v\n%s\n%s", i, block[1], err, code, out)
		}
		ran[block[1]]++
	}
	if ran["js"] < 4 || ran["bash"] < 4 {
		t.Errorf("%v examples ran", ran)
	}
}

// aimockVersion is the tested version of the fake of model APIs.
const aimockVersion = "1.43.0"

// aimockScript serves one turn with a call for each dialect, and prints the requests it received at
// the end.
const aimockScript = `
import { LLMock } from "@copilotkit/aimock";
const mock = new LLMock({ port: 0 });
mock.on({ userMessage: "planned", hasToolResult: false }, {
	toolCalls: [{ name: "cron", arguments: '{"action":"list"}' }], reasoning: "A list is wanted.", reasoningSignature: "c2lnbmVk", redactedThinking: ["ZGF0YQ=="],
});
mock.on({ userMessage: "planned", hasToolResult: true }, { content: "Nothing is planned." });
mock.on({ userMessage: "weather", hasToolResult: false }, { toolCalls: [{ name: "weather", arguments: '{"city":"Oslo"}' }] });
mock.on({ userMessage: "weather", hasToolResult: true }, { content: "It rains." });
mock.on({ userMessage: "again" }, { content: "Again to you." });
mock.on({ userMessage: "hello" }, { content: "Hello to you." });
await mock.start();
console.log(mock.url);
for await (const _ of process.stdin) {}
console.log(JSON.stringify(mock.getRequests().map((r) => r.body)));
await mock.stop();
`

// aiVersion and aiOpenAIVersion are the tested versions of the library ai and of its provider.
const (
	aiVersion       = "7.0.173"
	aiOpenAIVersion = "4.0.118"
)

// aiScript calls the gateway by the library ai, in both forms: two turns, the second of which names
// the first answer by reference in the form of responses, then a turn with a tool of the program,
// whole and streamed.
const aiScript = `
import { generateText, streamText, tool, stepCountIs, jsonSchema } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import assert from "node:assert";
const openai = createOpenAI({ apiKey: process.env.TOKEN, baseURL: process.env.BASE });
const weather = tool({
  description: "The weather of a city",
  inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false }),
  execute: async ({ city }) => "rain in " + city,
});
for (const model of [openai.chat("laneway"), openai.responses("laneway")]) {
  const messages = [{ role: "user", content: "hello" }];
  const first = await generateText({ model, messages });
  assert.equal(first.text, "Hello to you.");
  messages.push(...first.response.messages, { role: "user", content: "and again" });
  const second = await generateText({ model, messages });
  assert.equal(second.text, "Again to you.");
  const whole = await generateText({ model, tools: { weather }, stopWhen: stepCountIs(4), prompt: "weather?" });
  assert.equal(whole.text, "It rains.");
  assert.deepEqual(whole.steps[0].toolResults.map((r) => r.output), ["rain in Oslo"]);
  const streamed = streamText({ model, tools: { weather }, stopWhen: stepCountIs(4), prompt: "weather?" });
  let text = "";
  for await (const piece of streamed.textStream) text += piece;
  assert.equal(text, "It rains.");
}
console.log("all well");
`

// TestOfficialAIClient calls the gateway by the library ai, and its agent calls a fake of the model
// APIs.
func TestOfficialAIClient(t *testing.T) {
	dir := npmInstall(t, []string{"ai@" + aiVersion, "@ai-sdk/openai@" + aiOpenAIVersion, "@copilotkit/aimock@" + aimockVersion})
	for name, script := range map[string]string{"aimock.mjs": aimockScript, "try.mjs": aiScript} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mock := startAimock(t, filepath.Join(dir, "aimock.mjs"))
	g := installGateway(t, "", secrets+fmt.Sprintf("agents: {main: {runner: openai, base_url: %q, model: m, api_key: k-test-1234, retries: 0}}\n", mock.url+"/v1"))
	g.Start()
	out, code := run(t, append(os.Environ(), "TOKEN="+writeToken, "BASE="+g.URL()+"/v1"), "node", filepath.Join(dir, "try.mjs"))
	if code != 0 || !strings.Contains(out, "all well") {
		t.Errorf("exit code %d\n%s\nthe model was asked:\n%s", code, out, mock.end(t))
	}
}

// aimock is a running fake of the model APIs.
type aimock struct {
	url   string
	in    io.Closer
	lines *bufio.Scanner
	cmd   *exec.Cmd
}

func startAimock(t *testing.T, script string) *aimock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	t.Cleanup(cancel)
	m := &aimock{cmd: exec.CommandContext(ctx, "node", script)}
	in, err := m.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.in, m.lines = in, bufio.NewScanner(out)
	m.lines.Buffer(nil, 1<<20)
	m.lines.Scan()
	m.url = m.lines.Text()
	t.Cleanup(func() { m.end(t) })
	return m
}

// end ends the fake and returns the requests that it received; "" when it has ended before.
func (m *aimock) end(t *testing.T) string {
	t.Helper()
	if m.in == nil {
		return ""
	}
	_ = m.in.Close()
	m.in = nil
	m.lines.Scan()
	asked := m.lines.Text()
	if err := m.cmd.Wait(); err != nil {
		t.Error(err)
	}
	return asked
}

// TestTurnsOfAimock runs a turn with a call against a fake of the model APIs that another project
// makes, in both dialects: the answer comes, and the thoughts that came with the call return with
// it.
func TestTurnsOfAimock(t *testing.T) {
	dir := npmInstall(t, []string{"@copilotkit/aimock@" + aimockVersion})
	script := filepath.Join(dir, "aimock.mjs")
	if err := os.WriteFile(script, []byte(aimockScript), 0o600); err != nil {
		t.Fatal(err)
	}
	for runner, path := range map[string]string{"openai": "/v1", "anthropic": ""} {
		t.Run(runner, func(t *testing.T) {
			mock := startAimock(t, script)
			g := installGateway(t, "", fmt.Sprintf("agents: {main: {runner: %s, base_url: %q, model: m, api_key: k-test-1234, retries: 0}}\n", runner, mock.url+path))
			g.Start()
			if out, errs, code := g.CLI(t.Context(), "", "send", "What is planned?"); code != 0 || !strings.Contains(out, "Nothing is planned.") {
				t.Errorf("got %q, %q and status %d, want the answer after the call", out, errs, code)
			}
			asked := mock.end(t)
			for _, part := range map[string][]string{"openai": {"A list is wanted.", "There are no jobs."}, "anthropic": {"There are no jobs."}}[runner] {
				if !strings.Contains(asked, part) {
					t.Errorf("%s did not return: %s", part, asked)
				}
			}
		})
	}
}
