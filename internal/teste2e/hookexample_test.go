package teste2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// The gateway accepts the calls of the documentation's sender, once for each key; the sender reports a refusal.
func TestTheExampleOfAHookSenderIsTakenOnce(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	const secret = "hook-secret-Zk7Qw3Rt9Yb2Nc5Vm8Xa4"
	program := buildExample(t, "laneway/docs/examples/hook-sender")
	g := Install(t, "", "hooks:\n  deploy: {secret: "+secret+", prefix: \"Deployed: \"}\n")
	g.Start()
	send := func(hook, key, secret, body string) (string, error) {
		cmd := exec.CommandContext(withTimeout(t, time.Minute), program, g.URL()+"/hooks/"+hook, key)
		cmd.Env, cmd.Stdin = []string{"HOOK_SECRET=" + secret}, strings.NewReader(body)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	var runs []string
	for i, duplicate := range []bool{false, true} {
		out, err := send("deploy", "build-42", secret, "build 42 is green\n")
		var answer struct {
			OK, Duplicate     bool
			RunID, SessionKey string
		}
		if bad := json.Unmarshal([]byte(out), &answer); err != nil || bad != nil || !answer.OK || answer.Duplicate != duplicate || answer.SessionKey != "agent:main:hook:deploy" {
			t.Fatalf("call %d: %v %v %s", i+1, err, bad, out)
		}
		runs = append(runs, answer.RunID)
	}
	if runs[0] != runs[1] {
		t.Errorf("a repetition has the run %s, the first had %s", runs[1], runs[0])
	}
	c := connect(t, g)
	testrun.Eventually(t, "the answer to the call is in the history", func() bool {
		raw, err := c.Call("chat.history", map[string]any{"sessionKey": "agent:main:hook:deploy"}, 20*time.Second)
		return err == nil && strings.Contains(string(raw), `"role":"assistant"`) && strings.Count(string(raw), `"role":"user"`) == 1 &&
			strings.Contains(string(raw), "Deployed: build 42 is green")
	})
	for _, wrong := range [][2]string{{"deploy", "another-" + secret}, {"absent", secret}} {
		if out, err := send(wrong[0], "build-43", wrong[1], "x"); err == nil || !strings.Contains(out, "refused with 401") {
			t.Errorf("hook %s: %v %s, want a refusal", wrong[0], err, out)
		}
	}
}
