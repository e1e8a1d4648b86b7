//go:build compat

package testcompat

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// npmPackages are directories with npm packages. Each list of packages is installed once per test run.
type npmPackages struct {
	mu   sync.Mutex
	root string
	dirs map[string]string
}

var installed = npmPackages{dirs: map[string]string{}}

// remove deletes the directories at the end of the run.
func (p *npmPackages) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.root != "" {
		_ = os.RemoveAll(p.root) // leftovers are in the directory for temporary files
	}
}

// install returns the directory of packages. Only the installation scripts of the packages in scripts run.
func (p *npmPackages) install(ctx context.Context, packages, scripts []string) (dir string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := strings.Join(append(packages, scripts...), " ")
	if dir := p.dirs[key]; dir != "" {
		return dir, nil
	}
	if p.root == "" {
		if p.root, err = os.MkdirTemp("", "laneway-compat"); err != nil {
			return "", err
		}
	}
	dir = filepath.Join(p.root, strconv.Itoa(len(p.dirs)))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	commands := [][]string{append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts"}, packages...)}
	if len(scripts) > 0 {
		commands = append(commands, append([]string{"rebuild", "--foreground-scripts"}, scripts...))
	}
	for _, args := range commands {
		cmd := exec.CommandContext(ctx, "npm", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("npm %s (is the npm registry reachable?): %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	p.dirs[key] = dir
	return dir, nil
}

// npmInstall returns the directory of npm packages, after the installation scripts of the packages in scripts have run.
func npmInstall(t *testing.T, packages []string, scripts ...string) (dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), installTime)
	defer cancel()
	began := time.Now()
	dir, err := installed.install(ctx, packages, scripts)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: installed in %s", strings.Join(packages, ", "), time.Since(began).Round(time.Second))
	return dir
}
