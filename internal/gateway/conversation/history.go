package conversation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/store"
	"laneway/internal/wire"
)

const (
	historyLimit = 200
	historyChars = 12_000
	maxPending   = 20
)

// cursor is a position in a transcript. It names the transcript, because the numbers restart after
// a reset.
type cursor struct {
	seq       int64
	sessionID string // "" = the start of any transcript, or a cursor without this part
}

const cursorPrefix = "m:"

func (c cursor) String() string {
	s := formatSeq(cursorPrefix, c.seq)
	if c.sessionID != "" {
		s += ":" + c.sessionID
	}
	return s
}

func parseCursor(s string) (cursor, bool) {
	rest, ok := strings.CutPrefix(s, cursorPrefix)
	number, id, _ := strings.Cut(rest, ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	return cursor{seq, id}, ok && err == nil && seq >= 0
}

// lost reports whether the cursor belongs to a transcript other than the current one.
func (c cursor) lost(t store.Transcript) bool {
	return (c.sessionID != "" && c.sessionID != t.SessionID) || c.seq > t.LastSeq
}

// messageList is a list of encoded messages, which is limited in bytes.
type messageList struct {
	encoded []json.RawMessage
	last    int64           // the number of the last message
	answers map[string]bool // the runs whose answers are in the list
}

func (h handlers) chatHistory(ctx context.Context, c *rpc.Call, p wire.ChatHistoryParams) (wire.ChatHistoryResult, error) {
	key, err := h.session(c, p.SessionKey, "")
	if err != nil {
		return wire.ChatHistoryResult{}, err
	}
	seen, err := h.lookAt(ctx, c, key)
	if err != nil {
		return wire.ChatHistoryResult{}, err
	}
	// The running text is read first: if the run ends in between, its answer is also in the
	// transcript, and is shown once.
	flight, flying := seen.InFlight(key)
	read := seen.page
	switch {
	case p.Seq == nil && p.FromChar > 0 || p.Seq != nil && (p.Cursor != nil || p.Offset > 0):
		return wire.ChatHistoryResult{}, c.BadParam("/fromChar", "goes with seq, and seq without cursor and offset")
	case p.Seq != nil:
		read = seen.one
	case p.Cursor != nil:
		read = seen.after
	}
	page, messages, err := read(ctx, c, p)
	if err != nil {
		return wire.ChatHistoryResult{}, err
	}
	if page == nil {
		return wire.ChatHistoryResult{Of: wire.HistoryReset{Kind: "reset"}}, nil
	}
	if flying && !messages.answers[flight.RunID] {
		page.InFlightRun = &wire.InFlightRun{RunID: chat.ShownRunID(flight.RunID), Text: flight.Text, Seq: flight.Seq}
	}
	if err := seen.state(ctx, c.Caller(), int(orElse(p.MaxChars, historyChars)), page); err != nil {
		return wire.ChatHistoryResult{}, err
	}
	if p.Cursor == nil {
		return wire.ChatHistoryResult{Of: page}, nil
	}
	return wire.ChatHistoryResult{Of: wire.HistoryDelta[json.RawMessage]{
		Kind: "delta", Messages: page.Messages, DeltaCursor: page.DeltaCursor, PendingInputs: page.PendingInputs, InFlightRun: page.InFlightRun,
		SessionInfo: page.SessionInfo,
	}}, nil
}

// state adds the current state of the session.
func (v view) state(ctx context.Context, by chat.Caller, maxChars int, out *wire.HistoryPage[json.RawMessage]) error {
	waiting, total, err := v.PendingInputs(ctx, v.key, 0, maxPending)
	if err != nil {
		return err
	}
	out.PendingInputs = wire.PendingInputs{Items: []wire.PendingInput{}, Total: min(total, chat.Counted), TotalIsLowerBound: total > chat.Counted}
	for _, w := range waiting {
		out.PendingInputs.Items = append(out.PendingInputs.Items, pendingView(w, maxChars))
	}
	st, err := v.Session(ctx, v.key, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		st, err = chat.SessionStatus{Key: v.key}, nil
	}
	out.SessionInfo = rowOf(st, by)
	return err
}

func pendingView(w store.Waiting, maxChars int) wire.PendingInput {
	return wire.PendingInput{
		ID: chat.ShownRunID(w.MessageID), RunID: chat.ShownRunID(w.MessageID), AcceptedAt: w.AcceptedAt.UnixMilli(), State: "queued",
		Message: wire.HistoryMessage{
			Role: chat.RoleUser, Content: []wire.TextPart{{Type: "text", Text: cutChars(w.Content.Text, maxChars)}}, Timestamp: w.AcceptedAt.UnixMilli(),
		},
	}
}

// page returns the last messages before the offset, oldest first.
func (v view) page(ctx context.Context, c *rpc.Call, p wire.ChatHistoryParams) (*wire.HistoryPage[json.RawMessage], messageList, error) {
	chars := int(orElse(p.MaxChars, historyChars))
	t, err := v.Transcript(ctx, store.TranscriptQuery{
		Session: v.key, SessionID: p.SessionID, Visible: c.Visible(), Limit: int(orElse(p.Limit, historyLimit)), Offset: int(p.Offset),
		MaxChars: chars, MaxBytes: rpc.ListBytes,
	})
	if err != nil {
		return nil, messageList{}, err
	}
	id := cmp.Or(p.SessionID, t.SessionID)
	files, err := v.withFiles(ctx, id, t.Entries)
	if err != nil {
		return nil, messageList{}, err
	}
	messages := encodeMessages(backwards(t.Entries), files, chars)
	slices.Reverse(messages.encoded)
	return &wire.HistoryPage[json.RawMessage]{
		SessionKey: v.key.String(), SessionID: id, Messages: messages.encoded,
		HasMore: int(p.Offset)+len(messages.encoded) < t.Total, TotalMessages: t.Total, DeltaCursor: cursor{t.LastSeq, t.SessionID}.String(),
	}, messages, nil
}

// one returns the message of a number, with its text from a character on.
func (v view) one(ctx context.Context, c *rpc.Call, p wire.ChatHistoryParams) (*wire.HistoryPage[json.RawMessage], messageList, error) {
	chars := int(orElse(p.MaxChars, historyChars))
	t, err := v.Transcript(ctx, store.TranscriptQuery{
		Session: v.key, SessionID: p.SessionID, Visible: c.Visible(), After: *p.Seq - 1, FromStart: true, Limit: 1, MaxChars: int(min(p.FromChar, mostChars)) + chars, MaxBytes: rpc.ListBytes,
	})
	if err != nil {
		return nil, messageList{}, err
	}
	id := cmp.Or(p.SessionID, t.SessionID)
	found := messageList{encoded: []json.RawMessage{}}
	if len(t.Entries) == 1 && t.Entries[0].Seq == *p.Seq {
		e := t.Entries[0]
		files, err := v.withFiles(ctx, id, t.Entries)
		if err != nil {
			return nil, messageList{}, err
		}
		text := []rune(e.Text)
		text = text[min(p.FromChar, int64(len(text))):]
		more := len(text) > chars
		e.Text = string(text[:min(chars, len(text))])
		m := messageOf(e, chars)
		if m.Files = files[e.Seq]; more {
			m.NextChar = p.FromChar + int64(chars)
		}
		found.encoded = append(found.encoded, strictjson.Encode(m))
	}
	return &wire.HistoryPage[json.RawMessage]{
		SessionKey: v.key.String(), SessionID: id, Messages: found.encoded, TotalMessages: t.Total, DeltaCursor: cursor{t.LastSeq, t.SessionID}.String(),
	}, found, nil
}

// mostChars bounds the beginning of a text that is read and left out.
const mostChars = 1 << 30

// after returns exactly the messages after a cursor; nil when the transcript is another one.
func (v view) after(ctx context.Context, c *rpc.Call, p wire.ChatHistoryParams) (*wire.HistoryPage[json.RawMessage], messageList, error) {
	from, ok := parseCursor(*p.Cursor)
	if !ok {
		return nil, messageList{}, nil
	}
	chars := int(orElse(p.MaxChars, historyChars))
	t, err := v.Transcript(ctx, store.TranscriptQuery{
		Session: v.key, After: from.seq, FromStart: from.seq == 0, Limit: int(orElse(p.Limit, historyLimit)), MaxChars: chars, MaxBytes: rpc.ListBytes,
	})
	if err != nil || from.lost(t) {
		return nil, messageList{}, err
	}
	files, err := v.withFiles(ctx, t.SessionID, t.Entries)
	if err != nil {
		return nil, messageList{}, err
	}
	messages := encodeMessages(t.Entries, files, chars)
	return &wire.HistoryPage[json.RawMessage]{
		Messages: messages.encoded, DeltaCursor: cursor{max(messages.last, from.seq), t.SessionID}.String(),
	}, messages, nil
}

func orElse[T any](v *T, d T) T {
	if v == nil {
		return d
	}
	return *v
}

func backwards(entries []chat.TranscriptEntry) []chat.TranscriptEntry {
	out := slices.Clone(entries)
	slices.Reverse(out)
	return out
}

// encodeMessages encodes entries in order until they no longer fit into an answer, at least one.
func encodeMessages(entries []chat.TranscriptEntry, files map[int64][]wire.MessageFile, maxChars int) messageList {
	out := messageList{encoded: []json.RawMessage{}, answers: map[string]bool{}}
	size := 0
	for _, e := range entries {
		shown := messageOf(e, maxChars)
		shown.Files = files[e.Seq]
		m := strictjson.Encode(shown)
		if size += len(m); size > rpc.ListBytes && len(out.encoded) > 0 {
			break
		}
		out.encoded, out.last = append(out.encoded, m), e.Seq
		if e.Role == chat.RoleAssistant {
			out.answers[e.RunID] = true
		}
	}
	return out
}

func messageOf(e chat.TranscriptEntry, maxChars int) wire.HistoryMessage {
	id := formatSeq("m-", e.Seq)
	m := wire.HistoryMessage{
		ID: id, Seq: e.Seq, Role: e.Role, Content: []wire.TextPart{{Type: "text", Text: cutChars(e.Text, maxChars)}}, Timestamp: e.At.UnixMilli(),
		RunID: chat.ShownRunID(e.RunID), StopReason: e.StopReason, Command: e.Command, Openclaw: &wire.ClientMark{ID: id, Seq: e.Seq},
	}
	if m.Content[0].Text != e.Text {
		m.NextChar = int64(maxChars)
	}
	if e.Covers.To > 0 {
		m.Covers = &wire.SeqRange{From: e.Covers.From, To: e.Covers.To}
	}
	if o := e.Origin; o != nil {
		m.Origin = &wire.Origin{Kind: o.Kind, Who: o.Who(), JobID: o.Job}
	}
	if e.Role == chat.RoleUser && e.RunID != "" {
		m.Openclaw.IdempotencyKey = chat.ShownRunID(e.RunID) + ":user"
	}
	return m
}

// cutChars shortens s to n characters and marks the cut.
func cutChars(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i] + "..."
		}
		n--
	}
	return s
}

