package teste2e

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"laneway/internal/cli"
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
	name string
	env  []string
	args []string
	yaml string
	file os.FileMode // of the file that LANEWAY_TOKEN_FILE names; 0 = no file
	// foreign: that file belongs to another user. config is the mode of the YAML, 0 = 0600; data is the mode of an existing data directory,
	// 0 = it does not exist.
	foreign      bool
	config, data os.FileMode
	// code and says describe the refusal. With code 0 it starts, with noDatabase it waits for its database; says is then a warning
	// or empty.
	code int
	says string
	// prepare creates what the row needs in its directory, dataThere says that this includes the data directory; as starts the process as
	// another user.
	prepare   func(dir string) error
	dataThere bool
	as        *syscall.Credential
	// public rows run in a separate network namespace, which no other process can reach.
	public bool
}

func startRows() []startRow {
	const proxy, trusted = "LANEWAY_BEHIND_TLS_PROXY=true", "LANEWAY_TRUSTED_PROXIES=10.0.0.1"
	const everywhere = "LANEWAY_LISTEN=0.0.0.0:0"
	const webhookBot = "channels: {telegram: {token: '1234:abcdefghijklmnopqrstuvwxyzABCDEFGHI', mode: webhook, webhook_url: 'https://a.example/t'"
	strong := "LANEWAY_TOKEN=" + strongToken + "-more"
	return []startRow{
		{name: "loopback, none given"},
		{name: "loopback, strong variable", env: []string{strong}},
		{name: "loopback, file 0600", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, file: 0o600},
		{name: "loopback, weak variable", env: []string{"LANEWAY_TOKEN=secret"}, says: "LANEWAY_TOKEN is weak: good enough on loopback only"},
		{name: "blank token", env: []string{"LANEWAY_TOKEN="}, code: 78, says: "LANEWAY_TOKEN is set but empty; unset it or give a token"},
		{name: "file open to others", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, file: 0o644, code: 78, says: "has mode 0644; run: chmod 600"},
		{name: "file of another user", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, file: 0o600, foreign: true, code: 78, says: "(65534); name a file of user "},
		{name: "blank password", env: []string{"LANEWAY_PASSWORD="}, code: 78, says: "LANEWAY_PASSWORD is set but empty; unset it or give a"},
		{name: "blank write token", env: []string{"LANEWAY_WRITE_TOKEN="}, code: 78, says: "LANEWAY_WRITE_TOKEN is set but empty; unset it or give a"},
		{name: "blank read token", env: []string{"LANEWAY_READ_TOKEN="}, code: 78, says: "LANEWAY_READ_TOKEN is set but empty; unset it or give a"},
		{name: "no such file", env: []string{"LANEWAY_TOKEN_FILE=DIR/none"}, code: 78, says: "does not exist; make it: openssl rand -hex 32"},
		{name: "public, weak", env: []string{everywhere, "LANEWAY_TOKEN=secret", proxy, trusted}, code: 78, says: "the token is too weak for 0.0.0.0:0; use 32 or more random characters"},
		{name: "public, weak read token", env: []string{everywhere, strong, "LANEWAY_READ_TOKEN=a", proxy, trusted}, code: 78, says: "the read token is too weak for"},
		{name: "public, weak write token", env: []string{everywhere, strong, "LANEWAY_WRITE_TOKEN=a", proxy, trusted}, code: 78, says: "the write token is too weak for 0.0.0.0:0; use 32 or more random characters"},
		{name: "public, weak password", env: []string{everywhere, strong, "LANEWAY_PASSWORD=a", proxy, trusted}, code: 78, says: "the password is too weak for 0.0.0.0:0; use 32 or more random characters"},
		{name: "public, strong, no TLS", env: []string{everywhere, strong}, code: 78, says: "tokens would cross the network in clear; put a TLS proxy in front and set LANEWAY_BEHIND_TLS_PROXY=true"},
		{name: "public, generated, no TLS", env: []string{"LANEWAY_LISTEN=:0"}, code: 78, says: "tokens would cross the network in clear"},
		{name: "one public address of two", env: []string{"LANEWAY_LISTEN=127.0.0.1:0,[::]:0", strong}, code: 78, says: "tokens would cross the network in clear"},
		{name: "trusts everybody", env: []string{"LANEWAY_TRUSTED_PROXIES=0.0.0.0/0"}, code: 78, says: "LANEWAY_TRUSTED_PROXIES 0.0.0.0/0 trusts everybody"},
		{name: "trusts everybody with IPv6", env: []string{"LANEWAY_TRUSTED_PROXIES=::/0"}, code: 78, says: "LANEWAY_TRUSTED_PROXIES ::/0 trusts everybody"},
		{name: "no authentication", args: []string{"--no-auth"}, code: 2, says: "authentication cannot be switched off"},
		{name: "any origin", env: []string{"LANEWAY_ALLOWED_ORIGINS=*"}, code: 78, says: `LANEWAY_ALLOWED_ORIGINS: "*" is not an exact origin`},
		{name: "origin with a path", env: []string{"LANEWAY_ALLOWED_ORIGINS=https://a.example/x"}, code: 78, says: `LANEWAY_ALLOWED_ORIGINS: "https://a.example/x" is not an exact origin`},
		{name: "origin without a scheme", env: []string{"LANEWAY_ALLOWED_ORIGINS=a.example"}, code: 78, says: `LANEWAY_ALLOWED_ORIGINS: "a.example" is not an exact origin`},
		{name: "Telegram webhook without a secret", yaml: webhookBot + "}}\n", code: 78, says: "channels.telegram.webhook_secret needs 32 characters"},
		{name: "Telegram webhook with a blank secret", yaml: webhookBot + ", webhook_secret: ''}}\n", code: 78, says: "webhook_secret"},
		{name: "Telegram webhook with a short secret", yaml: webhookBot + ", webhook_secret: short}}\n", code: 78, says: "channels.telegram.webhook_secret needs 32 characters"},
		{name: "name for an id", yaml: "channels: {telegram: {allow: ['@anna']}}\n", code: 78, says: `"@anna" is not an identity; use the numeric id`},
		{name: "open bot", yaml: "channels: {telegram: {token: '1234:abcdefghijklmnopqrstuvwxyzABCDEFGHI', api_url: 'http://127.0.0.1:1', access: open}}\n", says: "everybody may talk to this bot"},
		{name: "data directory open to all", data: 0o777, code: 78, says: "data has mode 0777; run: chmod 700 "},
		{name: "secrets in a file open to all", yaml: "token: " + strongToken + "-more\n", config: 0o644, code: 78, says: "laneway.yaml has mode 0644; run: chmod 600 "},
		{name: "public metrics", env: []string{"LANEWAY_METRICS_LISTEN=0.0.0.0:0"}, code: 78, says: "metrics are served on loopback only; use the value main"},
		{name: "hook with a short secret", yaml: "hooks: {ci: {secret: short}}\n", code: 78, says: "hooks.ci.secret needs 32 characters"},
		{name: "public Postgres", env: []string{"LANEWAY_DATABASE_URL=postgres://u@db.example.com/x?sslmode=require"}, code: 78, says: "database: sslmode=verify-full is needed for db.example.com"},
		{name: "a service of Postgres", env: []string{"LANEWAY_DATABASE_URL=postgres:///?service=prod"}, code: 78, says: "service=prod would take host and sslmode from a service file"},
		{name: "a service of Postgres in the environment", env: []string{"LANEWAY_DATABASE_URL=postgres:///x", "PGSERVICE=prod"}, code: 78, says: "name the host in the URL"},
		{name: "private Postgres", env: []string{"LANEWAY_DATABASE_URL=postgres://u@10.255.255.1:1/x"}, code: noDatabase, says: "database: the server 10.255.255.1 is not verified; use sslmode=verify-full"},
		{name: "password in an argument", args: []string{"--database", "postgres://u:p@127.0.0.1:1/x"}, code: noDatabase, says: "arguments are visible to all users; use LANEWAY_DATABASE_URL or PGPASSFILE"},
		{name: "public, strong, proxy", env: []string{everywhere, strong, proxy, trusted}, public: true},
		{name: "public, generated, proxy", env: []string{everywhere, proxy, trusted}, public: true, says: "this token is known to this data directory only; replicas need LANEWAY_TOKEN_FILE"},
		{name: "public, no trusted proxies", env: []string{everywhere, strong, proxy}, public: true, says: "forwarded addresses are ignored: LANEWAY_TRUSTED_PROXIES is empty"},
	}
}

// A start that must be refused reports why with exit code 78 (2 for a flag that does not exist) and has created nothing. Any other start
// listens, and warns where the table requires it.
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

// judged is a start: its output, the function that ends it, and the function that waits for its exit code.
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
	if _, missing := os.Stat(filepath.Join(dir, "data")); err != nil || passed != (len(made) > 0) || !passed && row.data == 0 && !row.dataThere && missing == nil {
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

// install creates what the row needs in a directory, and returns the environment and the arguments of its start.
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
	if row.data != 0 {
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "data"), 0o700), os.Chmod(filepath.Join(dir, "data"), row.data)); err != nil {
			t.Fatal(err)
		}
	}
	args = []string{"serve"}
	if row.yaml != "" {
		config := filepath.Join(dir, "laneway.yaml")
		if err := os.WriteFile(config, []byte(row.yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		if row.config != 0 {
			if err := os.Chmod(config, row.config); err != nil {
				t.Fatal(err)
			}
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
