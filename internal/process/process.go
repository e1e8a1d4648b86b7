// Package process starts programs. It is the only package of the binary that does, so that the
// limits of started programs are in one place.
//
// # Starting
//
// [Start] takes a [Spec]: the program and its unchanged arguments, without a shell, the whole
// environment, the working directory, and what goes to standard input. The environment of the
// gateway is never inherited: [Environment] makes a clean one of PATH, HOME, TZ, the locale,
// proxies and certificates, and the configured variables. A program without a slash is resolved in
// the PATH of that environment.
//
// # Running
//
// The program runs in its own process group. With [Spec.Talks] the caller writes to its standard
// input while it runs. [Process.Read] passes standard output to a function of the caller, whose
// first error ends the program. Standard error goes to the log, a bounded number of lines per
// second; its last lines are in [Exit]. Configured values are removed from it, because they may be
// keys ([Hider]).
//
// # Ending
//
// When the context of Start is done, the group receives SIGTERM and, after the grace time, SIGKILL.
// When the program ends by itself, the processes that it left in its group are killed, and output
// that they hold open is read for at most 100 ms. A process that has left the group (setsid, double
// fork) is killed too where a [Reaper] exists; stronger isolation (containers, users) is left to
// the operator.
//
// # Goroutines
//
// Start makes two to four goroutines: one waits for the program, one ends the group, one writes
// standard input if there is any, one reads standard error. All of them end in [Process.Wait],
// which the caller must call once after Read.
//
// # Crash
//
// When the gateway is killed, its programs are not: they lose their pipes and end when they write.
// The turn runs again with the same run id, which the caller gives the program in its environment.
//
// The package does not depend on turns, agents or the store. Windows has no process groups, so
// there only the program itself is ended.
package process

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"laneway/internal/chat"
	"laneway/internal/secret"
)

const (
	// DefaultGrace is the time between SIGTERM and SIGKILL.
	DefaultGrace = 2 * time.Second
	// tailWait is how long output is read when the group has ended and a process outside of it
	// still holds the pipe.
	tailWait = 100 * time.Millisecond
	// tailSize is the largest capacity of a pipe.
	tailSize = 1 << 20
	readSize = 32 << 10
)

// Spec is a program to start.
type Spec struct {
	// Argv is the program and its arguments, which are passed unchanged. A program without a slash
	// is resolved in PATH of Env.
	Argv []string
	// Env is the whole environment; see [Environment].
	Env map[string]string
	// Dir is the working directory; "" means that of the gateway.
	Dir string
	// Input is written to standard input, which is then closed. nil means that standard input is
	// empty.
	Input []byte
	// Talks keeps standard input open for the caller to write to ([Process.Write],
	// [Process.CloseInput]). Input is then not used.
	Talks bool
	// Grace between SIGTERM and SIGKILL; 0 means [DefaultGrace].
	Grace time.Duration
	// Hide replaces secrets in lines of standard error; nil means that nothing is replaced.
	Hide *strings.Replacer
	// Noise bounds the lines of standard error in the log, over all programs that share it; nil
	// means that no line is logged.
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

// Start starts the program; the end of ctx ends it. If it succeeds, the caller must call Read and
// then Wait. Its errors are those of the search for the program and of the system
// ([fs.ErrNotExist], syscall.E2BIG, …).
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
	grace := cmp.Or(spec.Grace, DefaultGrace)
	p.supervise(ctx, grace)
	if !spec.Talks {
		p.feed(spec.Input)
	}
	p.talks = spec.Talks
	p.listen(newStderrLines(spec))
	return p, nil
}

// pipes makes the three streams and returns the program's ends. The pipes are made here and not by
// os/exec, which would copy in goroutines that a grandchild can block forever.
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

// supervise starts two goroutines that end in Wait: one waits for the leader, one ends the group.
// Signals go to the group only while the leader is not reaped: until then no other process can have
// its number.
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
		_ = p.stdout.SetReadDeadline(until) // fails only for a closed pipe, which is not read
		_ = p.stderr.SetReadDeadline(until) // the same
	})
}

// quiet waits until the group seems to have ended: its leader has ended and no process holds its
// output. The end of the leader is not enough: a shell ends at once, and the processes that it has
// started may use the grace time.
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
	_ = signalGroup(p.cmd.Process, signal) // see above
}

