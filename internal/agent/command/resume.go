package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/program"
	"laneway/internal/process"
)

// known reports whether the program keeps its conversations itself.
func (c Config) known() bool { return c.Output == OutputClaude || c.Output == OutputCodex }

// resumes reports whether a turn continues the conversation of the turn before. A command that
// names a conversation in its own arguments is not changed.
func (c Config) resumes() bool {
	var own []string
	switch c.Output {
	case OutputClaude:
		own = []string{"--resume", "-r", "--continue", "-c", "--session-id", "--no-session-persistence"}
	case OutputCodex:
		own = []string{"resume", "fork", "--ephemeral"}
	default:
		return false
	}
	return !slices.ContainsFunc(c.Argv[1:], func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.Contains(own, name)
	})
}

// resumption returns the arguments that make the program continue a session, none for "".
func (c Config) resumption(session string) []string {
	switch {
	case session == "":
		return nil
	case c.Output == OutputClaude:
		return []string{"--resume", session}
	default:
		return []string{"resume", session}
	}
}

// beforePrompt returns the index at which arguments are added: before the prompt, which is the
// message or a dash for standard input, or at the end.
func (c Config) beforePrompt() int {
	for i, arg := range c.Argv[1:] {
		if arg == "-" || arg == "--" || strings.Contains(arg, messageItem) {
			return 1 + i
		}
	}
	return len(c.Argv)
}

// talk is the conversation that a known program keeps itself, during one turn.
type talk struct {
	kept   program.Kept
	id     string // of the session that is continued; "" means that the program makes one
	memory program.Memory
	// begun is the session that the program has reported; "" before it has.
	begun string
	// pid and started are its process, see [process.Started].
	pid     int
	started string
}

// talkOf returns the stored conversation of a session, or a new one.
func (r *Runner) talkOf(ctx context.Context, req agent.Request, kept program.Kept) *talk {
	t := &talk{kept: kept}
	stored, err := kept.Take(ctx)
	switch memory := program.Remembered(stored); {
	case err != nil:
		kept.Lost(ctx, r.hide.Replace(err.Error()))
	case stored.ID != "" && !memory.Forgot(req):
		t.id, t.memory = stored.ID, memory
	}
	return t
}

// start stores the process before it has reported a session: a later attempt of the turn has to end
// it first.
func (t *talk) start(ctx context.Context, p *process.Process) {
	t.pid, t.started = p.Group(), p.Identity()
	t.kept.Put(ctx, t.id, t.memory, t.pid, t.started)
}

// begin stores the session that the program has reported, so that a later attempt of the turn
// continues it.
func (t *talk) begin(ctx context.Context, id string, req agent.Request) {
	if id == "" || t.begun != "" {
		return
	}
	t.begun, t.memory = id, t.memory.With(req)
	t.kept.Put(ctx, id, t.memory, t.pid, t.started)
}

// end stores that the process has ended.
func (t *talk) end(ctx context.Context) { t.kept.Put(ctx, cmp.Or(t.begun, t.id), t.memory, 0, "") }

// gates let the turns of a session run one at a time, in their order: a known program writes to the
// file of its conversation.
type gates struct {
	mu  sync.Mutex
	all map[string]*gate
}

type gate struct {
	free  chan struct{} // has an element while no turn runs
	users int           // turns that run or wait
}

// enter waits for the earlier turns. The caller calls leave once, after its turn.
func (g *gates) enter(ctx context.Context, session string) (leave func(), err error) {
	g.mu.Lock()
	at := g.all[session]
	if at == nil {
		at = &gate{free: make(chan struct{}, 1)}
		at.free <- struct{}{}
		g.all[session] = at
	}
	at.users++
	g.mu.Unlock()
	left := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if at.users--; at.users == 0 {
			delete(g.all, session)
		}
	}
	select {
	case <-at.free:
		return func() { at.free <- struct{}{}; left() }, nil
	case <-ctx.Done():
		left()
		return nil, agent.Ended(ctx)
	}
}

// fileLines names the files of the messages by their paths; "" if they have none.
func fileLines(req agent.Request) string {
	if req.Files == nil {
		return ""
	}
	var lines []string
	for _, message := range req.Messages {
		for _, file := range message.Attachments {
			if file.Path != "" {
				lines = append(lines, fmt.Sprintf("The file %q of the message is %s", file.Name, req.Files.Path(file.Path)))
			}
		}
	}
	return strings.Join(lines, "\n")
}
