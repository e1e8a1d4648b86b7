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

// The variables make the test binary run as a second process: a role, its database, and further
// arguments of the role.
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

// load works until it is killed, and prints every acknowledgement as it arrives: `accepted ID` or
// `done ID`.
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

// limit provokes an input/output error of the real file system: the process may not grow files, and
// later may again.
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

func TestACrashAtACommitBoundaryLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	for _, b := range []boundary{boundaryBegun, boundaryApplied, boundaryCommitted} {
		t.Run(string(b), func(t *testing.T) {
			t.Parallel()
			path := migrated(t)
			for _, after := range []int{3, 40, 150} {
				cmd := process(t, "load", path, fmt.Sprintf("%s=%s %d", boundaryVariable, b, after))
				checkAcknowledged(t, path, crash(t, cmd, 1<<30))
			}
		})
	}
}

func TestAKillInTheMiddleOfLoadLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	for _, after := range []int{1, 50, 400, 1500} {
		checkAcknowledged(t, path, crash(t, process(t, "load", path), after))
	}
}

// TestAKillWhileIndexingLeavesAWholeIndex checks that after a kill the index has exactly the
// entries up to its own mark, and that indexing continues from there.
func TestAKillWhileIndexingLeavesAWholeIndex(t *testing.T) {
	t.Parallel()
	for name, extra := range map[string]string{"kill": "", "applied": "applied 90", "committed": "committed 120", "begun": "begun 200"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := migrated(t)
			for range 2 {
				cmd := process(t, "index", path)
				after := 700
				if extra != "" {
					cmd.Env, after = append(cmd.Env, boundaryVariable+"="+extra), 1<<30
				}
				checkAcknowledged(t, path, crash(t, cmd, after))
				checkIndex(t, path)
			}
		})
	}
}

func checkIndex(t *testing.T, path string) {
	t.Helper()
	db := outside(t, path)
	for name, query := range map[string]string{
		"entries after the mark":   `SELECT count(*) FROM transcript_words_docsize WHERE id > (SELECT upto FROM search_state)`,
		"entries that are missing": `SELECT count(*) FROM transcript WHERE rowid <= (SELECT upto FROM search_state) AND rowid NOT IN (SELECT id FROM transcript_words_docsize)`,
		"entries of nothing":       `SELECT count(*) FROM transcript_words_docsize WHERE id NOT IN (SELECT rowid FROM transcript)`,
	} {
		var n int
		if err := db.QueryRow(query).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d (%v)", name, n, err)
		}
	}
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.IndexTranscripts(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	var have, want int
	if err := db.QueryRow(`SELECT (SELECT count(*) FROM transcript_words_docsize), (SELECT count(*) FROM transcript)`).Scan(&have, &want); err != nil || have != want || want == 0 {
		t.Errorf("the index has %d of %d entries (%v)", have, want, err)
	}
}

// crash runs a child until it has printed a number of acknowledgements or ends, kills it, and
// returns all of its output.
func crash(t *testing.T, cmd *exec.Cmd, after int) []string {
	t.Helper()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := lines(t, pipe, after)
	_ = cmd.Process.Kill() // it may be dead already
	rest, err := io.ReadAll(pipe)
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("the child ended with %v, want a kill", err)
	}
	if i := strings.LastIndexByte(string(rest), '\n'); i >= 0 && len(acknowledged) == after { // except a last line that was cut off
		acknowledged = append(acknowledged, strings.Split(string(rest[:i]), "\n")[1:]...)
	}
	return acknowledged
}

// checkAcknowledged opens the database after a crash and checks that it contains everything that
// the process acknowledged.
func checkAcknowledged(t *testing.T, path string, acknowledged []string) {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	accepted, done := 0, 0
	for _, line := range acknowledged {
		word, id, _ := strings.Cut(line, " ")
		m, err := s.MessageByID(t.Context(), id)
		if err != nil {
			t.Fatalf("%q was acknowledged before the crash: %v", line, err)
		}
		accepted++
		if word == "done" {
			done++
			if m.State != store.StateDone || m.Outcome != chat.OutcomeAnswered {
				t.Fatalf("%q was acknowledged before the crash, and the message is %s %s", line, m.State, m.Outcome)
			}
		}
	}
	t.Logf("%d acknowledgements kept, %d of them of whole turns", accepted, done)
	checkWhole(t, s, path)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkWhole checks the file itself: pages, sequence numbers without gaps, and a reply for every
// answer.
func checkWhole(t *testing.T, s *Store, path string) {
	t.Helper()
	db := outside(t, path)
	var verdict string
	if err := db.QueryRow(`PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
		t.Fatalf("integrity check: %q, %v", verdict, err)
	}
	for name, query := range map[string]string{
		"gaps":    `SELECT count(*) FROM (SELECT 1 FROM inbox GROUP BY session_key HAVING count(*) <> max(seq))`,
		"counter": `SELECT count(*) FROM sessions s WHERE last_seq <> (SELECT coalesce(max(seq), 0) FROM inbox WHERE session_key = s.key)`,
		"waiting": `SELECT count(*) FROM sessions s WHERE waiting <> (SELECT count(*) FROM inbox WHERE session_key = s.key AND state = 'waiting')`,
		"replies": `SELECT count(*) FROM runs r WHERE state = 'ok' AND NOT EXISTS (SELECT 1 FROM outbox WHERE run_id = r.id)`,
		"answers": `SELECT count(*) FROM inbox i WHERE outcome = 'answered' AND NOT EXISTS (SELECT 1 FROM runs WHERE id = i.run_id AND state = 'ok')`,
	} {
		var n int
		if err := db.QueryRow(query).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d rows are wrong (%v)", name, n, err)
		}
	}
	if _, err := s.Held(t.Context()); err != nil {
		t.Error(err)
	}
}
