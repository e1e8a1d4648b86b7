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

// nginxBinary is the nginx of the machine, or that of the Debian package, unpacked and not installed, so that no service starts.
func nginxBinary(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("nginx"); err == nil {
		return path
	}
	dir := t.TempDir()
	script := "apt-get download nginx && dpkg -x nginx_*.deb unpacked"
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("this test needs nginx (apt-get install nginx): %v\n%s", err, out)
	}
	return filepath.Join(dir, "unpacked", "usr", "sbin", "nginx")
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

// Behind an unmodified nginx a client without a credential gets no further than behind our own proxy, and one with the token does.
func TestBehindNginx(t *testing.T) {
	nginx, g, dir := nginxBinary(t), teste2e.Proxied(t), t.TempDir()
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
			t.Fatalf("nginx ended: %s", said)
		case <-deadline:
			t.Fatal("nginx does not listen")
		}
	}
}
