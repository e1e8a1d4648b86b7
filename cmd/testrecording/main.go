// Command testrecording asks an agent on a terminal, with a new gateway, and prints what the
// terminal shows as an animated SVG picture.
//
//	go run ./cmd/testrecording bin/laneway >docs/recording.svg
//
// The gateway has a new home directory and a free port. Its agent is a program that reads the
// history of a repository.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"laneway/internal/testrun"
)

// question is what the person asks, and reminder the command that follows.
const (
	question = "What changed in the shop since yesterday?"
	reminder = "/remind in 2s deploy the shop"
)

// The agent of the recording is a program, which answers from the history of a repository.
const agent = `#!/bin/sh
cd "$(dirname "$0")" && echo "$(git rev-list --count --since=yesterday HEAD) commits:" && git log --reverse --since=yesterday --format="- %s (%an)"
`

// commits are those of the repository, with their authors.
func commits() [][2]string {
	return [][2]string{{"Round refunds once, at the end", "Anna"}, {"Send invoices as PDF", "Bob"}, {"Retry payments after a timeout", "Anna"}}
}

func main() {
	if err := record(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testrecording:", err)
		os.Exit(1)
	}
}

func record(ctx context.Context, args []string, out io.Writer) (err error) {
	if len(args) != 1 {
		return errors.New("needs the program: go run ./cmd/testrecording bin/laneway")
	}
	program, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	home, err := os.MkdirTemp("", "recording")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home) // a temporary directory
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LANEWAY_LISTEN=127.0.0.1:0", "LANEWAY_METRICS_LISTEN=off"}

	shop := filepath.Join(home, "shop")
	if err := repository(ctx, shop); err != nil {
		return err
	}
	serve := exec.CommandContext(ctx, program, "serve", "--agent", "command:"+filepath.Join(shop, "agent.sh")) // the program that is recorded
	serve.Env = env
	banner, err := serve.StdoutPipe()
	if err != nil {
		return err
	}
	if err := serve.Start(); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, serve.Process.Signal(syscall.SIGTERM))
		_ = serve.Wait() // its exit code is that of the signal
	}()
	address, err := listenerOf(banner)
	if err != nil {
		return err
	}
	lines, err := conversation(ctx, program, append(env, "LANEWAY_URL=http://"+address))
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, draw(lines))
	return err
}

// repository makes the directory of the agent.
func repository(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "agent.sh"), []byte(agent), 0o755); err != nil { // a program
		return err
	}
	git := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir, "-c", "user.email=shop@example.org"}, args...)...) // of a new directory
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, text)
		}
		return nil
	}
	err := git("init", "--quiet")
	for _, c := range commits() {
		err = errors.Join(err, git("-c", "user.name="+c[1], "commit", "--quiet", "--allow-empty", "--message", c[0]))
	}
	return err
}

var listening = regexp.MustCompile(`^listening on (\S+)`)

// listenerOf reads what the gateway prints at its start until it names its address.
func listenerOf(r io.Reader) (string, error) {
	var lines []string
	for text := bufio.NewScanner(r); text.Scan(); lines = append(lines, text.Text()) {
		if m := listening.FindStringSubmatch(text.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, r) }() // until the gateway ends
			return m[1], nil
		}
	}
	return "", fmt.Errorf("the gateway ended early: %s", strings.Join(lines, "; "))
}

// conversation opens laneway chat on a terminal, asks the question, and waits until the reminder
// appears by itself. The lines begin with the question.
func conversation(ctx context.Context, program string, env []string) (lines []string, err error) {
	chat := exec.CommandContext(ctx, program, "chat", "--history", "0") // the program that is recorded
	chat.Env = append(env, "TERM=xterm", "NO_COLOR=1")
	screen, err := testrun.OpenTerminal(chat)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, screen.Leave()) }()
	steps := []struct{ shows, types string }{
		{`(?m)^> `, question}, {regexp.QuoteMeta(commits()[len(commits())-1][0]) + `.*\n> `, reminder}, {`(?s)I will remind you.*deploy the shop\n.*deploy the shop\n> `, ""},
	}
	for _, step := range steps {
		if err := screen.Await(ctx, regexp.MustCompile(step.shows)); err != nil {
			return nil, err
		}
		if step.types != "" {
			if err := screen.Type(step.types + "\r"); err != nil {
				return nil, err
			}
		}
	}
	_, shown, found := strings.Cut(screen.Shown(), "> "+question)
	if !found {
		return nil, fmt.Errorf("the question is not on the screen: %q", screen.Shown())
	}
	return append([]string{"$ laneway chat", "> " + question}, strings.Split(strings.Trim(shown, "\n"), "\n")...), nil
}

const (
	columns    = 80 // of the terminal
	lineHeight = 19
	charWidth  = 8
	margin     = 16
)

// draw returns the picture of a terminal with these lines. Each line that is typed appears after a
// second or more, so that a reader can follow, and the whole begins again after a pause.
func draw(lines []string) string {
	type shown struct {
		class, text string
		at          float64
	}
	var all []shown
	at := 0.0
	for i, line := range lines {
		class := "o"
		switch {
		case strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "> ") && line != "> ":
			class, at = "c", at+1.2
		case i > 0 && all[len(all)-1].class == "c":
			at += 0.6
		case strings.Contains(lines[i-1], "I will remind you"):
			at += 2 // the reminder takes these seconds
		}
		for _, part := range wrapped(line) {
			all = append(all, shown{class, part, at})
		}
		at += 0.1
	}
	var body, frames strings.Builder
	y, length := margin, at+5
	for i, s := range all {
		y += lineHeight
		fmt.Fprintf(&frames, "@keyframes l%d { 0%% { opacity: 0; } %.1f%% { opacity: 1; } 99%% { opacity: 0; } }\n", i, 100*s.at/length)
		fmt.Fprintf(&body, "<text class=%q style=\"animation-name:l%d\" x=\"%d\" y=\"%d\">%s</text>\n", s.class, i, margin, y, html.EscapeString(s.text))
	}
	width, height := columns*charWidth+2*margin, y+margin
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">
<style>
text { font: 13px ui-monospace, Menlo, Consolas, monospace; white-space: pre; fill: #d0d4da; animation: %.1fs step-end infinite; }
.c { fill: #ffffff; font-weight: bold; }
%s@media (prefers-reduced-motion) { text { animation: none; } }
</style>
<rect width="%d" height="%d" rx="8" fill="#16181d"/>
%s</svg>
`, width, height, width, height, length, frames.String(), width, height, body.String())
}

// wrapped breaks a line as a terminal does.
func wrapped(line string) (parts []string) {
	runes := []rune(line)
	for len(runes) > columns {
		parts, runes = append(parts, string(runes[:columns])), runes[columns:]
	}
	return append(parts, string(runes))
}
