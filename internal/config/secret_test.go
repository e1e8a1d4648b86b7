package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"laneway/internal/secret"
)

const canary = "canary-4711-canary-4711"

// See package secret for other values.
func TestADatabaseAddressIsNeverPrintedWithItsPassword(t *testing.T) {
	t.Parallel()
	type holder struct {
		URL DatabaseURL
		url DatabaseURL
	}
	d := DatabaseURL{secret.New("postgres://u:" + canary + "@db/x?password=" + canary)}
	h := holder{d, d}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%10.3s"} {
		fmt.Fprintf(&out, verb+verb+verb+"\n", d, h, &h)
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("x", "holder", h, "pointer", &h, "url", d)
	}
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		text, err := marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
	}
	fmt.Fprint(&out, errors.Join(fmt.Errorf("with %v", d)))
	if strings.Contains(out.String(), "4711") || strings.Contains(out.String(), fmt.Sprintf("%x", canary)) {
		t.Errorf("the password is in\n%s", out.String())
	}
	if !strings.Contains(out.String(), "postgres://u:xxxxx@db/x") {
		t.Error("the address is lost, or nothing was printed")
	}
}

// Each setting for a secret has a second setting that names a file.
func TestEachSecretCanComeFromAFile(t *testing.T) {
	t.Parallel()
	paths := map[string]bool{}
	for _, key := range Shape() {
		paths[key.Path] = true
	}
	for _, key := range Shape() {
		if key.Type == "secret" && key.Path != "database" && !paths[key.Path+"_file"] {
			t.Errorf("%s has no %s_file", key.Path, key.Path)
		}
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(Options{LookupEnv: environ("LANEWAY_CRON_WEBHOOK_SECRET_FILE", file, "LANEWAY_CRON_WEBHOOK_TOKEN_ENV", "T", "T", "from-a-variable")})
	if err != nil {
		t.Fatal(err)
	}
	if c := loaded.Config.Cron; c.WebhookSecret.Reveal() != canary || c.WebhookToken.Reveal() != "from-a-variable" {
		t.Errorf("secret %q, token %q", c.WebhookSecret.Reveal(), c.WebhookToken.Reveal())
	}
}

func TestADatabaseAddressIsShownWithoutItsPassword(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"postgres://me:" + canary + "@db:5432/laneway?sslmode=require": "postgres://me:xxxxx@db:5432/laneway?sslmode=require",
		"postgres:///laneway?host=/run/pg&password=" + canary:          "postgres:///laneway?host=%2Frun%2Fpg&password=xxxxx",
		"postgres://me@db/laneway":                                     "postgres://me@db/laneway",
		"sqlite:/var/lib/laneway.db":                                   "sqlite:/var/lib/laneway.db",
		"postgres://me:" + canary + "@[db/laneway":                     secret.Redacted,
		"mysql://me:" + canary + "@db/x":                               secret.Redacted,
		"":                                                             "",
	} {
		if got := (DatabaseURL{secret.New(raw)}).String(); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}

func TestPrintNamesSourcesAndHidesSecrets(t *testing.T) {
	t.Parallel()
	loaded, err := Load(Options{LookupEnv: environ(
		"LANEWAY_TOKEN", canary, "LANEWAY_DATABASE_URL", "postgres://u:"+canary+"@127.0.0.1/x", "LANEWAY_LANE_MAIN", "3",
		"LANEWAY_AGENTS_MAIN_RUNNER", "command", "LANEWAY_AGENTS_MAIN_COMMAND", "[cat, --key, "+canary+"]", "LANEWAY_AGENTS_MAIN_ENV", "{KEY: "+canary+"}",
	)})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := loaded.Print(&out); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(loaded.Values())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String()+string(asJSON), "4711") {
		t.Errorf("a secret is printed:\n%s\n%s", out.String(), asJSON)
	}
	for _, want := range []string{
		"token: set # LANEWAY_TOKEN", "password: not set # default", "  main: 3 # LANEWAY_LANE_MAIN", "  cap: 10 # default",
		"database: postgres://u:xxxxx@127.0.0.1/x # LANEWAY_DATABASE_URL",
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	var again yaml.Node
	if err := yaml.Unmarshal(out.Bytes(), &again); err != nil {
		t.Errorf("what is printed is no YAML: %v", err)
	}
}

func TestStrength(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"":                                       false,
		"k3u1pXe8ZQm4Vt0bNc7RyHs2Lw9DgJf":        false, // 31
		"k3u1pXe8ZQm4Vt0bNc7RyHs2Lw9DgJf6":       true,  // 32
		"abcdefghijkabcdefghijkabcdefghijkabcde": false, // 11 different
		"abcdefghijklabcdefghijklabcdefghijkl":   true,  // 12 different
		"change-me-change-me-0123456789-abcdefg": false,
		"0123456789ABCDEF0123456789ABCDEF":       false,
		"Your_Token_goes_here_0123456789_abcdef": false,
	} {
		if got := Strong(secret.New(text)); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"30d": "30d", "24h": "1d", "90s": "1m30s", "0": "0s", "0d": "0s", "1h30m": "1h30m0s"} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.String() != want {
			t.Errorf("%s: got %s (%v), want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"", "5", "d", "-1d", "1.5d", "200000d", "9e9h", "x"} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken as %s", text, d)
		}
	}
}

