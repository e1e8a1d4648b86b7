package conversation

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/store"
	"laneway/internal/wire"
)

// MessageFilePath is the path of the content of a file of the history, see [FilePlace].
const MessageFilePath = "/v1/message-file"

// KeptFiles lists the files that came with messages; a [Backend] may implement it.
type KeptFiles interface {
	// FilesOfRuns lists the files of the messages of runs, by run and in the order of the messages.
	FilesOfRuns(ctx context.Context, key chat.SessionKey, runs []string) (map[string][]chat.Attachment, error)
}

// FilePlace names a file of a message in a transcript.
type FilePlace struct {
	Session   chat.SessionKey
	SessionID string
	Seq       int64 // number of the entry
	N         int   // index of the file among those of the entry's run
}

// path returns the place as a path of this gateway.
func (p FilePlace) path() string {
	q := url.Values{
		"sessionKey": {p.Session.String()}, "sessionId": {p.SessionID}, "seq": {strconv.FormatInt(p.Seq, 10)}, "n": {strconv.Itoa(p.N)},
	}
	return MessageFilePath + "?" + q.Encode()
}

// ParseFilePlace parses the parameters of [MessageFilePath]; ok is false for parameters that [FilePlace] does not write.
func ParseFilePlace(q url.Values, defaultAgent string) (p FilePlace, ok bool) {
	key, err := chat.ParseSessionKey(q.Get("sessionKey"), defaultAgent)
	if err != nil {
		return p, false
	}
	seq, err := strconv.ParseInt(q.Get("seq"), 10, 64)
	if err != nil || seq < 1 {
		return p, false
	}
	n, err := strconv.Atoi(q.Get("n"))
	return FilePlace{Session: key, SessionID: q.Get("sessionId"), Seq: seq, N: n}, err == nil && n >= 0
}

// errNoMessageFile is the error for a file that does not exist, that belongs to a session the caller may not use, or that is too old.
func errNoMessageFile() error {
	return chat.Errorf(chat.CodeNotFound, "there is no such file; it may have been removed because of its age")
}

// MessageFile returns a file of the history, for a principal that may read the history. chat.ErrNotFound.
func MessageFile(ctx context.Context, backend Backend, cred auth.Credential, at FilePlace) (chat.Attachment, error) {
	kept, ok := backend.(KeptFiles)
	if !ok {
		return chat.Attachment{}, errNoMessageFile()
	}
	mine, err := usable(ctx, backend, cred, at.Session)
	if err != nil || !mine {
		return chat.Attachment{}, orNoFile(err)
	}
	q := store.TranscriptQuery{Session: at.Session, SessionID: at.SessionID, After: at.Seq - 1, FromStart: true, Limit: 1, MaxChars: 1}
	if cred.Own() {
		q.Visible = cred.Name
	}
	t, err := backend.Transcript(ctx, q)
	if err != nil || len(t.Entries) == 0 || t.Entries[0].Seq != at.Seq || !mayHaveFiles(t.Entries[0]) {
		return chat.Attachment{}, orNoFile(err)
	}
	run := t.Entries[0].RunID
	byRun, err := kept.FilesOfRuns(ctx, at.Session, []string{run})
	if err != nil || at.N >= len(byRun[run]) {
		return chat.Attachment{}, orNoFile(err)
	}
	return byRun[run][at.N], nil
}

func orNoFile(err error) error {
	if err != nil {
		return err
	}
	return errNoMessageFile()
}

// withFiles returns the files of entries, by the number of the entry. Each file has a line in the text of its entry; the files of a run are
// in the order of its messages. sessionID is the transcript.
func (v view) withFiles(ctx context.Context, sessionID string, entries []chat.TranscriptEntry) (map[int64][]wire.MessageFile, error) {
	kept, ok := v.Backend.(KeptFiles)
	runs := runsWithFiles(entries)
	if !ok || len(runs) == 0 {
		return nil, nil
	}
	byRun, err := kept.FilesOfRuns(ctx, v.key, runs)
	if err != nil {
		return nil, err
	}
	found, used := map[int64][]wire.MessageFile{}, map[string][]bool{}
	for _, e := range entries {
		files := byRun[e.RunID]
		if used[e.RunID] == nil {
			used[e.RunID] = make([]bool, len(files))
		}
		lines := map[string]int{} // the number of files of each description that the entry still needs
		for n, f := range files {
			line := f.InText()
			if _, counted := lines[line]; !counted {
				lines[line] = strings.Count(e.Text, line)
			}
			if used[e.RunID][n] || lines[line] == 0 {
				continue
			}
			used[e.RunID][n] = true
			lines[line]--
			place := FilePlace{Session: v.key, SessionID: sessionID, Seq: e.Seq, N: n}
			found[e.Seq] = append(found[e.Seq], wire.MessageFile{Name: chat.Printable(f.Name), MIMEType: f.MIMEType, Size: f.Size, URL: place.path()})
		}
	}
	return found, nil
}

// mayHaveFiles reports whether an entry is a message of a run.
func mayHaveFiles(e chat.TranscriptEntry) bool { return e.Role == chat.RoleUser && e.RunID != "" }

// runsWithFiles returns the runs of the entries that name a file.
func runsWithFiles(entries []chat.TranscriptEntry) (runs []string) {
	for _, e := range entries {
		if mayHaveFiles(e) && strings.Contains(e.Text, chat.AttachmentMark) && !slices.Contains(runs, e.RunID) {
			runs = append(runs, e.RunID)
		}
	}
	return runs
}