// feed starts a goroutine that writes to standard input and ends in Wait. A program may end without
// reading.
func (p *Process) feed(input []byte) {
	if p.stdin == nil {
		return
	}
	p.group.Go(func() {
		_, _ = p.stdin.Write(input) // see above
		_ = p.stdin.Close()
	})
}

// Write writes to standard input. It blocks while the program does not read, and fails when the
// program has ended or input was closed. It is safe for concurrent use with every other method.
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

// Read passes standard output to take until its end, in pieces of at most 32 KiB that are valid
// during the call. After an error of take, which it returns, it closes the pipe, so that a program
// that only writes fails; the caller then ends ctx. After the end of ctx it continues to read but
// discards the output, so that the program can end in an orderly way. ctx is that of [Start] or one
// derived from it.
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

// rest passes on what the program wrote before it ended and what is still in the pipe after the
// wait for its end.
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

// Identity returns what [EndLeft] needs to end this process, and the processes that it has started,
// after the end of the gateway: its start, and the marker that they inherit. It returns "" if the
// process has ended, or if this system cannot identify processes.
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

// LastLines returns the last lines of standard error after the first so many, in one line as in
// [Exit]. It waits for at least one line, because standard error is read concurrently with standard
// output, but not longer than patience.
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

// Wait ends everything that belongs to the process and returns how it ended. It blocks until the
// leader has ended: by itself, or, after the end of the context of Start, within the grace time.
func (p *Process) Wait() Exit {
	<-p.exited
	if p.stdin != nil {
		_ = p.stdin.SetWriteDeadline(time.Now()) // closed already when everything was read
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

const (
	maxKept   = 1000 // bytes of a line that are kept
	keptLines = 3    // last lines for Exit
	maxLast   = 500  // bytes of Exit.Stderr
	// maxLine bounds a line before secrets are removed, in bytes; it is longer than maxKept, so
	// that no secret is cut in half and missed.
	maxLine = 16 << 10
)

// stderrLines reads the standard error of one program. It belongs to the goroutine that reads; its
// last lines may be read at any time.
type stderrLines struct {
	log     *slog.Logger
	hide    *strings.Replacer
	noise   *rate.Limiter
	leftOut int

	mu      sync.Mutex // guards what follows; only the reading goroutine changes it
	lines   []string   // the last ones
	count   int        // of all
	changed chan struct{}
}

func newStderrLines(spec Spec) *stderrLines {
	s := &stderrLines{log: spec.Log, hide: spec.Hide, noise: spec.Noise, changed: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.hide == nil {
		s.hide = strings.NewReplacer()
	}
	return s
}

// read blocks until the end of the stream. Long lines are cut, and lines above the rate are counted
// instead of logged.
func (s *stderrLines) read(stream io.Reader) {
	in := bufio.NewReaderSize(stream, readSize)
	var line []byte
	for {
		part, more, err := in.ReadLine()
		line = append(line, part[:min(len(part), max(0, maxLine-len(line)))]...)
		if err != nil {
			s.take(line)
			break
		}
		if !more {
			s.take(line)
			line = line[:0]
		}
	}
	if s.leftOut > 0 {
		s.log.Debug("program wrote more to standard error than is logged", "lines_left_out", s.leftOut)
	}
}

func (s *stderrLines) take(raw []byte) {
	line := strings.TrimSpace(strings.Map(visible, chat.CleanText(s.hide.Replace(string(raw)))))
	line = chat.Cut(line, maxKept)
	if line == "" {
		return
	}
	s.keep(line)
	if s.noise == nil || !s.noise.Allow() {
		s.leftOut++
		return
	}
	s.log.Debug("program wrote to standard error", "line", line)
}

// visible removes characters that disguise the content of a log line or a sentence; tabs become
// blanks.
func visible(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case chat.Unprintable(r):
		return -1
	default:
		return r
	}
}

func (s *stderrLines) keep(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	close(s.changed)
	s.changed = make(chan struct{})
	s.lines = append(s.lines, line)
	s.lines = slices.Delete(s.lines, 0, max(0, len(s.lines)-keptLines))
}

// last returns the last lines in one line, for a sentence.
func (s *stderrLines) last() string {
	text, _ := s.lastAfter(0)
	return text
}

// lastAfter returns the last lines after the first count, and a channel that the next line closes.
func (s *stderrLines) lastAfter(count int) (text string, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := s.lines[max(0, len(s.lines)-(s.count-count)):]
	return chat.Cut(strings.Join(fresh, " / "), maxLast), s.changed
}

// defaultPath is used if the environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// errNotExecutable means that the file exists and cannot be started.
var errNotExecutable = errors.New("it is not an executable file")

// inherited returns the variables of the gateway that every program receives: paths, the locale,
// proxies, and certificates.
func inherited() []string {
	return []string{
		"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME",
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
	}
}

// Environment returns a clean environment: the variables of [inherited] as lookup (os.LookupEnv)
// returns them, overridden by the configured variables. With a nil lookup it has only a standard
// PATH.
func Environment(configured map[string]string, lookup func(string) (string, bool)) map[string]string {
	env := map[string]string{"PATH": defaultPath}
	for _, name := range inherited() {
		if lookup == nil {
			break
		}
		if value, ok := lookup(name); ok {
			env[name] = value
		}
	}
	maps.Copy(env, configured)
	return env
}

// Hider returns a replacer of the values of configured variables in the output of a program. Values
// below 8 bytes are not keys and may be parts of ordinary words.
func Hider(configured map[string]string) *strings.Replacer {
	const shortestSecret = 8
	var pairs []string
	for _, value := range configured {
		if len(value) >= shortestSecret {
			pairs = append(pairs, value, secret.Hidden)
		}
	}
	return strings.NewReplacer(pairs...)
}

// list returns an environment in the form for the kernel: sorted, and without NUL, which the kernel
// would refuse.
func list(env map[string]string) []string {
	all := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, name+"="+strings.ReplaceAll(env[name], "\x00", ""))
	}
	return all
}

