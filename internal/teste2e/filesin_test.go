package teste2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"laneway/internal/testmodel"
)

// onePixel is a picture.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// A picture and a table are sent with `laneway send --file` to every kind of agent: models see the picture, a program opens both by their
// paths, and the next turn reads their names.
func TestFilesReachAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			return testmodel.Reply{Pieces: []string{"re:" + call.Last()}}
		})
		program := filepath.Join(t.TempDir(), "agent.sh")
		script := "#!/bin/sh\ntr ',' '\\n' | sed -n 's/.*\"path\":\"\\([^\"]*\\)\".*/\\1/p' | while read -r f; do wc -c < \"$f\"; done\n"
		if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		config := strings.Replace(providersConfig(model), "agents:\n", fmt.Sprintf("agents:\n  shell: {runner: command, command: [%q], input: json}\n", program), 1)
		g := Install(t, database, config+"default_agent: main\n")
		g.Start()
		picture, table := filepath.Join(g.Dir, "pixel.png"), filepath.Join(g.Dir, "table.csv")
		raw, err := base64.StdEncoding.DecodeString(onePixel)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{picture: raw, table: []byte("a,b\n")} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		send := func(agent, text string, more ...string) string {
			t.Helper()
			out, errs, code := g.CLI(t.Context(), "", append([]string{"send", text, "--agent", agent, "--session", "agent:" + agent + ":files"}, more...)...)
			if code != 0 {
				t.Fatalf("%s: %d %s %s", agent, code, out, errs)
			}
			return out
		}
		last := func() string {
			calls := model.Calls()
			return string(calls[len(calls)-1].Body)
		}
		for _, agent := range []string{"main", "sister"} {
			send(agent, "what is it?", "--file", picture, "--file", table)
			if body := last(); !strings.Contains(body, onePixel) || !strings.Contains(body, "image/png") || !strings.Contains(body, "table.csv, text/") {
				t.Errorf("%s was asked %s", agent, body)
			}
			send(agent, "and now?")
			if body := last(); strings.Contains(body, onePixel) || !strings.Contains(body, "[attachment: pixel.png, image/png") {
				t.Errorf("%s was asked in the next turn %s", agent, body)
			}
		}
		if out := send("shell", "count", "--file", picture, "--file", table); strings.Join(strings.Fields(out), " ") != fmt.Sprintf("%d 4", len(raw)) {
			t.Errorf("the program counted %q", out)
		}
		out, errs, code := g.CLI(t.Context(), "", "send", "x", "--file", filepath.Join(g.Dir, "gone.png"))
		if code != 2 || !strings.Contains(errs, "cannot be read") {
			t.Errorf("a file that is not there: %d %s %s", code, out, errs)
		}
	})
}

// Before, a refusal because of a picture ended the turn.
func TestModelThatSeesNoPicturesIsAskedWithout(t *testing.T) {
	model := testmodel.Start(t)
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		if bytes.Contains(call.Body, []byte(onePixel)) {
			return testmodel.Reply{Status: http.StatusBadRequest, Message: "this model does not support image input"}
		}
		return testmodel.Reply{Pieces: []string{"re:" + call.Last()}}
	})
	g := Install(t, "", providersConfig(model))
	g.Start()
	for _, agent := range []string{"main", "sister"} {
		body, err := json.Marshal(map[string]any{"model": agent, "input": []any{map[string]any{"role": "user", "content": []any{
			map[string]string{"type": "input_text", "text": "look"}, map[string]string{"type": "input_image", "image_url": "data:image/png;base64," + onePixel},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		a := g.post("/v1/responses", body, map[string]string{"Authorization": "Bearer " + g.Token()})
		if a.Status != http.StatusOK || !strings.Contains(a.Body, "re:look") || !strings.Contains(a.Body, "cannot be shown pictures") {
			t.Errorf("%s: %d %s", agent, a.Status, a.Body)
		}
	}
}

// The requests have the form in which OpenAI's Python client sends the examples of docs/openai.md, and other forms that it may send.
func TestRequestsOfThePythonClient(t *testing.T) {
	g := Install(t, "", "agents: {main: {runner: echo}}\n")
	g.Start()
	header := map[string]string{
		"Authorization": "Bearer " + g.Token(), "Accept": "application/json", "Accept-Encoding": "gzip, deflate", "User-Agent": "OpenAI/Python 2.8.0",
		"X-Stainless-Lang": "python", "X-Stainless-Retry-Count": "0", "X-Stainless-Read-Timeout": "600", "X-Stainless-Async": "false",
	}
	for name, tc := range map[string]struct{ path, body, want string }{
		"completion": {
			"/v1/chat/completions", `{"messages":[{"role":"user","content":"What is on today?"}],"model":"laneway"}`, `"content":"What is on today?"`,
		},
		"completion, streamed": {
			"/v1/chat/completions", `{"messages":[{"role":"user","content":"hello"}],"model":"laneway","stream":true}`, "data: [DONE]",
		},
		"response": {"/v1/responses", `{"input":"hello","instructions":null,"model":"laneway"}`, `"text":"hello"`},
		"response, streamed": {
			"/v1/responses", `{"input":[{"role":"user","content":"hello"}],"model":"laneway","stream":true,"store":false,"metadata":{"a":"b"}}`, "event: response.completed",
		},
	} {
		if a := g.post(tc.path, []byte(tc.body), header); a.Status != http.StatusOK || !strings.Contains(a.Body, tc.want) {
			t.Errorf("%s: %d %s %v", name, a.Status, a.Body, a.Err)
		}
	}
}
