package teste2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// The users of the test: the gateway's, and one without access to its files.
var (
	serviceUser  = &syscall.Credential{Uid: 65534, Gid: 65534}
	ordinaryUser = &syscall.Credential{Uid: 4243, Gid: 4243}
)

// serverHost is a gateway that a service manager runs as a separate user, with a configuration and a secret of root.
type serverHost struct {
	t   *testing.T
	dir string
	url string
}

// startServerHost creates the files as in docs/server.md and starts the gateway as serviceUser.
func startServerHost(t *testing.T) serverHost {
	t.Helper()
	h := layServerHost(t, func(dir string) string {
		return "hooks: {deploy: {secret_file: " + dir + "/etc/laneway/deploy.secret}}\n"
	})
	h.start()
	return h
}

// layServerHost creates the directories and the configuration, to which more adds lines.
func layServerHost(t *testing.T, more func(dir string) string) serverHost {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run programs as other users")
	}
	dir := t.TempDir()
	h := serverHost{t: t, dir: dir}
	config := "listen: [\"127.0.0.1:0\"]\nmetrics_listen: \"off\"\ndata: " + dir + "/state\n" + more(dir)
	err := errors.Join(
		os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755),
		os.MkdirAll(dir+"/etc/laneway", 0o755), os.Chmod(dir+"/etc", 0o755), os.Chmod(dir+"/etc/laneway", 0o755),
		os.Mkdir(dir+"/state", 0o700), os.Chown(dir+"/state", int(serviceUser.Uid), int(serviceUser.Gid)),
		os.WriteFile(dir+"/etc/laneway/deploy.secret", []byte(strongToken+"-more\n"), 0o640),
		os.Chown(dir+"/etc/laneway/deploy.secret", 0, int(serviceUser.Gid)),
		os.WriteFile(dir+"/etc/laneway/config.yaml", []byte(config), 0o644), os.Chmod(dir+"/etc/laneway/config.yaml", 0o644),
		os.Mkdir(dir+"/home", 0o755), os.Chmod(dir+"/home", 0o777),
	)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// start starts the gateway, with additional variables in its environment.
func (h *serverHost) start(env ...string) {
	h.t.Helper()
	var out syncBuffer
	cmd := h.command(context.Background(), serviceUser, "serve")
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	testrun.Eventually(h.t, "the gateway listens", func() bool {
		if m := listens.FindStringSubmatch(out.String()); m != nil {
			h.url = "http://" + m[1]
		}
		select {
		case <-ended:
			h.t.Fatalf("the gateway ended:\n%s", out.String())
		default:
		}
		return h.url != ""
	})
	if !strings.Contains(out.String(), "configuration: "+h.dir+"/etc/laneway/config.yaml") {
		h.t.Errorf("the start does not name the configuration:\n%s", out.String())
	}
}

// command returns laneway as a user whose only configuration is the host's. XDG_CONFIG_HOME replaces /etc, which a test does not write to.
func (h *serverHost) command(ctx context.Context, as *syscall.Credential, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, Binary(h.t), args...)
	cmd.Dir = h.dir + "/home"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir + "/home", "XDG_CONFIG_HOME=" + h.dir + "/etc", raceSettings}
	if h.url != "" {
		cmd.Env = append(cmd.Env, "LANEWAY_URL="+h.url)
	}
	if as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	return cmd
}

func (h *serverHost) run(as *syscall.Credential, env []string, args ...string) (out string, code int) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	cmd := h.command(ctx, as, args...)
	cmd.Env = append(cmd.Env, env...)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Error(err) // not Fatal: tests run commands on other goroutines
		return b.String(), -1
	}
	return b.String(), cmd.ProcessState.ExitCode()
}

// Before, every command of root failed on a host whose service manager runs the gateway as a separate user, and advised to take the token
// from the gateway.
func TestRootUsesTheCommandsBesideAGatewayOfAnotherUser(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	h := startServerHost(t)
	for _, row := range []struct {
		args []string
		says string
	}{
		{[]string{"status"}, "gateway"},
		{[]string{"send", "hello"}, "hello"},
		{[]string{"sessions", "list"}, "agent:main:main"},
		{[]string{"cron", "add", "--every", "1h", "--name", "tea", "--message", "tea"}, "tea"},
		{[]string{"cron", "list"}, "tea"},
		{[]string{"scheduler", "list"}, "tea"},
		{[]string{"pair", "list"}, ""},
		{[]string{"health", "--ready"}, "ok"},
		{[]string{"token", "create", "anna", "--scope", "write"}, "shown only now"},
		{[]string{"token", "list"}, "anna"},
		{[]string{"migrate", "status"}, "applied"},
		{[]string{"doctor"}, "ok       credential"},
	} {
		out, code := h.run(nil, nil, row.args...)
		if code != 0 || !strings.Contains(out, row.says) {
			t.Errorf("laneway %s as root: %d\n%s", strings.Join(row.args, " "), code, out)
		}
		if strings.Contains(out, "chown") {
			t.Errorf("laneway %s advises to give files away:\n%s", strings.Join(row.args, " "), out)
		}
	}
	if out, code := h.run(nil, nil, "migrate", "up"); code != 1 || !strings.Contains(out, "runuser -u ") {
		t.Errorf("laneway migrate up as root on the gateway's SQLite file: %d\n%s", code, out)
	}
	h.ownerKept()
}

// ownerKept fails when a command of root left a file that the gateway cannot open.
func (h *serverHost) ownerKept() {
	h.t.Helper()
	files, err := os.ReadDir(h.dir + "/state")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			h.t.Fatal(err)
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != serviceUser.Uid {
			h.t.Errorf("%s of the gateway's data directory belongs to user %d", f.Name(), stat.Uid)
		}
	}
}

// A user without access to the gateway's files is shown what to do, and works with their own token.
func TestAnOrdinaryUserBesideAGatewayOfAnotherUser(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	h := startServerHost(t)
	out, code := h.run(ordinaryUser, nil, "status")
	if code != 1 || !strings.Contains(out, "token file "+h.dir+"/state/token cannot be read") || !strings.Contains(out, "laneway token create") || strings.Count(out, "\n") != 1 {
		t.Errorf("laneway status without rights: %d\n%s", code, out)
	}
	secret := h.tokenOf("joe")
	testrun.Eventually(t, "the token is in force", func() bool {
		_, code := h.run(ordinaryUser, []string{"LANEWAY_TOKEN=" + secret}, "send", "hello")
		return code == 0
	})
	if out, code := h.run(ordinaryUser, nil, "health"); code != 0 || out != "ok\n" {
		t.Errorf("laneway health needs no credential: %d %s", code, out)
	}
}
