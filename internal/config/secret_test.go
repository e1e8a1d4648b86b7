package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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
