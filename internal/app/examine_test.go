package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"laneway/internal/channel/telegram"
	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/cron/schedule"
	"laneway/internal/cron/schedule/zonetest"
	"laneway/internal/secret"
	"laneway/internal/signature"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/store/sqlite"
	"laneway/internal/tool/external"
)

func configAt(t *testing.T) config.Config {
	t.Helper()
	loaded, err := config.Load(config.Options{Flags: []config.Setting{{Path: "data", Flag: "--data", Values: []string{t.TempDir()}}}})
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Config
}

func weights(found []Finding) string {
	words := make([]string, 0, len(found))
	for _, f := range found {
		words = append(words, string(f.Weight))
	}
	return strings.Join(words, " ")
}

func TestStoreIsExaminedInEveryState(t *testing.T) {
	t.Parallel()
	cfg := configAt(t)
	at := sqlite.Config{Path: filepath.Join(cfg.Data, sqliteName)}
	look := func(shift time.Duration) []Finding {
		return ExamineStore(t.Context(), cfg, nil, func() time.Time { return time.Now().Add(shift) })
	}
	if found := look(0); weights(found) != "ok" || !strings.Contains(found[0].Text, "no database yet") {
		t.Errorf("without a database: %+v", found)
	}
	if _, err := sqlite.Migrate(t.Context(), at, sqlite.Up); err != nil {
		t.Fatal(err)
	}
	if found := look(0); weights(found) != "ok ok ok ok ok" || !strings.Contains(found[2].Text, "time zone rules") {
		t.Errorf("a new database: %+v", found)
	}
	if found := look(time.Hour); weights(found) != "ok warning ok ok ok" || !strings.Contains(found[1].Text, "1h0m0s apart") {
		t.Errorf("clocks apart: %+v", found)
	}
	if _, err := sqlite.Migrate(t.Context(), at, sqlite.Down); err != nil {
		t.Fatal(err)
	}
	if found := look(0); weights(found) != "failure" || !strings.Contains(found[0].Cure, "migrate up") {
		t.Errorf("an old schema: %+v", found)
	}
}

// brokenRules returns rows for the rules that it names.
type brokenRules struct {
	store.Admin

	rows map[string][][]string
}

func (b brokenRules) Violations(_ context.Context, rule store.Invariant, _ map[string]any, _ int) ([][]string, error) {
	if rows, ok := b.rows[rule.ID]; ok && rows == nil {
		return nil, errors.New("the table is gone")
	}
	return b.rows[rule.ID], nil
}

