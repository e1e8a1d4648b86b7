package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

const (
	// DefaultGrace is the time between SIGTERM and SIGKILL.
	DefaultGrace = 2 * time.Second
	// tailWait is how long output is read when the group has ended and a process outside of it still holds the pipe.
	tailWait = 100 * time.Millisecond
	// tailSize is the largest capacity of a pipe.
	tailSize = 1 << 20
	readSize = 32 << 10
)

// Spec is a program to start.
type Spec struct {
	// Argv is the program and its arguments, which are passed unchanged. A program without a slash is resolved in PATH of Env.
	Argv []string
	// Env is the whole environment; see [Environment].
	Env map[string]string
	// Dir is the working directory; "" means that of the gateway.
	Dir string
	// Input is written to standard input, which is then closed. nil means that standard input is empty.
	Input []byte
	// Talks keeps standard input open for the caller to write to ([Process.Write], [Process.CloseInput]). Input is then not used.
	Talks bool
	// Grace between SIGTERM and SIGKILL; 0 means [DefaultGrace].
	Grace time.Duration
	// Hide replaces secrets in lines of standard error; nil means that nothing is replaced.
	Hide *strings.Replacer
	// Noise bounds the lines of standard error in the log, over all programs that share it; nil means that no line is logged.
	Noise *rate.Limiter
	// Log receives the lines of standard error; nil discards.
	Log *slog.Logger
	// Reaper ends processes that leave the group of the program; nil means that they outlive it.
	Reaper *Reaper
}

// Exit is how a program ended.
type Exit struct {
	// Code is the exit code; -1 if a signal ended the program.
	Code int
	// Signal is the name of that signal; "" if none.
	Signal string
	// Stderr is the last lines of standard error in one line, at most 500 bytes.
	Stderr string
}

// errNoInput is a mistake of the caller, who has started the program without [Spec.Talks].
var errNoInput = errors.New("the standard input of the program is not open")

// Process is a running program. Read and Wait belong to one goroutine of the caller.
type Process struct {
	cmd            *exec.Cmd
	reaper         *Reaper
	stdin          *os.File // nil if there is no input
	talks          bool
	stdout, stderr *os.File

	group  sync.WaitGroup
	exited chan struct{} // the leader has ended and is not reaped
	outEnd chan struct{} // standard output was read to its end
	errEnd chan struct{} // and standard error
	lines  *stderrLines
}

// Start starts the program; the end of ctx ends it. If it succeeds, the caller must call Read and then Wait. Its errors are those of
// the search for the program and of the system ([fs.ErrNotExist], syscall.E2BIG, …).
func Start(ctx context.Context, spec Spec) (*Process, error) {
	path, err := find(spec.Argv[0], spec.Env["PATH"])
	if err != nil {
		return nil, err
	}
	p := &Process{reaper: spec.Reaper, exited: make(chan struct{}), outEnd: make(chan struct{}), errEnd: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: path,
		Args: spec.Argv,
		Env:  list(spec.Env),
		Dir:  spec.Dir,
		// A separate group, so that whatever the program starts ends with it.
		SysProcAttr: ownGroup(),
	}
	theirs, err := p.pipes(spec.Input != nil || spec.Talks)
	defer closeAll(theirs)
	if err == nil {
		err = p.reaper.start(p.cmd)
	}
	if err != nil {
		closeAll([]*os.File{p.stdin, p.stdout, p.stderr})
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	grace := spec.Grace
	if grace == 0 {
		grace = DefaultGrace
	}
	p.supervise(ctx, grace)
	if !spec.Talks {
		p.feed(spec.Input)
	}
	p.talks = spec.Talks
	p.listen(newStderrLines(spec))
	return p, nil
}

// pipes makes the three streams and returns the program's ends. The pipes are made here and not by os/exec, which would
// copy in goroutines that a grandchild can block forever.
func (p *Process) pipes(withInput bool) ([]*os.File, error) {
	var theirs []*os.File
	pipe := func() (*os.File, *os.File, error) {
		read, write, err := os.Pipe()
		if err != nil {
			return nil, nil, fmt.Errorf("making a pipe: %w", err)
		}
		return read, write, nil
	}
	if withInput {
		read, write, err := pipe()
		if err != nil {
			return theirs, err
		}
		theirs = append(theirs, read)
		p.stdin, p.cmd.Stdin = write, read
	}
	read, write, err := pipe()
	if err != nil {
		return theirs, err
	}
	theirs = append(theirs, write)
	p.stdout, p.cmd.Stdout = read, write
	read, write, err = pipe()
	if err != nil {
		return theirs, err
	}
	p.stderr, p.cmd.Stderr = read, write
	return append(theirs, write), nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		if file != nil {
			_ = file.Close() // pipes have nothing to flush
		}
	}
}

// supervise starts two goroutines that end in Wait: one waits for the leader, one ends the group. Signals go to the group
// only while the leader is not reaped: until then no other process can have its number.
func (p *Process) supervise(ctx context.Context, grace time.Duration) {
	p.group.Go(func() {
		p.waitLeader()
		close(p.exited)
	})
	p.group.Go(func() {
		select {
		case <-p.exited:
		case <-ctx.Done():
			p.signal(syscall.SIGTERM)
			p.quiet(grace)
		}
		p.signal(syscall.SIGKILL)
		p.leftGroup()
		// A process that could not be found may hold the pipes forever.
		until := time.Now().Add(tailWait)
		_ = p.stdout.SetReadDeadline(until) //nolint:errcheck // fails only for a closed pipe, which is not read
		_ = p.stderr.SetReadDeadline(until) //nolint:errcheck // the same
	})
}

