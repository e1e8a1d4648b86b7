// Package files stores the files of conversations: it takes over the files that agents make for
// people, keeps those that clients upload, and removes files that are no longer needed.
//
// # The directory
//
// All files are below one directory, opened as an [os.Root], which no external path can leave:
//
//	telegram-<bot>/…   what people sent, written by the channel
//	uploads/<owner>/   what clients sent in with [Dir.Save]: each file, and beside it a small one with its name, its kind and its size
//	outgoing/<uuid>    what agents made, taken over by [Turn.Take]
//	turns/<uuid>/      where the agent of a running turn leaves files; the agent knows its path
//
// This package makes the names. The name that an agent gives to a file is shown to people and is
// never a path.
//
// # Taking over
//
// An agent's program may write anything into its directory. A regular file is taken when the agent
// names it by a path below that directory, or when it is in the directory. A path that leaves the
// directory (`..`, an absolute path), a link in any part of the path, a device, a pipe or a
// directory is refused, and so is a file beyond a bound ([MaxFiles], [MaxFile], [MaxTotal]). Each
// refusal is a phrase for the person.
//
// A file is first renamed to its final name and checked again there, so the checked file is the
// stored one: the agent does not know the final name. The file and its name are on the disk when
// Take returns. Only then may a row of the outbox name it.
//
// # Uploads
//
// A file is complete and on the disk before [Dir.Save] returns its id. The id names the directory
// of its owner by a digest, so finding a file needs no index and principals do not share
// directories. The content is written first, its description second: a file without a description
// does not exist for clients. [Dir.Use] renews the age of a file when a message is going to name
// it, and [Dir.Sweep] checks the age again before it removes a file.
//
// # Removing
//
// A turn removes its directory when it ends. [Dir.Sweep] removes what crashed turns left, and old
// files that no unfinished row names. There is no index: the directory lists the files that exist,
// and the rows list those that are needed.
//
// # Crash points
//
// Before Take returns: the file is in the turn's directory or has no row, and Sweep removes it.
// After that: the row of the outbox names the file. Before Save returns: no id exists, and Sweep
// removes what was written.
//
// # What it does not do
//
// It starts no goroutine and holds no lock. Several processes may share the directory. Several
// replicas must share it: a file is sent by the process that has claimed the outgoing message.
package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
)

// Places below the directory.
const (
	outgoingDir = "outgoing"
	turnsDir    = "turns"
)

// abandoned is the age from which no turn can be using its directory: it is longer than any turn
// may take.
const abandoned = 25 * time.Hour

// Dir is the directory for files. Make it with Open. It is safe for concurrent use.
type Dir struct {
	root *os.Root
	path string // absolute
}

// Open makes the directory if it is missing, accessible to its owner alone, and opens it.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding the directory for files: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for files: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening the directory for files: %w", err)
	}
	return &Dir{root: root, path: path}, nil
}

// Root returns the directory, for code that reads and writes below it. It is closed with the Dir.
func (d *Dir) Root() *os.Root { return d.root }

// Close closes the directory. Its Root and its turns can no longer be used.
func (d *Dir) Close() error { return d.root.Close() }

// NewTurn makes a new, empty directory for the files of one turn. The caller removes it with
// [Turn.Remove].
func (d *Dir) NewTurn() (*Turn, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("naming the directory of a turn: %w", err)
	}
	name := turnsDir + "/" + id.String()
	if err := d.root.MkdirAll(name, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of a turn: %w", err)
	}
	return &Turn{dir: d, name: name}, nil
}

// Drop deletes files that were taken over and will not be sent. A file that does not exist is not
// an error.
func (d *Dir) Drop(taken []chat.Attachment) error {
	for _, f := range taken {
		if err := d.root.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a file: %w", err)
		}
	}
	return nil
}

