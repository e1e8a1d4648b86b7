package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// rootsFile refuses, for root, a configuration file that another user can change or replace: the file names the programs that the gateway
// starts, see ADR 0074. A gateway that does not run as root can grant only the permissions of its own user.
func (p *preflight) rootsFile() {
	if p.loaded.File == "" || p.loaded.as.uid != 0 {
		return
	}
	paths := []string{p.loaded.File}
	if target, err := filepath.EvalSymlinks(p.loaded.File); err == nil && target != filepath.Clean(p.loaded.File) {
		paths = append(paths, target) // the link can be replaced, and so can its target
	}
	for _, path := range paths {
		file, err := os.Lstat(path)
		if err != nil {
			continue // the file was read; if it is missing now, another check reports it
		}
		dir, err := os.Stat(filepath.Dir(path))
		if err != nil {
			continue
		}
		if why := changeable(path, ownershipOf(file), ownershipOf(dir)); why != "" {
			p.refuse("configuration file %s %s", path, why)
			return
		}
	}
}

// ownership is the ownership and mode of a file or directory, which decide who can change it.
type ownership struct {
	uid, gid int
	known    bool
	mode     fs.FileMode
}

func ownershipOf(info fs.FileInfo) ownership {
	uid, gid, known := ownerOf(info)
	return ownership{uid, gid, known, info.Mode()}
}

// loose reports whether the mode lets a user other than root write. The group root does not count.
func (h ownership) loose() bool {
	return h.mode.Perm()&0o002 != 0 || h.mode.Perm()&0o020 != 0 && h.gid != 0
}

// changeable describes how a user other than root can change or replace a file of root, and the fix; "" when none can. In a directory with
// the sticky bit, only the owner of a file and the owner of the directory can replace it.
func changeable(path string, file, dir ownership) string {
	at := filepath.Dir(path)
	switch {
	case !file.known || !dir.known:
		return ""
	case file.uid != 0:
		return fmt.Sprintf("belongs to user %s, who could choose what root runs; run: chown root %s, or start the gateway as that user", userName(file.uid), path)
	case file.mode&fs.ModeSymlink == 0 && file.loose(): // the mode of a link has no effect
		return fmt.Sprintf("has mode %04o, so others could choose what root runs; run: chmod go-w %s", file.mode.Perm(), path)
	case dir.uid != 0:
		return fmt.Sprintf("is in %s, which belongs to user %s, who could replace it; move it, or start the gateway as that user", at, userName(dir.uid))
	case dir.loose() && dir.mode&fs.ModeSticky == 0:
		return fmt.Sprintf("is in %s with mode %04o, so others could replace it; run: chmod go-w %s", at, dir.mode.Perm(), at)
	}
	return ""
}
