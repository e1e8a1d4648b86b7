//go:build packages

package testpackages

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/testpg"
	"laneway/internal/testtelegram"
)

// installed has the files of every package.
var installed = []string{
	"usr/bin/laneway", "usr/lib/systemd/system/laneway.service", "usr/lib/sysusers.d/laneway.conf", "etc/laneway/config.yaml", "usr/share/man/man1/laneway-cron-add.1",
	"usr/share/bash-completion/completions/laneway", "usr/share/fish/vendor_completions.d/laneway.fish", "usr/share/doc/laneway/copyright",
}

// From an empty root and the package alone to a bot that answers: install, start with a token,
// write, approve the code, write.
func TestAPackageInAnEmptyRootMakesABotThatAnswers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it changes into the root directory of the installation")
	}
	for format, install := range map[string]string{
		// dpkg runs the scripts of the package on this machine, with DPKG_ROOT. The scripts of an
		// rpm need a shell in the root, and are run below.
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

// bot starts the installed gateway with a token, as the only program of its root, and has a
// conversation.
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
		cmd.Env = []string{"TELEGRAM_TOKEN=" + telegram.Token(), "LANEWAY_CHANNELS_TELEGRAM_API_URL=" + api.URL, "LANEWAY_LISTEN=127.0.0.1:28790", "LANEWAY_METRICS_LISTEN=off", "HOME=/"}
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

// image is the part of an image archive that an engine reads.
type image struct {
	User        string
	Entrypoint  []string
	Cmd         []string
	Env         []string
	Healthcheck struct{ Test []string }
	StopSignal  string
}

// unpacked writes the files of the image to a directory, layer after layer, and returns its
// configuration.
func unpacked(t *testing.T, root string) image {
	t.Helper()
	dir := t.TempDir()
	untar(t, filepath.Join(os.Getenv("LANEWAY_PACKAGES"), "laneway_image.tar"), dir)
	var manifest []struct {
		Config string
		Layers []string
	}
	read := func(name string, into any) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatalf("%s of the image: %v", name, err)
		}
	}
	read("manifest.json", &manifest)
	for _, layer := range manifest[0].Layers {
		untar(t, filepath.Join(dir, layer), root)
	}
	var config struct{ Config image }
	read(manifest[0].Config, &config)
	return config.Config
}

func untar(t *testing.T, archive, dir string) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatalf("%v: make image writes it", err)
	}
	defer file.Close()
	for r := tar.NewReader(file); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, path)
		case tar.TypeReg:
			var out *os.File
			if out, err = os.Create(path); err == nil {
				_, err = io.Copy(out, r)
				err = errors.Join(err, out.Close())
			}
		}
		if h.Typeflag != tar.TypeSymlink {
			err = errors.Join(err, os.Chown(path, h.Uid, h.Gid), os.Chmod(path, os.FileMode(h.Mode)))
		}
		if err != nil {
			t.Fatalf("%s of %s: %v", h.Name, archive, err)
		}
	}
}

// overTCP returns an address of a relay to a database at a Unix socket, which a program in another
// root cannot reach.
func overTCP(t *testing.T, address string) string {
	t.Helper()
	cfg, err := pgconn.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { relay.Close() })
	network, at := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	go func() {
		for {
			client, err := relay.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial(network, at)
				if err != nil {
					return
				}
				defer server.Close()
				go func() {
					defer client.Close()
					_, _ = io.Copy(client, server)
				}()
				_, _ = io.Copy(server, client)
			}()
		}
	}()
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", cfg.User, cfg.Password, relay.Addr(), cfg.Database)
}

// The two gateways of compose's profile "replicas", as processes: the root directory, the user and
// the commands are those of the image.
func TestTwoGatewaysOfTheImageShareADatabase(t *testing.T) {
	root := t.TempDir()
	i := unpacked(t, root)
	if i.User != "65532:65532" || i.StopSignal != "SIGTERM" || !slices.Equal(i.Healthcheck.Test, []string{"CMD", "/usr/local/bin/laneway", "health"}) {
		t.Errorf("the image has the user %q, the signal %q and the health check %q", i.User, i.StopSignal, i.Healthcheck.Test)
	}
	for dir := root; dir != "/"; dir = filepath.Dir(dir) { // the user of the image must reach it
		if info, err := os.Stat(dir); err == nil && dir != root && info.Mode().Perm()&1 == 0 {
			if err := os.Chmod(dir, info.Mode()|0o111); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	database := overTCP(t, testpg.DB(t))
	program := func(listen string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), i.Entrypoint[0], args...)
		cmd.Path, cmd.Err, cmd.Dir = i.Entrypoint[0], nil, "/" // in the root, not on this machine
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		cmd.Env = append(slices.Clone(i.Env), "LANEWAY_DATABASE_URL="+database, "LANEWAY_LISTEN="+listen, "LANEWAY_TOKEN=0123456789abcdef0123456789abcdef", "LANEWAY_METRICS_LISTEN=main")
		return cmd
	}
	addresses := []string{"127.0.0.1:28791", "127.0.0.1:28792"}
	for _, listen := range addresses {
		gateway := program(listen, i.Cmd...)
		var log strings.Builder
		gateway.Stdout, gateway.Stderr = &log, &log
		if err := gateway.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = gateway.Process.Signal(syscall.SIGTERM)
			if err := gateway.Wait(); err != nil {
				t.Errorf("the end of the gateway on %s: %v\n%s", listen, err, log.String())
			}
		}()
		begun := time.Now()
		for { // as an engine does
			out, err := program(listen, i.Healthcheck.Test[2:]...).CombinedOutput()
			if err == nil {
				t.Logf("the gateway on %s is healthy after %v", listen, time.Since(begun).Round(time.Millisecond))
				break
			}
			if time.Since(begun) > time.Minute {
				t.Fatalf("the gateway on %s is not healthy: %v: %s\n%s", listen, err, out, log.String())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	if out, err := program(addresses[0], "send", "hello from the first").CombinedOutput(); err != nil || !strings.Contains(string(out), "hello from the first") {
		t.Errorf("send to the first gateway: %v: %s", err, out)
	}
	if out, err := program(addresses[1], "sessions", "show", "agent:main:main").CombinedOutput(); err != nil || !strings.Contains(string(out), "hello from the first") {
		t.Errorf("the sessions of the second gateway: %v: %s", err, out)
	}
}
