package teste2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// notRun are commands of the documents that no test runs, with the reason. An entry that is in no
// document fails the test.
var notRun = map[string]string{
	"useradd --system --no-create-home agent":   "changes the users of the host",
	"install -d -o agent -m 0755 /run/my-agent": "needs that user",
	"setpriv --reuid=agent --regid=agent --clear-groups \\\n  systemd-socket-activate --accept --inetd -l /run/my-agent/agent.sock /usr/local/bin/my-agent": "needs systemd",
	"useradd --system --home-dir /var/lib/laneway --shell /usr/sbin/nologin laneway":                                                                        "changes the users of the host",
	"install -m 0755 bin/laneway /usr/local/bin/laneway":                                                                                                    "changes the host",
	"install -D -m 0644 deploy/config.yaml /etc/laneway/config.yaml":                                                                                        "changes the host",
	"install -m 0644 deploy/laneway.service /etc/systemd/system/laneway.service":                                                                            "changes the host",
	"systemctl daemon-reload && systemctl enable --now laneway":                                                                                             "needs systemd",
	"LANEWAY_FROM=$PWD/dist sh dist/install.sh            # from a directory":                                                                               "needs a release; make packages-test installs one",
	"LANEWAY_BIN=$HOME/bin sh install.sh                  # to another place":                                                                               "needs a release",
	"LANEWAY_TOKEN=... laneway mcp --url https://gateway.example.org":                                                                                       "needs that gateway; make compat connects the official client",
}

// notHere are the first words of commands for programs that no test host has.
var notHere = regexp.MustCompile(`^(docker|kubectl) `)

// stage runs the commands of one document, in order and in a new home directory.
type stage struct {
	t       *testing.T
	home    string
	bin     string // a directory of its PATH
	env     []string
	replace *strings.Replacer // what a reader substitutes for an example
	ready   func()            // called once, before the first command with printed output; may be nil
	as      *syscall.Credential
	leave   func()               // ends the gateway of the page
	bot     *testtelegram.Server // of pages with a bot; the person there is anna
	paired  string               // the code that the bot sent
}

// configDir returns a directory that only its owner can change, because root accepts no
// configuration from another one.
func (s *stage) configDir() string {
	s.t.Helper()
	dir := s.t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	return dir
}

