//go:build unix

package config

import (
	"io/fs"
	"syscall"
)

func ownerOf(info fs.FileInfo) (uid, gid int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(stat.Uid), int(stat.Gid), true
}

// modeOf returns the permissions of owner, group and others.
func modeOf(info fs.FileInfo) fs.FileMode { return info.Mode().Perm() }