func TestBrokenRulesAreNamedWithTheirPlaces(t *testing.T) {
	t.Parallel()
	cfg := configAt(t)
	found := examineRules(t.Context(), brokenRules{rows: map[string][][]string{
		"I8.seq": {{"I8.seq", "agent:main:a", "7"}, {"I8.seq", "agent:main:b", "9"}}, "I7.left": {{"I7.left", "r1", "n1"}}, "I8.twice": nil,
	}}, ruleValues(cfg, time.Now()))
	lines := make([]string, 0, len(found))
	for _, f := range found {
		lines = append(lines, string(f.Weight)+" "+f.Text+"; "+f.Cure)
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"failure rule I8.seq is broken in 2 places", "agent:main:a 7; agent:main:b 9", "warning rule I7.left is broken in 1 place",
		"start a gateway", "failure rule I8.twice could not be checked",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestAgentsAreExaminedWithoutAskingThemAnything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path
		if at, proof, ok := signature.Parse(r.Header.Get(signature.Header), time.Now()); ok && signature.Proves("good", at, proof, nil) {
			return
		}
		switch r.Header.Get("Authorization") {
		case "Bearer good":
		case "Bearer moved":
			http.Redirect(w, r, "http://127.0.0.1:1/steal", http.StatusFound)
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(server.Close)
	lookup := func(name string) (string, bool) { return dir, name == "PATH" }
	webhook := func(url, key string) config.Agent {
		return config.Agent{Runner: config.RunnerHTTP, URL: url + "/agent", Secret: secret.New(key)}
	}
	endpoint := func(url, key string) config.Agent {
		return config.Agent{Runner: config.RunnerOpenAI, BaseURL: url + "/v1", Model: "m", APIKey: secret.New(key), ContextWindow: 32768, OutputLimit: 1 << 20}
	}
	program := func(name string) config.Agent {
		return config.Agent{Runner: config.RunnerCommand, Command: []string{name}, Input: "text", OutputLimit: 1 << 20}
	}
	for name, tc := range map[string]struct {
		agent config.Agent
		want  Weight
	}{
		"echo":      {config.Agent{Runner: config.RunnerEcho}, Warning},
		"program":   {program("tool"), Fine},
		"its path":  {program(filepath.Join(dir, "tool")), Fine},
		"no access": {program("text"), Failure},
		"missing":   {program("nothing"), Failure},
		"endpoint":  {endpoint(server.URL, "good"), Fine},
		"redirect":  {endpoint(server.URL, "moved"), Fine},
		"bad key":   {endpoint(server.URL, "bad"), Failure},
		"silent":    {endpoint("http://127.0.0.1:1", "good"), Failure},

		"agent behind HTTP":   {webhook(server.URL, "good"), Fine},
		"its secret is wrong": {webhook(server.URL, "bad"), Failure},
		"it is not there":     {webhook("http://127.0.0.1:1", "good"), Failure},
	} {
		cfg := config.Config{Agents: map[string]config.Agent{"main": tc.agent}}
		if found := ExamineAgents(t.Context(), cfg, nil, lookup); len(found) != 1 || found[0].Weight != tc.want {
			t.Errorf("%s: %+v, want %s", name, found, tc.want)
		}
	}
	for _, tc := range []struct {
		here, runs string
		want       Weight
		says       string
	}{
		{config.RunnerEcho, config.RunnerOpenAI, Fine, "main: the running gateway answers with openai, this configuration says echo"},
		{config.RunnerAnthropic, config.RunnerOpenAI, Warning, "main: the running gateway answers with openai, this configuration says anthropic"},
		{config.RunnerEcho, config.RunnerEcho, Warning, "main: echo, the demo, repeats each message"},
	} {
		cfg := config.Config{Agents: map[string]config.Agent{"main": {Runner: tc.here}}}
		found := ExamineAgents(t.Context(), cfg, map[string]string{"main": tc.runs}, lookup)
		if len(found) != 1 || found[0].Weight != tc.want || !strings.HasPrefix(found[0].Text, tc.says) {
			t.Errorf("%s is configured and %s runs: %+v", tc.here, tc.runs, found)
		}
	}
	close(asked)
	for request := range asked {
		if request != "GET /v1/models" && request != "GET /agent" {
			t.Errorf("the endpoint was asked for %s", request)
		}
	}
}

func TestASecretInTheTablesIsFoundAndNotShown(t *testing.T) {
	t.Parallel()
	const canary = "a-secret-of-some-length"
	cfg := configAt(t)
	at := sqlite.Config{Path: filepath.Join(cfg.Data, sqliteName)}
	s, err := sqlite.Open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []string{"harmless", "Bearer " + canary + ", they said", "abc"} {
		if err := s.Audit(t.Context(), chat.Audit{Who: "test", Verb: "test", Object: object}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	look := func(secrets ...string) Finding {
		var list []secret.Secret
		for _, text := range secrets {
			list = append(list, secret.New(text))
		}
		found := ExamineStore(t.Context(), cfg, list, time.Now)
		return found[len(found)-1]
	}
	if f := look("another-secret-of-that-length", "abc"); f.Weight != Fine {
		t.Errorf("without one: %+v", f)
	}
	if f := look("abc", canary); f.Weight != Failure || !strings.Contains(f.Text, "I9.secret is broken in 1 place") || !strings.Contains(f.Text, "audit_log") || strings.Contains(f.Text+f.Cure, canary) {
		t.Errorf("with one: %+v", f)
	}
}

// Before, a model that the endpoint does not have was found only when a person wrote.
func TestAMissingModelIsFoundBeforeTheFirstMessage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"qwen3:8b"},{"id":"llama3.2:latest"}]}`)
	}))
	t.Cleanup(server.Close)
	for model, want := range map[string]Finding{
		"llama3.2": {Fine, "main: the endpoint " + server.Listener.Addr().String() + " answers and has the model llama3.2", ""},
		"qwen3:8b": {Fine, "main: the endpoint " + server.Listener.Addr().String() + " answers and has the model qwen3:8b", ""},
		"mistral": {
			Warning, "main: the endpoint " + server.Listener.Addr().String() + " has no model mistral; it has qwen3:8b, llama3.2:latest",
			"name another one as the agent's model",
		},
	} {
		cfg := config.Config{Agents: map[string]config.Agent{"main": {Runner: config.RunnerOpenAI, BaseURL: server.URL + "/v1", Model: model, ContextWindow: 32768, OutputLimit: 1 << 20}}}
		if found := ExamineAgents(t.Context(), cfg, nil, func(string) (string, bool) { return "", false }); len(found) != 1 || found[0] != want {
			t.Errorf("%s: %+v, want %+v", model, found, want)
		}
		var log bytes.Buffer
		p := &Process{cfg: cfg, log: slog.New(slog.NewTextHandler(&log, nil))}
		p.probeAgents(t.Context())
		if warned := strings.Contains(log.String(), "turns of an agent may fail"); warned != (want.Weight == Warning) {
			t.Errorf("%s: the start logs %q", model, log.String())
		}
	}
}

func TestOlderOrMissingZoneRulesAreFound(t *testing.T) { //nolint:paralleltest // ZONEINFO belongs to the process
	for _, c := range []struct {
		dir, text string
		want      Weight
	}{
		{"", "those of " + schedule.EmbeddedRelease(), Fine},
		{zonetest.Write(t, "2025b", nil), "those of 2025b, and the program has those of", Warning},
		{zonetest.Write(t, "", map[string]string{"Europe/Berlin": "CET-1"}), "have no release", Warning},
		{filepath.Join(t.TempDir(), "none"), "ZONEINFO of the gateway names a file or directory that does not exist", Failure},
	} {
		t.Setenv("ZONEINFO", c.dir)
		if f := examineZones(); f.Weight != c.want || !strings.Contains(f.Text, c.text) {
			t.Errorf("%q: %+v, want %s with %q", c.dir, f, c.want, c.text)
		}
	}
}

func TestBotsAreExaminedWithoutChangingAnything(t *testing.T) {
	t.Parallel()
	const good, hook = "1234:good-token-of-a-bot", "https://gw.example/telegram/webhook/default"
	set, problem := "", ""
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, method, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
		switch {
		case token != good:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"ok":false,"error_code":401,"description":"Unauthorized"}`)
		case method == "getMe":
			_, _ = io.WriteString(w, `{"ok":true,"result":{"id":1234,"is_bot":true,"first_name":"L","username":"lane_bot"}}`)
		case method == "getWebhookInfo":
			_, _ = fmt.Fprintf(w, `{"ok":true,"result":{"url":%q,"pending_update_count":0,"last_error_message":%q}}`, set, problem)
		default:
			t.Errorf("Telegram was asked for %s", method)
		}
	}))
	t.Cleanup(api.Close)
	for _, tc := range []struct {
		name, token, url, mode, api string
		set, problem                string
		want                        Weight
		says                        string
	}{
		{name: "polled", token: good, mode: "polling", want: Fine, says: "@lane_bot is known to Telegram and polled"},
		{name: "refused", token: "1234:another-token", mode: "polling", want: Failure, says: "refuses the token"},
		{name: "away", token: good, mode: "polling", api: "http://127.0.0.1:1", want: Warning, says: "Telegram cannot be asked"},
		{name: "delivered", token: good, mode: "webhook", url: hook, set: hook, want: Fine, says: "delivers for @lane_bot to webhook_url"},
		{name: "not set", token: good, mode: "webhook", url: hook, want: Warning, says: "no webhook yet"},
		{name: "elsewhere", token: good, mode: "webhook", url: hook, set: "https://other.example/x", want: Warning, says: "another address than webhook_url"},
		{name: "not reached", token: good, mode: "webhook", url: hook, set: hook, problem: "Connection timed out", want: Warning, says: "could not deliver for @lane_bot: Connection timed out"},
	} {
		set, problem = tc.set, tc.problem
		if tc.api == "" {
			tc.api = api.URL
		}
		cfg := config.Config{}
		cfg.Channels.Telegram = config.Telegram{Enabled: true, Account: "default", Token: secret.New(tc.token), APIURL: tc.api, Mode: tc.mode, WebhookURL: tc.url}
		found := ExamineChannels(t.Context(), cfg)
		if len(found) != 1 || found[0].Weight != tc.want || !strings.Contains(found[0].Text, "telegram default: ") || !strings.Contains(found[0].Text, tc.says) ||
			(tc.want != Fine) != (found[0].Cure != "") || strings.Contains(fmt.Sprint(found), tc.token) {
			t.Errorf("%s: %+v", tc.name, found)
		}
	}
	plain := config.Telegram{APIURL: telegram.DefaultAPIURL, Mode: "webhook", WebhookURL: "http://gw.example/t"}
	if f := examineBot(plain, telegram.Standing{Name: "lane_bot"}); f.Weight != Failure || !strings.Contains(f.Text, "https only") {
		t.Errorf("a webhook without TLS: %+v", f)
	}
}

