package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"laneway/internal/app"
	"laneway/internal/client"
	"laneway/internal/config"
	"laneway/internal/secret"
	"laneway/internal/wire"
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

// The doctor reports modes by which other users can access the data directory or the token file,
// with what to do. Its advice never removes the gateway's own access to the token.
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
			"ok       start           the gateway can start with this configuration\n", "ok       data directory  DIR\n",
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
	if got := b.stdout.String(); !strings.Contains(got, "warning  agents          main: echo, the demo, repeats each message; use a real agent: laneway agents detect\n") {
		t.Errorf("agents without a gateway:\n%s", got)
	}
	for free, want := range map[uint64]level{100*mebibyte - 1: levelFailure, 100 * mebibyte: levelWarning, 1024*mebibyte - 1: levelWarning, 1024 * mebibyte: levelOK} {
		if got := spaceFinding(free); len(got) != 1 || got[0].Level != want || !strings.Contains(got[0].Text, strconv.FormatUint(free/mebibyte, 10)) || (want != levelOK) != (got[0].Cure != "") {
			t.Errorf("%d bytes free: %+v", free, got)
		}
	}
}

var dashboardLink = regexp.MustCompile(`http://127\.0\.0\.1:18790/dashboard/#token=([A-Za-z0-9_-]{43})`)

// accepting is a gateway that accepts every token.
func accepting(b *bench) *bench {
	dial := b.env.dial
	b.env.dial = func(ctx context.Context, to target) (gatewayConn, error) {
		to.Token = secret.New("right")
		return dial(ctx, to)
	}
	return b
}

func TestDashboardPrintsALinkWithATokenThatExpires(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "may read, write, admin for 12h"}, {[]string{"--read", "--for", "1h"}, "may read for 1h"},
	} {
		b := accepting(tokenBench(t))
		b.run(t, exitOK, append([]string{"dashboard", "--print"}, tc.args...)...)
		if !dashboardLink.MatchString(b.stdout.String()) || !strings.Contains(b.stderr.String(), tc.want) {
			t.Errorf("%v: %q, %q", tc.args, b.stdout.String(), b.stderr.String())
		}
		b.stdout.Reset()
		b.run(t, exitOK, "token", "list")
		if got := b.stdout.String(); !strings.Contains(got, dashboardToken) || strings.Contains(got, "never") {
			t.Errorf("%v: the tokens are %q", tc.args, got)
		}
	}
}

func TestDashboardUsesTheAddressOfTheEnvironment(t *testing.T) {
	t.Parallel()
	b := accepting(tokenBench(t))
	lookup := b.env.lookupEnv
	b.env.lookupEnv = func(name string) (string, bool) {
		if name == "LANEWAY_URL" {
			return "ws://127.0.0.1:4711/ws", true
		}
		return lookup(name)
	}
	b.run(t, exitOK, "dashboard", "--print")
	if got := b.stdout.String(); !strings.HasPrefix(got, "http://127.0.0.1:4711/dashboard/#token=") {
		t.Errorf("link %q", got)
	}
}

func TestDashboardLeavesNoTokenWithoutAGateway(t *testing.T) {
	t.Parallel()
	b := tokenBench(t)
	b.env.dial = func(context.Context, target) (gatewayConn, error) { return nil, client.ErrNoGateway }
	b.run(t, exitFailure, "dashboard", "--print")
	b.run(t, exitOK, "token", "list")
	if !strings.Contains(b.stdout.String(), "no named tokens") || dashboardLink.MatchString(b.stdout.String()) {
		t.Errorf("%q", b.stdout.String())
	}
}

func TestDashboardRefusesTokensThatLiveTooLong(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--for", "169h"}, {"--for", "1s"}, {"--url", "gateway.example"}} {
		b := accepting(tokenBench(t))
		b.run(t, exitUsage, append([]string{"dashboard", "--print"}, args...)...)
	}
}