// A secret in a file is used if a start would accept it; otherwise the old secret is kept, and a
// sentence says why.
func TestRereadFollowsTheFilesOfSecrets(t *testing.T) {
	t.Parallel()
	const next = "N7w2Tz5Yb8Qe1Ra4Uf6Ic9Op3Sd0GhJk"
	for _, tc := range []struct {
		name, text string
		mode       os.FileMode
		listen     string
		want       string // of the read token
		says       string
	}{
		{name: "another secret", text: next + "\n", want: next},
		{name: "a weak one on loopback", text: "secret", want: "secret"},
		{name: "a weak one in public", text: "secret", listen: public, want: strong, says: "the read token in FILE is too weak for 0.0.0.0:18790; use 32 or more random characters"},
		{name: "nothing", text: " \n", want: strong, says: "token file FILE is empty; remove it or make it: openssl rand -hex 32"},
		{name: "open to others", text: next, mode: 0o644, want: strong, says: "token file FILE has mode 0644; run: chmod 600 FILE"},
		{name: "two lines", text: next + "\n" + next, want: strong, says: "token file FILE must be one line without control characters"},
		{name: "removed", want: strong, says: "token file FILE does not exist; make it: openssl rand -hex 32"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "read")
			write := func(text string, mode os.FileMode) {
				if err := os.WriteFile(file, []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			write(strong, 0o600)
			env := map[string]string{"LANEWAY_DATA": filepath.Join(dir, "data"), "LANEWAY_READ_TOKEN_FILE": file}
			if tc.listen != "" {
				env["LANEWAY_LISTEN"], env[proxy], env["LANEWAY_TRUSTED_PROXIES"] = tc.listen, "true", "10.0.0.1"
			}
			plan, first := prepared(t, env)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if tc.text != "" {
				write(tc.text, max(tc.mode, 0o600))
			}
			got, err := plan.Reread()
			if got.ReadToken.Reveal() != tc.want || got.Token.Reveal() != first.Token.Reveal() {
				t.Errorf("the read token is %q, want %q; the own token changed: %t", got.ReadToken.Reveal(), tc.want, got.Token.Reveal() != first.Token.Reveal())
			}
			if says := strings.ReplaceAll(tc.says, "FILE", file); (err == nil) != (says == "") || err != nil && err.Error() != says {
				t.Errorf("says %v, want %q", err, says)
			}
		})
	}
}

