//go:build packages

package testpackages

import (
	"archive/tar"
	"bytes"
	"cmp"
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

// From an empty root and the package alone to a bot that answers, with the commands of the pages:
// install, start with a token, write, approve the code, write. Debian's root is the smallest that
// mmdebstrap makes, and dpkg and install.sh are its own.
func TestAPackageInAnEmptyRootMakesABotThatAnswers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it changes into the root directory of the installation")
	}
	debian := filepath.Join(t.TempDir(), "debian.tar")
	if out, err := exec.CommandContext(t.Context(), "mmdebstrap", "--quiet", "--variant=minbase", "bookworm", debian).CombinedOutput(); err != nil {
		t.Fatalf("mmdebstrap: %v\n%s", err, out)
	}
	const own = "/home/anna/.local/bin/laneway"
	for format, c := range map[string]struct {
		install, program string
		files            []string
		first            []string // what the pages say to do before the start
	}{
		"deb": {
			install: `cp "$PACKAGE" tmp/laneway.deb && chroot . dpkg -i /tmp/laneway.deb && grep -q ^laneway: etc/passwd`,
			program: "/usr/bin/laneway", files: installed, first: []string{"config", "init"},
		},
		// The scripts of an rpm need the shell of its own system.
		"rpm": {
			install: `rpm --root "$PWD" --initdb && rpm --root "$PWD" --nodeps --noscripts --ignorearch -i "$PACKAGE" && rpm --root "$PWD" -q --scripts laneway | grep -q systemd-sysusers`,
			program: "/usr/bin/laneway", files: installed, first: []string{"config", "init"},
		},
		"install.sh": {
			install: `mkdir -p tmp/release home/anna && chown 1000:1000 home/anna && cp "$PACKAGE"/install.sh "$PACKAGE"/SHA256SUMS "$PACKAGE"/*.tar.gz tmp/release &&
				chroot --userspec=1000:1000 . env -i HOME=/home/anna PATH=/usr/bin sh /tmp/release/install.sh`,
			program: own, files: []string{own},
		},
	} {
		t.Run(format, func(t *testing.T) {
			root := t.TempDir()
			if format != "rpm" {
				untar(t, debian, root)
				devNull(t, root)
			}
			in := exec.CommandContext(t.Context(), "sh", "-euc", c.install)
			in.Dir, in.Env = root, append(os.Environ(), "PACKAGE="+packageFile(t, format))
			begun := time.Now()
			if out, err := in.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", c.install, err, out)
			}
			t.Logf("installed after %v", time.Since(begun).Round(time.Millisecond))
			for _, path := range c.files {
				if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Size() == 0 {
					t.Errorf("%s: %v", path, err)
				}
			}
			if unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/laneway.service")); format != "install.sh" && (err != nil || !bytes.Contains(unit, []byte("ExecStart=/usr/bin/laneway serve"))) {
				t.Errorf("the unit does not start the program of the package: %v", err)
			}
			bot(t, root, c.program, c.first)
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

// bot starts the installed gateway with a token, as a user without rights, after the first command,
// and has a conversation.
func bot(t *testing.T, root, path string, first []string) {
	t.Helper()
	telegram := testtelegram.New(testtelegram.Config{})
	api := httptest.NewServer(telegram)
	defer api.Close()
	telegram.AddPrivate(7, "Anna")
	// The root may be below a directory of the test that only root reaches, and have no /tmp.
	const home = "/home/anna"
	if err := errors.Join(os.MkdirAll(filepath.Join(root, home), 0o755), os.Chown(filepath.Join(root, home), 1000, 1000), os.MkdirAll(filepath.Join(root, "tmp"), 0o777), reachable(root)); err != nil {
		t.Fatal(err)
	}
	program := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Path, cmd.Err = path, nil // in the root, not on this machine
		cmd.Dir, cmd.SysProcAttr = home, &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		cmd.Env = []string{"TELEGRAM_TOKEN=" + telegram.Token(), "LANEWAY_CHANNELS_TELEGRAM_API_URL=" + api.URL, "LANEWAY_LISTEN=127.0.0.1:28790", "LANEWAY_METRICS_LISTEN=off", "HOME=" + home}
		return cmd
	}
	if first != nil {
		if out, err := program(first...).CombinedOutput(); err != nil {
			t.Fatalf("laneway %q: %v: %s", first, err, out)
		}
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
	WorkingDir  string
	Healthcheck struct{ Test []string }
	StopSignal  string
}

// unpacked writes the files of the image to a directory that its user can reach, layer after layer,
// and returns the directory and the image's configuration.
func unpacked(t *testing.T, archive string) (root string, config image) {
	t.Helper()
	dir, root := t.TempDir(), t.TempDir()
	untar(t, filepath.Join(os.Getenv("LANEWAY_PACKAGES"), archive), dir)
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
	if err := reachable(root); err != nil {
		t.Fatal(err)
	}
	var whole struct{ Config image }
	read(manifest[0].Config, &whole)
	if i := whole.Config; i.User != "65532:65532" || i.StopSignal != "SIGTERM" || !slices.Equal(i.Healthcheck.Test, []string{"CMD", "/usr/local/bin/laneway", "health"}) {
		t.Errorf("%s has the user %q, the signal %q and the health check %q", archive, i.User, i.StopSignal, i.Healthcheck.Test)
	}
	return root, whole.Config
}

// program is a command of the image, with its root directory, user, directory and variables.
func (i image) program(ctx context.Context, root string, env []string, command ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Path, cmd.Err, cmd.Dir = command[0], nil, cmp.Or(i.WorkingDir, "/") // in the root, not on this machine
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	cmd.Env = slices.Concat(i.Env, env)
	return cmd
}

// serve starts the gateway of the image and waits until it is healthy, as an engine does. It is
// stopped with the test.
func (i image) serve(t *testing.T, root string, env []string) {
	t.Helper()
	gateway := i.program(t.Context(), root, env, append(slices.Clone(i.Entrypoint), i.Cmd...)...)
	var log bytes.Buffer
	gateway.Stdout, gateway.Stderr = &log, &log
	gateway.Cancel, gateway.WaitDelay = func() error { return gateway.Process.Signal(syscall.SIGTERM) }, time.Minute
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the context of the test is done
		if err := gateway.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the end of the gateway: %v\n%s", err, log.String())
		}
	})
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		out, err := i.program(t.Context(), root, env, i.Healthcheck.Test[1:]...).CombinedOutput()
		if err == nil {
			t.Logf("healthy after %v", time.Since(begun).Round(time.Millisecond))
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("the gateway is not healthy: %v: %s", err, out)
		}
	}
}

