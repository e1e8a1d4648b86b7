// Package program is the common part of runners that start programs: working directories, stored
// sessions, and the errors of programs that do not start or that fail.
package program

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/process"
)

// exitTemporary is EX_TEMPFAIL of sysexits.h: the program asks for a later attempt.
const exitTemporary = 75

// NotStarted classifies the errors with which a program fails to start.
func NotStarted(err error) error {
	if errors.Is(err, syscall.E2BIG) {
		return agent.NewError(chat.FailBadRequest,
			"The message is too long to be an argument of this agent's program; send less, or let the program read standard input.", err)
	}
	failed := agent.NewError(chat.FailProgram,
		"The program behind this agent was not found or cannot be started; the operator has to check the agent's command.", err)
	failed.Retryable = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EMFILE)
	return failed
}

// Ended returns the failure of a program that has ended, with its exit code and its last lines of
// standard error.
func Ended(exit process.Exit) *agent.Error {
	how := fmt.Sprintf("ended with exit code %d", exit.Code)
	if exit.Signal != "" {
		how = "was ended by the signal " + exit.Signal
	}
	sentence := "The program behind this agent " + how + "."
	if exit.Stderr != "" {
		sentence = "The program behind this agent " + how + ": " + exit.Stderr
	}
	failed := agent.NewError(chat.FailProgram, sentence, nil)
	failed.Retryable = exit.Code == exitTemporary
	return failed
}

const (
	// sessionItem in a directory is replaced by the session.
	sessionItem = "{session}"
	// maxDirName is the longest directory name made from a session key, in bytes. File systems
	// allow 255.
	maxDirName = 200
	// maxFound bounds how many files of a directory are listed; the gateway accepts fewer.
	maxFound = 1000
)