// find returns the path of the program. It searches the PATH of the program's environment, not the
// gateway's, and skips relative entries, which would mean another program in another directory.
func find(program, path string) (string, error) {
	if strings.ContainsRune(program, filepath.Separator) {
		return program, executable(program)
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		full := filepath.Join(dir, program)
		if executable(full) == nil {
			return full, nil
		}
	}
	return "", fmt.Errorf("looking for %q in PATH: %w", program, fs.ErrNotExist)
}

func executable(path string) error {
	stat, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("looking for the program: %w", err)
	}
	if stat.IsDir() || stat.Mode()&0o111 == 0 {
		return fmt.Errorf("looking at %q: %w", path, errNotExecutable)
	}
	return nil
}

// Detach starts a program that outlives this one, such as a browser: this process does not end it
// and shares no stream with it. env is its whole environment as NAME=value. exited receives the
// result of the program if it ends before this process, and is then closed.
func Detach(argv, env []string, path string) (exited <-chan error, err error) {
	program, err := find(argv[0], path)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: program, Args: argv, Env: env, SysProcAttr: ownGroup()}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	ended := make(chan error, 1)
	go func() { // ends with the program, or with this process
		ended <- cmd.Wait()
		close(ended)
	}()
	return ended, nil
}

// ErrNoReaper means that this system cannot adopt processes.
var ErrNoReaper = errors.New("this system has no subreaper")

const (
	// markerVariable is in the environment of every program of a [Reaper] and of what it starts.
	markerVariable = "LANEWAY_PROCESS"
	// sweepEvery is the time between two sweeps of adopted processes while programs run, so that
	// the zombies of a program that runs for days do not accumulate.
	sweepEvery = 10 * time.Second
	// sweepTime bounds how long the end of a program waits for the end of the processes that it
	// left.
	sweepTime = time.Second
	// strayTime is how long a process without a marker is assumed to be about to execute a program.
	strayTime = 100 * time.Millisecond
)

// Run reaps adopted processes that have ended, until ctx is done. A nil reaper returns at once.
func (r *Reaper) Run(ctx context.Context) {
	if r == nil {
		return
	}
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.sweep()
		case <-ctx.Done():
			return
		}
	}
}

// end kills the processes that a program has left outside of its group and waits until they have
// ended, for [sweepTime] at most. The leader has ended and is not reaped.
func (r *Reaper) end(leader int) {
	if r == nil {
		return
	}
	r.mark(leader)
	until := time.Now().Add(sweepTime)
	pause := time.Millisecond
	t := time.NewTimer(pause)
	defer t.Stop()
	for r.sweep() > 0 && time.Now().Before(until) {
		<-t.C // a killed process takes a moment to end, and its children are adopted only then
		pause = min(2*pause, 20*time.Millisecond)
		t.Reset(pause)
	}
}
