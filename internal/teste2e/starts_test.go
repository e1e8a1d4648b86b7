package teste2e

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"laneway/internal/cli"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// roundTrip sends a request on a new connection.
func roundTrip(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

const strongToken = "k3Jd82hLq0Zx7Vb5Nm1Pw4Rt6Yu9Is"

// noDatabase stands for a start that passed all checks and waits for a database that is away.
const noDatabase = -1

// startRow is one row of the start-up matrix.
type startRow struct {
	name    string
	env     []string
	args    []string
	yaml    string
	file    os.FileMode // of the file that LANEWAY_TOKEN_FILE names; 0 = no file
	foreign bool        // that file belongs to another user
	// code and says describe the refusal. With code 0 it starts, with noDatabase it waits for its
	// database; says is then a warning or empty.
	code int
	says string
	// prepare creates what the row needs in its directory, dataThere says that this includes the
	// data directory; as starts the process as another user.
	prepare   func(dir string) error
	dataThere bool
	as        *syscall.Credential
	// public rows run in a separate network namespace, which no other process can reach.
	public bool
}

// startRows are some rows of each kind; package config has the table.
func startRows() []startRow {
	const proxy, trusted = "LANEWAY_BEHIND_TLS_PROXY=true", "LANEWAY_TRUSTED_PROXIES=10.0.0.1"
	const everywhere = "LANEWAY_LISTEN=0.0.0.0:0"
	const webhookBot = "channels: {telegram: {token: '1234:abcdefghijklmnopqrstuvwxyzABCDEFGHI', mode: webhook, webhook_url: 'https://a.example/t'"
	strong := "LANEWAY_TOKEN=" + strongToken + "-more"
	return []startRow{
		{name: "loopback, none given"},
		{name: "blank token", env: []string{"LANEWAY_TOKEN="}, code: 78, says: "LANEWAY_TOKEN is set but empty; unset it or give a token"},
		{name: "file of another user", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, file: 0o600, foreign: true, code: 78, says: "(65534); name a file of user "},
		{name: "blank password", env: []string{"LANEWAY_PASSWORD="}, code: 78, says: "LANEWAY_PASSWORD is set but empty; unset it or give a"},
		{name: "blank write token", env: []string{"LANEWAY_WRITE_TOKEN="}, code: 78, says: "LANEWAY_WRITE_TOKEN is set but empty; unset it or give a"},
		{name: "blank read token", env: []string{"LANEWAY_READ_TOKEN="}, code: 78, says: "LANEWAY_READ_TOKEN is set but empty; unset it or give a"},
		{name: "no authentication", args: []string{"--no-auth"}, code: 2, says: "authentication cannot be switched off"},
		{name: "Telegram webhook with a blank secret", yaml: webhookBot + ", webhook_secret: ''}}\n", code: 78, says: "webhook_secret"},
		{name: "private Postgres", env: []string{"LANEWAY_DATABASE_URL=postgres://u@10.255.255.1:1/x"}, code: noDatabase, says: "database: the server 10.255.255.1 is not verified; use sslmode=verify-full"},
		{name: "public, strong, proxy", env: []string{everywhere, strong, proxy, trusted}, public: true},
	}
}

// A start that must be refused reports why with exit code 78 (2 for a flag that does not exist) and
// has created nothing. Any other start listens, and warns where the table requires it.
func TestStartsAreJudgedBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	for _, row := range slices.Concat(startRows(), foreignRows(), odderRows()) {
		if !row.apart() {
			t.Run(row.name, func(t *testing.T) { t.Parallel(); row.judge(t, startHere) })
		}
	}
}

func TestStartsOfAnotherUserAndOnPublicAddressesAreJudged(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	for _, row := range slices.Concat(startRows(), foreignRows(), odderRows()) {
		if row.apart() {
			t.Run(row.name, func(t *testing.T) { t.Parallel(); row.judge(t, row.startProcess) })
		}
	}
}

// apart reports whether the row needs a separate process: it has another user or another network.
func (row startRow) apart() bool { return row.as != nil || row.public }

// judged is a start: its output, the function that ends it, and the function that waits for its
// exit code.
type judged struct {
	stdout io.Reader
	stop   func()
	wait   func() int
}

