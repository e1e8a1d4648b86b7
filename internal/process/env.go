package process

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"laneway/internal/secret"
)

// defaultPath is used if the environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// errNotExecutable means that the file exists and cannot be started.
var errNotExecutable = errors.New("it is not an executable file")

// inherited returns the variables of the gateway that every program receives: paths, the locale, proxies, and certificates.
func inherited() []string {
	return []string{
		"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME",
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
	}
}

// Environment returns a clean environment: the variables of [inherited] as lookup (os.LookupEnv) returns them, overridden by the configured
// variables. With a nil lookup it has only a standard PATH.
func Environment(configured map[string]string, lookup func(string) (string, bool)) map[string]string {
	env := map[string]string{"PATH": defaultPath}
	for _, name := range inherited() {
		if lookup == nil {
			break
		}
		if value, ok := lookup(name); ok {
			env[name] = value
		}
	}
	maps.Copy(env, configured)
	return env
}

// Hider returns a replacer of the values of configured variables in the output of a program. Values below 8 bytes are not keys and may be
// parts of ordinary words.
func Hider(configured map[string]string) *strings.Replacer {
	const shortestSecret = 8
	var pairs []string
	for _, value := range configured {
		if len(value) >= shortestSecret {
			pairs = append(pairs, value, secret.Hidden)
		}
	}
	return strings.NewReplacer(pairs...)
}

// list returns an environment in the form for the kernel: sorted, and without NUL, which the kernel would refuse.
func list(env map[string]string) []string {
	all := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, name+"="+strings.ReplaceAll(env[name], "\x00", ""))
	}
	return all
}

// find returns the path of the program. It searches the PATH of the program's environment, not the gateway's, and skips relative
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