// quiet waits until the group seems to have ended: its leader has ended and no process holds its output. The end of the
// leader is not enough: a shell ends at once, and the processes that it has started may use the grace time.
func (p *Process) quiet(grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for _, end := range []chan struct{}{p.exited, p.outEnd, p.errEnd} {
		select {
		case <-end:
		case <-timer.C:
			return
		}
	}
}

// leftGroup ends the processes that have left the group. The leader may still be ending.
func (p *Process) leftGroup() {
	<-p.exited
	p.reaper.end(p.cmd.Process.Pid)
}

// signal sends a signal to the whole group. It fails only when no process is left.
func (p *Process) signal(signal syscall.Signal) {
	_ = signalGroup(p.cmd.Process, signal) //nolint:errcheck // see above
}

// feed starts a goroutine that writes to standard input and ends in Wait. A program may end without reading.
func (p *Process) feed(input []byte) {
	if p.stdin == nil {
		return
	}
	p.group.Go(func() {
		_, _ = p.stdin.Write(input) //nolint:errcheck // see above
		_ = p.stdin.Close()
	})
}

// Write writes to standard input. It blocks while the program does not read, and fails when the program has ended or input was closed. It is safe for
// concurrent use with every other method.
func (p *Process) Write(b []byte) (int, error) {
	if !p.talks {
		return 0, errNoInput
	}
	return p.stdin.Write(b)
}

// CloseInput closes standard input, so that the program reads its end. It may be called again.
func (p *Process) CloseInput() {
	if p.talks {
		_ = p.stdin.Close() // a pipe has nothing to flush
	}
}

// listen starts a goroutine that reads standard error and ends in Wait.
func (p *Process) listen(lines *stderrLines) {
	p.lines = lines
	p.group.Go(func() {
		defer close(p.errEnd)
		lines.read(p.stderr)
	})
}

// Read passes standard output to take until its end, in pieces of at most 32 KiB that are valid during the call. After an error of take, which
// it returns, it closes the pipe, so that a program that only writes fails; the caller then ends ctx. After the end of ctx it continues to read
// but discards the output, so that the program can end in an orderly way. ctx is that of [Start] or one derived from it.
func (p *Process) Read(ctx context.Context, take func(piece []byte) error) error {
	defer close(p.outEnd)
	buffer := make([]byte, readSize)
	for {
		n, err := p.stdout.Read(buffer)
		if n > 0 && ctx.Err() == nil {
			if failed := take(buffer[:n]); failed != nil {
				_ = p.stdout.Close() // the rest is not used
				return failed
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			return p.rest(take)
		}
		if err != nil {
			return nil
		}
	}
}

// rest passes on what the program wrote before it ended and what is still in the pipe after the wait for its end.
func (p *Process) rest(take func([]byte) error) error {
	if err := p.stdout.SetReadDeadline(time.Now().Add(tailWait)); err != nil {
		return nil //nolint:nilerr // closed: there is no rest
	}
	raw, err := io.ReadAll(io.LimitReader(p.stdout, tailSize))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // the pipe broke: nothing more can be read
	}
	return take(raw)
}

// Identity returns what [EndLeft] needs to end this process, and the processes that it has started, after the end of the gateway: its start, and the
// marker that they inherit. It returns "" if the process has ended, or if this system cannot identify processes.
func (p *Process) Identity() string {
	started := Started(p.Group())
	if started == "" {
		return ""
	}
	for _, variable := range p.cmd.Env {
		if marker, ok := strings.CutPrefix(variable, markerVariable+"="); ok {
			return started + " " + marker
		}
	}
	return started
}

// Group returns the number of the process group, for [Memory].
func (p *Process) Group() int { return p.cmd.Process.Pid }

// Lines returns how many lines of standard error were read so far, for [Process.LastLines].
func (p *Process) Lines() int {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	return p.lines.count
}

// LastLines returns the last lines of standard error after the first so many, in one line as in [Exit]. It waits for at least one line, because
// standard error is read concurrently with standard output, but not longer than patience.
func (p *Process) LastLines(after int, patience time.Duration) string {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		text, next := p.lines.lastAfter(after)
		if text != "" {
			return text
		}
		select {
		case <-next:
		case <-p.errEnd:
			text, _ = p.lines.lastAfter(after)
			return text
		case <-timer.C:
			return ""
		}
	}
}

// Wait ends everything that belongs to the process and returns how it ended. It blocks until the leader has ended: by itself, or, after
// the end of the context of Start, within the grace time.
func (p *Process) Wait() Exit {
	<-p.exited
	if p.stdin != nil {
		_ = p.stdin.SetWriteDeadline(time.Now()) //nolint:errcheck // closed already when everything was read
	}
	p.group.Wait()
	state := p.reap()
	p.reaper.forget(p.cmd.Process.Pid)
	closeAll([]*os.File{p.stdin, p.stdout, p.stderr})
	end := Exit{Code: state.ExitCode(), Stderr: p.lines.last()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		end.Signal = status.Signal().String()
	}
	return end
}