// judge starts a gateway according to the row and compares the result.
func (row startRow) judge(t *testing.T, start func(ctx context.Context, t *testing.T, env, args []string, stderr io.Writer) judged) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	dir := t.TempDir()
	env, args := row.install(t, dir)
	var errs syncBuffer
	began := start(ctx, t, env, args, &errs)
	if row.code == noDatabase {
		testrun.Eventually(t, "the start waits for its database", func() bool { return strings.Contains(errs.String(), "waiting for the database") })
		began.stop()
	}
	listening := false
	for lines := bufio.NewScanner(began.stdout); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "listening on ") {
			listening = true
			began.stop()
		}
	}
	want := row.code
	if want == noDatabase { // it was stopped while it waited
		want = 0
	}
	if code := began.wait(); code != want || listening != (row.code == 0) || !strings.Contains(errs.String(), row.says) {
		t.Errorf("exit code %d, listening %v, want %d with %q:\n%s", code, listening, row.code, row.says, errs.String())
	}
	passed := row.code == 0 || row.code == noDatabase
	made, err := filepath.Glob(filepath.Join(dir, "data", "*"))
	if _, missing := os.Stat(filepath.Join(dir, "data")); err != nil || passed != (len(made) > 0) || !passed && !row.dataThere && missing == nil {
		t.Errorf("with exit code %d the data directory has %q (%v)", row.code, made, err)
	}
}

// startHere starts a gateway in the process of the test.
func startHere(ctx context.Context, _ *testing.T, env, args []string, stderr io.Writer) judged {
	ctx, stop := context.WithCancel(ctx)
	stdout, printed := io.Pipe()
	code := make(chan int, 1)
	go func() {
		defer stop()
		code <- cli.Run(ctx, args, commandLine(env, strings.NewReader(""), printed, stderr))
		_ = printed.Close()
	}()
	return judged{stdout: stdout, stop: stop, wait: func() int { return <-code }}
}

// startProcess starts the binary as another user or in another network.
func (row startRow) startProcess(ctx context.Context, t *testing.T, env, args []string, stderr io.Writer) judged {
	t.Helper()
	cmd := exec.CommandContext(ctx, Binary(t), args...)
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = env, stderr, &syscall.SysProcAttr{Credential: row.as}
	if row.public {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
		if os.Geteuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		}
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		if row.public && errors.Is(err, syscall.EPERM) {
			t.Fatalf("this row needs a network namespace, and this machine lets no process make one (run the tests as root or allow user namespaces): %v", err)
		}
		t.Fatal(err)
	}
	return judged{stdout: stdout, stop: func() { _ = cmd.Process.Signal(syscall.SIGTERM) }, wait: func() int {
		_ = cmd.Wait() // the code shows how it ended
		return cmd.ProcessState.ExitCode()
	}}
}