// Sweep removes the directories that crashed turns left. If before is not zero, it also removes
// files that were last written before it and that inUse does not name. It checks ctx between two
// files. It returns the number of removed files and directories, even with an error. now is from
// the clock of this host, as are the times of files.
func (d *Dir) Sweep(ctx context.Context, now, before time.Time, inUse func(context.Context) ([]string, error)) (int, error) {
	n, err := d.sweepTurns(ctx, now.Add(-abandoned))
	if err != nil || before.IsZero() {
		return n, err
	}
	old, err := d.older(ctx, before)
	if err != nil || len(old) == 0 {
		return n, err
	}
	used, err := inUse(ctx) // called after the list was made: no new row names a file of that age
	if err != nil {
		return n, err
	}
	needed := make(map[string]bool, len(used))
	for _, path := range used {
		needed[filepath.ToSlash(filepath.Clean(path))] = true
	}
	for _, name := range old {
		if needed[name] {
			continue
		}
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		if info, err := d.root.Stat(name); err != nil || !info.ModTime().Before(before) { // removed, or used by a message, since the list was made
			continue
		}
		if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, fmt.Errorf("removing an old file: %w", err)
		}
		n++
	}
	return n, nil
}

func (d *Dir) sweepTurns(ctx context.Context, before time.Time) (n int, err error) {
	entries, err := fs.ReadDir(d.root.FS(), turnsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the directories of turns: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.ModTime().Before(before) { // removed meanwhile, or in use
			continue
		}
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		if err := d.root.RemoveAll(turnsDir + "/" + e.Name()); err != nil {
			return n, fmt.Errorf("removing the directory of a turn: %w", err)
		}
		n++
	}
	return n, nil
}

// older lists the files that were last written before a moment, without those of turns.
func (d *Dir) older(ctx context.Context, before time.Time) (names []string, err error) {
	err = fs.WalkDir(d.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == turnsDir:
			return fs.SkipDir
		case e.IsDir():
			return nil
		}
		if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for old files: %w", err)
	}
	return names, nil
}

const (
	uploadsDir = "uploads"
	// MaxListed is how many files [Dir.Uploads] returns at most.
	MaxListed = 1000

	// PurposeAnswer is the purpose of files that agents made, see [Dir.Keep].
	PurposeAnswer = "answer"

	uploadPrefix = "file-"
	ownerDigits  = 16
	uploadDigits = 32
	aboutEnding  = ".json"
)

// errNoUpload returns the error for a file that does not exist, belongs to another principal, or
// was removed by retention.
func errNoUpload() error {
	return chat.Errorf(chat.CodeNotFound, "there is no such file: it has expired or was deleted")
}

func errUploadTooLarge(limit int64) error {
	return chat.Errorf(chat.CodeLimit, "the file is larger than %d bytes", limit).With("limit", limit)
}

// aboutUpload is the description that is stored next to the content of an upload.
type aboutUpload struct {
	Name      string `json:"name"`
	MIMEType  string `json:"mimeType"`
	Size      int64  `json:"size"`
	Purpose   string `json:"purpose,omitempty"`
	CreatedMs int64  `json:"createdMs"`
}

// ownerOf returns the directory of a principal's files: a digest, because a file system may treat
// the names of two principals as equal.
func ownerOf(principal string) string {
	sum := sha256.Sum256([]byte(principal))
	return hex.EncodeToString(sum[:])[:ownerDigits]
}

// Save stores a file of a principal; content is read up to its end or limit bytes. From about, Name
// is shown and never used as a path; an empty MIMEType is determined from the content; Purpose is
// stored; the other fields are set here. The file is on the disk when Save returns. It returns
// chat.CodeLimit if content is longer; every other error is one of content or of the disk.
func (d *Dir) Save(principal string, about chat.Upload, content io.Reader, limit int64) (chat.Upload, error) {
	up, err := d.named(principal, about)
	if err != nil {
		return chat.Upload{}, err
	}
	head, err := d.write(up.Path, content, limit, &up.Size)
	if err != nil {
		return chat.Upload{}, err
	}
	up.MIMEType = kindOf(about.MIMEType, head)
	if err := d.describe(up); err != nil {
		return chat.Upload{}, errors.Join(err, d.DropUpload(up.Attachment))
	}
	return up, nil
}