func TestTheRoleOfTheDatabaseIsWeighed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rights postgres.Rights
		want   string
		says   []string
	}{
		"as recommended": {postgres.Rights{}, "ok", []string{"may add to audit_log and change nothing in it"}},
		"superuser":      {postgres.Rights{Superuser: true, OwnsLog: true, ChangesLog: true}, "warning", []string{"is a superuser", "docs/postgres-and-replicas.md"}},
		"owner":          {postgres.Rights{OwnsLog: true, ChangesLog: true}, "warning", []string{"owns audit_log", "docs/postgres-and-replicas.md"}},
		"too many":       {postgres.Rights{ChangesLog: true}, "warning", []string{"may change and remove rows of audit_log", "REVOKE UPDATE, DELETE, TRUNCATE ON audit_log FROM gw"}},
		"too few":        {postgres.Rights{Lacks: []string{"DELETE on inbox", "SELECT on runs"}}, "failure", []string{"lacks DELETE on inbox, SELECT on runs", "grant it"}},
		"both":           {postgres.Rights{ChangesLog: true, Lacks: []string{"DELETE on inbox"}}, "failure warning", []string{"lacks DELETE on inbox", "rows of audit_log"}},
	} {
		tc.rights.Role = "gw"
		found := roleFindings(tc.rights)
		if weights(found) != tc.want {
			t.Errorf("%s: %+v, want %s", name, found, tc.want)
		}
		var text strings.Builder
		for _, f := range found {
			text.WriteString(f.Text + "; " + f.Cure + "\n")
		}
		for _, s := range tc.says {
			if !strings.Contains(text.String(), s) {
				t.Errorf("%s: %q does not say %q", name, text.String(), s)
			}
		}
	}
}

