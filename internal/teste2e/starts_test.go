package teste2e

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// odderRows are rows of the start-up matrix with unusual faults: special files, networks that together cover all addresses, and hosts that
// are written as numbers.
func odderRows() []startRow {
	pipe := func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "t"), 0o600) }
	socket := func(dir string) error { return syscall.Mknod(filepath.Join(dir, "t"), syscall.S_IFSOCK|0o600, 0) } // binding a socket would need a short path
	directory := func(dir string) error { return os.Mkdir(filepath.Join(dir, "t"), 0o700) }
	rows := []startRow{
		{name: "token file is a socket", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, prepare: socket, code: 78, says: "t is a socket; name a regular file"},
		{name: "token file is a directory", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, prepare: directory, code: 78, says: "t is a directory; name the file in it"},
		{name: "token file is a device", env: []string{"LANEWAY_TOKEN_FILE=/dev/zero"}, code: 78, says: "token file /dev/zero is a device; name a regular file"},
		{name: "variables of an agent in a file open to all", yaml: "agents: {main: {runner: command, command: [cat], env: {KEY: value}}}\n", config: 0o644, code: 78, says: "laneway.yaml has mode 0644; run: chmod 600 "},
		{name: "data directory of root and of our group", prepare: func(dir string) error {
			data := filepath.Join(dir, "data")
			return errors.Join(os.Mkdir(data, 0o700), os.Chmod(data, 0o700))
		}},
	}
	for name, env := range map[string]string{
		"token": "LANEWAY_TOKEN_FILE", "password": "LANEWAY_PASSWORD_FILE", "write token": "LANEWAY_WRITE_TOKEN_FILE", "read token": "LANEWAY_READ_TOKEN_FILE",
		"bot token": "LANEWAY_CHANNELS_TELEGRAM_TOKEN_FILE", "model key": "LANEWAY_AGENTS_MAIN_API_KEY_FILE",
	} {
		rows = append(rows, startRow{
			name: name + " file is a pipe", env: []string{env + "=DIR/t", "LANEWAY_AGENTS_MAIN_RUNNER=openai", "LANEWAY_AGENTS_MAIN_MODEL=x", "LANEWAY_AGENTS_MAIN_BASE_URL=http://127.0.0.1:1/v1"},
			prepare: pipe, code: 78, says: "t is a pipe; name a regular file",
		})
	}
	for _, proxies := range []string{
		"0.0.0.0/1,128.0.0.0/1", "::/1,8000::/1", "0.0.0.0/2,64.0.0.0/2,128.0.0.0/3,160.0.0.0/3,192.0.0.0/2", "::ffff:0.0.0.0/97,::ffff:128.0.0.0/97", "0.0.0.0/1,128.0.0.0/2,192.0.0.0/3",
	} {
		rows = append(rows, startRow{name: "trusts everybody in parts " + proxies, env: []string{"LANEWAY_TRUSTED_PROXIES=" + proxies}, code: 78, says: "trusts everybody: together they are every public address"})
	}
	for _, host := range []string{"134744072", "0x08080808", "010.8.8.8", "01002004010", "8.525320"} {
		rows = append(rows, startRow{
			name: "public Postgres as " + host, env: []string{"LANEWAY_DATABASE_URL=postgres://u@" + host + "/x?sslmode=require"},
			code: 78, says: "database: sslmode=verify-full is needed for " + host,
		})
	}
	return rows
}

// foreignRows are rows about owners; they need a user who can change the owner of files.
func foreignRows() []startRow {
	give := func(name string, mode os.FileMode, uid, gid int) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, name)
			err := os.WriteFile(path, []byte(strongToken+"-more\n"), mode)
			if name == "data" {
				err = errors.Join(os.Remove(path), os.Mkdir(path, mode))
			}
			return errors.Join(err, os.Chown(path, uid, gid), os.Chmod(path, mode))
		}
	}
	config := func(uid int, dirMode os.FileMode) func(dir string) error {
		return func(dir string) error {
			etc := filepath.Join(dir, "etc")
			file := filepath.Join(etc, "c.yaml")
			return errors.Join(os.Mkdir(etc, 0o755), os.WriteFile(file, []byte("drain_timeout: 1s\n"), 0o600), os.Chown(file, uid, 0), os.Chmod(etc, dirMode))
		}
	}
	ours := []string{"LANEWAY_CONFIG=DIR/etc/c.yaml"}
	if os.Geteuid() != 0 {
		return nil // the rows of one owner are in the other lists
	}
	return []startRow{
		{name: "configuration of another user", env: ours, prepare: config(65534, 0o755), code: 78, says: "who could choose what root runs; run: chown root "},
		{name: "configuration in a directory for all", env: ours, prepare: config(0, 0o777), code: 78, says: "so others could replace it; run: chmod go-w "},
		{name: "configuration of root in a sticky directory", env: ours, prepare: config(0, 0o777|os.ModeSticky)},
		{name: "data directory of another user", prepare: give("data", 0o700, 65534, 0), code: 78, says: "and this is user root (0); start the gateway as its owner", dataThere: true},
		{name: "file of another group", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, prepare: give("t", 0o640, 0, 65534), code: 78, says: "t has mode 0640; run: chmod 600 "},
		{name: "file of our group", env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, prepare: give("t", 0o640, 0, 0)},
		{name: "data directory of another user, started by root's group", as: &syscall.Credential{Uid: 65534, Gid: 4242}, prepare: give("data", 0o770, 0, 4242), dataThere: true},
		{name: "data directory of root and of another group", as: &syscall.Credential{Uid: 65534, Gid: 4242}, prepare: give("data", 0o755, 0, 0), code: 78, says: "data belongs to user root (0), and this is user ", dataThere: true},
		{name: "token file of root that our group may read", as: &syscall.Credential{Uid: 65534, Gid: 4242}, env: []string{"LANEWAY_TOKEN_FILE=DIR/t"}, prepare: give("t", 0o640, 0, 4242)},
	}
}
