package teste2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite

	"laneway/internal/store"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// Oracle reads the database of a gateway directly: the content of the rows, whichever process wrote
// them.
type Oracle struct {
	tb testing.TB
	db *sql.DB
}

// OpenOracle opens the database of an installation; url "" = its SQLite file, which a gateway may
// be using.
func OpenOracle(tb testing.TB, g *Gateway, url string) *Oracle {
	tb.Helper()
	driver, dsn := "pgx", url
	if url == "" {
		driver, dsn = "sqlite", "file:"+g.SQLite()+"?mode=ro&_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	o := &Oracle{tb: tb, db: db}
	tb.Cleanup(o.Close)
	return o
}

// Close ends the connections before the end of the test.
func (o *Oracle) Close() { _ = o.db.Close() }

// Count runs a query with one number as its answer.
func (o *Oracle) Count(query string) int {
	o.tb.Helper()
	var n int
	if err := o.db.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		o.tb.Fatalf("%s: %v", query, err)
	}
	return n
}

// Rows runs a query and returns every row as one line of text.
func (o *Oracle) Rows(query string) []string {
	o.tb.Helper()
	rows, err := o.db.QueryContext(context.Background(), query)
	if err != nil {
		o.tb.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	cols, err := rows.Columns()
	if err != nil {
		o.tb.Fatal(err)
	}
	var out []string
	for rows.Next() {
		values, ptrs := make([]any, len(cols)), make([]any, len(cols))
		for i := range values {
			ptrs[i] = &values[i]
		}
		if err := rows.Scan(ptrs...); err != nil {
			o.tb.Fatal(err)
		}
		var line []string
		for _, v := range values {
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			line = append(line, fmt.Sprint(v))
		}
		out = append(out, strings.Join(line, "|"))
	}
	if err := rows.Err(); err != nil {
		o.tb.Fatal(err)
	}
	return out
}

// Check checks every invariant; a row is a violation. lease is the longest lease of a node of the
// test.
func (o *Oracle) Check(lease time.Duration) {
	o.tb.Helper()
	now := time.Now().UnixMilli()
	values := map[string]string{
		"now": strconv.FormatInt(now, 10), "gone": strconv.FormatInt(now-(lease+5*time.Second).Milliseconds(), 10),
		"drain": strconv.FormatInt(now-time.Minute.Milliseconds(), 10), "since": strconv.FormatInt(now-24*time.Hour.Milliseconds(), 10),
		"main": "30", "subagent": "50", "team": "100", "cron": "30", "cap": "10", "secret": "'never-a-secret'",
		"jobs": "1000000", "keep": strconv.FormatInt(now-32*24*time.Hour.Milliseconds(), 10),
	}
	for _, inv := range store.Invariants() {
		text := inv.SQL
		for _, name := range inv.Params {
			text = strings.ReplaceAll(text, ":"+name, values[name])
		}
		if bad := o.Rows(text); len(bad) > 0 {
			o.tb.Errorf("%s is violated (%s): %s", inv.ID, inv.Rule, strings.Join(bad[:min(len(bad), 5)], "; "))
		}
	}
}

// migrated is the content of a SQLite file with every migration and no row. A gateway that applies
// the migrations itself needs twice the processor time for its start; that is tested with [Gateway]
// fresh, and in the start-up matrices.
var migrated = sync.OnceValues(func() (text []byte, err error) {
	dir, err := os.MkdirTemp("", "laneway-e2e-template-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := migrateInside(filepath.Join(dir, "data")); err != nil {
		return nil, fmt.Errorf("migrating: %w", err)
	}
	return os.ReadFile(filepath.Join(dir, "data", "laneway.db"))
})

// seed creates the data directory of an installation, with a migrated database, if it does not
// exist.
func (g *Gateway) seed() error {
	data := filepath.Join(g.Dir, "data")
	if _, err := os.Stat(data); g.fresh || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	text, err := migrated()
	if err != nil {
		return fmt.Errorf("making the database of a test: %w", err)
	}
	return errors.Join(os.Mkdir(data, 0o700), os.WriteFile(g.SQLite(), text, 0o600))
}

// sharedServer are the settings for a process whose PostgreSQL server many processes share. It
// plans each statement at its first use, instead of all statements of turns on each connection, and
// opens few connections, because connecting and planning are the main cost for the server. Of the
// two connections, one is for turns and one for everything else; [Gateway.AtOnce] allows two of a
// kind.
func sharedServer(database string) []string {
	separator := "?"
	if strings.Contains(database, "?") {
		separator = "&"
	}
	return []string{"LANEWAY_DATABASE_URL=" + database + separator + "pool_min_conns=0", "LANEWAY_DATABASE_CONNS=" + testrun.Size("2", "20")}
}

// leak searches all output of gateways, commands and tests for the token of a bot, until the last
// test has ended.
var leak testtelegram.Leak

// Everything returns every row of every table as text.
func (o *Oracle) Everything(tb testing.TB, database string) map[string][]string {
	tb.Helper()
	list := "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
	if database != "" {
		list = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
	}
	names := o.Rows(list)
	if len(names) < 10 {
		tb.Fatalf("the database has the tables %q; that is not all", names)
	}
	all := map[string][]string{}
	for _, name := range names {
		all[name] = o.Rows("SELECT * FROM " + name)
	}
	return all
}

// Search is a search for secrets.
type Search struct {
	// Database is its URL; "" = the SQLite file of the installation.
	Database string
	// Secrets by name.
	Secrets map[string]string
	// Heard is what a test has received from the gateway.
	Heard []string
	// Own are the names of files that contain a secret by design.
	Own []string
}

// In searches everything that a gateway has left: its output, its tables, its files, and Heard. It
// returns one line for each match, without the secret itself.
func (s Search) In(tb testing.TB, g *Gateway) []string {
	tb.Helper()
	var found []string
	look := func(place, text string) {
		for name, secret := range s.Secrets {
			if strings.Contains(text, secret) {
				found = append(found, name+" is in "+place)
			}
		}
	}
	look("what it printed", g.Output())
	for table, rows := range OpenOracle(tb, g, s.Database).Everything(tb, s.Database) {
		look("the table "+table, strings.Join(rows, "\n"))
	}
	for _, text := range s.Heard {
		look("an answer", text)
	}
	err := filepath.WalkDir(filepath.Join(g.Dir, "data"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains(s.Own, d.Name()) {
			return err
		}
		raw, err := os.ReadFile(path)
		look("the file "+d.Name(), string(raw))
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

// Proxied starts a gateway with all HTTP features for a proxy on the same host, which calls it
// gateway.example.
func Proxied(tb testing.TB) *Gateway {
	tb.Helper()
	g := Install(tb, "", "trusted_proxies: [127.0.0.1]\nbehind_tls_proxy: true\nallowed_hosts: [gateway.example]\nhooks: {ci: {secret: hook-secret-0123456789-abcdefghijk}}\n")
	g.env = append(g.env, "LANEWAY_METRICS_LISTEN=main")
	g.Start()
	return g
}

// CheckWithoutCredential sends requests without a credential through a proxy, to every route and
// each of the methods. The open routes answer, without data about the gateway; all others refuse.
// The proxy calls from loopback, which grants nothing, and neither do headers of the client about
// its origin.
func CheckWithoutCredential(tb testing.TB, proxy string, methods []string) {
	tb.Helper()
	for _, forwarded := range []string{"", "127.0.0.1", "::1, 127.0.0.1"} {
		for route, want := range map[string]int{
			"GET /healthz": 200, "GET /health": 200, "GET /readyz": 200, "GET /dashboard/": 200,
			"GET /v1/models": 401, "POST /v1/chat/completions": 401, "GET /metrics": 401, "POST /hooks/ci": 401, "POST /hooks/absent": 401,
			"GET /debug/pprof/": 404, "GET /debug/vars": 404, "POST /telegram/webhook/default": 404, "GET /v1/admin": 404, "POST /v1/models": 405, "GET /": 302, "GET /ws": 426,
		} {
			status, body := askWithoutCredential(tb, proxy, route, forwarded)
			stalled := want == http.StatusOK && status == http.StatusServiceUnavailable // health is told to all, also that of a machine without time
			if status != want && !stalled {
				tb.Errorf("%s with X-Forwarded-For %q: %d %s, want %d", route, forwarded, status, body, want)
			}
			if strings.HasPrefix(route, "GET /h") && strings.Contains(strings.ToLower(body), "version") {
				tb.Errorf("%s answers without a credential %s", route, body)
			}
		}
	}
	for _, method := range append([]string{"connect"}, methods...) {
		b, err := upgrade(proxy)
		if err != nil {
			tb.Fatalf("opening a socket through the proxy: %v", err)
		}
		params := map[string]any{}
		if method == "connect" {
			params = map[string]any{"minProtocol": 4, "maxProtocol": 4, "client": map[string]string{"id": "x", "version": "1", "platform": "test", "mode": "test"}}
		}
		if err := b.request("1", method, params); err != nil {
			tb.Fatal(err)
		}
		if code := b.end(20 * time.Second); code != websocket.ClosePolicyViolation {
			tb.Errorf("%s without a credential through the proxy: closed with %d, want %d", method, code, websocket.ClosePolicyViolation)
		}
		_ = b.Close()
	}
}

// askWithoutCredential makes one request; forwarded is the address that the client claims.
func askWithoutCredential(tb testing.TB, proxy, route, forwarded string) (int, string) {
	tb.Helper()
	method, path, _ := strings.Cut(route, " ")
	req, err := http.NewRequestWithContext(tb.Context(), method, fmt.Sprintf("http://%s%s", proxy, path), strings.NewReader("{}"))
	if err != nil {
		tb.Fatal(err)
	}
	if forwarded != "" {
		req.Header.Set("X-Forwarded-For", forwarded)
		req.Header.Set("X-Real-Ip", "127.0.0.1")
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// block is a fenced block of a document.
type block struct {
	file   string
	line   int // line of its fence
	indent int
	lang   string
	text   string
}

// documents are the pages whose fenced blocks are run.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages of documents: %v", len(pages), err)
	}
	return append([]string{"../../README.md"}, pages...)
}

// blocksOf reads the fenced blocks of a document.
func blocksOf(t *testing.T, path string) (list []block) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var open *block
	for i, line := range strings.Split(string(text), "\n") {
		indent := 0 // of the block, which may be part of a list
		if open != nil {
			indent = open.indent
		}
		line = strings.TrimPrefix(line, strings.Repeat(" ", indent))
		lang, fence := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
		switch {
		case fence && open == nil:
			open = &block{file: filepath.Base(path), line: i + 1, lang: lang, indent: len(line) - len(lang) - len("```")}
		case fence:
			list, open = append(list, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		t.Fatalf("%s: the fence of line %d has no end", path, open.line)
	}
	return list
}

// exchange is a command of a document, with its printed output.
type exchange struct {
	command string
	root    bool // has the prompt of root
	prints  []string
}

// exchanges returns the commands of a block. The output of those of the language sh is not
// compared.
func (b block) exchanges() (list []exchange) {
	for line := range strings.Lines(b.text) {
		line = strings.TrimSuffix(line, "\n")
		command, ordinary := strings.CutPrefix(line, "$ ")
		asRoot, root := strings.CutPrefix(line, "# ")
		switch {
		case b.lang == "sh" && len(list) > 0 && strings.HasSuffix(list[len(list)-1].command, "\\"):
			list[len(list)-1].command += "\n" + line
		case b.lang == "sh" && strings.TrimSpace(line) != "":
			list = append(list, exchange{command: line})
		case b.lang != "console":
		case ordinary:
			list = append(list, exchange{command: command})
		case root:
			list = append(list, exchange{command: asRoot, root: true})
		case len(list) > 0:
			last := &list[len(list)-1]
			last.prints = append(last.prints, line)
		}
	}
	return list
}

// sceneLine is a line of a block of the language terminal: a command on that terminal or on another
// one (`$ …`), a line that the person types into the command (`> …`), or what the terminal shows.
type sceneLine struct{ command, typed, shows string }

// scene returns the lines of a block of the language terminal. The first is the command that stays
// on the terminal.
func (b block) scene() (lines []sceneLine) {
	for line := range strings.Lines(b.text) {
		line = strings.TrimSpace(line)
		command, is := strings.CutPrefix(line, "$ ")
		typed, types := strings.CutPrefix(line, "> ")
		switch {
		case is:
			lines = append(lines, sceneLine{command: command})
		case types:
			lines = append(lines, sceneLine{typed: typed})
		case line != "":
			lines = append(lines, sceneLine{shows: line})
		}
	}
	return lines
}

// commandless matches a block without a language that looks like commands, so that none is skipped.
var commandless = regexp.MustCompile(`(?m)^([A-Z_]+=\S+ )*(\$ |# |laneway |go run |make |install |useradd |curl |docker |kubectl |sh |node |python3 )`)

// unsteady are the parts of an output that differ between runs, and their replacements.
var unsteady = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<id>"},
	{regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d(:\d\d)? [A-Z]{3,5}`), "<time>"},
	{regexp.MustCompile(`((Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{1,2} [A-Z][a-z]{2} )?\b\d\d:\d\d:\d\d [A-Z]{3,5}\b`), "<time>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "<time>"},
	{regexp.MustCompile(`\b1[789]\d{11}\b`), "<time>"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m|h|d)\b`), "<duration>"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "<address>"},
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "<sum>"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// settled returns an output without its unsteady parts, line by line.
func settled(lines []string) (out []string) {
	for _, line := range lines {
		for _, v := range unsteady {
			line = v.pattern.ReplaceAllString(line, v.name)
		}
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// printed reports whether the output of a command matches its document: the same lines except for
// the unsteady parts. `…` in a line matches anything, and as a line any lines.
func printed(want, got []string) bool {
	want, got = settled(want), settled(got)
	if i := slices.Index(want, "…"); i >= 0 {
		for j := i; j <= len(got); j++ {
			if printed(want[:i], got[:i]) && printed(want[i+1:], got[j:]) {
				return true
			}
		}
		return false
	}
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(want[i]), "…", ".*")
		if !regexp.MustCompile("^" + pattern + "$").MatchString(got[i]) {
			return false
		}
	}
	return true
}
