//go:build compat

package testcompat

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"laneway/internal/config"
	"laneway/internal/teste2e"
	"laneway/internal/testmodel"
)

// TestPresetsAnswer runs the npm packages of presets, unmodified, behind the gateway and before a model of ours: doctor starts them, the first answer arrives, and the second
// turn has the first one in its conversation.
func TestPresetsAnswer(t *testing.T) {
	for name, env := range map[string]func(url string) map[string]string{
		"claude": func(url string) map[string]string {
			return map[string]string{"ANTHROPIC_API_KEY": "sk-test-0123456789", "ANTHROPIC_BASE_URL": url}
		},
		"qwen": func(url string) map[string]string {
			return map[string]string{"OPENAI_API_KEY": "sk-test-0123456789", "OPENAI_BASE_URL": url + "/v1", "OPENAI_MODEL": "test"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			preset, _ := config.PresetNamed(name)
			ctx, cancel := context.WithTimeout(t.Context(), installTime)
			defer cancel()
			dir, _ := npmRun(ctx, t, preset.Package)
			t.Setenv("PATH", filepath.Join(dir, "node_modules", ".bin")+":"+os.Getenv("PATH"))
			model := testmodel.Start(t)
			model.Answer(func(c testmodel.Call) testmodel.Reply {
				return testmodel.Reply{Pieces: []string{"The word ", "is apple."}, InputTokens: 3, OutputTokens: 4}
			})
			var lines strings.Builder
			for variable, value := range env(model.URL()) {
				fmt.Fprintf(&lines, "%s: %q, ", variable, value)
			}
			g := teste2e.Install(t, "", "agents: {main: {preset: "+name+", dir: \""+t.TempDir()+"/{session}\", env: {"+strings.TrimSuffix(lines.String(), ", ")+"}}}\n")
			g.Start()
			if out, errs, code := g.CLI(ctx, "", "doctor", "--agents", "--config", filepath.Join(g.Dir, "laneway.yaml")); !strings.Contains(out, "answers and made a session") {
				t.Errorf("doctor: %d\n%s%s", code, out, errs)
			}
			for _, text := range []string{"remember the word apple", "which word was it?"} {
				begin := time.Now()
				out, errs, code := g.CLI(ctx, "", "send", text)
				if code != 0 || !strings.Contains(out, "The word is apple.") {
					t.Fatalf("send %q: %d\n%s%s\n%s", text, code, out, errs, g.Output())
				}
				t.Logf("%s answered %q in %s", preset.Title, text, time.Since(begin).Round(100*time.Millisecond))
			}
			calls := model.Calls()
			if last := string(calls[len(calls)-1].Body); !strings.Contains(last, "remember the word apple") {
				t.Error("the second turn does not have the first one")
			}
		})
	}
}