// devNull makes the device that programs expect, in a root in which nothing is mounted.
func devNull(t *testing.T, root string) {
	t.Helper()
	path := filepath.Join(root, "dev/null")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), syscall.Mknod(path, syscall.S_IFCHR, 1<<8|3), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
}

// reachable opens the directories of a test, which only root may enter, down to one of them.
func reachable(dir string) error {
	for ; dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err == nil && info.Mode().Perm()&5 != 5 {
			err = os.Chmod(dir, info.Mode()|0o555)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
		case tar.TypeLink:
			err = os.Link(filepath.Join(dir, filepath.FromSlash(h.Linkname)), path)
		case tar.TypeReg:
			var out *os.File
			if out, err = os.Create(path); err == nil {
				_, err = io.Copy(out, r)
				err = errors.Join(err, out.Close())
			}
		default: // devices
			continue
		}
		if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeReg {
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
	root, i := unpacked(t, "laneway_image.tar")
	database := overTCP(t, testpg.DB(t))
	env := func(listen string) []string {
		return []string{"LANEWAY_DATABASE_URL=" + database, "LANEWAY_LISTEN=" + listen, "LANEWAY_TOKEN=0123456789abcdef0123456789abcdef", "LANEWAY_METRICS_LISTEN=main"}
	}
	first, second := env("127.0.0.1:28791"), env("127.0.0.1:28792")
	i.serve(t, root, first)
	i.serve(t, root, second)
	says := func(env []string, args ...string) {
		t.Helper()
		out, err := i.program(t.Context(), root, env, append(slices.Clone(i.Entrypoint), args...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "hello from the first") {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
	says(first, "send", "hello from the first")
	says(second, "sessions", "show", "agent:main:main")
}

// fakeClaude is an agent of the Agent Client Protocol for the image's Node.js, under the name that
// the preset claude starts. It answers with what it has: its Node.js, git, and the text.
const fakeClaude = `#!/usr/bin/env node
const git = require("child_process").execFileSync("git", ["--version"], {encoding: "utf8"}).trim();
const write = (message) => process.stdout.write(JSON.stringify({jsonrpc: "2.0", ...message}) + "\n");
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const {id, method, params} = JSON.parse(line);
  if (id === undefined) return;
  switch (method) {
    case "initialize": return write({id, result: {protocolVersion: 1, agentCapabilities: {}, authMethods: []}});
    case "session/new": return write({id, result: {sessionId: "one"}});
    case "session/prompt": {
      const text = "node " + process.versions.node + ", " + git + ", " + process.cwd() + ", you said: " + params.prompt.at(-1).text;
      write({method: "session/update", params: {sessionId: params.sessionId, update: {sessionUpdate: "agent_message_chunk", content: {type: "text", text}}}});
      return write({id, result: {stopReason: "end_turn"}});
    }
    default: return write({id, error: {code: -32601, message: "Method not found"}});
  }
});
`

// A preset starts in the image for agents, with the Node.js and git of the image.
func TestAPresetStartsInTheImageForAgents(t *testing.T) {
	root, i := unpacked(t, "laneway_agents_image.tar")
	devNull(t, root)
	// The program of this name may be the image's own, which needs an account.
	agent := filepath.Join(root, "usr/local/bin/claude-agent-acp")
	if err := errors.Join(os.RemoveAll(agent), os.WriteFile(agent, []byte(fakeClaude), 0o755)); err != nil {
		t.Fatal(err)
	}
	env := []string{"LANEWAY_AGENT=claude", "LANEWAY_LISTEN=127.0.0.1:28793", "LANEWAY_METRICS_LISTEN=off"}
	i.serve(t, root, env)
	out, err := i.program(t.Context(), root, env, append(slices.Clone(i.Entrypoint), "send", "hello from the container")...).Output()
	if err != nil || !regexp.MustCompile(`^node 22\.[0-9.]+, git version 2\.[0-9.]+, /work, you said: hello from the container\n$`).Match(out) {
		t.Errorf("send: %v: %q", err, out)
	}
	t.Logf("answer: %s", out)
}
