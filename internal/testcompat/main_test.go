//go:build compat

package testcompat

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/teste2e"
	"laneway/internal/testpg"
)

func TestMain(m *testing.M) {
	code := m.Run()
	teste2e.Remove()
	installed.remove()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const (
	adminToken = "compat-admin-0123456789-0123456789"
	readToken  = "compat-read-0123456789-0123456789"
	writeToken = "compat-write-0123456789-0123456789"
	password   = "compat-password-0123456789-0123456789"
	// slowEcho streams for about a second per line, so that a client can be in the middle of an
	// answer. The agent broken fails.
	slowEcho = "agents: {main: {runner: echo, delay: 200ms, chunk: 4, chunk_delay: 60ms}, broken: {runner: command, command: [\"false\"]}}\n"
	secrets  = "token: " + adminToken + "\nread_token: " + readToken + "\nwrite_token: " + writeToken + "\npassword: " + password + "\n"
	// installTime bounds npm, which fetches some hundred megabytes the first time.
	installTime = 8 * time.Minute
)

func onBothStores(t *testing.T, f func(t *testing.T, database string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, "") })
	t.Run("postgres", func(t *testing.T) { f(t, testpg.DB(t)) })
}

// installGateway prepares a gateway that runs as a process, as in production.
func installGateway(tb testing.TB, database, config string, args ...string) *teste2e.Gateway {
	tb.Helper()
	teste2e.NeedsProcesses(tb)
	return teste2e.Install(tb, database, config, args...)
}

// begin starts a gateway whose agent echoes slowly.
func begin(t *testing.T, database, more string) *teste2e.Gateway {
	t.Helper()
	g := installGateway(t, database, secrets+slowEcho+more)
	g.Start()
	return g
}

func socketURL(g *teste2e.Gateway) string { return "ws" + strings.TrimPrefix(g.URL(), "http") + "/ws" }

// clients returns the directory of the drivers, with everything installed.
func clients(t *testing.T) string {
	t.Helper()
	dir, err := install()
	if err != nil {
		t.Fatalf("the foreign clients cannot be installed: %v", err)
	}
	return dir
}

// install fetches the pinned packages once: Node.js first, since OpenClaw refuses older ones, then
// the rest under it.
var install = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "compat"))
	if err != nil {
		return "", err
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return "", fmt.Errorf("npm is not here; install Node.js with npm: %w", err)
	}
	if err := npm(filepath.Join(dir, "node"), os.Getenv("PATH")); err != nil {
		return "", err
	}
	return dir, npm(dir, filepath.Join(dir, "node", "node_modules", ".bin")+":"+os.Getenv("PATH"), "--ignore-scripts")
})

// npm installs the versions in the lock file of a directory, unless they are installed already.
func npm(dir, path string, flags ...string) error {
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	stamp := filepath.Join(dir, "node_modules", ".laneway-installed")
	if was, err := os.ReadFile(stamp); err == nil && bytes.Equal(was, lock) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", append([]string{"ci", "--no-audit", "--no-fund"}, flags...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci in %s (is the npm registry reachable?): %w\n%s", dir, err, out)
	}
	return os.WriteFile(stamp, lock, 0o600)
}

func node(dir string) string { return filepath.Join(dir, "node", "node_modules", ".bin", "node") }

// drive runs a client that prints one line per check, and fails with the lines that failed. onLine
// may be nil.
func drive(t *testing.T, onLine func(line string), program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", program, err)
	}
	good := report(t, out, onLine)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", filepath.Base(args[0]), err, errs.String())
	}
	if good == 0 {
		t.Errorf("%s made no check", args[0])
	}
}

func report(t *testing.T, out io.Reader, onLine func(string)) (good int) {
	t.Helper()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "ok "):
			good++
		case strings.HasPrefix(line, "FAIL "):
			t.Error(line)
		default:
			t.Log(line)
		}
		if onLine != nil {
			onLine(line)
		}
	}
	return good
}

// run is one call of a program with its output and exit code.
func run(t *testing.T, env []string, program string, args ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("running %s: %v", program, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func eventually(t *testing.T, limit time.Duration, ok func() bool) bool {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}

// Every frame sent in the standard view matches the published schema, and every published param is
// accepted.
func TestStandardViewIsValidAgainstThePublishedSchema(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		dir := clients(t)
		g := begin(t, database, "")
		stop := func(line string) {
			if line == "stop the gateway now" {
				g.Signal(syscall.SIGTERM)
			}
		}
		drive(t, stop, node(dir), filepath.Join(dir, "schema.mjs"), socketURL(g), adminToken, readToken)
	})
}

func TestNpmClientConnectsChatsAndResumes(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		dir := clients(t)
		drive(t, nil, node(dir), filepath.Join(dir, "client.mjs"), socketURL(begin(t, database, "")), adminToken)
	})
}

func TestPythonClientConnectsChatsAndResumes(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("there is no python3: %v", err)
	}
	onBothStores(t, func(t *testing.T, database string) {
		drive(t, nil, python, filepath.Join("..", "..", "compat", "client.py"), socketURL(begin(t, database, "")), writeToken)
	})
}

func TestPageInABrowserConnectsChatsAndResumes(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		dir := clients(t)
		drive(t, nil, node(dir), filepath.Join(dir, "browser.mjs"), socketURL(begin(t, database, "")), adminToken)
	})
}

// npmPackages are directories with npm packages. Each list of packages is installed once per test
// run.
type npmPackages struct {
	mu   sync.Mutex
	root string
	dirs map[string]string
}

var installed = npmPackages{dirs: map[string]string{}}

// remove deletes the directories at the end of the run.
func (p *npmPackages) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.root != "" {
		_ = os.RemoveAll(p.root) // leftovers are in the directory for temporary files
	}
}

// install returns the directory of packages. Only the installation scripts of the packages in
// scripts run.
func (p *npmPackages) install(ctx context.Context, packages, scripts []string) (dir string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := strings.Join(append(packages, scripts...), " ")
	if dir := p.dirs[key]; dir != "" {
		return dir, nil
	}
	if p.root == "" {
		if p.root, err = os.MkdirTemp("", "laneway-compat"); err != nil {
			return "", err
		}
	}
	dir = filepath.Join(p.root, strconv.Itoa(len(p.dirs)))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	commands := [][]string{append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts"}, packages...)}
	if len(scripts) > 0 {
		commands = append(commands, append([]string{"rebuild", "--foreground-scripts"}, scripts...))
	}
	for _, args := range commands {
		cmd := exec.CommandContext(ctx, "npm", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm %s (is the npm registry reachable?): %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	p.dirs[key] = dir
	return dir, nil
}

// npmInstall returns the directory of npm packages, after the installation scripts of the packages
// in scripts have run.
func npmInstall(t *testing.T, packages []string, scripts ...string) (dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), installTime)
	defer cancel()
	began := time.Now()
	dir, err := installed.install(ctx, packages, scripts)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: installed in %s", strings.Join(packages, ", "), time.Since(began).Round(time.Second))
	return dir
}
