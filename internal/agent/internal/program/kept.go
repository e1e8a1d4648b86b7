package program

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/process"
)

const (
	// keepTime bounds an operation of [agent.Sessions].
	keepTime = 5 * time.Second
	// leftTime is how long an earlier process may take to end by itself, then after SIGTERM, and then after SIGKILL.
	leftTime = time.Second
)

var (
	errOtherMachine = errors.New("its process was on another machine")
	errOtherDir     = errors.New("it was made for another directory")
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

// Take returns the stored session after the process that used it has ended, or the zero value if no session is stored. The error states why the
// session cannot be continued here.
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

// Put stores a session with the process that uses it. An empty id means that the process has not reported one; pid 0 means that no process uses it.
// Put runs to its end after ctx is done, and logs a failure.
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

// EndLeft ends a program that an earlier attempt has left on this machine, and waits until it has ended. Another process with its number is not touched.
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
