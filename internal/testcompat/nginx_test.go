//go:build compat

package testcompat

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"laneway/internal/teste2e"
)

// debianProgram returns the path of a program on the machine, or else from the Debian package of that name, which is unpacked and not installed, so that no service starts.
func debianProgram(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", "apt-get download "+name+" && dpkg -x "+name+"_*.deb unpacked")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("this test needs %s (apt-get install %s): %v\n%s", name, name, err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "unpacked", "usr", "*bin", name))
	if err != nil || len(found) != 1 {
		t.Fatalf("the package has %q, %v", found, err)
	}
	return found[0]
}

const nginxConfig = `daemon off; pid DIR/pid; error_log DIR/error.log; worker_processes 1; master_process off;
events {}
http {
  access_log off; client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;
  map $http_upgrade $upgrade { default upgrade; '' close; }
  server {
    listen PORT;
    location / {
      proxy_pass URL; proxy_http_version 1.1; proxy_read_timeout 60s;
      proxy_set_header Host gateway.example; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $upgrade;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;
    }
  }
}
`

// Behind an unmodified nginx, a client without a credential is refused as behind our own proxy, and a client with the token is accepted.
func TestBehindNginx(t *testing.T) {
	nginx, g, dir := debianProgram(t, "nginx"), teste2e.Proxied(t), t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	text := strings.NewReplacer("DIR", dir, "PORT", address, "URL", g.URL()).Replace(nginxConfig)
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(nginx, "-p", dir, "-c", config)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	await(t, address, ended, &said)
	teste2e.CheckWithoutCredential(t, address, []string{"health", "status", "chat.send", "cron.add", "sessions.list"})
	c, err := teste2e.Dial("http://"+address, g.Token(), nil)
	if err != nil {
		t.Fatalf("with the token: %v", err)
	}
	defer c.Close()
	if _, err := c.Call("status", map[string]any{}, 20*time.Second); err != nil {
		t.Errorf("with the token: %v", err)
	}
}

// await returns when the proxy listens.
func await(t *testing.T, address string, ended <-chan struct{}, said *strings.Builder) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(20 * time.Second); ; {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-again.C:
		case <-ended:
			t.Fatalf("the proxy ended: %s", said)
		case <-deadline:
			t.Fatal("the proxy does not listen")
		}
	}
}