func newStage(t *testing.T, replace ...string) *stage {
	t.Helper()
	home, bin := t.TempDir(), t.TempDir()
	err := errors.Join(os.Symlink(Binary(t), filepath.Join(bin, "laneway")), os.Chmod(home, 0o777), os.Chmod(bin, 0o755), os.Chmod(filepath.Dir(home), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, home: home, bin: bin, replace: strings.NewReplacer(append(replace, "go run ./cmd/laneway", "laneway", "make test", "make -n test", "node docs/", "node --experimental-websocket docs/")...)}
	for _, name := range []string{"GOPATH", "GOMODCACHE", "GOCACHE", "GOFLAGS", "GOPROXY"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		s.env = append(s.env, name+"="+strings.TrimSpace(string(out)))
	}
	s.env = append(s.env, "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+home, "CGO_ENABLED=0", "LANEWAY_LISTEN=127.0.0.1:0", "LANEWAY_METRICS_LISTEN=off", raceSettings)
	return s
}

// telegram gives the page a Bot API, whose token and pairing code replace those of the page.
func (s *stage) telegram() {
	s.t.Helper()
	s.bot = testtelegram.New(testtelegram.Config{})
	s.bot.AddPrivate(anna, "Anna")
	api := httptest.NewServer(s.bot)
	s.t.Cleanup(api.Close)
	s.t.Cleanup(api.CloseClientConnections)
	s.env = append(s.env, "API="+api.URL)
}

const tokenOfPages, codeOfPages = "TELEGRAM_TOKEN=123456789:AAH…", "K7QF2M3A"

// ask has Anna write to the bot, and returns its answer.
func (s *stage) ask(text string) string {
	s.t.Helper()
	n := len(s.bot.Texts(anna))
	s.bot.Say(anna, anna, text, testtelegram.With("from", map[string]any{"id": anna, "is_bot": false, "first_name": "Anna"}))
	if err := s.bot.Await(withTimeout(s.t, testrun.Patience), func() bool { return len(s.bot.Texts(anna)) > n }); err != nil {
		s.t.Fatalf("the bot does not answer %q: %v", text, err)
	}
	return s.bot.Texts(anna)[n]
}

// browser puts a browser into the PATH that ends the command which opens it, if the page that it
// gets forwards to a gateway.
func (s *stage) browser() {
	s.t.Helper()
	script := "#!/bin/sh\ngrep -q 'url=http' \"${1#file://}\" && kill -INT $PPID\n"
	if err := os.WriteFile(filepath.Join(s.bin, "xdg-open"), []byte(script), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// claude puts a program of the name that the preset claude looks for into the PATH: an agent that
// repeats what it reads.
func (s *stage) claude() {
	s.t.Helper()
	script := fmt.Sprintf("#!/bin/sh\nexec env %s=http %s\n", acpVariable, ownBinary(s.t))
	if err := os.WriteFile(filepath.Join(s.bin, "claude-agent-acp"), []byte(script), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// command returns a line of a document as a shell command in the directory of this repository.
func (s *stage) command(line string, as *syscall.Credential) *exec.Cmd {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	s.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(s.replace.Replace(line), codeOfPages, cmp.Or(s.paired, codeOfPages)))
	cmd.Dir, cmd.Env = "../..", s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true}
	return cmd
}

func (s *stage) run(line string, as *syscall.Credential) (string, error) {
	out, err := s.command(line, as).CombinedOutput()
	return string(out), err
}

// serve starts a gateway by a line of a document; it ends with the test, or when stop is called.
func (s *stage) serve(line string) (stop func()) {
	s.t.Helper()
	cmd, out := s.command(line, s.as), &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	stop = func() { // as Ctrl-C does, so that its agents end before their directories are removed
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		select {
		case <-ended:
		case <-time.After(testrun.Patience):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	}
	s.t.Cleanup(stop)
	s.leave = stop
	testrun.Eventually(s.t, line, func() bool {
		select {
		case <-ended:
			s.t.Fatalf("%s ended:\n%s", line, out)
		default:
		}
		m := listens.FindStringSubmatch(out.String())
		if m != nil {
			s.env = append(s.env, "LANEWAY_URL=http://"+m[1])
		}
		return m != nil
	})
	return stop
}

// page runs the blocks of a document.
func (s *stage) page(blocks []block) {
	s.t.Helper()
	for _, b := range blocks {
		for _, e := range b.exchanges() {
			if _, left := notRun[e.command]; !left && !notHere.MatchString(e.command) {
				s.exchange(b, e)
			}
		}
		if b.lang == "terminal" {
			s.play(b)
		}
	}
}

// play plays a block that a terminal shows: its first command runs on a terminal of the test, the
// person types the lines after the prompt, the other commands run elsewhere, and all other lines
// appear by themselves, in order.
func (s *stage) play(b block) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testrun.Patience)
	defer cancel()
	lines := b.scene()
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+s.replace.Replace(lines[0].command))
	cmd.Dir, cmd.Env = "../..", append(slices.Clone(s.env), "TERM=xterm", "NO_COLOR=1")
	screen, err := testrun.OpenTerminal(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	wait := func(pattern string) {
		s.t.Helper()
		if err := screen.Await(ctx, regexp.MustCompile(pattern)); err != nil {
			s.t.Fatalf("%s:%d: %v", b.file, b.line, err)
		}
	}
	wait(`(?m)^> `)
	for _, line := range lines[1:] {
		switch {
		case line.command != "":
			if out, err := s.run(line.command, s.as); err != nil {
				s.t.Fatalf("%s:%d: %s: %v\n%s", b.file, b.line, line.command, err, out)
			}
		case line.typed != "":
			if err := screen.Type(line.typed + "\r"); err != nil {
				s.t.Fatal(err)
			}
			wait(regexp.QuoteMeta(line.typed) + `\n`)
		default:
			wait(`(?m)^` + strings.ReplaceAll(regexp.QuoteMeta(line.shows), "…", ".*") + `\n`)
		}
	}
	s.t.Logf("%s:%d: the terminal shows\n%s", b.file, b.line, screen.Shown())
	if err := screen.Leave(); err != nil {
		s.t.Errorf("%s:%d: %s: %v", b.file, b.line, lines[0].command, err)
	}
}

// takesAMoment matches commands whose output on the page appears only after some seconds: a job has
// run, a new token is valid, a summary is made.
var takesAMoment = regexp.MustCompile(` runs |\.laneway-token|sessions show`)

var startsGateway = regexp.MustCompile(`laneway serve\b`)

func (s *stage) exchange(b block, e exchange) {
	s.t.Helper()
	if b.lang == "sh" && startsGateway.MatchString(s.replace.Replace(e.command)) {
		s.gateway(e.command)
		return
	}
	if s.ready != nil && b.lang == "console" {
		s.ready()
		s.ready = nil
	}
	as := s.as
	if e.root {
		as = nil
	}
	var (
		out string
		err error
	)
	for wait := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		out, err = s.run(e.command, as)
		if b.lang == "sh" || printed(e.prints, strings.Split(out, "\n")) || !takesAMoment.MatchString(e.command) || time.Now().After(wait) {
			break
		}
	}
	switch {
	case b.lang == "sh" && err != nil:
		s.t.Errorf("%s:%d: %s: %v\n%s", b.file, b.line, e.command, err, out)
	case b.lang == "console" && !printed(e.prints, strings.Split(out, "\n")):
		s.t.Errorf("%s:%d: %s prints\n%s\nthe document says\n%s", b.file, b.line, e.command, out, strings.Join(e.prints, "\n"))
	}
	if e.root {
		s.keepToken(out)
	}
	if s.paired != "" && strings.Contains(e.command, "pair approve") {
		s.ask("does it work?")
		testrun.Eventually(s.t, "the agent answers in the chat", func() bool {
			return slices.ContainsFunc(s.bot.Texts(anna), func(text string) bool { return strings.Contains(text, "does it work?") })
		})
	}
}

// gateway starts a gateway for the rest of the page. When it already has one, a line with a bot or
// a data directory replaces it, and another line starts one briefly in another home directory.
func (s *stage) gateway(line string) {
	bot := strings.Contains(line, tokenOfPages)
	if s.leave != nil && !bot && !strings.Contains(line, " --data ") {
		env, leave := s.env, s.leave
		s.env = append(slices.Clone(env), "LANEWAY_DATA="+s.t.TempDir())
		s.serve(line)()
		s.env, s.leave = env, leave
		return
	}
	if s.leave != nil {
		s.leave()
		s.env = slices.DeleteFunc(s.env, func(v string) bool { return strings.HasPrefix(v, "LANEWAY_URL=") })
	}
	if bot {
		line = strings.Replace(line, tokenOfPages, "LANEWAY_CHANNELS_TELEGRAM_API_URL=$API TELEGRAM_TOKEN="+s.bot.Token(), 1)
	}
	s.serve(line)
	if !bot {
		return
	}
	code := pairingCode.FindStringSubmatch(s.ask("hello"))
	if code == nil {
		s.t.Fatalf("the bot sends no pairing code: %q", s.bot.Texts(anna))
	}
	s.paired = code[1]
}

// keepToken does what the page instructs the reader to do with the printed secret.
func (s *stage) keepToken(out string) {
	lines := strings.Fields(out)
	if len(lines) > 0 {
		if err := os.WriteFile(filepath.Join(s.home, ".laneway-token"), []byte(lines[len(lines)-1]), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Every command block of the documents is run, each page in a new home directory, and the output of
// each command must match the page.
func TestEveryCommandOfTheDocumentsRunsAsPrinted(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	found := map[string]bool{}
	for _, path := range documents(t) {
		blocks := blocksOf(t, path)
		commands := 0
		for _, b := range blocks {
			if b.lang == "" && commandless.MatchString(b.text) {
				t.Errorf("%s:%d: a block with commands has no language: sh, or console with what they print", b.file, b.line)
			}
			for _, e := range b.exchanges() {
				found[e.command] = true
				commands++
			}
			if b.lang == "terminal" {
				commands++
			}
		}
		if commands == 0 {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			stageOf(t, filepath.Base(path)).page(blocks)
		})
	}
	for command := range notRun {
		if !found[command] {
			t.Errorf("no document has the command that is not run: %s", command)
		}
	}
}

// stageOf prepares the prerequisites of a page.
func stageOf(t *testing.T, page string) *stage {
	t.Helper()
	switch page {
	case "hooks.md":
		etc := t.TempDir()
		s := newStage(t, "/etc/laneway", etc, "chgrp laneway", "chgrp "+groupOfTests(), "HOOK_SECRET=…", "HOOK_SECRET=$(cat "+etc+"/deploy.secret)", "http://127.0.0.1:18790", "$LANEWAY_URL")
		config := filepath.Join(s.configDir(), "laneway.yaml")
		if err := os.WriteFile(config, []byte("hooks: {deploy: {secret_file: "+etc+"/deploy.secret}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.ready = func() { s.serve("laneway serve --config " + config) }
		return s
	case "postgres-and-replicas.md":
		s := newStage(t)
		old := "sqlite:" + s.home + "/old/laneway.db"
		if out, err := s.run("laneway migrate up --database "+old, nil); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		s.replace = strings.NewReplacer("sqlite:/var/lib/laneway/laneway.db", old, "postgres://laneway@db/laneway", testpg.Empty(t),
			"postgres://laneway@localhost/laneway", testpg.Empty(t))
		return s
	case "backup-postgresql.md":
		return stageOnPostgres(t)
	case "backup-and-restore.md":
		s := newStage(t, "/var/backups/laneway", t.TempDir())
		s.serve("laneway serve")
		return s
	case "server.md":
		if os.Geteuid() != 0 {
			t.Skip("only root can run programs as other users")
		}
		h := startServerHost(t)
		s := newStage(t)
		s.as = ordinaryUser
		s.env = append(s.env, "XDG_CONFIG_HOME="+h.dir+"/etc", "LANEWAY_URL="+h.url)
		s.replace = strings.NewReplacer("laneway status", "laneway status 2>&1 | sed s,"+h.dir+"/state,/var/lib/laneway,")
		return s
	case "README.md", "quickstart.md", "claude-code.md", "telegram.md":
		s := newStage(t)
		s.claude()
		s.browser()
		s.telegram()
		if err := os.Mkdir(filepath.Join(s.home, "project"), 0o755); err != nil {
			t.Fatal(err)
		}
		return s
	case "dashboard.md":
		s := newStage(t)
		s.browser()
		s.serve("laneway serve")
		return s
	case "cron.md", "manage-jobs.md", "job-schedules.md", "job-answers.md", "troubleshooting.md", "chat-commands.md", "desk-and-phone.md", "team.md", "upgrade.md", "write-a-client.md":
		s := newStage(t, "127.0.0.1:18790", "${LANEWAY_URL#http://}")
		s.serve("laneway serve")
		return s
	case "usage.md":
		return stageWithModel(t, "price: {input: 3, output: 15}", "budgets: {currency: EUR, principal: {tokens: 2500}, day: {money: 20}}")
	case "conversations.md":
		s := stageWithModel(t, "context_window: 4096", "")
		for i := range 10 {
			if out, err := s.run(fmt.Sprintf("laneway send --session garden 'plan %d: roses in the north for 400 euro, Anna decides on 3 May, do not forget it'", i), nil); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		return s
	default:
		return newStage(t)
	}
}

// stageOnPostgres has a gateway on PostgreSQL with a conversation, a file and a job, and an empty
// database to restore them to.
func stageOnPostgres(t *testing.T) *stage {
	t.Helper()
	if _, err := exec.LookPath("pg_dump"); err != nil {
		t.Skip("pg_dump is not here; it comes with Debian's postgresql-client")
	}
	lib, backups, old, restored := t.TempDir(), t.TempDir(), testpg.Empty(t), testpg.Empty(t)
	s := newStage(t, "/var/lib", lib, "/var/backups/laneway", backups,
		"postgres://laneway_owner@db/laneway_restored", "'"+restored+"'", "postgres://laneway_owner@db/laneway", "'"+old+"'")
	s.serve("laneway serve --database postgres://laneway_owner@db/laneway --data /var/lib/laneway")
	for _, line := range []string{
		"echo hello >" + lib + "/note.txt; laneway send --data /var/lib/laneway --session garden --file " + lib + "/note.txt 'water the roses'",
		"laneway cron add --data /var/lib/laneway --name digest --cron '0 9 * * *' --tz Europe/Berlin --message 'Write the digest'",
	} {
		if out, err := s.run(line, nil); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return s
}

// stageWithModel has a gateway whose agent has a model that greets and summarises.
func stageWithModel(t *testing.T, agent, section string) *stage {
	t.Helper()
	model := testmodel.Start(t)
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		text := "Good morning."
		if ofSummary(call) {
			text = "They planned roses in the north for 400 euro. Anna decides on 3 May."
		}
		return testmodel.Reply{Pieces: []string{text}, InputTokens: 1200, OutputTokens: 300}
	})
	s := newStage(t)
	config := filepath.Join(s.configDir(), "laneway.yaml")
	text := fmt.Sprintf("agents:\n  main: {runner: openai, base_url: %q, model: large, tools: \"off\", %s}\n%s\n", model.URL()+"/v1", agent, section)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.serve("laneway serve --config " + config)
	return s
}

// groupOfTests returns a group to which this user may change a file.
func groupOfTests() string {
	out, err := exec.Command("id", "-g").Output()
	if err != nil {
		return "0"
	}
	return string(bytes.TrimSpace(out))
}

var (
	links    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings = regexp.MustCompile(`(?m)^#+ (.*)$|<a id="([^"]+)"></a>`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the places of a page that a link may name.
func anchors(text string) map[string]bool {
	list := map[string]bool{}
	for _, m := range headings.FindAllStringSubmatch(text, -1) {
		list[m[2]] = true
		list[strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return list
}

// A dead link sends a reader back to a search engine.
func TestEveryLinkOfTheDocumentsLeadsSomewhere(t *testing.T) {
	t.Parallel()
	below, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := append(documents(t), append(below, "../../CONTRIBUTING.md", "../../SECURITY.md", "../../AGENTS.md", "../../CHANGELOG.md", "../../compat/README.md")...)
	count := 0
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range links.FindAllStringSubmatch(string(text), -1) {
			file, place, _ := strings.Cut(m[1], "#")
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			count++
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			there, err := os.ReadFile(target)
			if info, bad := os.Stat(target); bad == nil && info.IsDir() {
				continue
			}
			if err != nil {
				t.Errorf("%s links %s: %v", path, m[1], err)
			} else if place != "" && !anchors(string(there))[place] {
				t.Errorf("%s links %s, and that page has no such heading", path, m[1])
			}
		}
	}
	if count < 200 {
		t.Errorf("the documents have %d links; that is not all of them", count)
	}
}

// A reader finds each page, and the answer to each of the twenty questions, from the index.
func TestTheIndexOfTheDocumentsHasEveryPageAndQuestion(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range documents(t)[1:] {
		if page := filepath.Base(path); page != "README.md" && !strings.Contains(string(index), "]("+page+")") {
			t.Errorf("the index does not link %s", page)
		}
	}
	for i := range 20 {
		line := regexp.MustCompile(fmt.Sprintf(`(?m)^%d\. .*\?( \[[^\]]+\]\([^)]+\),?)+$`, i+1))
		if !line.Match(index) {
			t.Errorf("the index has no answer to question %d", i+1)
		}
	}
	below, err := filepath.Glob("../../docs/*/*.md")
	if err != nil || len(below) < 50 {
		t.Fatalf("%d pages below docs/*: %v", len(below), err)
	}
	for _, path := range append(documents(t), below...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0 // of 100 characters
		for line := range strings.Lines(string(text)) {
			for cell := range strings.SplitSeq(line, "|") {
				if cell = strings.TrimSpace(cell); line[0] == '|' && utf8.RuneCountInString(cell) > 120 {
					t.Errorf("%s has a table cell of more than 120 characters: %s", path, cell)
				}
			}
			lines += max(1, (utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))+99)/100)
		}
		if lines > 150 {
			t.Errorf("%s has %d lines of 100 characters, want 150 at most: split it by task, or a generated one in its generator", path, lines)
		}
	}
	if text, err := os.ReadFile("../../README.md"); err != nil || strings.Count(string(text), "\n") > 90 {
		t.Errorf("README.md has %d lines, want 90 at most (%v)", strings.Count(string(text), "\n"), err)
	}
}

// The page about clients shows the program that TestTheExamplesOfClientsOutliveAKill runs.
func TestThePageAboutClientsShowsTheTestedClient(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/write-a-client.md")
	program, bad := os.ReadFile("../../docs/examples/client-javascript/client.mjs")
	if err != nil || bad != nil || !strings.Contains(string(page), "```js\n"+string(program)+"```\n") {
		t.Errorf("the page does not show client.mjs (%v, %v)", err, bad)
	}
}

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// aDate of a document is in the past; the test uses the same form with a future date.
	aDate = regexp.MustCompile(`\b20\d\d-\d\d-\d\d`)
	// manyForms matches the forms in a sentence of the gateway, such as the refusal of a time.
	manyForms = regexp.MustCompile(`(?m)^/remind WHEN TEXT - .*: (.+)\.$|; write (.+) or a cron expression\.$`)
)

// commandsOf returns the commands and the forms of times in the section of docs/cron.md about
// chats.
func commandsOf(t *testing.T) (commands, times []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/cron.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## From a chat\n")
	section, _, more := strings.Cut(section, "\n## ")
	if !found || !more {
		t.Fatal("docs/cron.md has no section about chats")
	}
	inTimes := false
	for line := range strings.Lines(section) {
		inTimes = strings.HasPrefix(line, "| time |") || inTimes && strings.HasPrefix(line, "|")
		for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
			switch {
			case inTimes:
				times = append(times, span[1])
			case strings.HasPrefix(span[1], "/"):
				commands = append(commands, span[1])
			}
		}
	}
	return commands, times
}

// formsIn returns the forms in a sentence of the gateway: /help and the refusal of a time.
func formsIn(t *testing.T, sentence string) []string {
	t.Helper()
	found := manyForms.FindStringSubmatch(sentence)
	if found == nil {
		t.Fatalf("%q names no forms", sentence)
	}
	return strings.Split(found[1]+found[2], ", ")
}

// written returns the messages for a command or a time of the documents. n makes the names of jobs
// different.
func written(commands, times []string, n int) (texts []string) {
	day := time.Now().AddDate(0, 0, 20).Format(time.DateOnly)
	for _, command := range commands {
		texts = append(texts, strings.NewReplacer("WHEN", "in 20m", "TEXT", "second").Replace(command))
	}
	for _, when := range times {
		when = aDate.ReplaceAllString(when, day)
		for _, form := range []string{`/remind %s form %d`, `/remind "%s" form %d`, `/cron add %s form %d`, `/cron add "%s" form %d`, `/cron add “%s” form %d`} {
			n++
			texts = append(texts, fmt.Sprintf(form, when, n))
		}
	}
	return texts
}

// Every command and every form of a time in docs/cron.md, /help and the refusal of a time is sent
// unchanged: in Telegram by a separate person for each, on the web in one conversation.
func TestEveryFormOfTheDocumentsWorksInTelegramAndOnTheWeb(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	c := openChatroom(t, "", "    access: open\n", testtelegram.Config{})
	c.Start()
	conn, events, n := connect(t, c.Gateway), watch(t, c.Gateway), 0
	web := func(text string) string {
		n++
		say(t, conn, "agent:main:main", fmt.Sprint("form-", n), text)
		return events.await(t, fmt.Sprint("form-", n)).text
	}
	commands, times := commandsOf(t)
	times = append(times, formsIn(t, web("/help"))...)
	times = append(times, formsIn(t, web("/remind soon tea"))...)
	if len(commands) < 10 || len(times) < 20 {
		t.Fatalf("the documents have the commands %q and the times %q", commands, times)
	}
	for _, text := range append(before(""), written(commands, times, 0)...) {
		wantDone(t, "on the web", text, web(text))
	}
	var people sync.WaitGroup
	ctx := withTimeout(t, 3*time.Minute)
	for i, text := range written(commands, times, 1000) {
		person := int64(1000 + i)
		c.Telegram.AddPrivate(person, fmt.Sprint("Person ", person))
		people.Go(func() {
			for n, said := range append(before(text), text) {
				c.Telegram.Say(person, person, said)
				err := c.Telegram.Await(ctx, func() bool { return len(c.Telegram.Texts(person)) > n })
				if err != nil {
					t.Errorf("in Telegram, %s was not answered: %v", said, err)
					return
				}
				wantDone(t, "in Telegram", said, c.Telegram.Texts(person)[n])
			}
		})
	}
	people.Wait()
	c.Close()
}

// before returns the jobs that a command of the documents needs; a form of a time needs none.
func before(text string) []string {
	if strings.Contains(text, " form ") {
		return nil
	}
	return []string{"/remind in 3h first", "/remind in 4h second"}
}

// wantDone reports the answer to a command that was not executed.
func wantDone(t *testing.T, where, text, answer string) {
	t.Helper()
	planned := !strings.Contains(text, " form ") || strings.HasPrefix(answer, "I will remind you ") || strings.HasPrefix(answer, "Planned: ")
	if !planned || strings.Contains(answer, "failed") || strings.HasPrefix(answer, "You may not") {
		t.Errorf("%s, %s was answered with %q", where, text, answer)
	}
}
