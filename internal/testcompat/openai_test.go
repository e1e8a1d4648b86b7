//go:build compat

package testcompat

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"laneway/internal/teste2e"
)

// openAIVersion is the client that the answers were tried with.
const openAIVersion = "7.55.0"

const openAIScript = `
import OpenAI from "openai";
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
await assert.rejects(client.chat.completions.create({ model: "gpt-4o", messages }), (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
await assert.rejects(client.chat.completions.create({ model: "laneway", messages: [{ role: "user", content: "fail refusal" }] }), (e) => e.status === 502 && e.code === "run_failed");
await assert.rejects(new OpenAI({ apiKey: "wrong", baseURL: process.env.BASE }).models.list(), OpenAI.AuthenticationError);
console.log("all well");
`

// The client that OpenAI publishes, from npm, talks to the gateway: models, a whole answer, a stream, and errors as its own classes.
func TestOfficialOpenAIClient(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		dir := t.TempDir()
		run := func(env []string, name string, args ...string) (string, error) {
			cmd := exec.CommandContext(ctx, name, args...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		if out, err := run(nil, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "openai@"+openAIVersion); err != nil {
			t.Fatalf("the npm registry cannot be reached or npm is missing, so the official client was not tried: %v\n%s", err, out)
		}
		if err := os.WriteFile(filepath.Join(dir, "try.mjs"), []byte(openAIScript), 0o600); err != nil {
			t.Fatal(err)
		}
		g := teste2e.Install(t, database, secrets+"agents: {main: {runner: echo, script: true}}\n")
		g.Start()
		out, err := run([]string{"TOKEN=" + writeToken, "BASE=" + g.URL() + "/v1"}, "node", "try.mjs")
		if err != nil || !strings.Contains(out, "all well") {
			t.Errorf("%v\n%s", err, out)
		}
		if n := teste2e.OpenOracle(t, g, database).Count("SELECT count(*) FROM inbox"); n != 3 {
			t.Errorf("%d messages were accepted, want 3: a run that failed must not be sent again", n)
		}
	})
}
