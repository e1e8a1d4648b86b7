package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// With systemd, a credential has the owner root and an access list for the service's user, which appears in the mode as group permissions.
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

// Before, a shell variable that was meant for clients silently replaced the file that the configuration names.
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

// TestMountedSecretOfRoot: engines mount secrets that everybody in the container may read; elsewhere such a file is refused with what to do.
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
