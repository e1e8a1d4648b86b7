package teste2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Binary builds laneway once per test binary and returns its path.
func Binary(tb testing.TB) string {
	tb.Helper()
	if !hasProcesses(tb) {
		tb.Fatal("the binary is for tests that say NeedsProcesses")
	}
	path, err := build()
	if err != nil {
		tb.Fatalf("building laneway: %v", err)
	}
	return path
}

// build builds the binary once, buildPlain a second one as released: without the race detector, which needs many times the program's
// memory.
var (
	build = sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "laneway-e2e-")
		built.Store(true)
		if err == nil {
			err = os.Chmod(dir, 0o755) // some rows of the start-up matrix start it as another user
		}
		if err != nil {
			return "", err
		}
		return buildAs(filepath.Join(dir, "laneway"), raceFlag())
	})
	buildPlain = sync.OnceValues(func() (string, error) {
		path, err := build()
		if err != nil || len(raceFlag()) == 0 {
			return path, err
		}
		return buildAs(path+"-plain", nil)
	})
)

func buildAs(path string, flags []string) (string, error) {
	return path, buildProgram(path, "laneway/cmd/laneway", flags)
}

// building prevents that one scenario copies a program while another one writes it.
var building sync.Mutex

// buildProgram builds a package as `make build` does, without C; the race detector needs it.
func buildProgram(path, pkg string, flags []string) error {
	building.Lock()
	defer building.Unlock()
	if err := readSources(); err != nil {
		return err
	}
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), pkg)...)
	if len(flags) == 0 {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// readSources opens every directory of the module once. The go command caches the result of a test while its code and the files that it has
// read are the same; a program that a test builds is neither. For a directory that was read, it records the size and the time of each file.
var readSources = sync.OnceValue(func() error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("finding the module: %w", err)
	}
	root := strings.TrimSpace(string(out))
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && path != root && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		return err
	})
})

// built reports that there is a binary to remove.
var built atomic.Bool

// Remove deletes the built binary; TestMain calls it at the end.
func Remove() {
	if !built.Load() {
		return
	}
	if path, err := build(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
}