// The token file of the data directory is read again like one that was named, from its first start
// on.
func TestRereadFollowsTheOwnToken(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	plan, made := prepared(t, map[string]string{"LANEWAY_DATA": data})
	if again, err := plan.Reread(); err != nil || again.Token.Reveal() != made.Token.Reveal() {
		t.Errorf("an unchanged file: %v, changed %t", err, again.Token.Reveal() != made.Token.Reveal())
	}
	if err := os.WriteFile(TokenPath(data), []byte(strong), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := plan.Reread(); err != nil || again.Token.Reveal() != strong {
		t.Errorf("got %q, %v", again.Token.Reveal(), err)
	}
}

// prepared returns the plan of a start with this environment, and its first credentials.
func prepared(t *testing.T, env map[string]string) (*Plan, Credentials) {
	t.Helper()
	loaded, err := Load(Options{LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Preflight(loaded)
	if err != nil {
		t.Fatal(err)
	}
	made, err := plan.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	return plan, made
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// With systemd, a credential has the owner root and an access list for the service's user, which
// appears in the mode as group permissions.
func TestASecretOfTheServiceManagerIsTaken(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "credentials")
	path := write(t, filepath.Join(dir, "deploy"), strings.Repeat("Zk7Qw3Rt9Yb2", 4), 0o440)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	uid, _, _ := ownerOf(info)
	if uid != 0 {
		t.Skip("only root can make a file of root")
	}
	as := identity{uid: 65534, inGroup: func(int) bool { return false }, credentials: dir}
	if err := checkSecretMode(path, "secret file", info, as); err != nil {
		t.Error(err)
	}
	as.credentials = ""
	if err := checkSecretMode(path, "secret file", info, as); err == nil {
		t.Error("a file that root's group reads is taken outside of the directory of the service manager")
	}
	as.credentials = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := checkSecretMode(path, "secret file", info, as); err == nil {
		t.Error("a directory that is open to others is taken for the service manager's")
	}
}

// The advice for a secret that the gateway may not read does not change the owner of the file.
func TestTheCureForASecretLeavesItWithItsOwner(t *testing.T) {
	t.Parallel()
	path := write(t, filepath.Join(t.TempDir(), "deploy.secret"), "x", 0o600)
	for want, as := range map[string]identity{
		"chgrp": {uid: 65534}, "start the gateway as its owner": {uid: 1 << 30}, "or use a token of your own": {uid: 65534, reads: true},
		"run the command as root or as the gateway's user": {uid: 65534, beside: true},
	} {
		err := as.unreadable("secret file", path, "permission denied")
		if want == "chgrp" && !ofRoot(path) {
			want = "start the gateway as its owner"
		}
		if err == nil || strings.Contains(err.Error(), "chown") || !strings.Contains(err.Error(), path+" cannot be read") || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", as, err, want)
		}
	}
	if os.Geteuid() != 0 {
		return // only root can change a file to another group
	}
	if err := os.Chown(path, 0, 4242); err != nil {
		t.Fatal(err)
	}
	if err := (identity{uid: 65534}).unreadable("secret file", path, "permission denied"); strings.Contains(err.Error(), "chgrp") {
		t.Errorf("the cure takes the secret from the group of another service: %v", err)
	}
}

func TestTheConfigurationIsFoundByItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	system := write(t, filepath.Join(dir, "etc", "config.yaml"), "listen: [\"127.0.0.1:1001\"]\n", 0o644)
	find := func(variables ...string) string {
		t.Helper()
		loaded, err := Load(Options{LookupEnv: environ(variables...), SystemFile: system})
		if err != nil {
			t.Fatal(err)
		}
		return loaded.File
	}
	home := filepath.Join(dir, "home")
	if got := find("HOME", home); got != system {
		t.Errorf("with nothing else the file of the host counts, got %q", got)
	}
	ofHome := write(t, filepath.Join(home, ".config", "laneway", "config.yaml"), "", 0o644)
	if got := find("HOME", home); got != ofHome {
		t.Errorf("the user's file counts before the host's, got %q", got)
	}
	xdg := filepath.Join(dir, "xdg")
	if got := find("HOME", home, "XDG_CONFIG_HOME", xdg); got != system {
		t.Errorf("XDG_CONFIG_HOME replaces ~/.config, got %q", got)
	}
	ofXDG := write(t, filepath.Join(xdg, "laneway", "config.yaml"), "", 0o644)
	if got := find("HOME", home, "XDG_CONFIG_HOME", xdg); got != ofXDG {
		t.Errorf("got %q, want %q", got, ofXDG)
	}
	if got := find("HOME", home, "XDG_CONFIG_HOME", xdg, "LANEWAY_CONFIG", system); got != system {
		t.Errorf("the variable counts first, got %q", got)
	}
}

// Before, a shell variable that was meant for clients silently replaced the file that the
// configuration names.
func TestATokenVariableBesideATokenFileIsAWarning(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "token"), strings.Repeat("Zk7Qw3Rt9Yb2", 4), 0o600)
	loaded, err := Load(Options{LookupEnv: environ("LANEWAY_TOKEN", strings.Repeat("Vb8Nm4Kj1Hg6", 4), "LANEWAY_TOKEN_FILE", file, "LANEWAY_DATA", t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Preflight(loaded)
	if err != nil {
		t.Fatal(err)
	}
	if want := "LANEWAY_TOKEN is set, so the token file " + file + " is not read; unset one of them"; !slices.Contains(plan.Warnings, want) {
		t.Errorf("warnings %q, want %q", plan.Warnings, want)
	}
}

// TestMountedSecretOfRoot: engines mount secrets that everybody in the container may read;
// elsewhere such a file is refused with what to do.
func TestMountedSecretOfRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root makes files of root")
	}
	dir := t.TempDir()
	mounts, elsewhere := filepath.Join(dir, "mounts"), filepath.Join(dir, "elsewhere")
	place(t, filepath.Join(mounts, "data", "tg"), 0o644, "1:token\n")
	place(t, filepath.Join(elsewhere, "tg"), 0o444, "1:token\n")
	place(t, filepath.Join(mounts, "written"), 0o646, "1:token\n")
	place(t, filepath.Join(mounts, "own"), 0o444, "1:token\n")
	for name, to := range map[string]string{"tg": filepath.Join("data", "tg"), "out": filepath.Join(elsewhere, "tg")} {
		if err := os.Symlink(to, filepath.Join(mounts, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(filepath.Join(mounts, "own"), 4242, 4242); err != nil {
		t.Fatal(err)
	}
	as := identity{uid: 4242, inGroup: func(int) bool { return false }, credentials: mounts}
	for path, want := range map[string]string{
		filepath.Join(mounts, "tg"): "", filepath.Join(mounts, "data", "tg"): "", filepath.Join(mounts, "out"): "0440", filepath.Join(elsewhere, "tg"): "0440",
		filepath.Join(mounts, "written"): "0440", filepath.Join(mounts, "own"): "chmod 600", filepath.Join(mounts, "..", "elsewhere", "tg"): "variable",
	} {
		_, err := readSecretFile(path, "bot token file", as)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestSecretsAsEditorsWriteThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for text, want := range map[string]string{
		"\xef\xbb\xbf" + strong + "\r\n": strong, strong + "\r\n": strong, "\n" + strong + "\n\n": strong, "\xff\xfea\x00b\x00": "", "\xfe\xff\x00a\x00b": "", "a\x00b\x00": "", "\xef\xbb\xbf\n": "",
	} {
		path := filepath.Join(dir, "t")
		place(t, path, 0o600, text)
		s, err := readToken(path, thisProcess(environ()))
		if (err == nil) != (want != "") || want != "" && s.Reveal() != want {
			t.Errorf("%q: %v", text, err)
		}
		if strings.Contains(text, "\x00") && !strings.Contains(err.Error(), "UTF-16") {
			t.Errorf("%q: %v does not name the encoding", text, err)
		}
	}
}
