package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestMisspelledVariablesAreReported(t *testing.T) {
	t.Parallel()
	loaded, err := Load(Options{LookupEnv: environ()})
	if err != nil {
		t.Fatal(err)
	}
	got := loaded.UnknownVariables([]string{
		"PATH", "LANEWAY_URL", "LANEWAY_CONFIG", "LANEWAY_TOKEN", "LANEWAY_LANE_MAIN", "GOCLAW_LANE_MAIN", "LANEWAY_DATABASE_URL", "LANEWAY_AGENTS_MAIN_MODEL",
		"LANEWAY_SERVICE_HOST", "LANEWAY_SERVICE_PORT", "LANEWAY_SERVICE_PORT_HTTP", "LANEWAY_PORT", "LANEWAY_PORT_18790_TCP", "LANEWAY_PORT_18790_TCP_ADDR",
		"LANEWAY_QUEUE_CAPP", "LANEWAY_AGENTS_CODER_MODEL", "LANEWAY_NO_AUTH",
	})
	want := []string{
		"LANEWAY_AGENTS_CODER_MODEL is not a setting and has no effect",
		"LANEWAY_NO_AUTH is not a setting and has no effect",
		"LANEWAY_QUEUE_CAPP is not a setting and has no effect; did you mean LANEWAY_QUEUE_CAP?",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDeploymentFilesUseRealSettings checks that the image, the compose file and the unit set only existing settings.
func TestDeploymentFilesUseRealSettings(t *testing.T) {
	t.Parallel()
	loaded, err := Load(Options{LookupEnv: environ()})
	if err != nil {
		t.Fatal(err)
	}
	ofCompose := []string{"LANEWAY_VERSION", "LANEWAY_PORT", "LANEWAY_REPLICA_PORT", "LANEWAY_MEMORY", "LANEWAY_TARGET"} // read by docker compose itself
	for _, file := range []string{"Dockerfile", "compose.yaml", "deploy/laneway.service"} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`LANEWAY_[A-Z_]+`).FindAllString(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no variable", file)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(ofCompose, name) })
		for _, sentence := range loaded.UnknownVariables(names) {
			t.Errorf("%s: %s", file, sentence)
		}
	}
}

// TestTheComposeFilesGatewayMayStart loads the settings of compose.yaml.
func TestTheComposeFilesGatewayMayStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("8f14e45fceea167a5a36dedd4bea2543d9c1e7b0aa52\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"LANEWAY_DATA", filepath.Join(dir, "data")}
	for name, value := range composeServices(t)["gateway"].Environment {
		value = regexp.MustCompile(`\$\{[A-Z_]+:-\}`).ReplaceAllString(value, "") // as when nothing is set
		env = append(env, name, strings.Replace(value, "/secrets", dir, 1))
	}
	loaded, err := Load(Options{LookupEnv: environ(env...)})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Preflight(loaded)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"forwarded addresses are ignored: LANEWAY_TRUSTED_PROXIES is empty",
		"database: the server postgres is not verified; use sslmode=verify-full",
	}
	if !slices.Equal(plan.Warnings, want) {
		t.Errorf("warned %q, want %q", plan.Warnings, want)
	}
}