// Dir returns the working directory of a session: the configured one, with {session} replaced. It
// creates only a directory with this item, with access for the owner alone.
func Dir(configured string, session chat.SessionKey) (string, error) {
	if !strings.Contains(configured, sessionItem) {
		return configured, nil
	}
	dir := strings.ReplaceAll(configured, sessionItem, dirName(session.String()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", agent.NewError(chat.FailProgram, "The directory of this session cannot be made; the operator has to check the agent's dir.", err)
	}
	return dir, nil
}

// dirName returns a session key as a directory name: letters, digits, dots, dashes and underscores
// are kept, a colon becomes a plus, other bytes become =XX. Two keys never have the same name; a
// long name ends with a hash of the key.
func dirName(key string) string {
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		case c == ':':
			b.WriteByte('+')
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	if b.Len() <= maxDirName {
		return b.String()
	}
	sum := sha256.Sum256([]byte(key))
	return b.String()[:maxDirName-33] + "=" + hex.EncodeToString(sum[:16])
}

// Files returns the regular files in the directory itself, in the order of their names, for
// [agent.Result]. "" has none.
func Files(dir string) ([]chat.Attachment, error) {
	if dir == "" {
		return nil, nil
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

const (
	// keepTime bounds an operation of [agent.Sessions].
	keepTime = 5 * time.Second
	// leftTime is how long an earlier process may take to end by itself, then after SIGTERM, and
	// then after SIGKILL.
	leftTime = time.Second
)

var (
	errOtherMachine = errors.New("its process was on another machine")
	errOtherDir     = errors.New("it was created for another directory")
)

// Kept is where the session of an agent for one conversation is stored.
type Kept struct {
	// Sessions stores the session; if nil, nothing is stored.
	Sessions agent.Sessions
	Key      chat.SessionKey
	// Dir is the working directory of the session.
	Dir string
	Log *slog.Logger
}

// Take returns the stored session after the process that used it has ended, or the zero value if no
// session is stored. The error states why the session cannot be continued here.
func (k Kept) Take(ctx context.Context) (chat.AgentSession, error) {
	if k.Sessions == nil {
		return chat.AgentSession{}, nil
	}
	reading, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	s, err := k.Sessions.AgentSession(reading, k.Key)
	if err != nil || (s.ID == "" && s.PID == 0) {
		return chat.AgentSession{}, err
	}
	if host, err := os.Hostname(); err != nil || host != s.Host {
		return s, errors.Join(errOtherMachine, err)
	}
	if s.PID != 0 {
		if err := process.EndLeft(ctx, s.PID, s.PIDStarted, leftTime); err != nil {
			return s, err
		}
	}
	if s.ID != "" && s.Dir != k.Dir {
		return s, errOtherDir
	}
	return s, nil
}

// Put stores a session with the process that uses it. An empty id means that the process has not
// reported one; pid 0 means that no process uses it. Put runs to its end after ctx is done, and
// logs a failure.
func (k Kept) Put(ctx context.Context, id string, m Memory, pid int, started string) {
	if k.Sessions == nil {
		return
	}
	host, err := os.Hostname()
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
		defer cancel()
		err = k.Sessions.PutAgentSession(ctx, k.Key, chat.AgentSession{
			ID: id, Runs: m.Runs, Seen: m.Seen, Used: m.Used, Dir: k.Dir, Host: host, PID: pid, PIDStarted: started,
		})
	}
	if err != nil {
		k.Log.WarnContext(ctx, "the session of an agent is not stored; after a restart it receives the conversation from the transcript", "err", err)
	}
}

// Running returns a process in the form in which it is stored.
func Running(p *process.Process) (chat.Program, error) {
	host, err := os.Hostname()
	return chat.Program{Host: host, PID: p.Group(), Started: p.Identity()}, err
}

// EndLeft ends a program that an earlier attempt has left on this machine, and waits until it has
// ended. Another process with its number is not touched.
func EndLeft(ctx context.Context, left chat.Program) error {
	host, err := os.Hostname()
	if err != nil || left.PID == 0 || host != left.Host {
		return nil //nolint:nilerr // it is not known to be here
	}
	if err := process.EndLeft(ctx, left.PID, left.Started, leftTime); err != nil {
		if ended := agent.Ended(ctx); ended != nil {
			return ended
		}
		return agent.NewError(chat.FailProgram, "The program of an earlier attempt of this turn still runs and cannot be ended; the operator has to end it.", err)
	}
	return nil
}

// Lost logs why an agent does not continue its session.
func (k Kept) Lost(ctx context.Context, why string) {
	k.Log.WarnContext(ctx, "an agent does not continue its session; it receives the conversation from the transcript", "err", why)
}

// Memory records what an agent that keeps a conversation itself has seen of it. In the zero value
// it has seen nothing.
type Memory struct {
	// Runs are the latest turns, the last one at the end. Seen is the number of the last entry of
	// the transcript.
	Runs []string
	Seen int64
	// Used is the usage of the whole session, for an agent that reports this instead of the usage
	// of a turn.
	Used chat.Usage
}

// Remembered returns the memory of a stored session.
func Remembered(s chat.AgentSession) Memory { return Memory{Runs: s.Runs, Seen: s.Seen, Used: s.Used} }

// UsedBy returns the usage of a turn from the usage that the agent reports for the whole session
// after it, and stores the latter.
func (m *Memory) UsedBy(reported chat.Usage) chat.Usage {
	before := m.Used
	m.Used = reported
	return chat.Usage{
		InputTokens: reported.InputTokens - before.InputTokens, OutputTokens: reported.OutputTokens - before.OutputTokens,
		CachedTokens: reported.CachedTokens - before.CachedTokens, Provider: reported.Provider,
	}.Clamped()
}

// With returns the memory after a turn.
func (m Memory) With(req agent.Request) Memory {
	const kept = 64
	if n := len(m.Runs); n == 0 || m.Runs[n-1] != req.RunID { // not a later attempt of the same turn
		m.Runs = append(slices.Clone(m.Runs), req.RunID)
	}
	m.Runs = slices.Delete(m.Runs, 0, max(0, len(m.Runs)-kept))
	for _, e := range req.History {
		m.Seen = max(m.Seen, e.Seq)
	}
	return m
}

// Forgot reports whether the conversation was restarted since the last turn. The last turn may be
// an earlier attempt of this one.
func (m Memory) Forgot(req agent.Request) bool {
	if len(m.Runs) == 0 {
		return false
	}
	last := m.Runs[len(m.Runs)-1]
	return last != req.RunID && !slices.ContainsFunc(req.History, func(e chat.TranscriptEntry) bool { return e.RunID == last })
}

// Before returns the paragraphs that precede the message: the system prompt and the history if the
// agent has seen nothing, otherwise what others have added; then the notice that the turn runs
// again, and dir, its directory for files ("" if none).
func (m Memory) Before(req agent.Request, dir string) ([]string, error) {
	var parts []string
	intro := "Added to the conversation meanwhile, as JSON:\n"
	if len(m.Runs) == 0 {
		intro = "The conversation before this message, as JSON:\n"
		if req.SystemPrompt != "" {
			parts = append(parts, req.SystemPrompt)
		}
	}
	if unseen := m.unseen(req.History); len(unseen) > 0 {
		raw, err := json.Marshal(unseen)
		if err != nil {
			return nil, fmt.Errorf("encoding the history: %w", err)
		}
		parts = append(parts, intro+string(raw))
	}
	if again := agent.Repeated(req); again != "" {
		parts = append(parts, again)
	}
	if dir != "" {
		parts = append(parts, "Files that the person is to get with this answer: write them to the directory "+dir)
	}
	return parts, nil
}

// line is an entry of the transcript in the form for the agent. In JSON the content cannot end its
// own entry.
type line struct {
	Role string `json:"role"`
	From string `json:"from,omitempty"`
	Text string `json:"text"`
}

// unseen returns the entries that the agent has not seen: those after Seen, without its own turns,
// chat commands and questions.
func (m Memory) unseen(history []chat.TranscriptEntry) (list []line) {
	for _, e := range history {
		if (e.Seq <= m.Seen && m.Seen > 0) || slices.Contains(m.Runs, e.RunID) || e.Text == "" || e.Command || asks(e) {
			continue
		}
		if e.Origin != nil {
			e.Role = chat.RoleSystem
		}
		list = append(list, line{e.Role, agent.Source(e), e.Text})
	}
	return list
}

// asks reports whether an entry is a question to the person: its last line has the commands that
// answer it. The question ended with its turn, and an agent could take the commands for messages of
// the person.
func asks(e chat.TranscriptEntry) bool {
	last := e.Text[strings.LastIndexByte(e.Text, '\n')+1:]
	return e.Role != chat.RoleUser && (strings.HasPrefix(last, "Write /allow ") || strings.HasPrefix(last, "Write /deny ") || strings.HasPrefix(last, "Write /answer "))
}