// install creates what the row needs in a directory, and returns the environment and the arguments
// of its start.
func (row startRow) install(t *testing.T, dir string) (env, args []string) {
	t.Helper()
	if row.file != 0 {
		if err := os.WriteFile(filepath.Join(dir, "t"), []byte(strongToken+"-more\n"), row.file); err != nil {
			t.Fatal(err)
		}
	}
	if row.foreign {
		if os.Geteuid() != 0 {
			t.Skip("only root can give a file to another user")
		}
		if err := os.Chown(filepath.Join(dir, "t"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if row.prepare != nil {
		if err := row.prepare(dir); err != nil {
			t.Fatal(err)
		}
	}
	args = []string{"serve"}
	if row.yaml != "" {
		config := filepath.Join(dir, "laneway.yaml")
		if err := os.WriteFile(config, []byte(row.yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", config)
	}
	env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANEWAY_DATA=" + filepath.Join(dir, "data"), "LANEWAY_LISTEN=127.0.0.1:0", "LANEWAY_METRICS_LISTEN=off", raceSettings}
	for _, v := range row.env {
		env = append(env, strings.ReplaceAll(v, "DIR", dir))
	}
	if row.as != nil { // another user works in it
		if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777)); err != nil {
			t.Fatal(err)
		}
	}
	return env, append(args, row.args...)
}

// odderRows are rows of the start-up matrix with unusual faults: special files, networks that
// together cover all addresses, and hosts that are written as numbers.
func odderRows() []startRow {
	pipe := func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "t"), 0o600) }
	socket := func(dir string) error { return syscall.Mknod(filepath.Join(dir, "t"), syscall.S_IFSOCK|0o600, 0) } // binding a socket would need a short path
	directory := func(dir string) error { return os.Mkdir(filepath.Join(dir, "t"), 0o700) }
	rows := []startRow{
		{name: "token file is a socket", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, prepare: socket, code: 78, says: "t is a socket; name a regular file"},
		{name: "token file is a directory", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, prepare: directory, code: 78, says: "t is a directory; name the file in it"},
		{name: "token file is a device", env: []string{"LANEWAY_TOKEN_FILE=/dev/zero"}, code: 78, says: "token file /dev/zero is a device; name a regular file"},
		{name: "data directory of root and of our group", prepare: func(dir string) error {
			data := filepath.Join(dir, "data")
			return errors.Join(os.Mkdir(data, 0o700), os.Chmod(data, 0o700))
		}},
	}
	for name, env := range map[string]string{
		"token": "LANEWAY_TOKEN_FILE", "password": "LANEWAY_PASSWORD_FILE", "write token": "LANEWAY_WRITE_TOKEN_FILE", "read token": "LANEWAY_READ_TOKEN_FILE",
		"bot token": "LANEWAY_CHANNELS_TELEGRAM_TOKEN_FILE", "model key": "LANEWAY_AGENTS_MAIN_API_KEY_FILE",
	} {
		rows = append(rows, startRow{
			name: name + " file is a pipe", env: []string{env + "=DIR/t", "LANEWAY_AGENTS_MAIN_RUNNER=openai", "LANEWAY_AGENTS_MAIN_MODEL=x", "LANEWAY_AGENTS_MAIN_BASE_URL=http://127.0.0.1:1/v1"},
			prepare: pipe, code: 78, says: "t is a pipe; name a regular file",
		})
	}
	return rows
}

// foreignRows are rows about owners; they need a user who can change the owner of files.
func foreignRows() []startRow {
	give := func(name string, mode os.FileMode, uid, gid int) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, name)
			err := os.WriteFile(path, []byte(strongToken+"-more\n"), mode)
			if name == "data" {
				err = errors.Join(os.Remove(path), os.Mkdir(path, mode))
			}
			return errors.Join(err, os.Chown(path, uid, gid), os.Chmod(path, mode))
		}
	}
	config := func(uid int, dirMode os.FileMode) func(dir string) error {
		return func(dir string) error {
			etc := filepath.Join(dir, "etc")
			file := filepath.Join(etc, "c.yaml")
			return errors.Join(os.Mkdir(etc, 0o755), os.WriteFile(file, []byte("drain_timeout: 1s\n"), 0o600), os.Chown(file, uid, 0), os.Chmod(etc, dirMode))
		}
	}
	ours := []string{"LANEWAY_CONFIG=DIR/etc/c.yaml"}
	if os.Geteuid() != 0 {
		return nil // the rows of one owner are in the other lists
	}
	return []startRow{
		{name: "configuration of another user", env: ours, prepare: config(65534, 0o755), code: 78, says: "who could choose what root runs; run: chown root "},
		{name: "configuration in a directory for all", env: ours, prepare: config(0, 0o777), code: 78, says: "so others could replace it; run: chmod go-w "},
		{name: "configuration of root in a sticky directory", env: ours, prepare: config(0, 0o777|os.ModeSticky)},
		{name: "data directory of another user", prepare: give("data", 0o700, 65534, 0), code: 78, says: "and this is user root (0); start the gateway as its owner", dataThere: true},
		{name: "file of another group", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, prepare: give("t", 0o640, 0, 65534), code: 78, says: "t has mode 0640; run: chmod 600 "},
		{name: "file of our group", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, prepare: give("t", 0o640, 0, 0)},
		{name: "data directory of another user, started by root's group", as: &syscall.Credential{Uid: 65534, Gid: 4242}, prepare: give("data", 0o770, 0, 4242), dataThere: true},
		{name: "data directory of root and of another group", as: &syscall.Credential{Uid: 65534, Gid: 4242}, prepare: give("data", 0o755, 0, 0), code: 78, says: "data belongs to user root (0), and this is user ", dataThere: true},
		{name: "token file of root that our group may read", as: &syscall.Credential{Uid: 65534, Gid: 4242}, env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, prepare: give("t", 0o640, 0, 4242)},
	}
}

