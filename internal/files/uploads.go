package files

import (
	"bytes"
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
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
)

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

// errNoUpload returns the error for a file that does not exist, belongs to another principal, or was removed by retention.
func errNoUpload() error {
	return chat.Errorf(chat.CodeNotFound, "there is no such file; it may have been removed because of its age")
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

// ownerOf returns the directory of a principal's files: a digest, because a file system may treat the names of two principals as equal.
func ownerOf(principal string) string {
	sum := sha256.Sum256([]byte(principal))
	return hex.EncodeToString(sum[:])[:ownerDigits]
}

// Save stores a file of a principal; content is read up to its end or limit bytes. From about, Name is shown and never used as a path; an empty
// MIMEType is determined from the content; Purpose is stored; the other fields are set here. The file is on the disk when Save returns. It returns
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
// kept for the principal have at most most bytes together, 0 = no limit: the oldest ones are removed.
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

// named returns an upload with an id, a path below the directory of its principal, which exists then,
// and the shown parts of about.
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

// write writes a temporary file next to the path and renames it when it is complete and on the disk. It returns the first bytes.
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

// Find returns an uploaded file; if own is set, only one of this principal. An invalid id is chat.ErrNotFound too.
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

// Use is Find for a message that is going to name the file: it renews the age of the file, so that retention does not remove it before the message is
// accepted.
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

// Read returns the content of a file below the directory; chat.CodeLimit if it has more than limit bytes, chat.ErrNotFound if it does not exist.
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

// Content opens a file below the directory, which the caller closes; chat.ErrNotFound if it does not exist.
func (d *Dir) Content(path string) (io.ReadSeekCloser, error) {
	f, err := d.root.Open(filepath.FromSlash(path))
	if err != nil {
		return nil, orNoUpload(err)
	}
	return f, nil
}

// DropUpload removes an uploaded file that no message names. A file that does not exist is not an error.
func (d *Dir) DropUpload(f chat.Attachment) error {
	return d.Drop([]chat.Attachment{{Path: f.Path + aboutEnding}, f})
}

// Path returns the absolute path of a file below the directory, for programs that read it.
func (d *Dir) Path(path string) string { return filepath.Join(d.path, filepath.FromSlash(path)) }
