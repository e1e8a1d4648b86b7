package config

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"laneway/internal/secret"
)

const (
	strong = "k3u1pXe8ZQm4Vt0bNc7RyHs2Lw9DgJf6"
	public = "0.0.0.0:18790"
	proxy  = "LANEWAY_BEHIND_TLS_PROXY"
)

// matrixRow is one row of the start-up table. DIR in values and sentences is the directory of the
// test.
type matrixRow struct {
	name   string
	env    []string
	files  map[string]os.FileMode // files with a strong token in DIR, by mode
	flags  []Setting
	yaml   string
	mode   os.FileMode // of the YAML file, default 0600
	refuse []string
	warn   []string
}

func listenRows() []matrixRow {
	return []matrixRow{
		{name: "loopback, none given"},
		{name: "loopback, file 0600", env: []string{"LANEWAY_TOKEN_FILE", "DIR/t"}, files: map[string]os.FileMode{"t": 0o600}},
		{name: "loopback, strong variable", env: []string{"LANEWAY_TOKEN", strong}},
		{name: "loopback, weak variable", env: []string{"LANEWAY_TOKEN", "secret"}, warn: []string{"LANEWAY_TOKEN is weak: good enough on loopback only"}},
		{name: "loopback, weak password", env: []string{"LANEWAY_PASSWORD", "secret"}, warn: []string{"LANEWAY_PASSWORD is weak: good enough on loopback only"}},
		{name: "blank token", env: []string{"LANEWAY_TOKEN", ""}, refuse: []string{"LANEWAY_TOKEN is set but empty; unset it or give a token"}},
		{
			name: "file open to others", env: []string{"LANEWAY_TOKEN_FILE", "DIR/t"}, files: map[string]os.FileMode{"t": 0o644},
			refuse: []string{"token file DIR/t has mode 0644; run: chmod 600 DIR/t"},
		},
		{name: "own file open to others", files: map[string]os.FileMode{"data/token": 0o604}, refuse: []string{"token file DIR/data/token has mode 0604; run: chmod 600 DIR/data/token"}},
		{name: "own file that our group may write", files: map[string]os.FileMode{"data/token": 0o660}, refuse: []string{"token file DIR/data/token has mode 0660; run: chmod 600 DIR/data/token"}},
		{name: "own file that our group may read", files: map[string]os.FileMode{"data/token": 0o640}},
		{name: "file that does not exist", env: []string{"LANEWAY_TOKEN_FILE", "DIR/t"}, refuse: []string{"token file DIR/t does not exist; make it: openssl rand -hex 32"}},
		{
			name: "public, weak token", env: []string{"LANEWAY_LISTEN", public, "LANEWAY_TOKEN", "secret", proxy, "true", "LANEWAY_TRUSTED_PROXIES", "10.0.0.1"},
			refuse: []string{"the token is too weak for 0.0.0.0:18790; use 32 or more random characters"},
		},
		{
			name:   "public, weak read and write token and password",
			env:    []string{"LANEWAY_LISTEN", public, "LANEWAY_TOKEN", strong, "LANEWAY_READ_TOKEN", "a", "LANEWAY_WRITE_TOKEN", "b", "LANEWAY_PASSWORD", "c", proxy, "true", "LANEWAY_TRUSTED_PROXIES", "10.0.0.1"},
			refuse: []string{"the password is too weak for 0.0.0.0:18790; use 32 or more random characters", "the write token is too weak for 0.0.0.0:18790; use 32 or more random characters", "the read token is too weak for 0.0.0.0:18790; use 32 or more random characters"},
		},
		{
			name: "public, strong, no TLS", env: []string{"LANEWAY_LISTEN", public, "LANEWAY_TOKEN", strong},
			refuse: []string{"tokens would cross the network in clear; put a TLS proxy in front and set LANEWAY_BEHIND_TLS_PROXY=true"},
		},
		{
			name: "public, generated, no TLS", env: []string{"LANEWAY_LISTEN", ":18790"},
			refuse: []string{"tokens would cross the network in clear; put a TLS proxy in front and set LANEWAY_BEHIND_TLS_PROXY=true"},
		},
		{name: "public, strong, proxy", env: []string{"LANEWAY_LISTEN", public, "LANEWAY_TOKEN", strong, proxy, "true", "LANEWAY_TRUSTED_PROXIES", "10.0.0.0/8,::1"}},
		{
			name: "public, generated, proxy", env: []string{"LANEWAY_LISTEN", public, proxy, "true", "LANEWAY_TRUSTED_PROXIES", "10.0.0.1"},
			warn: []string{"this token is known to this data directory only; replicas need LANEWAY_TOKEN_FILE"},
		},
		{
			name: "public, no trusted proxies", env: []string{"LANEWAY_LISTEN", public, "LANEWAY_TOKEN", strong, proxy, "true"},
			warn: []string{"forwarded addresses are ignored: LANEWAY_TRUSTED_PROXIES is empty"},
		},
		{name: "trusts everybody", env: []string{"LANEWAY_TRUSTED_PROXIES", "0.0.0.0/0"}, refuse: []string{"LANEWAY_TRUSTED_PROXIES 0.0.0.0/0 trusts everybody"}},
		{name: "trusts everybody with IPv6", env: []string{"LANEWAY_TRUSTED_PROXIES", "::/0"}, refuse: []string{"LANEWAY_TRUSTED_PROXIES ::/0 trusts everybody"}},
		{
			name: "one public address of several", env: []string{"LANEWAY_LISTEN", "127.0.0.1:1,localhost:2,[::]:3", "LANEWAY_TOKEN", strong},
			refuse: []string{"tokens would cross the network in clear; put a TLS proxy in front and set LANEWAY_BEHIND_TLS_PROXY=true"},
		},
		{name: "a worker without a listener", env: []string{"LANEWAY_LISTEN", public, "LANEWAY_ROLES", "worker"}},
	}
}

