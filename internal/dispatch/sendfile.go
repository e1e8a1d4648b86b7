package dispatch

import (
	"context"
	"strings"
	"sync"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/files"
	"laneway/internal/tool"
)

// turnFiles has the files of one turn for the tool that sends them before the turn has ended. All calls together have the limits of an
// answer.
type turnFiles struct {
	ts *turns
	t  *turn

	mu    sync.Mutex
	sent  int
	bytes int64
}

var _ tool.Files = (*turnFiles)(nil)

// filesOf returns the files of a turn whose conversation shows files; nil when it does not.
func (ts *turns) filesOf(t *turn, to chat.Target) tool.Files {
	if _, shows := ts.channels[to.Channel].(channel.Filer); !shows || ts.cfg.Files == nil {
		return nil
	}
	return &turnFiles{ts: ts, t: t}
}

// TakeFile implements [tool.Files].
func (f *turnFiles) TakeFile(path, name string) (chat.Attachment, error) {
	return f.take(func(dir *files.Turn) (chat.Attachment, error) {
		return chat.Attachment{Path: dir.Below(path), Name: name}, nil
	})
}

// MakeFile implements [tool.Files].
func (f *turnFiles) MakeFile(name, text string) (chat.Attachment, error) {
	return f.take(func(dir *files.Turn) (chat.Attachment, error) {
		path, err := dir.Write([]byte(text))
		return chat.Attachment{Path: path, Name: name}, err
	})
}

// take takes one file from the directory of the turn.
func (f *turnFiles) take(named func(dir *files.Turn) (chat.Attachment, error)) (chat.Attachment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sent >= files.MaxFiles {
		return chat.Attachment{}, chat.Errorf(chat.CodeLimit, "a turn sends at most %d files", files.MaxFiles)
	}
	f.t.outputMu.Lock()
	defer f.t.outputMu.Unlock()
	if f.t.outputEnded {
		return chat.Attachment{}, chat.Errorf(chat.CodeInvalid, "the turn has ended")
	}
	if err := f.ts.openOutput(f.t); err != nil {
		return chat.Attachment{}, err
	}
	file, err := named(f.t.output)
	if err != nil {
		return chat.Attachment{}, err
	}
	taken, left, err := f.t.output.Take([]chat.Attachment{file})
	if err != nil {
		return chat.Attachment{}, err
	}
	if len(taken) == 0 {
		return chat.Attachment{}, chat.Errorf(chat.CodeNotFound, "%s", strings.TrimSuffix(left, "."))
	}
	if f.bytes+taken[0].Size > files.MaxTotal {
		f.DropFile(taken[0])
		return chat.Attachment{}, chat.Errorf(chat.CodeLimit, "the files of a turn have at most %d MB together", files.MaxTotal>>20)
	}
	f.sent++
	f.bytes += taken[0].Size
	return taken[0], nil
}

// DropFile implements [tool.Files].
func (f *turnFiles) DropFile(file chat.Attachment) {
	if err := f.ts.cfg.Files.Drop([]chat.Attachment{file}); err != nil {
		f.ts.log.WarnContext(context.Background(), "a file that was not sent remains until retention removes it", "err", err) //nolint:forbidigo // for the log alone
	}
}
