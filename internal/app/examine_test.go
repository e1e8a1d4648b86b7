package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/config"
	"laneway/internal/cron/schedule"
	"laneway/internal/cron/schedule/zonetest"
	"laneway/internal/secret"
	"laneway/internal/signature"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
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
type brokenRules map[string][][]string

func (b brokenRules) Violations(_ context.Context, rule store.Invariant, _ map[string]any, _ int) ([][]string, error) {
	if rows, ok := b[rule.ID]; ok && rows == nil {
		return nil, errors.New("the table is gone")
	}
	return b[rule.ID], nil
}

func TestBrokenRulesAreNamedWithTheirPlaces(t *testing.T) {
	t.Parallel()
	cfg := configAt(t)
	found := examineRules(t.Context(), brokenRules{
		"I8.seq": {{"I8.seq", "agent:main:a", "7"}, {"I8.seq", "agent:main:b", "9"}}, "I7.left": {{"I7.left", "r1", "n1"}}, "I8.twice": nil,
	}, ruleValues(cfg, time.Now()))
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
		{config.RunnerEcho, config.RunnerEcho, Warning, "main: echo repeats each message"},
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

func TestOlderOrMissingZoneRulesAreFound(t *testing.T) {
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
