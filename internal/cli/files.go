package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"laneway/internal/chat"
)

type filesCmd struct {
	Get filesGetCmd `cmd:"" help:"Save a file that an agent made or that was uploaded."`
}

type filesGetCmd struct {
	clientFlags
	ID     string `arg:"" help:"The id of the file: the last word of its line in the answer."`
	Output string `help:"Where to write it; - is standard output. Default: its name, in this directory." short:"o" placeholder:"PATH"`
}

// Help is the long help of the command.
func (*filesGetCmd) Help() string {
	return `An answer ends with a line for each file: [file: chart.png, image/png, 81 bytes, file-0192…]. A file that exists is not replaced.

Examples:

    laneway files get file-01923f6c5b6a7c1e8d3f4a5b6c7d8e9f0192aabbccddeeff
    laneway files get file-01923f6c5b6a7c1e8d3f4a5b6c7d8e9f0192aabbccddeeff -o chart.png`
}

var fileID = regexp.MustCompile(`^file-[0-9a-f]{1,100}$`)

// Run saves the file.
func (c *filesGetCmd) Run(ctx context.Context, env *environment) error {
	if !fileID.MatchString(c.ID) {
		return usageError(fmt.Sprintf("%q is not the id of a file; it begins with file- and stands at the end of the file's line in the answer", c.ID))
	}
	to, err := c.serving(ctx, env)
	if err != nil {
		return err
	}
	if c.Output == "-" {
		return downloadFile(ctx, to, c.ID, func(string) (io.Writer, error) { return env.stdout, nil })
	}
	path, made := c.Output, (*os.File)(nil)
	err = downloadFile(ctx, to, c.ID, func(name string) (io.Writer, error) {
		path = cmp.Or(path, chat.FileName(name))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return nil, usageError(path + " exists; choose another name with -o")
		}
		made = f
		return f, err
	})
	if made == nil {
		return err
	}
	if err = errors.Join(err, made.Close()); err != nil {
		return errors.Join(err, os.Remove(path)) // an incomplete file must not look complete
	}
	_, err = fmt.Fprintln(env.stdout, filepath.Clean(path))
	return err
}
