//go:build packages

package testpackages

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/testpg"
)

// image is the part of an image archive that an engine reads.
type image struct {
	User        string
	Entrypoint  []string
	Cmd         []string
	Env         []string
	Healthcheck struct{ Test []string }
	StopSignal  string
}

// unpacked writes the files of the image to a directory, layer after layer, and returns its configuration.
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

// overTCP returns an address of a relay to a database at a Unix socket, which a program in another root cannot reach.
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

// The two gateways of compose's profile "replicas", as processes: the root directory, the user and the commands are those of the image.
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
