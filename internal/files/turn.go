package files

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
)

// Bounds of the files of one answer.
const (
	// MaxFiles is the largest number of files.
	MaxFiles = 10
	// MaxFile is the largest size of one file in bytes: the limit for uploads of a Telegram bot.
	MaxFile = 50 << 20
	// MaxTotal is the largest size of all files together, in bytes.
	MaxTotal = 100 << 20
)

// Turn is the directory in which the agent of one turn leaves files. The goroutine of the turn owns
// it; it is not safe for concurrent use.
type Turn struct {
	dir  *Dir
	name string // below the directory
}

// Path returns the absolute path of the directory, for the agent's program.
func (t *Turn) Path() string { return filepath.Join(t.dir.path, filepath.FromSlash(t.name)) }

// Below returns a path for [Turn.Take]: an absolute path in the directory becomes relative to it;
// every other path is unchanged.
func (t *Turn) Below(path string) string {
	if rel, err := filepath.Rel(t.Path(), path); filepath.IsAbs(path) && err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// Remove deletes the directory and everything in it.
func (t *Turn) Remove() error {
	if err := t.dir.root.RemoveAll(t.name); err != nil {
		return fmt.Errorf("removing the directory of a turn: %w", err)
	}
	return nil
}

// Write makes a file in the directory for an agent that cannot write files, and returns its path
// for [Turn.Take].
func (t *Turn) Write(content []byte) (path string, err error) {
	path = uuid.NewString()
	if err := t.dir.root.WriteFile(t.name+"/"+path, content, 0o600); err != nil {
		return "", fmt.Errorf("writing a file of a turn: %w", err)
	}
	return path, nil
}

// refusal is the reason why a file is refused, as a phrase for people.
type refusal string

func (r refusal) Error() string { return string(r) }

// The refusals.
const (
	errOutside  refusal = "it is not in the directory for files"
	errMissing  refusal = "there is no such file"
	errLink     refusal = "it is a link"
	errNoFile   refusal = "it is no plain file"
	errEmpty    refusal = "it is empty"
	errTooLarge refusal = "it is larger than 50 MB"
	errTooMany  refusal = "an answer has at most 10 files"
	errTooMuch  refusal = "the files of an answer have at most 100 MB together"
)

// Take moves the files that the agent names into the directory for files of answers. It returns
// them with their new path below the directory for files, their size, their MIME type (by content
// if none is given) and the name to show. left is one sentence about the files that were refused,
// "" if none. A file that is named twice is taken once. An error is a failure of the disk: the
// answer must then not name a file.
func (t *Turn) Take(named []chat.Attachment) (taken []chat.Attachment, left string, err error) {
	var (
		leftOut []string
		total   int64
	)
	seen := map[string]bool{}
	for _, f := range named {
		where := filepath.Clean(f.Path)
		if seen[where] {
			continue
		}
		seen[where] = true
		f.Name = cmp.Or(f.Name, f.Path)
		f.Name = chat.FileName(f.Name)
		size, err := t.check(f.Path)
		switch {
		case err == nil && len(taken) == MaxFiles:
			err = errTooMany
		case err == nil && total+size > MaxTotal:
			err = errTooMuch
		}
		if err == nil {
			f, err = t.move(where, f)
		}
		if why, isRefusal := errors.AsType[refusal](err); isRefusal {
			leftOut = append(leftOut, fmt.Sprintf("%s (%s)", f.Name, why))
			continue
		}
		if err != nil {
			return nil, "", err
		}
		taken, total = append(taken, f), total+f.Size
	}
	if len(taken) > 0 {
		err = t.dir.sync()
	}
	return taken, sentence(leftOut), err
}

// sentence lists the files that were left out, at most five of them by name.
func sentence(leftOut []string) string {
	const most = 5
	if len(leftOut) == 0 {
		return ""
	}
	more := ""
	if n := len(leftOut) - most; n > 0 {
		leftOut, more = leftOut[:most], fmt.Sprintf(" and %d more", n)
	}
	return "Left out: " + strings.Join(leftOut, ", ") + more + "."
}

// check returns the size of a regular file of the turn by the agent's path. It refuses a link in
// any part of the path.
func (t *Turn) check(path string) (int64, error) {
	if !filepath.IsLocal(path) || strings.ContainsRune(path, 0) {
		return 0, errOutside
	}
	at, parts := t.name, strings.Split(filepath.ToSlash(filepath.Clean(path)), "/")
	for i, part := range parts {
		at += "/" + part
		info, err := t.dir.root.Lstat(at)
		switch {
		case err != nil:
			return 0, errMissing
		case info.Mode()&fs.ModeSymlink != 0:
			return 0, errLink
		case i == len(parts)-1:
			return info.Size(), plain(info)
		case !info.IsDir():
			return 0, errMissing
		}
	}
	return 0, errNoFile
}

// plain returns nil for a regular file within the bounds.
func plain(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return errNoFile
	case hasNames(info):
		return errLink
	case info.Size() == 0:
		return errEmpty // Telegram refuses it
	case info.Size() > MaxFile:
		return errTooLarge
	}
	return nil
}

