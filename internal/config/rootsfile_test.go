package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOthersCanChangeAFileOfRootByItsOwnerItsModeAndItsDirectory(t *testing.T) {
	t.Parallel()
	of := func(uid, gid int, mode fs.FileMode) ownership { return ownership{uid, gid, true, mode} }
	for name, c := range map[string]struct {
		file, dir ownership
		want      string
	}{
		"root's":                                    {of(0, 0, 0o600), of(0, 0, 0o755), ""},
		"root's, readable":                          {of(0, 4242, 0o640), of(0, 4242, 0o750), ""},
		"the group root may write":                  {of(0, 0, 0o660), of(0, 0, 0o775), ""},
		"of another user":                           {of(4242, 0, 0o600), of(0, 0, 0o755), "belongs to user 4242"},
		"a group may write":                         {of(0, 4242, 0o660), of(0, 0, 0o755), "has mode 0660"},
		"everyone may write":                        {of(0, 0, 0o666), of(0, 0, 0o755), "has mode 0666"},
		"in the directory of another user":          {of(0, 0, 0o600), of(4242, 4242, 0o700), "which belongs to user 4242"},
		"in a directory for everyone":               {of(0, 0, 0o600), of(0, 0, 0o777), "with mode 0777"},
		"in a directory for a group":                {of(0, 0, 0o600), of(0, 4242, 0o770), "with mode 0770"},
		"in a sticky directory":                     {of(0, 0, 0o600), of(0, 0, 0o777|fs.ModeSticky), ""},
		"of another user in a sticky directory":     {of(4242, 0, 0o600), of(0, 0, 0o777|fs.ModeSticky), "belongs to user 4242"},
		"a link":                                    {of(0, 0, 0o777|fs.ModeSymlink), of(0, 0, 0o755), ""},
		"a link of another user in a sticky folder": {of(4242, 0, 0o777|fs.ModeSymlink), of(0, 0, 0o777|fs.ModeSticky), "belongs to user 4242"},
		"on a system without owners":                {ownership{}, ownership{}, ""},
	} {
		if got := changeable("/etc/laneway/config.yaml", c.file, c.dir); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q in it", name, got, c.want)
		}
	}
}

// A gateway of root refuses a file of another user that other gateways accept.
func TestOnlyRootRefusesAFileThatOthersCanReplace(t *testing.T) {
	t.Parallel()
	open, closed := filepath.Join(t.TempDir(), "open"), filepath.Join(t.TempDir(), "closed")
	for dir, mode := range map[string]os.FileMode{open: 0o777, closed: 0o755} {
		err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("listen: [127.0.0.1:0]\n"), 0o600), os.Chmod(dir, mode))
		if err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(closed, "link.yaml")
	if err := os.Symlink(filepath.Join(open, "config.yaml"), link); err != nil {
		t.Fatal(err)
	}
	root := os.Geteuid() == 0
	for path, refused := range map[string]bool{filepath.Join(open, "config.yaml"): root, link: root, filepath.Join(closed, "config.yaml"): false} {
		loaded, err := Load(Options{File: path, Flags: []Setting{{Path: "data", Values: []string{t.TempDir()}}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Preflight(loaded)
		if (err != nil && strings.Contains(err.Error(), "so others could replace it")) != refused {
			t.Errorf("%s: %v, want a refusal: %t", path, err, refused)
		}
	}
}
