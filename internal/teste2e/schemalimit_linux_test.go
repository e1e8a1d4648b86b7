package teste2e

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"laneway/internal/testrun"
)

// A file of SQLite that cannot grow refuses every write: the process reports it, and recovers when it can grow again.
func TestReadinessNoticesThatSQLiteCannotGrow(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	g := Install(t, "", "limits: {free_space: 0}\n")
	g.Start()
	connect(t, g)
	pid := g.pid()
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: unix.RLIM_INFINITY}, &before); err != nil {
		t.Fatal(err)
	}
	if a := g.Complete("agent:main:main", "hello"); a.Status != http.StatusServiceUnavailable {
		t.Fatalf("a message that cannot be written: %d %s", a.Status, a.Body)
	}
	if !g.ready(t, http.StatusServiceUnavailable, `"database":"failed"`) {
		t.Error("/readyz does not report that messages are refused")
	}
	if out := g.statusOf(t); !strings.Contains(out, "not healthy") {
		t.Errorf("status of a database that cannot grow:\n%s", out)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &before, nil); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "a message is stored again", func() bool { return g.Complete("agent:main:main", "hello").Status == http.StatusOK })
	testrun.Eventually(t, "readiness", func() bool { return g.ready(t, http.StatusOK, "") })
}