// hasNames reports whether a file has more than one name: it may be one of the gateway's own files,
// which the agent cannot open by a path. The count is in the system's own type, which differs
// between systems; where it has none, as on Windows, no file is refused.
func hasNames(info fs.FileInfo) bool {
	sys := reflect.Indirect(reflect.ValueOf(info.Sys()))
	if sys.Kind() != reflect.Struct {
		return false
	}
	n := sys.FieldByName("Nlink")
	return n.IsValid() && n.CanUint() && n.Uint() > 1
}

// move renames a file to its final name, which the agent does not know, checks it again there, and
// syncs its content to the disk.
func (t *Turn) move(path string, f chat.Attachment) (_ chat.Attachment, err error) {
	root := t.dir.root
	id, err := uuid.NewV7()
	if err != nil {
		return f, fmt.Errorf("making the name of a file: %w", err)
	}
	f.Path = outgoingDir + "/" + id.String()
	if err := root.MkdirAll(outgoingDir, 0o700); err != nil {
		return f, fmt.Errorf("making the directory for files of answers: %w", err)
	}
	if err := root.Rename(t.name+"/"+filepath.ToSlash(path), f.Path); err != nil {
		return f, fmt.Errorf("taking a file over: %w", err)
	}
	info, err := root.Lstat(f.Path)
	if err == nil {
		err = plain(info)
	}
	if err == nil {
		err = t.persist(&f)
	}
	if err != nil {
		return f, errors.Join(err, root.RemoveAll(f.Path))
	}
	return f, nil
}

// persist syncs the content of a file to the disk and fills in its size and its MIME type.
func (t *Turn) persist(f *chat.Attachment) (err error) {
	root, now := t.dir.root, time.Now()
	if err := root.Chmod(f.Path, 0o600); err != nil {
		return fmt.Errorf("storing a file: %w", err)
	}
	if err := root.Chtimes(f.Path, now, now); err != nil { // its age starts with the answer, whatever time the agent has set
		return fmt.Errorf("storing a file: %w", err)
	}
	file, err := root.OpenFile(f.Path, readWrite, 0)
	if err != nil {
		return fmt.Errorf("storing a file: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("storing a file: %w", err)
	}
	head := make([]byte, 512)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading a file: %w", err)
	}
	f.Size, f.MIMEType = info.Size(), kindOf(f.MIMEType, head[:n])
	if err := file.Sync(); err != nil {
		return fmt.Errorf("storing a file: %w", err)
	}
	return nil
}

// kindOf returns the given MIME type if it is valid, otherwise the one that the content suggests.
// Parameters are left out.
func kindOf(given string, head []byte) string {
	for _, kind := range []string{given, http.DetectContentType(head)} {
		if kind, _, err := mime.ParseMediaType(kind); err == nil && strings.Contains(kind, "/") && len(kind) <= 100 {
			return kind
		}
	}
	return "application/octet-stream"
}