func formatSeq(prefix string, n int64) string { return prefix + strconv.FormatInt(n, 10) }

// MessageFilePath is the path of the content of a file of the history, see [FilePlace].
const MessageFilePath = "/v1/message-file"

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

// ParseFilePlace parses the parameters of [MessageFilePath]; ok is false for parameters that
// [FilePlace] does not write.
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

// errNoMessageFile is the error for a file that does not exist, that belongs to a session the
// caller may not use, or that is too old.
func errNoMessageFile() error {
	return chat.Errorf(chat.CodeNotFound, "there is no such file: it has expired or was deleted")
}

// MessageFile returns a file of the history, for a principal that may read the history.
// chat.ErrNotFound.
func MessageFile(ctx context.Context, backend Backend, cred auth.Credential, at FilePlace) (chat.Attachment, error) {
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
	byRun, err := backend.FilesOfRuns(ctx, at.Session, []string{run})
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

// withFiles returns the files of entries, by the number of the entry. Each file has a line in the
// text of its entry; the files of a run are in the order of its messages. sessionID is the
// transcript.
func (v view) withFiles(ctx context.Context, sessionID string, entries []chat.TranscriptEntry) (map[int64][]wire.MessageFile, error) {
	runs := runsWithFiles(entries)
	if len(runs) == 0 {
		return nil, nil
	}
	byRun, err := v.FilesOfRuns(ctx, v.key, runs)
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
