package teste2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/testmcp"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(testmcp.Variable); how != "" {
		testmcp.Serve(how)
		return
	}
	if os.Getenv(programVariable) != "" {
		os.Exit(toolsProgram())
	}
	if os.Getenv(acpVariable) != "" {
		os.Exit(runACPAgent())
	}
	if os.Getenv(marksVariable) != "" {
		if err := markRun(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(m))
}

// run ends with checks over all scenarios: no goroutine is left, and no gateway, command or test
// has printed a token of a bot.
func run(m *testing.M) int {
	restore, err := leak.Streams()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	Remove()
	restore()
	if err := errors.Join(leak.Verdict(), goleak.Find()); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// onBothStores runs a scenario on SQLite and on a separate PostgreSQL database.
func onBothStores(t *testing.T, f func(t *testing.T, database string)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, "") })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(t, testpg.DB(t)) })
}

func withTimeout(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// The test follows the README: serve without any configuration, send, chat, status, health.
func TestAFirstConversation(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "")
		g.fresh = true
		began := time.Now()
		g.Start()
		t.Logf("listens after %s", time.Since(began).Round(time.Millisecond))
		ctx := withTimeout(t, time.Minute)
		out, errs, code := g.CLI(ctx, "", "send", "hello")
		if out != "hello\n" || code != 0 {
			t.Errorf("send printed %q %q, code %d", out, errs, code)
		}
		out, errs, code = g.CLI(ctx, "from stdin", "send", "-")
		if out != "from stdin\n" || code != 0 {
			t.Errorf("send - printed %q %q, code %d", out, errs, code)
		}
		out, errs, code = g.CLI(ctx, "how are you\n/queue\n", "chat")
		if !strings.Contains(out, "how are you") || !strings.Contains(out, "Mode queue") || code != 0 {
			t.Errorf("chat printed %q %q, code %d", out, errs, code)
		}
		out, errs, code = g.CLI(ctx, "", "status", "--json")
		if !strings.Contains(out, `"lanes"`) || code != 0 {
			t.Errorf("status printed %q %q, code %d", out, errs, code)
		}
		out, errs, code = g.CLI(ctx, "", "sessions", "show", "main")
		if !strings.Contains(out, "how are you") || code != 0 {
			t.Errorf("sessions show printed %q %q, code %d", out, errs, code)
		}
		if _, errs, code = g.CLI(ctx, "", "health"); code != 0 {
			t.Errorf("health: %q, code %d", errs, code)
		}
		if code, body := g.Get("/healthz"); code != 200 || !strings.Contains(body, `"ok":true`) {
			t.Errorf("/healthz: %d %s", code, body)
		}
		if code, body := g.Get("/readyz"); code != 200 {
			t.Errorf("/readyz: %d %s", code, body)
		}
		g.Kill()
		g.Start()
		out, _, _ = g.CLI(ctx, "", "sessions", "show", "main")
		if !strings.Contains(out, "hello") {
			t.Errorf("after kill -9 the history is %q", out)
		}
		OpenOracle(t, g, database).Check(15 * time.Second)
	})
}

// SIGHUP changes a lane and SIGUSR1 restarts the scheduler while turns run.
func TestReloadAndRestartInPlace(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo, script: true}}\nlanes: {main: 2}\n")
		g.Start()
		c, err := Dial(g.URL(), g.Token(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i := range 6 {
			if _, err := c.Call("chat.send", map[string]any{"sessionKey": fmt.Sprintf("agent:main:r%d", i), "message": "sleep 3s", "idempotencyKey": fmt.Sprintf("r%d", i)}, 10*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(g.config)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(g.config, []byte(strings.Replace(string(text), "main: 2}", "main: 5}", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		g.Signal(syscall.SIGHUP)
		testrun.Eventually(t, "the lane has five slots and uses them", func() bool {
			var l lanesStatus
			if err := c.Into(&l, "lanes.status", nil); err != nil {
				t.Fatal(err)
			}
			capacity, active, _ := l.main()
			return capacity == 5 && active >= 4
		})
		g.Signal(syscall.SIGUSR1)
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "every message is answered after the restart", func() bool {
			return o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'") == 6
		})
		if n := o.Count("SELECT coalesce(sum(crashes), 0) FROM runs"); n != 0 {
			t.Errorf("%d crashes were counted", n)
		}
		if n := o.Count("SELECT count(*) FROM runs WHERE attempt > 1"); n == 0 {
			t.Error("the restart interrupted no turn")
		}
		o.Check(15 * time.Second)
	})
}
