package teste2e

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func chatText(session, text, key string) map[string]any {
	return map[string]any{"sessionKey": session, "message": text, "idempotencyKey": key}
}

// Below the minimum of free space, the gateway refuses new messages and reports that; with enough space it accepts the same message.
func TestNewMessagesAreRefusedBelowTheFloorOfFreeSpace(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const most, hookSecret = "limits: {free_space: 1125899906842624}\n", "hook-secret-Zk7Qw3Rt9Yb2Nc5Vm8Xa4"
		g := Install(t, database, most+"hooks:\n  ci: {secret: "+hookSecret+"}\n")
		g.Start()
		c := connect(t, g)
		var e *WireError
		_, err := c.Call("chat.send", chatText("main", "hello", "first"), 30*time.Second)
		if !errors.As(err, &e) || e.Code != "UNAVAILABLE" || e.Details["check"] != "disk" || !e.Retryable || e.RetryAfterMs <= 0 {
			t.Errorf("chat.send: %v", err)
		}
		if a := g.Complete("agent:main:main", "hello"); a.Status != http.StatusServiceUnavailable {
			t.Errorf("a completion got %d %s %v", a.Status, a.Body, a.Err)
		}
		if a := g.Hook("ci", hookSecret, `{"message":"hello"}`); a.Status != http.StatusServiceUnavailable {
			t.Errorf("a hook got %d %s %v", a.Status, a.Body, a.Err)
		}
		if code, body := g.Get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, `"disk":"low"`) {
			t.Errorf("/readyz: %d %s", code, body)
		}
		if code, body := g.Get("/healthz"); code != http.StatusOK {
			t.Errorf("/healthz: %d %s", code, body)
		}
		var st struct {
			OK   bool
			Disk string
		}
		if err := c.Into(&st, "status", nil); err != nil || st.OK || st.Disk != "low" {
			t.Errorf("status: %+v %v", st, err)
		}
		if n := OpenOracle(t, g, database).Count("SELECT count(*) FROM inbox"); n != 0 {
			t.Errorf("%d messages were stored", n)
		}
		g.Signal(syscall.SIGTERM)
		if _, code := g.WaitExit(30 * time.Second); code != 0 {
			t.Fatalf("it ended with %d", code)
		}
		text, err := os.ReadFile(g.config)
		if err == nil {
			err = os.WriteFile(g.config, []byte(strings.Replace(string(text), most, "limits: {free_space: 4096}\n", 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		g.Start()
		if _, err := connect(t, g).Call("chat.send", chatText("main", "hello", "first"), 30*time.Second); err != nil {
			t.Errorf("with enough space: %v", err)
		}
		if code, body := g.Get("/readyz"); code != http.StatusOK {
			t.Errorf("/readyz with enough space: %d %s", code, body)
		}
	})
}
