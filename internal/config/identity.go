package config

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// identity is the user whose access to files is checked. A gateway checks its own access. A command that root runs beside a gateway checks
// the access of the gateway's user, so that its advice is right for the gateway. A client only reads, and accepts every file that it can
// read.
type identity struct {
	uid int
	// inGroup reports whether the user is in a group.
	inGroup func(gid int) bool
	// reads: a client reads the file, so its owner does not matter. A gateway refuses the file of another user, who could replace the
	// secret.
	reads bool
	// beside: the process is a command beside a gateway of another user.
	beside bool
	// credentials is the directory in which a service manager provides secrets, or "".
	credentials string
}

// thisProcess returns the identity of a gateway in this process.
func thisProcess(lookupEnv func(string) (string, bool)) identity {
	dir, _ := lookupEnv("CREDENTIALS_DIRECTORY")
	return identity{uid: os.Geteuid(), inGroup: ourGroup, credentials: dir}
}

// client returns the identity of a command that reads a secret to send it to a gateway. Root may read every file.
func client() identity {
	return identity{uid: os.Geteuid(), reads: true, inGroup: func(gid int) bool { return os.Geteuid() == 0 || ourGroup(gid) }}
}

// ownerIdentity returns the user that owns a data directory. ok is false when the owner is unknown or root, or the directory does not
// exist: the user of the gateway is then unknown.
func ownerIdentity(data string) (as identity, ok bool) {
	info, err := os.Stat(data)
	if err != nil {
		return identity{}, false
	}
	uid, gid, known := ownerOf(info)
	if !known || uid == 0 {
		return identity{}, false
	}
	groups := []string{strconv.Itoa(gid)}
	if account, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		groups = append(groups, account.Gid)
		if more, err := account.GroupIds(); err == nil {
			groups = append(groups, more...)
		}
	}
	return identity{uid: uid, inGroup: func(gid int) bool { return slices.Contains(groups, strconv.Itoa(gid)) }}, true
}

// provided reports whether the service manager provided the file for this process. With systemd, such a file has the owner root and an
// access list for the service's user, which appears in the mode as group permissions. The directory must not be accessible to other users.
func (as identity) provided(path string, owner int) bool {
	dir := filepath.Dir(path)
	ours := as.credentials != "" && dir == filepath.Clean(as.credentials) || strings.HasPrefix(dir, credentialsRoot)
	if !ours || owner != 0 {
		return false
	}
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	uid, _, known := ownerOf(info)
	return known && (uid == 0 || uid == as.uid) && modeOf(info)&0o027 == 0
}

// mounted reports whether a file is a secret that a container engine mounts: one of root's below the directories for them, which only root fills. Engines give them to
// everybody in the container. Kubernetes mounts links within such a directory.
func (as identity) mounted(path string, owner int) bool {
	if owner != 0 {
		return false
	}
	at, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for _, root := range []string{"/run/secrets", "/var/run/secrets", as.credentials} {
		target, err := filepath.EvalSymlinks(root)
		if root != "" && err == nil && below(filepath.Clean(root), filepath.Clean(path)) && below(target, at) {
			return true
		}
	}
	return false
}

// below reports whether a clean path is inside of a directory.
func below(dir, path string) bool { return strings.HasPrefix(path, dir+string(filepath.Separator)) }

// credentialsRoot has the directories of systemd's credentials, one for each unit.
const credentialsRoot = "/run/credentials/"

// mayRead reports whether the user can read a file, according to its info.
func (as identity) mayRead(path string, info fs.FileInfo) bool {
	owner, group, known := ownerOf(info)
	perm := modeOf(info)
	return !known || as.uid == os.Geteuid() || as.provided(path, owner) || as.uid == 0 || perm&0o004 != 0 || owner == as.uid && perm&0o400 != 0 || as.inGroup(group) && perm&0o040 != 0
}

// groupName returns the name of the user's primary group, or its number; "" when it is unknown.
func (as identity) groupName() string {
	account, err := user.LookupId(strconv.Itoa(as.uid))
	if err != nil {
		return ""
	}
	group, err := user.LookupGroupId(account.Gid)
	if err != nil {
		return account.Gid
	}
	return group.Name
}

// userName returns the name of a user with its number, such as `laneway (998)`.
func userName(uid int) string {
	number := strconv.Itoa(uid)
	account, err := user.LookupId(number)
	if err != nil {
		return number
	}
	return account.Username + " (" + number + ")"
}