// The link is a credential: only the user can read the page that forwards to it, and no other user
// sees it in a list of processes.
func TestDashboardOpensAPageThatOnlyTheUserReads(t *testing.T) {
	t.Parallel()
	b := accepting(tokenBench(t))
	data, _ := b.env.lookupEnv("LANEWAY_DATA")
	seen := filepath.Join(t.TempDir(), "seen")
	opener := filepath.Join(t.TempDir(), "opener")
	script := "#!/bin/sh\nf=\"${1#file://}\"\n{ stat -c %a \"$f\"; echo \"$@\"; cat \"$f\"; } >" + seen + ".new\nmv " + seen + ".new " + seen + "\nexit 3\n"
	if err := os.WriteFile(opener, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	lookup := b.env.lookupEnv
	b.env.lookupEnv = func(name string) (string, bool) {
		switch name {
		case "BROWSER":
			return opener, true
		case "PATH":
			return os.Getenv("PATH"), true
		}
		return lookup(name)
	}
	b.env.environ = os.Environ
	b.run(t, exitFailure, "dashboard") // the opener fails, so the command ends and removes everything
	got, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitN(string(got), "\n", 3)
	if lines[0] != "600" || strings.Contains(lines[1], "token=") || !dashboardLink.MatchString(lines[2]) {
		t.Errorf("mode %s, arguments %s, page %s", lines[0], lines[1], lines[2])
	}
	if left, err := filepath.Glob(filepath.Join(data, "dashboard-*")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if !strings.Contains(b.stderr.String(), "--print") || strings.Contains(b.stderr.String(), "token=") {
		t.Errorf("stderr %q", b.stderr.String())
	}
}

// tokenBench is a command line with its own store.
func tokenBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	loaded, err := config.Load(config.Options{Flags: []config.Setting{{Path: "data", Flag: "--data", Values: []string{dir}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.Migrate(t.Context(), loaded.Config, "up", false); err != nil {
		t.Fatal(err)
	}
	return newBench("", "LANEWAY_DATA", dir, "HOME", dir)
}

func TestTokenIsShownOnceListedAndRevoked(t *testing.T) {
	t.Parallel()
	b := tokenBench(t)
	b.run(t, exitOK, "token", "create", "ci", "--scope", "write", "--visible", "own", "--expires", "48h")
	secret := strings.TrimSpace(b.stdout.String())
	if len(secret) != 43 || strings.Contains(b.stderr.String(), secret) || !strings.Contains(b.stderr.String(), "read, write and sees only what it makes") {
		t.Errorf("stdout %q, stderr %q", b.stdout.String(), b.stderr.String())
	}
	b.stdout.Reset()
	b.run(t, exitOK, "token", "list", "--json")
	var list struct{ Tokens []tokenReport }
	if err := json.Unmarshal(b.stdout.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.stdout.String(), secret) || len(list.Tokens) != 1 || list.Tokens[0].Name != "ci" || list.Tokens[0].ExpiresAtMs == 0 {
		t.Errorf("list %s", b.stdout.String())
	}
	b.run(t, exitFailure, "token", "create", "ci")
	b.stdout.Reset()
	b.run(t, exitOK, "token", "revoke", "ci")
	b.run(t, exitFailure, "token", "revoke", "ci")
	b.stdout.Reset()
	b.run(t, exitOK, "token", "list")
	if !strings.Contains(b.stdout.String(), "no named tokens") {
		t.Errorf("list %q", b.stdout.String())
	}
}

func TestTokenIsRefusedWithASentence(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"belongs to the gateway":  {"gateway"},
		"there is no scope":       {"x", "--scope", "root"},
		"letters, digits":         {"two words"},
		"cannot expire":           {"x", "--expires=-1h"},
		"there is no database at": {"x", "--data", "/nonexistent-laneway"},
	} {
		b := tokenBench(t)
		b.run(t, exitFailure, append([]string{"token", "create"}, args...)...)
		if !strings.Contains(b.stderr.String(), want) {
			t.Errorf("%v: %q, want %q", args, b.stderr.String(), want)
		}
	}
	b := tokenBench(t)
	b.run(t, exitUsage, "token", "create", "x", "--visible", "some")
}

// usedDatabase refuses a step back that is not forced, and counts forced ones.
type usedDatabase struct{ forced int }

func (d *usedDatabase) Migrate(_ context.Context, _ config.Config, _ string, force bool) ([]migration, error) {
	if !force {
		return nil, &app.LiveNodesError{Nodes: []string{"node-1"}}
	}
	d.forced++
	return nil, nil
}

func TestMigrateDownAsksBeforeItForces(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct{ code, forced int }{"y\n": {exitOK, 1}, "n\n": {exitFailure, 0}, "": {exitFailure, 0}} {
		b, db := newBench(answer, "LANEWAY_DATA", t.TempDir()), &usedDatabase{}
		b.env.migrate, b.env.terminal = db, &console{in: os.Stdin, out: os.Stdout}
		b.run(t, want.code, "migrate", "down", "--force")
		if db.forced != want.forced || !strings.Contains(b.stderr.String(), "node-1") {
			t.Errorf("answer %q: %d steps; %s", answer, db.forced, b.stderr.String())
		}
	}
}

// Before, the status of a gateway without channels had a row for unused webhooks.
func TestStatusShowsChannelsThatAreConfigured(t *testing.T) {
	t.Parallel()
	refused := "410 Gone"
	account := func(change func(*wire.ChannelAccount)) []wire.ChannelAccount {
		a := wire.ChannelAccount{AccountID: "default", Configured: true}
		change(&a)
		return []wire.ChannelAccount{a}
	}
	for _, row := range []struct {
		name     string
		accounts []wire.ChannelAccount
		shown    bool
	}{
		{"web", account(func(*wire.ChannelAccount) {}), false},
		{"webhook", account(func(*wire.ChannelAccount) {}), false},
		{"webhook", account(func(a *wire.ChannelAccount) { a.OutboxWaiting = 1 }), true},
		{"webhook", account(func(a *wire.ChannelAccount) { a.LastError = &refused }), true},
		{"webhook", account(func(a *wire.ChannelAccount) { a.OutboxFailed = 1 }), true},
		{"telegram", account(func(*wire.ChannelAccount) {}), true},
		{"telegram", account(func(a *wire.ChannelAccount) { a.Configured = false }), false},
	} {
		got := channelRows(wire.ChannelsStatusResult{Order: []string{row.name}, Accounts: map[string][]wire.ChannelAccount{row.name: row.accounts}})
		if (len(got) == 2) != row.shown {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}
