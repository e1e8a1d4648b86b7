package testpg

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// errNoBinaries means that this machine has no Postgres server programs in the known places.
var errNoBinaries = errors.New("no Postgres server programs found")

// findBinaries returns the directory that holds `postgres` and `initdb`: pgBin if it is set, otherwise the newest
// Debian installation, otherwise the one in PATH.
func findBinaries(pgBin string) (string, error) {
	if pgBin != "" {
		if holdsServer(pgBin) {
			return pgBin, nil
		}
		return "", errors.Join(errNoBinaries, errors.New("PG_BIN must be a directory with postgres and initdb in it"))
	}
	if dir := newestDebian("/usr/lib/postgresql"); dir != "" {
		return dir, nil
	}
	if dir := onPath(); dir != "" {
		return dir, nil
	}
	return "", errNoBinaries
}

func holdsServer(dir string) bool {
	return executable(filepath.Join(dir, "postgres")) && executable(filepath.Join(dir, "initdb"))
}

func executable(path string) bool {
	info, err := os.Stat(path) //nolint:gosec // the developer names the directory of the server programs
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// newestDebian compares versions as numbers: 9.6 is older than 15.
func newestDebian(root string) string {
	dirs, err := filepath.Glob(filepath.Join(root, "*", "bin"))
	if err != nil {
		return ""
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !holdsServer(dir) })
	if len(dirs) == 0 {
		return ""
	}
	return slices.MaxFunc(dirs, func(a, b string) int {
		return int(10 * (version(a) - version(b)))
	})
}

func version(binDir string) float64 {
	v, err := strconv.ParseFloat(filepath.Base(filepath.Dir(binDir)), 64)
	if err != nil {
		return 0
	}
	return v
}

// onPath follows links, because initdb searches for the other programs next to the real file.
func onPath() string {
	program, err := exec.LookPath("initdb")
	if err != nil {
		return ""
	}
	file, err := filepath.EvalSymlinks(program)
	if err != nil || !holdsServer(filepath.Dir(file)) {
		return ""
	}
	return filepath.Dir(file)
}
