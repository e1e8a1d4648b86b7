package cli

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"laneway/internal/client"
	"laneway/internal/secret"
)

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

// The link is a credential: only the user can read the page that forwards to it, and no other user sees it in a list of processes.
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