func otherRows() []matrixRow {
	pg := func(url string) []string { return []string{"LANEWAY_DATABASE_URL", url} }
	return []matrixRow{
		{name: "any origin", env: []string{"LANEWAY_ALLOWED_ORIGINS", "*"}, refuse: []string{`LANEWAY_ALLOWED_ORIGINS: "*" is not an exact origin`}},
		{name: "origin with a path", env: []string{"LANEWAY_ALLOWED_ORIGINS", "https://a.example/x"}, refuse: []string{`LANEWAY_ALLOWED_ORIGINS: "https://a.example/x" is not an exact origin`}},
		{name: "origin without a scheme", env: []string{"LANEWAY_ALLOWED_ORIGINS", "a.example"}, refuse: []string{`LANEWAY_ALLOWED_ORIGINS: "a.example" is not an exact origin`}},
		{name: "exact origins", env: []string{"LANEWAY_ALLOWED_ORIGINS", "https://a.example,http://b.example:8080"}},
		{name: "public metrics", env: []string{"LANEWAY_METRICS_LISTEN", "0.0.0.0:18791"}, refuse: []string{"metrics are served on loopback only; use the value main"}},
		{name: "metrics on main", env: []string{"LANEWAY_METRICS_LISTEN", "main"}},
		{name: "webhook without a secret", yaml: "channels: {telegram: {mode: webhook, webhook_url: 'https://a.example/t'}}", refuse: []string{"channels.telegram.webhook_secret needs 32 characters"}},
		{name: "webhook with a short secret", yaml: "channels: {telegram: {mode: webhook, webhook_url: 'https://a.example/t', webhook_secret: short}}", refuse: []string{"channels.telegram.webhook_secret needs 32 characters"}},
		{name: "agent behind HTTP without a secret", yaml: "agents: {main: {runner: http, url: 'http://127.0.0.1:9100/a'}}", refuse: []string{"agents.main.secret needs 32 characters"}},
		{name: "agent behind HTTP with a short secret", yaml: "agents: {main: {runner: http, url: 'http://127.0.0.1:9100/a', secret: short}}", refuse: []string{"agents.main.secret needs 32 characters"}},
		{name: "hook without a secret", yaml: "hooks: {ci: {}}", refuse: []string{"hooks.ci.secret needs 32 characters"}},
		{name: "open bot", env: []string{"TG", "1:" + strong}, yaml: "channels: {telegram: {access: open, token_env: TG}}", warn: []string{"everybody may talk to this bot"}},
		{name: "name for an id", yaml: "channels: {telegram: {allow: ['@anna']}}", refuse: []string{`"@anna" is not an identity; use the numeric id`}},
		{name: "public Postgres", env: pg("postgres://u@db.example.com/x?sslmode=require"), refuse: []string{"database: sslmode=verify-full is needed for db.example.com"}},
		{name: "public Postgres by address", env: pg("postgres://u@8.8.8.8:5432/x"), refuse: []string{"database: sslmode=verify-full is needed for 8.8.8.8"}},
		{name: "second host public", env: pg("postgres://u@10.0.0.1,9.9.9.9/x?sslmode=verify-ca"), refuse: []string{"database: sslmode=verify-full is needed for 9.9.9.9"}, warn: []string{"database: the server 10.0.0.1 is not verified; use sslmode=verify-full"}},
		{name: "verified Postgres", env: pg("postgres://u@db.example.com/x?sslmode=verify-full")},
		{name: "verified by the environment", env: append(pg("postgres://u@db.example.com/x"), "PGSSLMODE", "verify-full")},
		{name: "private Postgres", env: pg("postgres://u@db/x"), warn: []string{"database: the server db is not verified; use sslmode=verify-full"}},
		{name: "private Postgres by address", env: pg("postgres://u@[fd00::1]:5432/x"), warn: []string{"database: the server fd00::1 is not verified; use sslmode=verify-full"}},
		{name: "a service of Postgres", env: pg("postgres:///?service=prod"), refuse: []string{"database: service=prod would take host and sslmode from a service file, which is not read here; name the host in the URL"}},
		{name: "a service beside a host", env: pg("postgres://u@127.0.0.1/x?sslmode=verify-full&service=prod"), refuse: []string{"database: service=prod would take host and sslmode from a service file, which is not read here; name the host in the URL"}},
		{name: "a service of the environment", env: append(pg("postgres:///x"), "PGSERVICE", "prod"), refuse: []string{"database: PGSERVICE would take host and sslmode from a service file, which is not read here; name the host in the URL"}},
		{name: "a service for others", env: []string{"PGSERVICE", "prod"}},
		{name: "local Postgres", env: pg("postgres://u@127.0.0.1/x")},
		{name: "Postgres on a socket", env: pg("postgres:///x?host=/run/postgresql")},
		{
			name: "password in an argument", flags: []Setting{{Path: "database", Flag: "--database", Values: []string{"postgres://u:p@127.0.0.1/x"}}},
			warn: []string{"arguments are visible to all users; use LANEWAY_DATABASE_URL or PGPASSFILE"},
		},
		{name: "data directory writable by others", files: map[string]os.FileMode{"data": 0o777 | os.ModeDir}, refuse: []string{"DIR/data has mode 0777; run: chmod 700 DIR/data"}},
		{name: "data directory is a file", files: map[string]os.FileMode{"data": 0o600}, refuse: []string{"data directory DIR/data is a file; name another with --data"}},
		{name: "secrets in a file open to others", yaml: "token: " + strong, mode: 0o644, refuse: []string{"DIR/laneway.yaml has mode 0644; run: chmod 600 DIR/laneway.yaml"}},
		{name: "password of the database in a file open to others", yaml: "database: 'postgres://u:p@127.0.0.1/x'", mode: 0o604, refuse: []string{"DIR/laneway.yaml has mode 0604; run: chmod 600 DIR/laneway.yaml"}},
		{name: "variables of an agent in a file open to others", yaml: "agents: {main: {runner: command, command: [cat], env: {KEY: value}}}", mode: 0o644, refuse: []string{"DIR/laneway.yaml has mode 0644; run: chmod 600 DIR/laneway.yaml"}},
		{name: "an agent without variables in a file open to others", yaml: "agents: {main: {runner: command, command: [cat]}}", mode: 0o644},
		{
			name: "malformed bot token in a file", yaml: "channels: {telegram: {token_file: DIR/tg}}", files: map[string]os.FileMode{"tg": 0o600},
			refuse: []string{"bot token file DIR/tg: the bot token must look like 123456:ABC…; @BotFather shows it"},
		},
		{
			name: "malformed bot token in a variable", yaml: "channels: {telegram: {token_env: BOT}}", env: []string{"BOT", "nothing"},
			refuse: []string{"variable BOT: the bot token must look like 123456:ABC…; @BotFather shows it"},
		},
		{name: "malformed bot token of a bot that is off", yaml: "channels: {telegram: {enabled: false, token_env: BOT}}", env: []string{"BOT", "nothing"}},
		{name: "decimal address of Postgres", env: pg("postgres://u@134744072/x"), refuse: []string{"database: sslmode=verify-full is needed for 134744072"}},
		{name: "secrets in a file of a group", yaml: "token: " + strong, mode: 0o640},
		{name: "no secrets in a file open to others", yaml: "lanes: {main: 3}", mode: 0o644},
	}
}