func TestServersAreExaminedWithAndWithoutAGateway(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Config{
		Agents: map[string]config.Agent{"main": {MCP: []string{"files", "web"}}},
		MCP: config.MCP{Servers: map[string]config.MCPServer{
			"files": {Command: []string{self}, Tools: []string{"read", "write"}}, "web": {URL: "http://127.0.0.1:1", Tools: []string{"search"}},
			"idle": {Command: []string{"/does/not/exist"}, Tools: []string{"read"}},
		}},
	}
	state := func(name, state, last string, tools ...string) []chat.ToolServer {
		return []chat.ToolServer{{Name: name, State: state, LastError: last, Tools: tools}}
	}
	for _, tt := range []struct {
		what   string
		states []chat.ToolServer
		weight Weight
		text   string
	}{
		{"no gateway, a program", nil, Fine, "MCP server files: the program " + self + " exists"},
		{"no gateway, an address", nil, Fine, "MCP server web: not checked: no gateway answers"},
		{"no agent has it", nil, Warning, "MCP server idle: no agent has it, so it is not connected"},
		{"another gateway", []chat.ToolServer{}, Warning, "MCP server files: the running gateway does not have it"},
		{"connected", state("files", external.StateConnected, "", "files_read", "files_write"), Fine, "MCP server files: it is connected, with 2 tools"},
		{
			"a tool is left out",
			[]chat.ToolServer{{Name: "files", State: external.StateConnected, Tools: []string{"files_read"}, LeftOut: []chat.LeftOutTool{{Name: "write", Why: "models cannot use its schema"}}}},
			Warning, "MCP server files: it is connected; agents do not have write (models cannot use its schema)",
		},
		{
			"a tool has another name",
			[]chat.ToolServer{{Name: "files", State: external.StateConnected, Tools: []string{"files_read", "files_wr_ite"}, Renamed: []chat.RenamedTool{{Name: "files_wr_ite", Own: "wr.ite"}}}},
			Fine, "MCP server files: it is connected, with 2 tools",
		},
		{"failed", state("web", external.StateFailed, "no route"), Warning, "MCP server web: it is not connected: no route"},
		{"suspended", state("web", external.StateSuspended, ""), Warning, "MCP server web: it has failed several times and receives no calls for a while"},
		{"connecting", state("web", external.StateConnecting, ""), Warning, "MCP server web: it is being connected"},
	} {
		found := false
		for _, f := range ExamineServers(cfg, tt.states, os.LookupEnv) {
			if f.Text == tt.text {
				found = true
				if f.Weight != tt.weight || (f.Weight != Fine && f.Cure == "") {
					t.Errorf("%s: got %+v", tt.what, f)
				}
			}
		}
		if !found {
			t.Errorf("%s: no finding %q in %+v", tt.what, tt.text, ExamineServers(cfg, tt.states, os.LookupEnv))
		}
	}
}

