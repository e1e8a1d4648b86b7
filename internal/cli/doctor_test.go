package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// prepared returns a data directory with a token file, with the given modes and owners.
func prepared(t *testing.T, data, token os.FileMode, dataOf, tokenOf int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(dir, "token")
	err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, []byte(strings.Repeat("Zk7Qw3Rt9Yb2", 4)+"\n"), 0o600), os.Chmod(file, token), os.Chmod(dir, data))
	if dataOf != os.Geteuid() || tokenOf != os.Geteuid() {
		if os.Geteuid() != 0 {
			t.Skip("only root can give files to another user")
		}
		err = errors.Join(err, os.Chown(file, tokenOf, -1), os.Chown(dir, dataOf, -1))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The doctor reports modes by which other users can access the data directory or the token file, with what to do. Its advice never removes
// the gateway's own access to the token.
func TestDoctorLooksAtModesAndOwners(t *testing.T) {
	t.Parallel()
	me := os.Geteuid()
	const other = 65534
	for name, tc := range map[string]struct {
		data, token     os.FileMode
		dataOf, tokenOf int
		says            []string
	}{
		"all well":                        {0o700, 0o600, me, me, []string{"ok       data directory  DIR\n", "ok       token file      DIR/token is readable by the gateway and by no other user\n"}},
		"others can look":                 {0o750, 0o600, me, me, []string{"warning  data directory  DIR has mode 0750: others can look into it; run: chmod 700 DIR\n"}},
		"others can write":                {0o777, 0o600, me, me, []string{"failure  data directory  DIR has mode 0777: others can put files there; run: chmod 700 DIR\n"}},
		"a token that all users may read": {0o700, 0o644, me, me, []string{"failure  token file      token file DIR/token has mode 0644; run: chmod 600 DIR/token\n"}},
		"another user's token": {0o700, 0o600, me, other, []string{
			"failure  token file      token file DIR/token belongs to user nobody (65534); name a file of user root (0) or of root\n",
		}},
		"the gateway of another user": {0o700, 0o600, other, other, []string{
			"ok       start           a gateway may start with this configuration\n", "ok       data directory  DIR\n",
			"ok       token file      DIR/token is readable by the gateway and by no other user\n",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := prepared(t, tc.data, tc.token, tc.dataOf, tc.tokenOf)
			b := newBench("", "LANEWAY_DATA", dir, "LANEWAY_URL", "http://127.0.0.1:1")
			b.run(t, exitFailure, "doctor") // no program listens at the address
			for _, line := range tc.says {
				if line = strings.ReplaceAll(line, "DIR", dir); !strings.Contains(b.stdout.String(), line) {
					t.Errorf("no line %q in\n%s", line, b.stdout.String())
				}
			}
		})
	}
}

// The agent is that of the running gateway, and the disk is checked for its free space.
func TestDoctorKnowsTheRunningAgentAndTheDisk(t *testing.T) {
	t.Parallel()
	b := newBench("", "LANEWAY_DATA", prepared(t, 0o700, 0o600, os.Geteuid(), os.Geteuid()), "LANEWAY_URL", "http://127.0.0.1:1")
	b.run(t, exitFailure, "doctor")
	if got := b.stdout.String(); !strings.Contains(got, "ok       agents          main: the running gateway answers with openai, this configuration says echo\n") {
		t.Errorf("agents:\n%s", got)
	}
	if got := b.stdout.String(); !strings.Contains(got, "warning  problems        one thing\n") {
		t.Errorf("problems:\n%s", got)
	}
	b = newBench("", "LANEWAY_DATA", prepared(t, 0o700, 0o600, os.Geteuid(), os.Geteuid()), "LANEWAY_URL", "http://127.0.0.1:1")
	b.gateway.refuse = errors.New("no process listens")
	b.run(t, exitFailure, "doctor")
	if got := b.stdout.String(); !strings.Contains(got, "warning  agents          main: echo repeats each message, for trying laneway; configure an agent that can do something\n") {
		t.Errorf("agents without a gateway:\n%s", got)
	}
	for free, want := range map[uint64]level{100*mebibyte - 1: levelFailure, 100 * mebibyte: levelWarning, 1024*mebibyte - 1: levelWarning, 1024 * mebibyte: levelOK} {
		if got := spaceFinding(free); len(got) != 1 || got[0].Level != want || !strings.Contains(got[0].Text, strconv.FormatUint(free/mebibyte, 10)) || (want != levelOK) != (got[0].Cure != "") {
			t.Errorf("%d bytes free: %+v", free, got)
		}
	}
}
