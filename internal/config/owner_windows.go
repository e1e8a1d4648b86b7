package config

import "io/fs"

// The owner is unknown on Windows.
func ownerOf(fs.FileInfo) (uid, gid int, known bool) { return 0, 0, false }

// modeOf returns 0: Windows has access lists instead of modes, and they are not checked. The
// profile of a user is not accessible to other users by default.
func modeOf(fs.FileInfo) fs.FileMode { return 0 }