func TestHomesThatTheUnitHidesAreNamed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		file, text string
		hides      bool
	}{
		{"etc/systemd/system/other.service", "[Service]\nProtectHome=yes\n", false},
		{"lib/systemd/system/laneway.service", "[Service]\nProtectHome=yes\n", true},
		{"etc/systemd/system/laneway.service.d/override.conf", "[Service]\nProtectHome=no\n", false},
		{"etc/systemd/system/laneway.service.d/zz.conf", "[Service]\nProtectHome=tmpfs\n", true},
	} {
		if write(step.file, step.text); UnitHidesHomes(root) != step.hides {
			t.Errorf("after %s: hides is %v", step.file, !step.hides)
		}
	}
	cfg := config.Config{Agents: map[string]config.Agent{
		"coder": {Runner: config.RunnerACP, Command: []string{"/usr/bin/coder"}, Dir: "/home/anna/project"},
		"local": {Runner: config.RunnerCommand, Command: []string{"/home/anna/bin/agent"}},
		"sound": {Runner: config.RunnerCommand, Command: []string{"/usr/bin/agent"}, Dir: "/srv/project"},
		"model": {Runner: config.RunnerOpenAI},
	}}
	lookup := func(string) (string, bool) { return "", false }
	found := ExamineHomes(cfg, lookup, func(string) bool { return true })
	if len(found) != 2 || !strings.Contains(found[0].Text, "coder: the unit of the gateway hides /home/anna/project") || !strings.Contains(found[1].Text, "/home/anna/bin/agent") ||
		!strings.Contains(found[0].Cure, "systemctl edit laneway") || !strings.Contains(found[0].Cure, "ReadWritePaths=/home/anna/project") {
		t.Errorf("found %+v", found)
	}
	if found := ExamineHomes(cfg, lookup, HiddenHere(lookup)); len(found) > 0 {
		t.Errorf("outside of a unit: %+v", found)
	}
	inUnit := func(name string) (string, bool) { return "1", name == "INVOCATION_ID" }
	if found := ExamineHomes(cfg, lookup, HiddenHere(inUnit)); len(found) != 2 { // there is no person anna here
		t.Errorf("in a unit: %+v", found)
	}
}

func TestTakenPortNamesItsCauseFirst(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	addr := taken.Addr().String()
	p := &Process{cfg: config.Config{Listen: []string{addr}}}
	if err := p.listen(t.Context()); err == nil || !strings.HasPrefix(err.Error(), addr+" is taken (address already in use)") || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("the start fails with %v", err)
	}
	held := openingStore(fmt.Errorf("%w: the data directory /x belongs to another running gateway", sqlite.ErrInUse))
	if !strings.HasPrefix(held.Error(), "the database is in use: the data directory /x") {
		t.Errorf("a held directory: %v", held)
	}
}
