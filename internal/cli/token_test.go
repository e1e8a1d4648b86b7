package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"laneway/internal/app"
	"laneway/internal/config"
)

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
