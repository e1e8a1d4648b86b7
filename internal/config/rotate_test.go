package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A secret in a file is used if a start would accept it; otherwise the old secret is kept, and a sentence says why.
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

// The token file of the data directory is read again like one that was named, from its first start on.
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
