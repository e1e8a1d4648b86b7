package program

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

const (
	// sessionItem in a directory is replaced by the session.
	sessionItem = "{session}"
	// maxDirName is the longest directory name made from a session key, in bytes. File systems allow 255.
	maxDirName = 200
	// maxFound bounds how many files of a directory are listed; the gateway accepts fewer.
	maxFound = 1000
)

// Dir returns the working directory of a session: the configured one, with {session} replaced. It creates only a directory with this item, with
// access for the owner alone.
func Dir(configured string, session chat.SessionKey) (string, error) {
	if !strings.Contains(configured, sessionItem) {
		return configured, nil
	}
	dir := strings.ReplaceAll(configured, sessionItem, dirName(session.String()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", agent.NewError(chat.FailProgram, "The directory of this session cannot be made; the operator has to check the agent's dir.", err)
	}
	return dir, nil
}

// dirName returns a session key as a directory name: letters, digits, dots, dashes and underscores are kept, a colon becomes a plus, other bytes
// become =XX. Two keys never have the same name; a long name ends with a hash of the key.
func dirName(key string) string {
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		case c == ':':
			b.WriteByte('+')
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	if b.Len() <= maxDirName {
		return b.String()
	}
	sum := sha256.Sum256([]byte(key))
	return b.String()[:maxDirName-33] + "=" + hex.EncodeToString(sum[:16])
}

// Files returns the regular files in the directory itself, in the order of their names, for [agent.Result]. "" has none.
func Files(dir string) ([]chat.Attachment, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, agent.NewError(chat.FailProgram, "The directory for the files of this answer cannot be read any more.", err)
	}
	var found []chat.Attachment
	for _, e := range entries {
		if e.Type().IsRegular() && len(found) < maxFound {
			found = append(found, chat.Attachment{Path: e.Name()})
		}
	}
	return found, nil
}