// Keep makes a file of an answer, which [Turn.Take] returned, a file of a principal, so that its
// clients find it by its ID, which is set in the result. Retention removes it. The files that were
// kept for the principal have at most most bytes together, 0 = no limit: the oldest ones are
// removed.
func (d *Dir) Keep(principal string, made chat.Attachment, most int64) (chat.Attachment, error) {
	up, err := d.named(principal, chat.Upload{Attachment: made, Purpose: PurposeAnswer})
	if err != nil {
		return made, err
	}
	up.Size, up.MIMEType = made.Size, made.MIMEType
	if err := d.root.Rename(made.Path, up.Path); err != nil {
		return made, fmt.Errorf("keeping a file: %w", err)
	}
	if err := d.describe(up); err != nil {
		return made, errors.Join(err, d.DropUpload(up.Attachment))
	}
	kept := up.Attachment
	kept.ID = up.ID
	return kept, d.limitKept(principal, most)
}

// limitKept removes the oldest kept files of a principal beyond most bytes.
func (d *Dir) limitKept(principal string, most int64) error {
	if most == 0 {
		return nil
	}
	return d.each(principal, func(up chat.Upload) (bool, error) {
		if up.Purpose != PurposeAnswer {
			return true, nil
		}
		if most -= up.Size; most >= 0 {
			return true, nil
		}
		return true, d.DropUpload(up.Attachment)
	})
}

// named returns an upload with an id, a path below the directory of its principal, which exists
// then, and the shown parts of about.
func (d *Dir) named(principal string, about chat.Upload) (chat.Upload, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return chat.Upload{}, fmt.Errorf("naming a file: %w", err)
	}
	owner, digits := ownerOf(principal), hex.EncodeToString(id[:])
	dir := uploadsDir + "/" + owner
	if err := d.root.MkdirAll(dir, 0o700); err != nil {
		return chat.Upload{}, fmt.Errorf("making the directory for files of clients: %w", err)
	}
	up := chat.Upload{ID: uploadPrefix + owner + digits, Purpose: chat.Cut(chat.Printable(about.Purpose), 64), CreatedAt: time.Now()}
	up.Name, up.Path = chat.FileName(about.Name), dir+"/"+digits
	return up, nil
}

// describe writes the description of a file beside it, and syncs both names to the disk.
func (d *Dir) describe(up chat.Upload) error {
	beside, err := json.Marshal(aboutUpload{Name: up.Name, MIMEType: up.MIMEType, Size: up.Size, Purpose: up.Purpose, CreatedMs: up.CreatedAt.UnixMilli()})
	if err != nil {
		return fmt.Errorf("describing a file: %w", err)
	}
	var n int64
	if _, err = d.write(up.Path+aboutEnding, bytes.NewReader(beside), int64(len(beside)), &n); err != nil {
		return err
	}
	return d.syncNames(uploadsDir, path.Dir(up.Path))
}

// write writes a temporary file next to the path and renames it when it is complete and on the
// disk. It returns the first bytes.
func (d *Dir) write(name string, content io.Reader, limit int64, size *int64) (head []byte, err error) {
	part := name + ".part"
	f, err := d.root.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("storing a file: %w", err)
	}
	keep := &firstBytes{}
	*size, err = io.Copy(io.MultiWriter(f, keep), io.LimitReader(content, limit+1))
	if err == nil && *size > limit {
		err = errUploadTooLarge(limit)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = d.root.Rename(part, name)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("storing a file: %w", err), d.root.Remove(part))
	}
	return keep.head, nil
}

// firstBytes keeps the first 512 written bytes.
type firstBytes struct{ head []byte }

func (b *firstBytes) Write(p []byte) (int, error) {
	b.head = append(b.head, p[:min(len(p), 512-len(b.head))]...)
	return len(p), nil
}

// Find returns an uploaded file; if own is set, only one of this principal. An invalid id is
// chat.ErrNotFound too.
func (d *Dir) Find(principal string, own bool, id string) (chat.Upload, error) {
	rest, ok := strings.CutPrefix(id, uploadPrefix)
	if !ok || len(rest) != ownerDigits+uploadDigits || strings.Trim(rest, "0123456789abcdef") != "" {
		return chat.Upload{}, errNoUpload()
	}
	owner := rest[:ownerDigits]
	if own && owner != ownerOf(principal) {
		return chat.Upload{}, errNoUpload()
	}
	return d.upload(owner, rest[ownerDigits:])
}

