//go:build compat

package testcompat

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/teste2e"
)

// debianProgram returns the path of a program on the machine, or else from the Debian package of
// that name, which is unpacked and not installed, so that no service starts.
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

// Behind an unmodified nginx, a client without a credential is refused as behind our own proxy, and
// a client with the token is accepted.
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

// A proxy with the unchanged settings of docs/reverse-proxy.md is in front of a gateway: TLS, a
// path, and a WebSocket with an Origin.
func TestTheSettingsOfTheProxyPageWork(t *testing.T) {
	page, err := os.ReadFile("../../docs/reverse-proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, proxy := range []struct{ language, header, footer string }{
		{"nginx", "daemon off; pid DIR/pid; error_log DIR/error.log; master_process off;\nevents {}\nhttp {\naccess_log off; client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;\n", "}\n"},
		{"caddyfile", "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n", ""},
	} {
		t.Run(proxy.language, func(t *testing.T) {
			block := regexp.MustCompile("(?s)```" + proxy.language + "\n(.*?)```").FindStringSubmatch(string(page))
			if block == nil {
				t.Fatal("the page has no such block")
			}
			g, dir := teste2e.Proxied(t), t.TempDir()
			address := freeAddress(t)
			_, port, _ := net.SplitHostPort(address)
			certificate(t, dir)
			text := strings.NewReplacer("DIR", dir, "listen 443", "listen "+address, "http://127.0.0.1:18790", g.URL(), "127.0.0.1:18790", strings.TrimPrefix(g.URL(), "http://"),
				"/etc/ssl/", dir+"/", "gateway.example {", "https://gateway.example:"+port+" {\n\tbind 127.0.0.1\n\ttls "+dir+"/gateway.example.pem "+dir+"/gateway.example.key").
				Replace(proxy.header + block[1] + proxy.footer)
			config := filepath.Join(dir, "config")
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(debianProgram(t, "nginx"), "-p", dir, "-c", config)
			if proxy.language == "caddyfile" {
				cmd = exec.Command(debianProgram(t, "caddy"), "run", "--adapter", "caddyfile", "--config", config)
			}
			cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
			var said strings.Builder
			cmd.Stdout, cmd.Stderr = &said, &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { _ = cmd.Wait(); close(ended) }()
			defer func() { _ = cmd.Process.Kill(); <-ended }()
			await(t, address, ended, &said)
			checkPath(t, address, g.Token())
		})
	}
}

// checkPath calls the gateway below the path, as a browser does.
func checkPath(t *testing.T, address, token string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(address)
	toProxy := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	insecure := &tls.Config{InsecureSkipVerify: true, ServerName: "gateway.example"}
	client := http.Client{Transport: &http.Transport{DialContext: toProxy, TLSClientConfig: insecure}}
	base := "https://gateway.example:" + port + "/laneway/"
	for path, want := range map[string]string{"": `"app.js"`, "dashboard": `"app.js"`, "dashboard/app.js": "./rpc.js", "healthz": "ok"} {
		resp, err := client.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d, %v: %.200s", path, resp.StatusCode, err, body)
		}
	}
	dialer := websocket.Dialer{NetDialContext: toProxy, TLSClientConfig: insecure, HandshakeTimeout: 10 * time.Second}
	for origin, want := range map[string]int{"https://gateway.example:" + port: http.StatusSwitchingProtocols, "https://other.example": http.StatusForbidden} {
		ws, resp, err := dialer.Dial("wss://gateway.example:"+port+"/laneway/ws", http.Header{"Origin": {origin}})
		if resp == nil {
			t.Fatalf("a socket from %s: %v", origin, err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a socket from %s: %v, %v, want %d", origin, resp, err, want)
		}
		if ws != nil {
			if _, first, err := ws.ReadMessage(); err != nil || !strings.Contains(string(first), "challenge") {
				t.Errorf("the first frame is %q, %v", first, err)
			}
			_ = ws.Close()
		}
	}
	req, err := http.NewRequest(http.MethodGet, base+"v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("models: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// certificate writes gateway.example.pem and .key, self-signed.
func certificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gateway.example"}, DNSNames: []string{"gateway.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"pem": {Type: "CERTIFICATE", Bytes: signed}, "key": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(dir, "gateway.example."+name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
