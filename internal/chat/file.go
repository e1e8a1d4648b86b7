package chat

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// Attachment is a file that came with a message or that an agent made for a person. It is stored under a name that the gateway generates.
type Attachment struct {
	Name     string `json:"name"` // as shown; not a path
	MIMEType string `json:"mimeType,omitempty"`
	Path     string `json:"path,omitempty"` // relative to the attachment directory
	Size     int64  `json:"size,omitempty"` // bytes
	// ID is the id of a kept file of an answer, as of [Upload]; "" for every other file.
	ID string `json:"id,omitempty"`
}

// String describes a file for people and agents: name, kind and size, always in one line.
func (a Attachment) String() string {
	return fmt.Sprintf("%s, %s, %d bytes", Printable(a.Name), Printable(a.MIMEType), a.Size)
}

// InText represents a file of a message in plain text: in the input of a model and in the transcript.
func (a Attachment) InText() string { return AttachmentMark + a.String() + "]" }

// AttachmentMark begins the representation of a file of a message.
const AttachmentMark = "[attachment: "

// Line represents a file of an answer in plain text: in the transcript, and in channels that cannot
// show files. A kept file has its id at the end: `[file: chart.png, image/png, 81 bytes, file-…]`.
func (a Attachment) Line() string {
	if a.ID != "" {
		return "[file: " + a.String() + ", " + a.ID + "]"
	}
	return "[file: " + a.String() + "]"
}

// Limits of files that come with messages.
const (
	// MaxUpload is the largest size in bytes of one file that a client uploads.
	MaxUpload = 20 << 20
	// MaxAttachments is the largest number of files of one message.
	MaxAttachments = 16
)

// Upload is a file that a client has uploaded.
type Upload struct {
	// ID names it to clients: `file-` and digits. It contains the owner in encoded form.
	ID string
	Attachment
	// Purpose is what the client wrote about it; it has no effect.
	Purpose   string
	CreatedAt time.Time
}

// maxFileName is how many characters of a file name are shown.
const maxFileName = 120

// FileName returns the part of an untrusted name that is shown: its last element, in one line, at most 120 characters, never empty. The
// result must not be used as a path.
func FileName(name string) string {
	name = Printable(path.Base(strings.ReplaceAll(CleanText(name), `\`, "/")))
	if r := []rune(name); len(r) > maxFileName {
		name = string(r[:maxFileName])
	}
	if name = strings.TrimSpace(name); name == "" || name == "." || name == ".." || name == "/" {
		return "file"
	}
	return name
}

// Printable removes characters that make a line look different from its content, see [Unprintable].
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if Unprintable(r) {
			return -1
		}
		return r
	}, s)
}
