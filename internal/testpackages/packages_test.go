//go:build packages

package testpackages

import (
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testtelegram"
)

// installed has the files of every package.
var installed = []string{
	"usr/bin/laneway", "usr/lib/systemd/system/laneway.service", "usr/lib/sysusers.d/laneway.conf", "etc/laneway/config.yaml", "usr/share/man/man1/laneway-cron-add.1",
	"usr/share/bash-completion/completions/laneway", "usr/share/fish/vendor_completions.d/laneway.fish", "usr/share/doc/laneway/copyright",
}

// From an empty root and the package alone to a bot that answers: install, start with a token, write, approve the code, write.
func TestAPackageInAnEmptyRootMakesABotThatAnswers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it changes into the root directory of the installation")
	}
	for format, install := range map[string]string{
		// dpkg runs the scripts of the package on this machine, with DPKG_ROOT. The scripts of an rpm need a shell in the root, and are run below.
		"deb":        `mkdir -p var/lib/dpkg/info var/lib/dpkg/updates etc && touch var/lib/dpkg/status etc/passwd etc/group && dpkg --root="$PWD" --force-script-chrootless --force-not-root --force-depends -i "$PACKAGE"`,
		"rpm":        `rpm --root "$PWD" --initdb && rpm --root "$PWD" --nodeps --noscripts --ignorearch -i "$PACKAGE" && rpm --root "$PWD" -q --scripts laneway | grep -q systemd-sysusers`,
		"install.sh": `LANEWAY_FROM="$PACKAGE" LANEWAY_BIN="$PWD/usr/bin" HOME="$PWD" sh "$PACKAGE/install.sh"`,
	} {
		t.Run(format, func(t *testing.T) {
			root := t.TempDir()
			begun := time.Now()
			in := exec.Command("sh", "-euc", install)
			in.Dir, in.Env = root, append(os.Environ(), "PACKAGE="+packageFile(t, format))
			if out, err := in.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", install, err, out)
			}
			t.Logf("installed after %v", time.Since(begun).Round(time.Millisecond))
			files := installed
			if format == "install.sh" {
				files = installed[:1] // the program alone
			}
			for _, path := range files {
				if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Size() == 0 {
					t.Errorf("%s: %v", path, err)
				}
			}
			if unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/laneway.service")); format != "install.sh" && (err != nil || !bytes.Contains(unit, []byte("ExecStart=/usr/bin/laneway serve"))) {
				t.Errorf("the unit does not start the program of the package: %v", err)
			}
			if passwd, err := os.ReadFile(filepath.Join(root, "etc/passwd")); format == "deb" && (err != nil || !bytes.Contains(passwd, []byte("laneway:"))) {
				t.Errorf("the package has made no user: %q, %v", passwd, err)
			}
			bot(t, root)
			t.Logf("the bot answered after %v", time.Since(begun).Round(time.Millisecond))
		})
	}
}

func packageFile(t *testing.T, format string) string {
	t.Helper()
	if format == "install.sh" {
		return os.Getenv("LANEWAY_PACKAGES")
	}
	arch := map[string]string{"deb/amd64": "amd64", "deb/arm64": "arm64", "rpm/amd64": "x86_64", "rpm/arm64": "aarch64"}[format+"/"+runtime.GOARCH]
	files, err := filepath.Glob(filepath.Join(os.Getenv("LANEWAY_PACKAGES"), "*"+arch+"."+format))
	if err != nil || len(files) != 1 {
		t.Fatalf("packages %q, %v: make packages-test builds one", files, err)
	}
	return files[0]
}

// bot starts the installed gateway with a token, as the only program of its root, and has a conversation.
func bot(t *testing.T, root string) {
	t.Helper()
	telegram := testtelegram.New(testtelegram.Config{})
	api := httptest.NewServer(telegram)
	defer api.Close()
	telegram.AddPrivate(7, "Anna")
	program := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "/usr/bin/laneway", args...)
		cmd.Path, cmd.Err = "/usr/bin/laneway", nil // in the root, not on this machine
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
		cmd.Env = []string{"TELEGRAM_TOKEN=" + telegram.Token(), "LANEWAY_CHANNELS_TELEGRAM_API_URL=" + api.URL, "LANEWAY_LISTEN=127.0.0.1:28790", "LANEWAY_METRICS_LISTEN=off"}
		return cmd
	}
	if err := os.MkdirAll(filepath.Join(root, "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	serve := program("serve")
	var log bytes.Buffer
	serve.Stdout, serve.Stderr = &log, &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		if err := serve.Wait(); err != nil {
			t.Errorf("the end of the gateway: %v\n%s", err, log.String())
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	await := func(what string, ok func() bool) {
		if err := telegram.Await(ctx, ok); err != nil {
			t.Fatalf("%s: %v; the chat has %q", what, err, telegram.Texts(7))
		}
	}
	says := func(text string) func() bool {
		return func() bool { return strings.Contains(strings.Join(telegram.Texts(7), "\n"), text) }
	}
	await("the bot asks for messages", telegram.Polling)
	telegram.Say(7, 7, "hello")
	await("a code", says("laneway pair approve"))
	code := regexp.MustCompile(`laneway pair approve (?:<[^>]*>)*([A-Z0-9]{8})`).FindStringSubmatch(strings.Join(telegram.Texts(7), "\n"))
	if code == nil {
		t.Fatalf("no code in %q", telegram.Texts(7))
	}
	if out, err := program("pair", "approve", code[1]).CombinedOutput(); err != nil {
		t.Fatalf("pair approve: %v: %s", err, out)
	}
	telegram.Say(7, 7, "are you there?")
	await("an answer", says("are you there?"))
}
