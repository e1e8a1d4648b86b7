package app

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// Before, the log of a reload always named lanes and queue.
func TestAReloadNamesWhatChanged(t *testing.T) {
	t.Parallel()
	old := config.Default()
	next := old
	if got := settingChanges("lanes", old.Lanes, next.Lanes); len(got) > 0 {
		t.Errorf("nothing has changed, got %q", got)
	}
	next.Lanes.Main, next.Queue.Mode, next.Queue.Cap = 3, "collect", 20
	if got, want := settingChanges("lanes", old.Lanes, next.Lanes), []string{"lanes.main: 30 → 3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := settingChanges("queue", old.Queue, next.Queue), []string{"queue.mode: queue → collect", "queue.cap: 10 → 20"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A watchdog that is fed while nothing moves would keep a stuck process alive.
func TestTheWatchdogStarvesWhileWorkIsStalled(t *testing.T) { //nolint:paralleltest // its variables belong to the process
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	m := &serviceManager{address: path}
	asked := make(chan struct{})
	var moves atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	m.follow(func() bool {
		select {
		case asked <- struct{}{}:
		case <-ctx.Done():
		}
		return !moves.Load()
	})
	ended := make(chan struct{})
	go func() { defer close(ended); m.feed(ctx, time.Millisecond) }()
	for range 3 {
		<-asked
	}
	if err := m.tell(ctx, "three times asked"); err != nil {
		t.Fatal(err)
	}
	moves.Store(true)
	<-asked
	<-asked
	for _, want := range []string{"three times asked", "WATCHDOG=1"} {
		state := make([]byte, 100)
		if n, err := socket.Read(state); err != nil || string(state[:n]) != want {
			t.Errorf("told %q, %v, want %q", state[:n], err, want)
		}
	}
	cancel()
	<-ended
	for env, want := range map[string]time.Duration{"WATCHDOG_USEC=60000000": time.Minute, "WATCHDOG_USEC=x": 0, "": 0, "WATCHDOG_USEC=60000000 WATCHDOG_PID=1": 0} {
		lookup := func(name string) (string, bool) {
			for v := range strings.FieldsSeq(env) {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value, true
				}
			}
			return "", false
		}
		if got := watchdogOf(lookup); got != want {
			t.Errorf("%q: %v, want %v", env, got, want)
		}
	}
}
