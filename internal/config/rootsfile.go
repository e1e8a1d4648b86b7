package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// rootsFile refuses root a configuration file that another user can change or replace: the file names the programs that the gateway starts, see ADR 0074. A
// gateway with a user of its own gives no more away than the rights of that user.
func (p *preflight) rootsFile() {
	if p.loaded.File == "" || p.loaded.as.uid != 0 {
		return
	}
	paths := []string{p.loaded.File}
	if target, err := filepath.EvalSymlinks(p.loaded.File); err == nil && target != filepath.Clean(p.loaded.File) {
		paths = append(paths, target) // the link can be replaced, and so can what it points to
	}
	for _, path := range paths {
		file, err := os.Lstat(path)
		if err != nil {
			continue // the file was read: another refusal reports it when it is gone
		}
		dir, err := os.Stat(filepath.Dir(path))
		if err != nil {
			continue
		}
		if why := changeable(path, heldBy(file), heldBy(dir)); why != "" {
			p.refuse("configuration file %s %s", path, why)
			return
		}
	}
}

// held is who can change a file or the entries of a directory.
type held struct {
	uid, gid int
	known    bool
	mode     fs.FileMode
}

func heldBy(info fs.FileInfo) held {
	uid, gid, known := ownerOf(info)
	return held{uid, gid, known, info.Mode()}
}

// loose reports whether a user other than root may write by the mode. The group root is root's.
func (h held) loose() bool {
	return h.mode.Perm()&0o002 != 0 || h.mode.Perm()&0o020 != 0 && h.gid != 0
}

// changeable is how a user other than root can change or replace a file of root, and the cure; "" = none can. In a directory with the sticky bit only the owner of a file
// and the owner of the directory can replace it.
func changeable(path string, file, dir held) string {
	at := filepath.Dir(path)
	switch {
	case !file.known || !dir.known:
		return ""
	case file.uid != 0:
		return fmt.Sprintf("belongs to user %s, who could choose what root runs; run: chown root %s, or start the gateway as that user", userName(file.uid), path)
	case file.mode&fs.ModeSymlink == 0 && file.loose(): // the mode of a link means nothing
		return fmt.Sprintf("has mode %04o, so others could choose what root runs; run: chmod go-w %s", file.mode.Perm(), path)
	case dir.uid != 0:
		return fmt.Sprintf("is in %s, which belongs to user %s, who could replace it; move it, or start the gateway as that user", at, userName(dir.uid))
	case dir.loose() && dir.mode&fs.ModeSticky == 0:
		return fmt.Sprintf("is in %s with mode %04o, so others could replace it; run: chmod go-w %s", at, dir.mode.Perm(), at)
	}
	return ""
}
