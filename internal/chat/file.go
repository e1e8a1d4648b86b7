package chat

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// Attachment is a file that came with a message, or that an agent made for a person, stored under a name that the gateway made.
type Attachment struct {
	Name     string `json:"name"` // as shown; never a path
	MIMEType string `json:"mimeType,omitempty"`
	Path     string `json:"path,omitempty"` // relative to the attachment directory
	Size     int64  `json:"size,omitempty"` // bytes
}

// String describes a file for people and agents: name, kind and size, in one line whatever the name contains.
func (a Attachment) String() string {
	return fmt.Sprintf("%s, %s, %d bytes", Printable(a.Name), Printable(a.MIMEType), a.Size)
}

// InText stands for a file of a message in text alone: in what a model reads, and in the transcript.
func (a Attachment) InText() string { return AttachmentMark + a.String() + "]" }

// AttachmentMark begins what stands for a file of a message in a text.
const AttachmentMark = "[attachment: "

// Line stands for a file of an answer in text alone: in the transcript, and in channels that show no files.
func (a Attachment) Line() string { return "[file: " + a.String() + "]" }

// Bounds of files that come with messages.
const (
	// MaxUpload is the largest size in bytes of one file that a client sends in.
	MaxUpload = 20 << 20
	// MaxAttachments is the largest number of files of one message.
	MaxAttachments = 16
)

// Upload is a file that a client has sent in.
type Upload struct {
	// ID names it to clients: `file-` and digits. It contains whose file it is, not in plain text.
	ID string
	Attachment
	// Purpose is what the client wrote about it; it has no effect.
	Purpose   string
	CreatedAt time.Time
}

// maxFileName is how many characters of a file's name are shown.
const maxFileName = 120

// FileName is what is shown of a name that came from outside: its last part, in one line, at most 120 characters, never empty. It is no path
// and is never used as one.
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

// Printable removes characters that make a line look like something else than it contains, see [Unprintable].
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if Unprintable(r) {
			return -1
		}
		return r
	}, s)
}
