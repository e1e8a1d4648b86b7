package command

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/agent"
)

// errNotExecutable is a file that is there and cannot be started.
var errNotExecutable = errors.New("it is not an executable file")

// base is the part of the environment that is the same for every turn.
func base(cfg Config, lookup func(string) (string, bool)) map[string]string {
	env := map[string]string{"PATH": defaultPath}
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ"} {
		if lookup == nil {
			break
		}
		if value, ok := lookup(name); ok {
			env[name] = value
		}
	}
	maps.Copy(env, cfg.Env)
	return env
}

// environment is what the program of one turn sees; dir is its directory for files, "" = none.
func (r *Runner) environment(req agent.Request, dir string) []string {
	env := maps.Clone(r.env)
	env["LANEWAY_SESSION"] = req.Session.String()
	env["LANEWAY_RUN_ID"] = req.RunID
	env["LANEWAY_AGENT"] = req.Session.Agent
	env["LANEWAY_ATTEMPT"] = strconv.Itoa(req.Attempt)
	env["LANEWAY_IDEMPOTENCY_KEY"] = req.IdempotencyKey
	if dir != "" {
		env["LANEWAY_OUTPUT_DIR"] = dir
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+withoutNUL(env[name]))
	}
	return list
}

// find is the path of the program. It looks in the PATH of the program's environment, not in the gateway's, and passes over relative
// entries, which would mean another program in another directory.
func find(program, path string) (string, error) {
	if strings.ContainsRune(program, filepath.Separator) {
		return program, executable(program)
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		full := filepath.Join(dir, program)
		if executable(full) == nil {
			return full, nil
		}
	}
	return "", fmt.Errorf("looking for %q in PATH: %w", program, fs.ErrNotExist)
}

func executable(path string) error {
	stat, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("looking for the program: %w", err)
	}
	if stat.IsDir() || stat.Mode()&0o111 == 0 {
		return fmt.Errorf("looking at %q: %w", path, errNotExecutable)
	}
	return nil
}
