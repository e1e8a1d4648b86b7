package teste2e

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/testmcp"
	"laneway/internal/testpg"
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

// run ends with checks over all scenarios: no goroutine is left, and no gateway, command or test has printed a token of a bot.
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
