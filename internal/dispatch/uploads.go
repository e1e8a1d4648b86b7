package dispatch

import (
	"io"

	"laneway/internal/chat"
)

// errNoFiles is the error of a process without a directory for files.
func errNoFiles() error { return chat.Errorf(chat.CodeInvalid, "this gateway keeps no files") }

// SaveFile stores a file that a principal uploads, of at most [chat.MaxUpload] bytes; see [files.Dir.Save]. It is refused while a disk has
// too little free space.
func (d *Dispatcher) SaveFile(principal string, about chat.Upload, content io.Reader) (chat.Upload, error) {
	if d.cfg.Files == nil {
		return chat.Upload{}, errNoFiles()
	}
	if err := d.admission.diskFault(); err != nil {
		return chat.Upload{}, err
	}
	return d.cfg.Files.Save(principal, about, content, chat.MaxUpload)
}

// FindFile returns an uploaded file by its id; with own, only a file of this principal. chat.ErrNotFound.
func (d *Dispatcher) FindFile(principal string, own bool, id string) (chat.Upload, error) {
	if d.cfg.Files == nil {
		return chat.Upload{}, chat.ErrNotFound
	}
	return d.cfg.Files.Find(principal, own, id)
}

// UseFile is FindFile for a message that is about to name the file.
func (d *Dispatcher) UseFile(principal string, own bool, id string) (chat.Attachment, error) {
	if d.cfg.Files == nil {
		return chat.Attachment{}, errNoFiles()
	}
	return d.cfg.Files.Use(principal, own, id)
}

// ListFiles lists the files of a principal, newest first, at most [files.MaxListed].
func (d *Dispatcher) ListFiles(principal string) ([]chat.Upload, error) {
	if d.cfg.Files == nil {
		return nil, nil
	}
	return d.cfg.Files.Uploads(principal)
}

// FileContent opens the content of a file; the caller closes it. chat.ErrNotFound.
func (d *Dispatcher) FileContent(f chat.Attachment) (io.ReadSeekCloser, error) {
	if d.cfg.Files == nil {
		return nil, chat.ErrNotFound
	}
	return d.cfg.Files.Content(f.Path)
}

// DropFile removes a file that no message names.
func (d *Dispatcher) DropFile(f chat.Attachment) error {
	if d.cfg.Files == nil {
		return nil
	}
	return d.cfg.Files.DropUpload(f)
}
