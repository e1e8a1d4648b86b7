//go:build compat

package testcompat

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Every frame sent in the standard view matches the published schema, and every published param is accepted.
func TestStandardViewIsValidAgainstThePublishedSchema(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		dir := clients(t)
		g := begin(t, database, "")
		stop := func(line string) {
			if line == "stop the gateway now" {
				g.Signal(syscall.SIGTERM)
			}
		}
		drive(t, stop, node(dir), filepath.Join(dir, "schema.mjs"), socketURL(g), adminToken, readToken)
	})
}

func TestNpmClientConnectsChatsAndResumes(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		dir := clients(t)
		drive(t, nil, node(dir), filepath.Join(dir, "client.mjs"), socketURL(begin(t, database, "")), adminToken)
	})
}

func TestPythonClientConnectsChatsAndResumes(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("there is no python3: %v", err)
	}
	onBothStores(t, func(t *testing.T, database string) {
		drive(t, nil, python, filepath.Join("..", "..", "compat", "client.py"), socketURL(begin(t, database, "")), writeToken)
	})
}

func TestPageInABrowserConnectsChatsAndResumes(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		dir := clients(t)
		drive(t, nil, node(dir), filepath.Join(dir, "browser.mjs"), socketURL(begin(t, database, "")), adminToken)
	})
}
