package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// The variables make the test binary run as a second process: a role, its database, and further arguments of the role.
const (
	roleVariable     = "LANEWAY_TEST_ROLE"
	pathVariable     = "LANEWAY_TEST_PATH"
	boundaryVariable = "LANEWAY_TEST_BOUNDARY" // such as "applied 12": exit at the twelfth
)

// child runs a role and returns the exit code.
func child(role string) int {
	roles := map[string]func(path string) error{"hold": hold, "load": load, "limit": limit, "index": index}
	if err := roles[role](os.Getenv(pathVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process starts the test binary in a role.
func process(t *testing.T, role, path string, extra ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, pathVariable+"="+path)
	cmd.Env = append(cmd.Env, extra...)
	cmd.Stderr = &prefixed{t: t}
	return cmd
}

// prefixed writes the output of a child to the test's log.
type prefixed struct{ t *testing.T }

func (p *prefixed) Write(text []byte) (int, error) {
	p.t.Logf("child: %s", strings.TrimSpace(string(text)))
	return len(text), nil
}

// hold keeps the database open until its input ends.
func hold(path string) error {
	s, err := Open(context.Background(), Config{Path: path})
	if err != nil {
		return err
	}
	fmt.Println("open")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return s.Close()
}

// index is load that indexes the transcripts without a pause.
func index(path string) error {
	return loadBeside(path, func(s *Store) {
		for {
			entries := []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "what is"}, {Role: chat.RoleAssistant, Text: "found later"}}
			if _, err := s.AppendTranscript(context.Background(), chat.SessionKey{Agent: "main", Rest: "said"}, "ann", entries); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			if _, err := s.IndexTranscripts(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	})
}

// load works until it is killed, and prints every acknowledgement as it arrives: `accepted ID` or `done ID`.
func load(path string) error { return loadBeside(path, func(*Store) {}) }

func loadBeside(path string, beside func(*Store)) error {
	cfg := Config{Path: path}
	if name, count, ok := strings.Cut(os.Getenv(boundaryVariable), " "); ok {
		left := new(atomic.Int64)
		n, err := strconv.Atoi(count)
		if err != nil {
			return err
		}
		left.Store(int64(n))
		cfg.at = func(b boundary) {
			if string(b) == name && left.Add(-1) == 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // wait for the signal
			}
		}
	}
	s, err := Open(context.Background(), cfg)
	if err != nil {
		return err
	}
	node := uuid.NewString()
	if err := s.Register(context.Background(), store.Node{ID: node, Lease: time.Hour, Exclusive: true}); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { beside(s) })
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%s-%d-%d", node, w, i)
				if err := say(s, node, fmt.Sprintf("%s-%d", node, w), id); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.New("the load ended by itself")
}

func say(s *Store, node, room, id string) error {
	if err := turnAccepted(context.Background(), s, node, room, id, func() { fmt.Println("accepted", id) }); err != nil {
		return err
	}
	fmt.Println("done", id)
	return nil
}

// limit provokes an input/output error of the real file system: the process may not grow files, and later may again.
func limit(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := Open(context.Background(), Config{Path: path})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := s.Register(ctx, store.Node{ID: "node", Lease: time.Hour}); err != nil {
		return err
	}
	if err := turn(ctx, s, "node", "room", "before"); err != nil {
		return err
	}
	if _, err := s.MessageByID(ctx, "before"); err != nil { // a connected reader
		return err
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 4096, Max: old.Max}); err != nil {
		return err
	}
	during := turn(ctx, s, "node", "room", "during")
	_, reading := s.MessageByID(ctx, "before")
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	after := turn(ctx, s, "node", "room", "after")
	_, lost := s.MessageByID(ctx, "during")
	fmt.Printf("unavailable=%t reading=%v after=%v lost=%t\n",
		errors.Is(during, chat.ErrStoreUnavailable), reading, after, errors.Is(lost, chat.ErrNotFound))
	return s.Close()
}

// lines reads at most want lines of a child's output and returns them.
func lines(t *testing.T, r io.Reader, want int) []string {
	t.Helper()
	var out []string
	scanner := bufio.NewScanner(r)
	for len(out) < want && scanner.Scan() {
		out = append(out, scanner.Text())
	}
	return out
}
