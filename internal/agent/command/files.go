package command

import (
	"laneway/internal/agent/internal/program"
	"laneway/internal/chat"
)

// files returns the files to send: those that its JSON lines have named, or, when it answered in plain text, every regular file in
// the directory, in the order of names.
func (o *output) files(dir string) ([]chat.Attachment, error) {
	if dir == "" || o.mode == OutputJSON || len(o.answer.Named) > 0 {
		return o.answer.Named, nil
	}
	return program.Files(dir)
}
