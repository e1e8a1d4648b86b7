package config

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// TokenBytes is the strength of a generated token; it has 43 characters in URL-safe base64.
const TokenBytes = 32

// tokenName is the file of the generated token in the data directory.
const tokenName = "token"

// TokenPath is the file of the generated token of a data directory.
func TokenPath(data string) string { return filepath.Join(data, tokenName) }

// ReadToken reads the token file of a data directory, for clients on the same machine. The error is [FaultsError] when the file
// is missing, empty, or open to others.
func ReadToken(data string) (Secret, error) { return ReadSecretFile(TokenPath(data)) }

// ReadSecretFile reads a file that holds one token and that only its owner can read. Its errors are those of [ReadToken].
func ReadSecretFile(path string) (Secret, error) {
	text, err := readSecretFile(path, "token file")
	if err != nil {
		return Secret{}, err
	}
	var s Secret
	if err := s.UnmarshalText(text); err != nil {
		return Secret{}, refuse("token file %s %s", path, err)
	}
	return s, nil
}

// refuse is one whole sentence as [FaultsError].
func refuse(format string, args ...any) error {
	return FaultsError{{Message: fmt.Sprintf(format, args...), Whole: true}}
}

// checkSecretMode refuses files that others can open, and files of other users: whoever owns a file can change it.
func checkSecretMode(path, noun string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return refuse("%s %s is a directory; name the file in it", noun, path)
	case info.Mode().Perm()&0o077 != 0:
		return refuse("%s %s has mode %04o; run: chmod 600 %s", noun, path, info.Mode().Perm(), path)
	}
	if owner, known := ownerOf(info); known && owner != os.Geteuid() {
		return refuse("%s %s belongs to user %d; run: chown %d %s", noun, path, owner, os.Geteuid(), path)
	}
	return nil
}

func ownerOf(info fs.FileInfo) (uid int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
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

// createToken makes a new token file. The token is written under a name of its own, created exclusively so that nobody can have
// put a link or a readable file there before, and then linked into its place, which fails when there is one already: two
// processes that start at once agree, and neither can read a half-written file.
func createToken(path string) (Secret, error) {
	raw := make([]byte, TokenBytes)
	if _, err := rand.Read(raw); err != nil {
		return Secret{}, fmt.Errorf("making a token: %w", err)
	}
	token := base64.RawURLEncoding.EncodeToString(raw)
	draft := path + "." + rand.Text() + ".new"
	if err := writeExclusive(draft, token+"\n"); err != nil {
		return Secret{}, err
	}
	err := os.Link(draft, path)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM) { // a file system without hard links
		err = writeExclusive(path, token+"\n")
	}
	if err := errors.Join(err, os.Remove(draft)); err != nil {
		return Secret{}, err
	}
	return NewSecret(token), nil
}

// writeExclusive makes a file that did not exist, readable by its owner only, and leaves none behind when it fails.
func writeExclusive(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator's own data directory
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
