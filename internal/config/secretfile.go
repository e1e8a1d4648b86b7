package config

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"laneway/internal/secret"
)

// tokenName is the file of the generated token in the data directory.
const tokenName = "token"

// TokenPath returns the file of the generated token of a data directory.
func TokenPath(data string) string { return filepath.Join(data, tokenName) }

// ReadSecretFile reads a file with one token, for a client on the same host. It may belong to any
// user, and no other user may read it. The error is [FaultsError] when the file is missing, empty,
// accessible to others, or cannot be read.
func ReadSecretFile(path string) (secret.Secret, error) { return readToken(path, client()) }

func readToken(path string, as identity) (secret.Secret, error) {
	text, err := readSecretFile(path, "token file", as)
	if err != nil {
		return secret.Secret{}, err
	}
	var s secret.Secret
	if err := s.UnmarshalText(text); err != nil {
		return secret.Secret{}, refuse("token file %s %s", path, err)
	}
	return s, nil
}

// refuse returns one complete sentence as [FaultsError].
func refuse(format string, args ...any) error {
	return FaultsError{{Message: fmt.Sprintf(format, args...), Whole: true}}
}

// checkSecretMode refuses a file that is not regular or that others can open, and, for a gateway, a
// file of another user, because its owner can change it. The file may belong to root, and a group
// of the user may read it, as with a secret from a service manager or a mounted volume; others may
// read one that a container engine mounts.
func checkSecretMode(path, noun string, info fs.FileInfo, as identity) error {
	if err := checkRegular(path, noun, info); err != nil {
		return err
	}
	perm := modeOf(info)
	owner, group, known := ownerOf(info)
	if strings.HasPrefix(filepath.Dir(path), credentialsRoot) && !as.reads && !as.provided(path, owner) {
		return refuse("%s %s is a credential of the unit of another user; start the gateway with systemctl", noun, path)
	}
	if known && perm&0o137 == 0o004 && as.mounted(path, owner) {
		return nil
	}
	if perm&0o027 != 0 && known && owner == 0 && as.uid != 0 && !as.reads {
		return refuse("%s %s has mode %04o and belongs to root; mount it with mode 0440 and a group of user %s (Compose: mode and gid; Kubernetes: defaultMode and fsGroup), "+
			"or below /run/secrets, or give the secret in a variable", noun, path, perm, userName(as.uid))
	}
	if perm&0o027 != 0 || perm&0o050 != 0 && (!known || !as.inGroup(group) && !as.provided(path, owner)) {
		return refuse("%s %s has mode %04o; run: chmod 600 %s", noun, path, perm, path)
	}
	if known && owner != as.uid && owner != 0 && !as.reads {
		return refuse("%s %s belongs to user %s; name a file of user %s or of root", noun, path, userName(owner), userName(as.uid))
	}
	return nil
}

// CheckToken checks the file of the token for the gateway's user: the file that the configuration
// names, or that of the data directory. path is the file. The error wraps fs.ErrNotExist when it
// does not exist, and is [FaultsError] when the gateway would refuse it.
func (l *Loaded) CheckToken() (path string, err error) {
	path = cmp.Or(l.Config.TokenFile, TokenPath(l.Config.Data))
	info, err := os.Stat(path)
	if err != nil {
		return path, err
	}
	if err := checkSecretMode(path, "token file", info, l.as); err != nil {
		return path, err
	}
	if !l.as.mayRead(path, info) {
		return path, l.as.unreadable("token file", path, "user "+userName(l.as.uid)+" has no right")
	}
	return path, nil
}

// unreadable returns the error for a secret that the user may not read. It never advises changing
// the owner to this user: it may be the secret of another service or of the gateway.
func (as identity) unreadable(noun, path, why string) error {
	what := fmt.Sprintf("%s %s cannot be read: %s", noun, path, why)
	switch group := as.groupName(); {
	case as.reads:
		return refuse("%s; run the command as root or as the file's owner, or use a token of your own (laneway token create NAME)", what)
	case as.beside:
		return refuse("%s; run the command as root or as the gateway's user", what)
	case group != "" && ofRoot(path):
		return refuse("%s; let the gateway's group read it: chgrp %s %s && chmod 640 %s", what, group, path, path)
	default:
		return refuse("%s; start the gateway as its owner, or name a file of user %s", what, userName(as.uid))
	}
}

// ofRoot reports whether a file belongs to root and its group, so that changing its group takes it
// from no other group.
func ofRoot(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	owner, group, known := ownerOf(info)
	return known && owner == 0 && group == 0
}

// checkRegular refuses files that are not regular: reading a pipe or a device may never end.
func checkRegular(path, noun string, info fs.FileInfo) error {
	var kind string
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return refuse("%s %s is a directory; name the file in it", noun, path)
	case mode&fs.ModeNamedPipe != 0:
		kind = "pipe"
	case mode&fs.ModeSocket != 0:
		kind = "socket"
	default:
		kind = "device"
	}
	return refuse("%s %s is a %s; name a regular file", noun, path, kind)
}

// ourGroup reports whether the process is in a group.
func ourGroup(gid int) bool {
	groups, err := os.Getgroups()
	return gid == os.Getegid() || err == nil && slices.Contains(groups, gid)
}

// readAll reads f into buf and refuses a file that is longer.
func readAll(f io.Reader, buf []byte) (int, error) {
	n, err := io.ReadFull(f, buf)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return n, nil
	case err == nil:
		return 0, fmt.Errorf("it is larger than %d bytes", len(buf))
	default:
		return 0, err
	}
}

// createToken makes a new token file. The token is written to a temporary file, which is created
// exclusively so that no other process can have put a link or a readable file there. Then it is
// linked to its final name, which fails when that exists. So two processes that start at once agree
// on one token, and neither reads a half-written file.
func createToken(path string) (secret.Secret, error) {
	token := secret.Generate()
	line := token.Reveal() + "\n"
	draft := path + "." + rand.Text() + ".new"
	if err := writeExclusive(draft, line); err != nil {
		return secret.Secret{}, err
	}
	err := os.Link(draft, path)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM) { // a file system without hard links
		err = writeExclusive(path, line)
	}
	if err := errors.Join(err, os.Remove(draft)); err != nil {
		return secret.Secret{}, err
	}
	return token, nil
}

// writeExclusive creates a file that only its owner can read, and removes it when the write fails.
func writeExclusive(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // the operator's own data directory
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// identity is the user whose access to files is checked. A gateway checks its own access. A command
// that root runs beside a gateway checks the access of the gateway's user, so that its advice is
// right for the gateway. A client only reads, and accepts every file that it can read.
type identity struct {
	uid int
	// inGroup reports whether the user is in a group.
	inGroup func(gid int) bool
	// reads: a client reads the file, so its owner does not matter. A gateway refuses the file of
	// another user, who could replace the secret.
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

// client returns the identity of a command that reads a secret to send it to a gateway. Root may
// read every file.
func client() identity {
	return identity{uid: os.Geteuid(), reads: true, inGroup: func(gid int) bool { return os.Geteuid() == 0 || ourGroup(gid) }}
}

// ownerIdentity returns the user that owns a data directory. ok is false when the owner is unknown
// or root, or the directory does not exist: the user of the gateway is then unknown.
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

// provided reports whether the service manager provided the file for this process. With systemd,
// such a file has the owner root and an access list for the service's user, which appears in the
// mode as group permissions. The directory must not be accessible to other users.
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

// mounted reports whether a file is a secret that a container engine mounts: one of root's below
// the directories for them, which only root fills. Engines give them to everybody in the container.
// Kubernetes mounts links within such a directory.
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
