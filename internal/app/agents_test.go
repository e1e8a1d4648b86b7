package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/config"
	"laneway/internal/dispatch"
	"laneway/internal/tool"
)

// The configuration accepts exactly the names of the table of tools.
func TestTheConfigurationKnowsEveryTool(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "laneway.yaml")
	text := "agents: {main: {runner: openai, model: m, base_url: \"http://127.0.0.1:1/v1\", tools: [" + strings.Join(tool.Names(), ", ") + "]}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(config.Options{File: file, LookupEnv: func(name string) (string, bool) {
		return map[string]string{"LANEWAY_DATA": "/tmp"}[name], name == "LANEWAY_DATA"
	}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dispatch.Tools{Default: true, Names: tool.Names()}, toolsOf(loaded.Config.Agents["main"])); diff != "" {
		t.Errorf("tools of the agent (-want +got):\n%s", diff)
	}
}

func TestToolsAreForRunnersThatCallThem(t *testing.T) {
	t.Parallel()
	for runner, want := range map[string]bool{
		config.RunnerOpenAI: true, config.RunnerAnthropic: true, config.RunnerEcho: false, config.RunnerCommand: true,
		config.RunnerACP: true, config.RunnerHTTP: false,
	} {
		if got := toolsOf(config.Agent{Runner: runner}); got.Default != want || got.Names != nil {
			t.Errorf("%s: got %+v, want all tools: %t", runner, got, want)
		}
	}
	if got := toolsOf(config.Agent{Runner: config.RunnerOpenAI, Tools: config.ToolNames{"off"}}); got.Default || got.Names != nil {
		t.Errorf("off: got %+v, want none", got)
	}
}
