package app

import (
	"net/url"
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

func TestProxyOfAllProgramsIsUsed(t *testing.T) {
	t.Parallel()
	const socks = "socks5h://127.0.0.1:1080"
	for name, c := range map[string]struct {
		env      map[string]string
		to, want string
	}{
		"upper case":            {map[string]string{"ALL_PROXY": socks}, "https://api.telegram.org/x", socks},
		"lower case":            {map[string]string{"all_proxy": socks}, "http://model.example/x", socks},
		"without a scheme":      {map[string]string{"ALL_PROXY": "proxy.example:3128"}, "https://a.example", "http://proxy.example:3128"},
		"one of the scheme":     {map[string]string{"ALL_PROXY": socks, "https_proxy": "http://b"}, "https://a.example", ""},
		"one of another scheme": {map[string]string{"ALL_PROXY": socks, "HTTP_PROXY": "http://b"}, "https://a.example", socks},
		"this host":             {map[string]string{"ALL_PROXY": socks}, "http://localhost:11434", ""},
		"loopback":              {map[string]string{"ALL_PROXY": socks}, "http://[::1]:11434", ""},
		"a domain of no_proxy":  {map[string]string{"ALL_PROXY": socks, "no_proxy": "x, .corp.example"}, "https://llm.corp.example", ""},
		"a name of NO_PROXY":    {map[string]string{"ALL_PROXY": socks, "NO_PROXY": "corp.example"}, "https://corp.example", ""},
		"a name that ends so":   {map[string]string{"ALL_PROXY": socks, "NO_PROXY": "corp.example"}, "https://notcorp.example", socks},
		"a network":             {map[string]string{"ALL_PROXY": socks, "NO_PROXY": "10.0.0.0/8"}, "http://10.1.2.3:8000", ""},
		"another port":          {map[string]string{"ALL_PROXY": socks, "NO_PROXY": "a.example:8000"}, "https://a.example", socks},
		"everything":            {map[string]string{"ALL_PROXY": socks, "NO_PROXY": "*"}, "https://a.example", ""},
		"none":                  {nil, "https://a.example", ""},
	} {
		to, err := url.Parse(c.to)
		if err != nil {
			t.Fatal(err)
		}
		got, err := proxyFor(to, func(name string) string { return c.env[name] })
		if err != nil || (got == nil) != (c.want == "") || got != nil && got.String() != c.want {
			t.Errorf("%s: got %v, %v, want %q", name, got, err, c.want)
		}
	}
	if _, err := proxyFor(&url.URL{Scheme: "https", Host: "a.example"}, func(name string) string { return map[string]string{"ALL_PROXY": "socks4://x"}[name] }); err == nil {
		t.Error("a proxy that cannot be used is accepted")
	}
}