// Use is Find for a message that is going to name the file: it renews the age of the file, so that
// retention does not remove it before the message is accepted.
func (d *Dir) Use(principal string, own bool, id string) (chat.Attachment, error) {
	up, err := d.Find(principal, own, id)
	if err != nil {
		return chat.Attachment{}, err
	}
	now := time.Now()
	for _, name := range []string{up.Path, up.Path + aboutEnding} {
		if err := d.root.Chtimes(name, now, now); err != nil {
			return chat.Attachment{}, orNoUpload(err)
		}
	}
	return up.Attachment, nil
}

func (d *Dir) upload(owner, digits string) (chat.Upload, error) {
	name := uploadsDir + "/" + owner + "/" + digits
	raw, err := d.root.ReadFile(name + aboutEnding)
	if err != nil {
		return chat.Upload{}, orNoUpload(err)
	}
	var about aboutUpload
	if err := json.Unmarshal(raw, &about); err != nil {
		return chat.Upload{}, fmt.Errorf("reading what is known about a file: %w", err)
	}
	return chat.Upload{
		ID: uploadPrefix + owner + digits, Purpose: about.Purpose, CreatedAt: time.UnixMilli(about.CreatedMs),
		Attachment: chat.Attachment{Name: about.Name, MIMEType: about.MIMEType, Path: name, Size: about.Size},
	}, nil
}

func orNoUpload(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errNoUpload()
	}
	return fmt.Errorf("reading a file: %w", err)
}

// Uploads lists the files of a principal, newest first, at most [MaxListed].
func (d *Dir) Uploads(principal string) ([]chat.Upload, error) {
	list := []chat.Upload{}
	err := d.each(principal, func(up chat.Upload) (bool, error) {
		list = append(list, up)
		return len(list) < MaxListed, nil
	})
	return list, err
}

// each calls use for the files of a principal, newest first, until it returns false or an error.
func (d *Dir) each(principal string, use func(chat.Upload) (more bool, err error)) error {
	owner := ownerOf(principal)
	entries, err := fs.ReadDir(d.root.FS(), uploadsDir+"/"+owner)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listing files: %w", err)
	}
	for _, e := range slices.Backward(entries) { // names are ordered by time
		digits, ok := strings.CutSuffix(e.Name(), aboutEnding)
		if !ok {
			continue
		}
		up, err := d.upload(owner, digits)
		if errors.Is(err, chat.ErrNotFound) { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		if more, err := use(up); err != nil || !more {
			return err
		}
	}
	return nil
}

// Read returns the content of a file below the directory; chat.CodeLimit if it has more than limit
// bytes, chat.ErrNotFound if it does not exist.
func (d *Dir) Read(path string, limit int64) ([]byte, error) {
	f, err := d.Content(path)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("reading a file: %w", err)
	}
	if int64(len(raw)) > limit {
		return nil, errUploadTooLarge(limit)
	}
	return raw, nil
}

// Content opens a file below the directory, which the caller closes; chat.ErrNotFound if it does
// not exist.
func (d *Dir) Content(path string) (io.ReadSeekCloser, error) {
	f, err := d.root.Open(filepath.FromSlash(path))
	if err != nil {
		return nil, orNoUpload(err)
	}
	return f, nil
}

// DropUpload removes an uploaded file that no message names. A file that does not exist is not an
// error.
func (d *Dir) DropUpload(f chat.Attachment) error {
	return d.Drop([]chat.Attachment{{Path: f.Path + aboutEnding}, f})
}

// Path returns the absolute path of a file below the directory, for programs that read it.
func (d *Dir) Path(path string) string { return filepath.Join(d.path, filepath.FromSlash(path)) }

// readWrite opens a file so that it can be synced: some systems refuse that for a file that is open
// for reading.
const readWrite = os.O_RDWR

// sync syncs the names of the files of answers to the disk.
func (d *Dir) sync() error { return d.syncNames(outgoingDir) }

// syncNames syncs the names in directories, and those of the directories in the root. Windows
// cannot sync directories.
func (d *Dir) syncNames(dirs ...string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	for _, name := range append(dirs, ".") {
		dir, err := d.root.Open(name)
		if err != nil {
			return fmt.Errorf("storing the names of files: %w", err)
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			return fmt.Errorf("storing the names of files: %w", err)
		}
	}
	return nil
}