func TestStartUpMatrix(t *testing.T) {
	t.Parallel()
	for _, row := range slices.Concat(listenRows(), otherRows()) {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			plan, err := row.start(t, dir)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if want := row.in(dir, row.refuse); got != strings.Join(want, "\n") {
				t.Fatalf("refused with\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
			if plan != nil && !slices.Equal(plan.Warnings, row.in(dir, row.warn)) {
				t.Errorf("warned %q, want %q", plan.Warnings, row.warn)
			}
			if _, err := os.Stat(filepath.Join(dir, "data", "token")); err == nil && row.files["data/token"] == 0 {
				t.Error("a token was made before the start was allowed")
			}
		})
	}
}

func (r matrixRow) in(dir string, sentences []string) []string {
	var all []string
	for _, s := range sentences {
		all = append(all, strings.ReplaceAll(s, "DIR", dir))
	}
	return all
}

func (r matrixRow) start(t *testing.T, dir string) (*Plan, error) {
	t.Helper()
	for name, mode := range r.files {
		place(t, filepath.Join(dir, name), mode, strong+"\n")
	}
	options := Options{LookupEnv: environ(append(r.in(dir, r.env), "LANEWAY_DATA", filepath.Join(dir, "data"))...), Flags: r.flags}
	if r.yaml != "" {
		options.File = filepath.Join(dir, "laneway.yaml")
		mode := r.mode
		if mode == 0 {
			mode = 0o600
		}
		place(t, options.File, mode, strings.ReplaceAll(r.yaml, "DIR", dir)+"\n")
	}
	loaded, err := Load(options)
	if err != nil {
		return nil, err
	}
	return Preflight(loaded)
}