// freePort returns an address on which no process listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A machine boots, and the database comes up after the gateway.
func TestGatewayStartsBeforeItsDatabase(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	line := cuttable(t, database)
	line.cut()
	addr := freePort(t)
	g := Install(t, database, "agents: {main: {runner: echo}}\n", "--listen", addr)
	g.env = append(g.env, "LANEWAY_DATABASE_URL="+line.url)
	started := make(chan error, 1)
	go func() { started <- g.TryStart() }()
	status := func(path string) int {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	testrun.Eventually(t, "the gateway waits", func() bool {
		return status("/healthz") == http.StatusOK && strings.Contains(g.Output(), "waiting for the database")
	})
	if got := status("/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz without a database: %d, want 503", got)
	}
	line.mend()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "the gateway is ready", func() bool { return status("/readyz") == http.StatusOK })
	if n := strings.Count(g.Output(), "waiting for the database"); n != 1 {
		t.Errorf("%d lines about one cause, want 1", n)
	}
}

// A gateway behind a pooler that keeps no sessions could answer every probe and refuse every
// message.
func TestGatewayBehindAnUnfitPoolerDoesNotStart(t *testing.T) {
	t.Parallel()
	p := testpg.NewPooler(t, testpg.DB(t))
	g := Install(t, p.URL(), "agents: {main: {runner: echo}}\n")
	if err := g.TryStart(); err == nil || !strings.Contains(err.Error(), "pool_mode") {
		t.Errorf("the start: %v, want a refusal that names the mode of the pooler", err)
	}
	out, _, code := g.CLI(t.Context(), "", "doctor", "--config", g.config)
	if code == 0 || !strings.Contains(out, "pool_mode") {
		t.Errorf("doctor ends with %d and\n%s", code, out)
	}
}

// TestEverythingReachedByTheOperatorGoesThroughTheProxy gives the process ALL_PROXY alone, and
// addresses of hosts that do not exist: models, agents behind HTTP, servers of tools and the Bot
// API are reached through it.
func TestEverythingReachedByTheOperatorGoesThroughTheProxy(t *testing.T) {
	t.Parallel()
	NeedsProcesses(t)
	var mu sync.Mutex
	asked := map[string]bool{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Host] = true
		mu.Unlock()
		if r.URL.Host != "model.example" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"through the proxy"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(proxy.Close)
	g := Install(t, "", "agents:\n  main: {runner: openai, model: m, base_url: 'http://model.example/v1', retries: 0, mcp: [tools]}\n"+
		"  claude: {runner: anthropic, model: m, base_url: 'http://claude.example', api_key: k-test-123456, retries: 0}\n"+
		"  remote: {runner: http, url: 'http://agent.example/agent', secret: 0123456789abcdef0123456789abcdef}\n"+
		"mcp: {servers: {tools: {url: 'http://mcp.example/mcp', tools: [now]}}}\n"+
		"channels: {telegram: {token: '1234:abcdefghijklmnopqrstuvwxyzABCDEFGHI', api_url: 'http://telegram.example', allow: [7]}}\n")
	g.env = append(g.env, "ALL_PROXY="+proxy.URL)
	g.Start()
	if out, errs, code := g.CLI(t.Context(), "", "send", "hi"); code != 0 || !strings.Contains(out, "through the proxy") {
		t.Errorf("the model: %q %q, status %d", out, errs, code)
	}
	for _, agent := range []string{"claude", "remote"} {
		g.CLI(t.Context(), "", "send", "--session", "agent:"+agent+":main", "hi")
	}
	for _, host := range []string{"model.example", "claude.example", "agent.example", "mcp.example", "telegram.example"} {
		testrun.Eventually(t, host+" is reached through the proxy", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return asked[host]
		})
	}
}
