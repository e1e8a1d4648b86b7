// Command testrecording runs the commands of the README with a new gateway and prints the terminal
// output as an animated SVG picture.
//
//	go run ./cmd/testrecording bin/laneway >docs/recording.svg
//
// The gateway has a new home directory and a free port. In the picture both are replaced by those
// of a first start: ~ and port 18790.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"laneway/internal/testrun"
)

// hello is the scene of the first message.
func hello() []string { return []string{"send", "hello"} }

// tea is the job whose answer appears in the open conversation.
func tea() []string {
	return []string{"cron", "add", "--at", "in 2s", "--name", "tea", "--message", "Tea is ready", "--deliver", "web:main"}
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

	serve := exec.CommandContext(ctx, program, "serve") // the program that is recorded
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
	shown, address, err := firstLines(banner)
	if err != nil {
		return err
	}
	plain := strings.NewReplacer(home, "~", address, "127.0.0.1:18790")
	lines := append([]string{"$ laneway serve"}, shown...)
	env = append(env, "LANEWAY_URL=http://"+address)
	said, err := output(ctx, program, env, hello())
	if err != nil {
		return err
	}
	lines = append(lines, "", "$ laneway "+quoted(hello()), said)
	talk, err := conversation(ctx, program, env)
	if err != nil {
		return err
	}
	lines = append(append(lines, ""), talk...)
	for i := range lines {
		lines[i] = plain.Replace(lines[i])
	}
	_, err = io.WriteString(out, draw(lines))
	return err
}

var listening = regexp.MustCompile(`^listening on (\S+)`)

// firstLines reads what the gateway prints at its start; the last line is the one about the echo.
func firstLines(r io.Reader) (lines []string, address string, err error) {
	for text := bufio.NewScanner(r); text.Scan(); {
		lines = append(lines, text.Text())
		if m := listening.FindStringSubmatch(text.Text()); m != nil {
			address = m[1]
		}
		if strings.Contains(text.Text(), "demonstration") {
			return lines, address, nil
		}
	}
	return nil, "", fmt.Errorf("the gateway ended early: %s", strings.Join(lines, "; "))
}

func output(ctx context.Context, program string, env, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) // the program that is recorded
	cmd.Env = env
	text, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", args[0], err, text)
	}
	return strings.TrimRight(string(text), "\n"), nil
}

// conversation opens laneway chat on a terminal, adds the job elsewhere, and waits until its answer
// appears by itself.
func conversation(ctx context.Context, program string, env []string) (lines []string, err error) {
	chat := exec.CommandContext(ctx, program, "chat", "--history", "0") // as above
	chat.Env = append(env, "TERM=xterm", "NO_COLOR=1")
	screen, err := testrun.OpenTerminal(chat)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, screen.Leave()) }()
	if err := screen.Await(ctx, regexp.MustCompile(`(?m)^> `)); err != nil {
		return nil, err
	}
	said, err := output(ctx, program, env, tea())
	if err != nil {
		return nil, err
	}
	if err := screen.Await(ctx, regexp.MustCompile(`Tea is ready\n> `)); err != nil {
		return nil, err
	}
	shown := strings.Split(strings.TrimSuffix(screen.Shown(), "> "), "\n")
	answer := slices.IndexFunc(shown, func(line string) bool { return strings.Contains(line, "Tea is ready") })
	if answer < 0 {
		return nil, fmt.Errorf("the answer of the job is not on the screen: %q", shown)
	}
	lines = append([]string{"$ laneway chat"}, shown[:answer]...)
	return append(lines, "> ", "", "# in another terminal", "$ laneway "+quoted(tea()), said, "", "# two seconds later, in the chat", shown[answer], "> "), nil
}

func quoted(args []string) string {
	var words []string
	for _, a := range args {
		if strings.Contains(a, " ") {
			a = `"` + a + `"`
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

const (
	columns    = 108 // of the terminal
	lineHeight = 19
	charWidth  = 8
	margin     = 16
)

// draw returns the picture of a terminal with these lines. Each command appears after a second, so
// that a reader can follow.
func draw(lines []string) string {
	var body strings.Builder
	y, at := margin, 0.0
	for _, line := range lines {
		class := "o"
		if strings.HasPrefix(line, "$ ") {
			class, at = "c", at+1
		}
		for _, part := range wrapped(line) {
			y += lineHeight
			fmt.Fprintf(&body, "<text class=%q style=\"animation-delay:%.1fs\" x=\"%d\" y=\"%d\">%s</text>\n", class, at, margin, y, html.EscapeString(part))
		}
		at += 0.1
	}
	width, height := columns*charWidth+2*margin, y+margin
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">
<style>
text { font: 13px ui-monospace, Menlo, Consolas, monospace; white-space: pre; fill: #d0d4da; animation: show 0.1s both; }
.c { fill: #ffffff; font-weight: bold; }
@keyframes show { from { opacity: 0; } to { opacity: 1; } }
@media (prefers-reduced-motion) { text { animation: none; } }
</style>
<rect width="%d" height="%d" rx="8" fill="#16181d"/>
%s</svg>
`, width, height, width, height, width, height, body.String())
}

// wrapped breaks a line as a terminal does.
func wrapped(line string) (parts []string) {
	runes := []rune(line)
	for len(runes) > columns {
		parts, runes = append(parts, string(runes[:columns])), runes[columns:]
	}
	return append(parts, string(runes))
}
