package teste2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A backup is made while the gateway works, and can be served as a data directory. It is held until it is released.
func TestABackupOfARunningGatewayCanBeServed(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	g, restored := Install(t, "", cronConfig), Install(t, "", cronConfig)
	g.Start()
	c := connect(t, g)
	sendMany(t, g, 50)
	neighbours(t, c, 3)
	if _, err := c.Call("chat.send", map[string]any{"sessionKey": "unfinished", "message": "sleep 2s\nawake", "idempotencyKey": "key-late"}, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(restored.Dir, "data")
	file := filepath.Join(g.Dir, "data", "attachments", "outgoing", "a-file")
	if out, err := exec.Command("sh", "-c", "mkdir -p $(dirname "+file+") && echo content > "+file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, errs, code := g.CLI(withTimeout(t, time.Minute), "", "backup", "--json", dir)
	var report struct {
		Dir           string
		DatabaseBytes int64
		Files         int
	}
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || report.Dir != dir || report.DatabaseBytes == 0 || report.Files != 1 {
		t.Fatalf("laneway backup: status %d: %s%s %v", code, out, errs, err)
	}
	if _, errs, code := g.CLI(withTimeout(t, time.Minute), "", "backup", dir); code != 1 || !strings.Contains(errs, "name a new directory") {
		t.Errorf("a second backup into the same directory: status %d: %s", code, errs)
	}
	token := g.Token()
	g.Kill()
	restored.Start()
	if restored.Token() != token {
		t.Error("the backup has another token")
	}
	if out, errs, _ := restored.CLI(withTimeout(t, time.Minute), "", "status"); !strings.Contains(out, "held since") {
		t.Errorf("laneway status of a backup: %s%s", out, errs)
	}
	out, errs, code = restored.CLI(withTimeout(t, time.Minute), "", "release", "--yes")
	if code != 0 || !strings.Contains(out, "unfinished messages run") || !strings.Contains(out, "the gateway is released") {
		t.Errorf("laneway release: status %d: %s%s", code, out, errs)
	}
	restored.answeredOnce(t, "unfinished")
	o := OpenOracle(t, restored, "")
	if n := o.Count("SELECT count(*) FROM inbox WHERE session_key LIKE '%many-%'"); n != 50 {
		t.Errorf("the backup has %d of 50 messages", n)
	}
	retire(t, restored, o, "")
	o.Check(cronLease)
}
