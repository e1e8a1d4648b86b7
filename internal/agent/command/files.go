package command

import (
	"os"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// maxFound bounds how many files of the directory are named; the gateway takes fewer.
const maxFound = 1000

// files are what the program wants to be sent: what its JSON lines have named, or, when it answered in plain text, every regular file that lies in
// the directory, in the order of names.
func (o *output) files(dir string) ([]chat.Attachment, error) {
	if dir == "" || o.mode == OutputJSON || len(o.answer.Named) > 0 {
		return o.answer.Named, nil
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
