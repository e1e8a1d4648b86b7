package teste2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// serverHost is a gateway that a service manager runs as a separate user, with a configuration and
// a secret of root.
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
	testrun.Eventually(h.t, "the gateway listens and names its configuration", func() bool {
		select {
		case <-ended:
			h.t.Fatalf("the gateway ended:\n%s", out.String())
		default:
		}
		m := listens.FindStringSubmatch(out.String())
		if m == nil || !strings.Contains(out.String(), "configuration: "+h.dir+"/etc/laneway/config.yaml\n") {
			return false
		}
		h.url = "http://" + m[1]
		return true
	})
}

// command returns laneway as a user whose only configuration is the host's. XDG_CONFIG_HOME
// replaces /etc, which a test does not write to.
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

// asUsers is a command, with the exit status and a part of the output for root, for a user without
// access to the gateway's files, and for that user with their own token that may write.
type asUsers struct {
	args                string // separated by spaces
	root, plain, holder int
	rootPrints          string // "" = any output
	holderPrints        string
}

const (
	noRights = "permission denied"
	tooFew   = "operator.admin"
)

// everyCommand is the command line, in an order in which one prepares the next. %D is a
// world-writable directory, %S the state directory.
var everyCommand = []asUsers{
	{"version", 0, 0, 0, "laneway", "laneway"},
	{"completion bash", 0, 0, 0, "complete", "complete"},
	{"config keys log", 0, 0, 0, "LANEWAY_LOG_LEVEL", "LANEWAY_LOG_LEVEL"},
	{"config init -", 0, 0, 0, "agents:", "agents:"},
	{"cron next --every 1h -n 2", 0, 0, 0, "", ""},
	{"health", 0, 0, 0, "ok", "ok"},
	{"health --ready", 0, 0, 0, "ok", "ok"},
	{"serve", 78, 78, 78, "is a credential of the unit of another user", noRights},
	{"send hello", 0, 1, 0, "hello", "hello"},
	{"chat", 0, 1, 0, "", ""},
	{"status", 0, 1, 0, "gateway", "gateway"},
	{"agents list", 0, 1, 0, "main (default)", "main (default)"},
	{"agents detect", 0, 0, 0, "claude", "claude"},
	{"usage", 0, 1, 0, "", ""},
	{"mcp", 0, 1, 0, "", ""},
	{"runs", 0, 1, 0, "", ""},
	{"runs --state ended", 0, 1, 0, "answered", "answered"},
	{"runs none", 1, 1, 1, "", "none"},
	{"why none", 1, 1, 1, "", "none"},
	{"files get file-00", 1, 1, 1, "", "no such file"},
	{"questions list", 0, 1, 0, "no questions", "no questions"},
	{"questions answer none 1", 1, 1, 1, "", "no open question"},
	{"tasks list", 0, 1, 0, "", ""},
	{"tasks show none", 1, 1, 1, "", "none"},
	{"tasks stop none", 1, 1, 1, "", "there is no task none"},
	{"logs --lines 3 --file %S/gateway.log", 0, 1, 1, "msg=", noRights},
	{"sessions list", 0, 1, 0, "agent:main:main", "agent:main:main"},
	{"sessions show agent:main:main", 0, 1, 0, "hello", "hello"},
	{"sessions search hello", 0, 1, 0, "hello", "hello"},
	{"toc day", 0, 1, 0, "", ""},
	{"toc week", 0, 1, 0, "", ""},
	{"toc month", 0, 1, 0, "", ""},
	{"sessions stop agent:main:main", 0, 1, 0, "", ""},
	{"sessions reset agent:main:main", 0, 1, 1, "", tooFew},
	{"sessions delete agent:main:gone --yes", 1, 1, 1, "", ""},
	{"cron add --every 1h --name tea --message tea", 0, 1, 1, "tea", tooFew},
	{"cron list", 0, 1, 0, "tea", "tea"},
	{"cron get tea", 0, 1, 0, "tea", "tea"},
	{"cron edit tea --every 2h --yes", 0, 1, 1, "", tooFew},
	{"cron pause tea", 0, 1, 1, "", tooFew},
	{"cron resume tea", 0, 1, 1, "", tooFew},
	{"cron run tea --wait", 0, 1, 1, "", tooFew},
	{"cron runs tea", 0, 1, 0, "", ""},
	{"cron cancel tea", 0, 1, 0, "", ""},
	{"cron why tea 9:00", 0, 1, 0, "made later", "made later"},
	{"cron backfill tea --from 2026-01-01T00:00:00Z --to 2026-01-01T03:00:00Z --dry-run", 0, 1, 1, "", tooFew},
	{"cron export", 0, 1, 0, "tea", "tea"},
	{"cron import %D/jobs.yaml", 0, 1, 1, "", tooFew},
	{"scheduler list", 0, 1, 0, "tea", "tea"},
	{"scheduler status tea", 0, 1, 0, "tea", "tea"},
	{"scheduler pause tea", 0, 1, 1, "", tooFew},
	{"scheduler resume tea", 0, 1, 1, "", tooFew},
	{"scheduler run tea", 0, 1, 1, "", tooFew},
	{"cron rm tea", 0, 1, 1, "", tooFew},
	{"pair list", 0, 1, 1, "", tooFew},
	{"pair approve 01900000-0000-7000-8000-000000000000", 1, 1, 1, "", ""},
	{"pair dismiss 01900000-0000-7000-8000-000000000000", 1, 1, 1, "", ""},
	{"pair revoke 17", 1, 1, 1, "", ""},
	{"token create ann --scope read", 0, 78, 78, "shown only now", noRights},
	{"dashboard --print", 0, 78, 78, "#token=", noRights},
	{"token list", 0, 78, 78, "ann", noRights},
	{"token revoke ann", 0, 78, 78, "ann", noRights},
	{"migrate status", 0, 78, 78, "applied", noRights},
	{"migrate up", 1, 78, 78, "runuser -u ", noRights},
	{"migrate down --yes", 1, 78, 78, "", noRights},
	{"store copy --to sqlite:%D/copy.db", 1, 78, 78, "", noRights},
	{"backup %D/backup", 0, 78, 78, "the database", noRights},
	{"doctor", 0, 1, 1, "ok       credential", noRights},
	{"release --yes", 0, 78, 78, "is not held", noRights},
	{"hold --reason moving", 0, 78, 78, "is held", noRights},
}

