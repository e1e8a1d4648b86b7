package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASecondProcessIsRefusedUntilTheFirstHasGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "laneway.db")
	cmd := process(t, "hold", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, out, 1); len(got) != 1 || got[0] != "open" {
		t.Fatalf("the child says %q, want open", got)
	}
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		_, err := Open(t.Context(), Config{Path: name})
		if !errors.Is(err, ErrInUse) {
			t.Fatalf("a second process got %v, want ErrInUse", err)
		}
		for _, word := range []string{"--database", fmt.Sprintf("process %d", cmd.Process.Pid), dir} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("the refusal %q does not say %q", err, word)
			}
		}
	}
	if _, err := Migrate(t.Context(), Config{Path: path}, Down); !errors.Is(err, ErrInUse) {
		t.Errorf("a migration beside a running gateway got %v, want ErrInUse", err)
	}
	if steps, err := Migrate(t.Context(), Config{Path: path}, Status); err != nil || len(steps) == 0 || !steps[len(steps)-1].Applied {
		t.Errorf("the state of the migrations beside a running gateway: %+v, %v", steps, err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	openAt(t, path, nil)
}

func TestASecondStoreInTheSameProcessIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	if _, err := Open(t.Context(), Config{Path: s.path}); !errors.Is(err, ErrInUse) {
		t.Fatalf("got %v, want ErrInUse", err)
	}
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "b", "laneway.db")
	s := openAt(t, path, nil)
	register(t, s, "node")
	for name, want := range map[string]os.FileMode{
		path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600, path + ".lock": 0o600, filepath.Dir(path): 0o700 | os.ModeDir,
	} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}
}

func TestAPathMayHaveAnyCharacters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "who? 100% #1 ü", "lane&way=.db")
	s := openAt(t, path, nil)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}
