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
	// sessionItem in a directory stands for the session.
	sessionItem = "{session}"
	// maxDirName is the longest name of a directory that is made of a session, in bytes. File systems take 255.
	maxDirName = 200
	// maxFound bounds how many files of a directory are named; the gateway takes fewer.
	maxFound = 1000
)

// Dir is the working directory of a session: the configured one, with {session} replaced. Only a directory with this item is made, for the owner alone.
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

// dirName is a session key as the name of a directory: letters, digits, dots, dashes and underscores stay, a colon is a plus, other bytes are =XX. Two keys have never
// the same name; a long one ends with its hash.
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

// Files are the regular files that lie in a directory itself, in the order of their names, for [agent.Result]. "" has none.
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