// leavesOf returns the commands that can be called, from the binary's own completion. No command
// has more than two words.
func (h *serverHost) leavesOf(words ...string) []string {
	switch {
	case len(words) == 2, strings.Join(words, " ") == "completion": // the following words are values
		return []string{strings.Join(words, " ")}
	}
	out, code := h.run(nil, nil, append(append([]string{"__complete", "--"}, words...), "")...)
	if code != 0 {
		h.t.Errorf("the commands below %v: %s", words, out)
	}
	below := strings.Fields(out)
	if len(below) == 0 {
		return []string{strings.Join(words, " ")}
	}
	leaves := make([][]string, len(below))
	var wait sync.WaitGroup
	for i, word := range below {
		wait.Go(func() { leaves[i] = h.leavesOf(append(slices.Clone(words), word)...) })
	}
	wait.Wait()
	return slices.Concat(leaves...)
}

// Every command runs beside a gateway of another user, with a configuration of root and a secret in
// a directory of credentials. Root can use all of them, leaves each file with its owner and is
// never advised to change the owner. Another user receives one sentence, and with their own token
// what that token may do.
func TestEveryCommandAsRootAndAsAnOrdinaryUser(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	h := startCredentialHost(t)
	commands := h.leavesOf()
	for _, command := range commands {
		if !slices.ContainsFunc(everyCommand, func(c asUsers) bool { return c.args == command || strings.HasPrefix(c.args, command+" ") }) {
			t.Errorf("laneway %s is in no row", command)
		}
	}
	secret := h.tokenOf("joe")
	rows := slices.DeleteFunc(slices.Clone(everyCommand), func(c asUsers) bool { // rows for a version with more commands
		return !slices.ContainsFunc(commands, func(name string) bool { return c.args == name || strings.HasPrefix(c.args, name+" ") })
	})
	var wait sync.WaitGroup
	wait.Go(func() { // the other commands do not change what is refused
		for _, c := range rows {
			h.as("an ordinary user", ordinaryUser, nil, c.args, c.plain, map[bool]string{true: noRights}[c.plain != 0])
		}
	})
	for _, c := range rows {
		var row sync.WaitGroup
		row.Go(func() {
			h.as("the holder of a token", ordinaryUser, []string{"LANEWAY_TOKEN=" + secret}, c.args, c.holder, c.holderPrints)
		})
		if c.holderPrints == tooFew {
			row.Wait() // root changes what the holder reads
		}
		h.as("root", nil, nil, c.args, c.root, c.rootPrints)
		row.Wait()
	}
	wait.Wait()
	h.ownerKept()
}

