package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"laneway/internal/agent"
)

const (
	// tailWait is how long output is read when the group is dead and a process outside of it still holds the pipe.
	tailWait = 100 * time.Millisecond
	// tailSize is what a pipe can hold at most.
	tailSize = 1 << 20
	readSize = 32 << 10
)

// process is a program that runs, with what belongs to it. All of it ends in wait.
type process struct {
	cmd            *exec.Cmd
	stdin          *os.File // nil = nothing to read
	stdout, stderr *os.File

	group      sync.WaitGroup
	exited     chan struct{} // the leader has ended and is not reaped
	outEnd     chan struct{} // standard output was read to its end
	errEnd     chan struct{} // and standard error
	complaints *complaints
}

// start begins the program. Without an error the caller has to call wait.
func (r *Runner) start(req agent.Request, dir string, withInput bool) (*process, error) {
	path, err := find(r.cfg.Argv[0], r.env["PATH"])
	if err != nil {
		return nil, err
	}
	p := &process{exited: make(chan struct{}), outEnd: make(chan struct{}), errEnd: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: path,
		Args: append([]string{r.cfg.Argv[0]}, r.cfg.arguments(req)...),
		Env:  r.environment(req, dir),
		Dir:  r.cfg.Dir,
		// A group of its own, so that whatever the program starts ends with it.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	theirs, err := p.pipes(withInput)
	defer closeAll(theirs)
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		closeAll([]*os.File{p.stdin, p.stdout, p.stderr})
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	return p, nil
}

// pipes makes the three streams and returns the program's ends. The pipes are made here and not by os/exec, which would
// copy in goroutines that a grandchild can hold for ever.
func (p *process) pipes(withInput bool) ([]*os.File, error) {
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

// supervise starts two goroutines that end in wait: one waits for the leader, one ends the group. Signals go to the group
// only while the leader is not reaped: until then no other process can get its number.
func (p *process) supervise(ctx context.Context, grace time.Duration) {
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
		// A process that has left the group may hold the pipes for ever.
		until := time.Now().Add(tailWait)
		_ = p.stdout.SetReadDeadline(until) //nolint:errcheck // fails only for a closed pipe, which is not read
		_ = p.stderr.SetReadDeadline(until) //nolint:errcheck // the same
	})
}

// quiet waits until the group seems to be gone: its leader has ended and no process holds its output. The leader alone shows
// little, since a shell ends at once and what it has started may want its time.
func (p *process) quiet(grace time.Duration) {
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

// signal reaches the whole group. It fails only when no process is left.
func (p *process) signal(signal syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, signal) //nolint:errcheck // see above
}

// feed starts a goroutine that writes to standard input and ends in wait. A program may end without reading.
func (p *process) feed(input []byte) {
	if p.stdin == nil {
		return
	}
	p.group.Go(func() {
		_, _ = p.stdin.Write(input) //nolint:errcheck // see above
		_ = p.stdin.Close()
	})
}

// listen starts a goroutine that reads standard error and ends in wait.
func (p *process) listen(complaints *complaints) {
	p.complaints = complaints
	p.group.Go(func() {
		defer close(p.errEnd)
		complaints.read(p.stderr)
	})
}

// read processes standard output until its end. After an error of the answer it closes the pipe, so that a program that only
// writes notices; after the end of the context it reads on without listening, so that the program can end in good order.
func (p *process) read(ctx context.Context, out *output) error {
	defer close(p.outEnd)
	buffer := make([]byte, readSize)
	for {
		n, err := p.stdout.Read(buffer)
		if n > 0 && ctx.Err() == nil {
			if failed := out.write(buffer[:n]); failed != nil {
				_ = p.stdout.Close() // the rest is not used
				return failed
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			if failed := p.rest(out); failed != nil {
				return failed
			}
			return out.close()
		}
		if err != nil && ctx.Err() == nil {
			return out.close()
		}
		if err != nil {
			return nil
		}
	}
}

// rest takes what was written before the program ended and is still in the pipe when the wait for its end was given up.
func (p *process) rest(out *output) error {
	if err := p.stdout.SetReadDeadline(time.Now().Add(tailWait)); err != nil {
		return nil //nolint:nilerr // closed: there is no rest
	}
	raw, err := io.ReadAll(io.LimitReader(p.stdout, tailSize))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // the pipe broke: what came is all there is
	}
	return out.write(raw)
}

// wait ends everything that belongs to the process and returns how it ended. It blocks until the leader has ended, which supervise sees to.
func (p *process) wait() *exit {
	<-p.exited
	if p.stdin != nil {
		_ = p.stdin.SetWriteDeadline(time.Now()) //nolint:errcheck // closed already when everything was read
	}
	p.group.Wait()
	state := p.reap()
	closeAll([]*os.File{p.stdin, p.stdout, p.stderr})
	end := &exit{code: state.ExitCode(), last: p.complaints.last()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		end.signal = status.Signal().String()
	}
	return end
}
