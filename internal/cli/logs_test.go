package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pieces is a writer that passes each write to the test.
type pieces chan string

func (p pieces) Write(text []byte) (int, error) {
	p <- string(text)
	return len(text), nil
}

func TestTheLastLinesOfALogAreFound(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70_000)
	for _, row := range []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""},
		{"a\nb\nc\n", 0, ""},
		{"a\nb\nc\n", 1, "c\n"},
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nc\n", 3, "a\nb\nc\n"},
		{"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"a\n\nc", 2, "\nc"},
		{long + "\n" + long + "\nend\n", 2, long + "\nend\n"},
		{long + "\n" + long + "\nend\n", 3, long + "\n" + long + "\nend\n"},
	} {
		from, found, err := lastLines(strings.NewReader(row.text), row.n)
		if err != nil || row.text[from:] != row.want || found != strings.Count(strings.TrimSuffix(row.want, "\n")+"\n", "\n")*min(1, len(row.want)) {
			t.Errorf("the last %d lines of %d bytes: from %d, found %d, %v", row.n, len(row.text), from, found, err)
		}
	}
}

// With --follow, later lines are shown, including those of a file that replaces the first one.
func TestALogIsFollowedOverItsReplacement(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "laneway.log")
	clock := testNow()
	log, err := openLogFile(path, 40, os.Stderr, func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	line := func(n int) {
		if _, err := fmt.Fprintf(log, "line %02d of the log\n", n); err != nil {
			t.Fatal(err)
		}
	}
	line(1)
	out, all := make(pieces), ""
	b := newBench("")
	b.env.stdout = out
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"logs", "-f", "--file", path}, b.env) }()
	shown := func(want string) {
		t.Helper()
		for !strings.HasSuffix(all, want) {
			select {
			case piece := <-out:
				all += piece
			case <-time.After(20 * time.Second):
				t.Fatalf("%q is not shown:\n%s", want, all)
			}
		}
	}
	shown("line 01 of the log\n")
	line(2)
	shown("line 02 of the log\n")
	line(3) // in the next file, because the first is full
	shown("line 03 of the log\n")
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("laneway logs -f ended with %d after Ctrl-C: %s", code, b.stderr.String())
	}
	if strings.Count(all, "\n") != 3 {
		t.Errorf("three lines were written, and these shown:\n%s", all)
	}
	b.env.stdout = &b.stdout
	b.run(t, 0, "logs", "-n", "2", "--file", path)
	if got := b.stdout.String(); got != "line 02 of the log\nline 03 of the log\n" {
		t.Errorf("the last two lines, one in the previous file: %q", got)
	}
}

// The log has a maximum size, is created again when another program has moved it away, and loses no record when its disk fails.
func TestTheLogFileIsBoundedAndSurvivesItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, clock := filepath.Join(dir, "laneway.log"), testNow()
	var fallback bytes.Buffer
	log, err := openLogFile(path, 100, &fallback, func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	write := func(text string) {
		if _, err := log.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		write(fmt.Sprintf("%09d\n", i))
	}
	for _, name := range []string{path, path + olderLog} {
		if info, err := os.Stat(name); err != nil || info.Size() > 100 || info.Mode().Perm()&0o007 != 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if err := errors.Join(os.Remove(path+olderLog), os.Rename(path, path+".moved")); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(lookAtLogFile)
	write("again\n")
	if got, err := os.ReadFile(path); err != nil || string(got) != "again\n" {
		t.Errorf("the file that is made again: %q, %v", got, err)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(lookAtLogFile)
	write("not lost\n")
	if !strings.HasSuffix(fallback.String(), "not lost\n") || !strings.Contains(fallback.String(), "is no regular file") {
		t.Errorf("the fallback: %q", fallback.String())
	}
	if _, err := openLogFile(dir, 100, &fallback, time.Now); err == nil {
		t.Error("a directory is no log file")
	}
}

func TestLogsThatCannotBeShownAreExplained(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		code int
		says string
		args []string
	}{
		{1, "laneway: there is no log.file in the configuration and no journalctl on this host", nil},
		{1, "nowhere.log cannot be read: no such file or directory\n", []string{"--file", filepath.Join(t.TempDir(), "nowhere.log")}},
		{2, "--lines must be between 0 and 100000", []string{"--lines=-1"}},
	} {
		b := newBench("", "HOME", t.TempDir())
		b.run(t, row.code, append([]string{"logs"}, row.args...)...)
		if !strings.Contains(b.stderr.String(), row.says) {
			t.Errorf("laneway logs %v: %s", row.args, b.stderr.String())
		}
	}
}