// as runs a command as a user and checks its exit status and a part of its output.
func (h *serverHost) as(who string, user *syscall.Credential, env []string, command string, want int, prints string) {
	args := strings.Fields(strings.NewReplacer("%D", h.dir+"/home", "%S", h.dir+"/state").Replace(command))
	out, code := h.run(user, env, args...)
	if code != want || !strings.Contains(out, prints) {
		h.t.Errorf("laneway %s as %s ends with %d, not %d, or does not print %q:\n%s", command, who, code, want, prints, out)
	}
	if strings.Contains(out, "chown") || strings.Contains(out, "panic") {
		h.t.Errorf("laneway %s as %s:\n%s", command, who, out)
	}
}

// startCredentialHost is startServerHost with a secret that systemd provides, and a log file. The
// directory is the one in which systemd creates those of its units, because a command of root
// recognises it by its path.
func startCredentialHost(t *testing.T) serverHost {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run programs as other users")
	}
	if err := os.MkdirAll("/run/credentials", 0o755); err != nil {
		t.Fatal(err)
	}
	provided, err := os.MkdirTemp("/run/credentials", "laneway-test-*.service") //nolint:usetesting // a directory of systemd's credentials
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(provided) })
	h := layServerHost(t, func(dir string) string {
		return "hooks: {deploy: {secret_file: " + provided + "/deploy}}\nlog: {file: " + dir + "/state/gateway.log}\n"
	})
	// The directory belongs to the unit's user, the file to root. The access list for the unit's
	// user is replaced by a group here.
	err = errors.Join(
		os.WriteFile(provided+"/deploy", []byte(strongToken+"-more\n"), 0o440), os.Chown(provided+"/deploy", 0, int(serviceUser.Gid)), os.Chmod(provided+"/deploy", 0o440),
		os.Chown(provided, int(serviceUser.Uid), int(serviceUser.Gid)), os.Chmod(provided, 0o500),
		os.WriteFile(h.dir+"/home/jobs.yaml", []byte("- {name: coffee, schedule: {kind: every, everyMs: 3600000}, sessionTarget: isolated, payload: {kind: agentTurn, message: coffee}}\n"), 0o644), os.Chmod(h.dir+"/home/jobs.yaml", 0o644),
	)
	if err != nil {
		t.Fatal(err)
	}
	h.start("CREDENTIALS_DIRECTORY=" + provided)
	return h
}

// tokenOf makes a token as root that may write.
func (h *serverHost) tokenOf(name string) string {
	h.t.Helper()
	out, code := h.run(nil, nil, "token", "create", name, "--scope", "write", "--json")
	_, secret, found := strings.Cut(out, `"token": "`)
	if code != 0 || !found {
		h.t.Fatalf("laneway token create: %s", out)
	}
	secret, _, _ = strings.Cut(secret, `"`)
	return secret
}
