package teste2e

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// Before, the ports closed at the same time as /readyz started to fail, so a load balancer sent requests to a closed port until it detected
// that.
func TestAGatewayServesOnWhileItIsNotReadyAnyMore(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "shutdown_delay: 3s\n")
		g.Start()
		g.Signal(syscall.SIGTERM)
		began := time.Now()
		testrun.Eventually(t, "/readyz fails", func() bool { return g.ready(t, http.StatusServiceUnavailable, `"draining":true`) })
		if a := g.Complete("agent:main:main", "hello"); a.Status != http.StatusOK {
			t.Errorf("a message in the delay: %d %s %v", a.Status, a.Body, a.Err)
		}
		if code, body := g.Get("/healthz"); code != http.StatusOK {
			t.Errorf("/healthz in the delay: %d %s", code, body)
		}
		if _, code := g.WaitExit(30 * time.Second); code != 0 || time.Since(began) < 3*time.Second {
			t.Errorf("it ended with %d after %s", code, time.Since(began))
		}
	})
}

// The second signal ends the delay as it ends the drain.
func TestTheSecondSignalEndsTheShutdownDelay(t *testing.T) {
	t.Parallel()
	g := Install(t, "", "shutdown_delay: 25s\n")
	g.Start()
	g.Signal(syscall.SIGTERM)
	testrun.Eventually(t, "/readyz fails", func() bool { return g.ready(t, http.StatusServiceUnavailable, "") })
	g.Signal(syscall.SIGTERM)
	if took, code := g.WaitExit(15 * time.Second); code != 0 {
		t.Errorf("it ended with %d after %s", code, took)
	}
}
