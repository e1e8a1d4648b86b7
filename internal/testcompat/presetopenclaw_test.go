//go:build compat

package testcompat

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

const (
	openClawToken = "openclaw-0123456789-0123456789"
	// openClawConfig is what `openclaw onboard` writes for a model at an address, with the port of its gateway. Without the mode
	// in tools.exec, it runs every command without a question.
	openClawConfig = `{"agents": {"defaults": {"model": {"primary": "test/test"}, "models": {"test/test": {}}}}, "tools": {"exec": {"mode": "ask"}},
"gateway": {"mode": "local", "port": %d, "bind": "loopback", "auth": {"mode": "token", "token": "` + openClawToken + `"}},
"models": {"mode": "merge", "providers": {"test": {"baseUrl": "%s/v1", "api": "openai-completions", "apiKey": "sk-test-0123456789", "models": [
{"id": "test", "name": "test", "contextWindow": 128000, "maxTokens": 4096, "input": ["text", "image"], "reasoning": false}]}}}}`
)

// startOpenClaw starts the gateway of OpenClaw, to which its preset connects, and ends it with the test.
func startOpenClaw(t *testing.T, dir, home, model string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(home, ".openclaw"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(openClawConfig, listener.Addr().(*net.TCPAddr).Port, model)
	if err := os.WriteFile(filepath.Join(home, ".openclaw", "openclaw.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "node_modules", ".bin")
	gateway := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bin, "openclaw"), "gateway", "run")
	gateway.Env = []string{"HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH")}
	gateway.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := os.Create(filepath.Join(t.TempDir(), "openclaw.log"))
	if err != nil {
		t.Fatal(err)
	}
	gateway.Stdout, gateway.Stderr = said, said
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-gateway.Process.Pid, syscall.SIGKILL)
		_ = gateway.Wait() // it was killed
		_ = said.Close()
	})
	if !eventually(t, presetWait, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}) {
		raw, _ := os.ReadFile(said.Name())
		t.Fatalf("the gateway of OpenClaw does not listen:\n%s", raw)
	}
}