// place makes a file or a directory with exactly this mode, independent of the umask.
func place(t *testing.T, path string, mode os.FileMode, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if mode.IsDir() {
		err = os.MkdirAll(path, mode.Perm())
	} else {
		err = os.WriteFile(path, []byte(text), mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode.Perm()); err != nil {
		t.Fatal(err)
	}
}

func TestPrepareMakesAStrongTokenOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	row := matrixRow{}
	plan, err := row.start(t, dir)
	if err != nil || !plan.CreatesToken {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	var wg sync.WaitGroup
	tokens := make([]string, 8)
	for i := range tokens {
		process := *plan // each process has its own plan
		wg.Go(func() {
			creds, err := process.Prepare()
			if err != nil {
				t.Error(err)
			}
			tokens[i] = creds.Token.Reveal()
		})
	}
	wg.Wait()
	for _, token := range tokens {
		if token != tokens[0] || !regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`).MatchString(token) || !Strong(secret.New(token)) {
			t.Errorf("got tokens %q", tokens)
		}
	}
	for path, want := range map[string]os.FileMode{"data": 0o700, "data/token": 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v (%v), want %v", path, info.Mode(), err, want)
		}
	}
	plan, err = row.start(t, dir)
	if err != nil || plan.CreatesToken {
		t.Fatalf("second start: plan %+v, %v", plan, err)
	}
	if creds, err := plan.Prepare(); err != nil || creds.Token.Reveal() != tokens[0] {
		t.Errorf("second start has another token (%v)", err)
	}
}

func TestPrepareDoesNotFollowALinkInTheTokensPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(dir, "elsewhere")
	if err := os.Symlink(elsewhere, filepath.Join(dir, "data", "token")); err != nil {
		t.Fatal(err)
	}
	plan, err := matrixRow{}.start(t, dir)
	if err == nil {
		_, err = plan.Prepare()
	}
	if err == nil {
		t.Error("a link in the place of the token file was taken")
	}
	if _, statErr := os.Stat(elsewhere); statErr == nil {
		t.Error("the token was written where the link points")
	}
}

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:1": false, "127.9.9.9:1": false, "[::1]:1": false, "localhost:1": false, "LOCALHOST:1": false, "[::ffff:127.0.0.1]:1": false,
		"0.0.0.0:1": true, "[::]:1": true, ":1": true, "10.0.0.1:1": true, "example.org:1": true, "128.0.0.1:1": true, "nonsense": true,
	} {
		if got := Public(address); got != want {
			t.Errorf("%s: got %v, want %v", address, got, want)
		}
	}
}

func TestOthersCanChangeAFileOfRootByItsOwnerItsModeAndItsDirectory(t *testing.T) {
	t.Parallel()
	of := func(uid, gid int, mode fs.FileMode) ownership { return ownership{uid, gid, true, mode} }
	for name, c := range map[string]struct {
		file, dir ownership
		want      string
	}{
		"root's":                                    {of(0, 0, 0o600), of(0, 0, 0o755), ""},
		"root's, readable":                          {of(0, 4242, 0o640), of(0, 4242, 0o750), ""},
		"the group root may write":                  {of(0, 0, 0o660), of(0, 0, 0o775), ""},
		"of another user":                           {of(4242, 0, 0o600), of(0, 0, 0o755), "belongs to user 4242"},
		"a group may write":                         {of(0, 4242, 0o660), of(0, 0, 0o755), "has mode 0660"},
		"everyone may write":                        {of(0, 0, 0o666), of(0, 0, 0o755), "has mode 0666"},
		"in the directory of another user":          {of(0, 0, 0o600), of(4242, 4242, 0o700), "which belongs to user 4242"},
		"in a directory for everyone":               {of(0, 0, 0o600), of(0, 0, 0o777), "with mode 0777"},
		"in a directory for a group":                {of(0, 0, 0o600), of(0, 4242, 0o770), "with mode 0770"},
		"in a sticky directory":                     {of(0, 0, 0o600), of(0, 0, 0o777|fs.ModeSticky), ""},
		"of another user in a sticky directory":     {of(4242, 0, 0o600), of(0, 0, 0o777|fs.ModeSticky), "belongs to user 4242"},
		"a link":                                    {of(0, 0, 0o777|fs.ModeSymlink), of(0, 0, 0o755), ""},
		"a link of another user in a sticky folder": {of(4242, 0, 0o777|fs.ModeSymlink), of(0, 0, 0o777|fs.ModeSticky), "belongs to user 4242"},
		"on a system without owners":                {ownership{}, ownership{}, ""},
	} {
		if got := changeable("/etc/laneway/config.yaml", c.file, c.dir); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q in it", name, got, c.want)
		}
	}
}

// A gateway of root refuses a file of another user that other gateways accept.
func TestOnlyRootRefusesAFileThatOthersCanReplace(t *testing.T) {
	t.Parallel()
	open, closed := filepath.Join(t.TempDir(), "open"), filepath.Join(t.TempDir(), "closed")
	for dir, mode := range map[string]os.FileMode{open: 0o777, closed: 0o755} {
		err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("listen: [127.0.0.1:0]\n"), 0o600), os.Chmod(dir, mode))
		if err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(closed, "link.yaml")
	if err := os.Symlink(filepath.Join(open, "config.yaml"), link); err != nil {
		t.Fatal(err)
	}
	root := os.Geteuid() == 0
	for path, refused := range map[string]bool{filepath.Join(open, "config.yaml"): root, link: root, filepath.Join(closed, "config.yaml"): false} {
		loaded, err := Load(Options{File: path, Flags: []Setting{{Path: "data", Values: []string{t.TempDir()}}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Preflight(loaded)
		if (err != nil && strings.Contains(err.Error(), "so others could replace it")) != refused {
			t.Errorf("%s: %v, want a refusal: %t", path, err, refused)
		}
	}
}

func TestNetworksThatTogetherAreEveryAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list  []string
		every bool
	}{
		{[]string{"0.0.0.0/1", "128.0.0.0/1"}, true},
		{[]string{"128.0.0.0/1", "10.0.0.0/8", "0.0.0.0/1"}, true},
		{[]string{"128.0.0.0/2", "192.0.0.0/2", "64.0.0.0/2", "0.0.0.0/2"}, true},
		{[]string{"0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3"}, true}, // the rest contains no address of a client
		{[]string{"1.0.0.0/8", "2.0.0.0/7", "4.0.0.0/6", "8.0.0.0/7", "11.0.0.0/8", "12.0.0.0/6", "16.0.0.0/4", "32.0.0.0/3", "64.0.0.0/2", "128.0.0.0/1"}, true},
		{[]string{"0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/4", "208.0.0.0/5", "216.0.0.0/6", "220.0.0.0/7", "222.0.0.0/8"}, false}, // 223.0.0.0/8 is missing
		{[]string{"0.0.0.0/1", "129.0.0.0/8"}, false},
		{[]string{"::ffff:0.0.0.0/97", "::ffff:128.0.0.0/97"}, true},
		{[]string{"::ffff:0.0.0.0/97", "128.0.0.0/1"}, true},
		{[]string{"::/1", "8000::/1"}, true},
		{[]string{"2000::/3"}, true}, // every routed address
		{[]string{"2000::/4", "3000::/4"}, true},
		{[]string{"2000::/4", "3000::/5"}, false},
		{[]string{"::/1", "0.0.0.0/1"}, true},
		{[]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.1", "fd00::/8", "::1", "203.0.113.7"}, false},
		{nil, false},
	} {
		var list []netip.Prefix
		for _, text := range c.list {
			p, err := parsePrefix(text)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, p)
		}
		if got := everyPublicAddress(list); (got != nil) != c.every {
			t.Errorf("%v: every %v (%v), want %v", c.list, got != nil, got, c.every)
		}
	}
}

func TestTheIPv6FormOfAnIPv4NetworkIsThatNetwork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"::ffff:10.0.0.0/104": "10.0.0.0/8", "::ffff:0:0/96": "0.0.0.0/0", "::ffff:192.0.2.1": "192.0.2.1/32", "::/1": "::/1", "192.0.2.1": "192.0.2.1/32",
	} {
		if got, err := parsePrefix(text); err != nil || got.String() != want {
			t.Errorf("%s is %s (%v), want %s", text, got, err, want)
		}
	}
}

func TestNumbersAreHostsAsTheLibraryReadsThem(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]reach{
		"134744072": reachPublic, "0x08080808": reachPublic, "0X08080808": reachPublic, "010.8.8.8": reachPublic, "01002004010": reachPublic, "8.525320": reachPublic,
		"8.8.2056": reachPublic, "134744072.": reachPublic, "2130706433": reachLocal, "0x7f.1": reachLocal, "0177.0.0.1": reachLocal, "0": reachPublic,
		"167772161": reachPrivate, "012.1": reachPrivate, "0xc0a80001": reachPrivate, "4294967296": reachPublic, "1.2.3.4.5": reachPublic, "09.1": reachPublic,
		"1.2.3.256": reachPublic, "db1": reachPrivate, "db": reachPrivate, "0xdb.internal": reachPrivate, "x.8": reachPublic,
	} {
		if got := hostReach(host); got != want {
			t.Errorf("%s has reach %d, want %d", host, got, want)
		}
	}
}
