//go:build compat

package testcompat

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"laneway/internal/teste2e"
	"laneway/internal/testmodel"
	"laneway/internal/testtelegram"
	messages "laneway/internal/wire"
)

var presetPicture = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82")

const presetDocument = "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"

// presetPiece is a piece of the answer.
var presetPiece = regexp.MustCompile(`"text":"The word ?"`)

// presetRun is one conversation with a preset.
type presetRun struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // it bounds the conversation of one test
	g      *teste2e.Gateway
	bot    *testtelegram.Server
	model  *testmodel.Server
	orders *presetModel
	// records has a file with the output of each process; clean removes the paths of this machine
	// from it.
	records string
	clean   *strings.Replacer
}

func (p *presetRun) cli(args ...string) string {
	p.t.Helper()
	out, errs, code := p.g.CLI(p.ctx, "", args...)
	if code != 0 {
		p.t.Errorf("laneway %s: %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// answer answers the open question of a session with the option that allows or refuses only this
// act, and reports whether a question was open.
func (p *presetRun) answer(session string, allow bool) bool {
	p.t.Helper()
	raw, _, _ := p.g.CLI(p.ctx, "", "questions", "list", "--json")
	var open messages.QuestionsListResult
	if json.Unmarshal([]byte(raw), &open) != nil { // a starting gateway does not answer
		return false
	}
	i := slices.IndexFunc(open.Questions, func(q messages.Question) bool { return q.SessionKey == session })
	if i < 0 {
		return false
	}
	asked := open.Questions[i]
	option := slices.IndexFunc(asked.Options, func(o messages.QuestionOption) bool { return o.Allow == allow && !o.Always })
	p.cli("questions", "answer", asked.ID, strconv.Itoa(option+1))
	return true
}

// order sends a message, answers the questions of its turn, and returns what the person reads.
func (p *presetRun) order(text string, allow bool) (out string, asked bool) {
	p.t.Helper()
	began := time.Now()
	done := make(chan string)
	go func() {
		out, errs, _ := p.g.CLI(p.ctx, "", "send", text)
		done <- out + errs
	}()
	for {
		select {
		case out := <-done:
			p.t.Logf("%s: %s, asked %v: %q", text, time.Since(began).Round(time.Second), asked, out)
			return out, asked
		case <-time.After(200 * time.Millisecond):
			asked = p.answer("agent:main:main", allow) || asked
		}
	}
}

// yes returns a cell of the table.
func yes(works bool) string {
	if works {
		return "yes"
	}
	return "no"
}

// play returns the cells of the table about one process of the gateway.
func (p *presetRun) play(name string) []string {
	p.t.Helper()
	abilities := p.cli("doctor", "--agents", "--config", filepath.Join(p.g.Dir, "laneway.yaml"))
	if !strings.Contains(abilities, "answers and made a session") {
		p.t.Errorf("doctor:\n%s", abilities)
	}
	picture, document := p.remember()
	p.bot.Say(7, 7, "remember the word apple")
	if !eventually(p.t, presetWait, func() bool { return p.used().Turns == 2 }) {
		p.t.Errorf("in Telegram: the bot has sent %q", p.bot.Texts(7))
	}
	before := p.used().TotalTokens
	made, asked := p.order(presetOrder, true)
	used := p.used().TotalTokens - before
	if !strings.Contains(made, presetAnswer) {
		p.t.Errorf("the turn with a command: %s\n%s", made, p.g.Output())
	}
	if out := p.cli("send", "which word was it?"); !strings.Contains(out, presetAnswer) {
		p.t.Errorf("the last turn: %s", out)
	}
	if !p.asked("remember the word apple") {
		p.t.Error("the last turn does not have the first one")
	}
	if !eventually(p.t, presetWait, func() bool { return bytes.Count(p.record(), []byte("stopReason")) == 3 }) {
		p.t.Error("the record does not have three turns")
	}
	streams := presetPiece.Match(p.record())
	if to := os.Getenv("LANEWAY_RECORD"); to != "" {
		p.keep(filepath.Join(to, name+".jsonl"))
	}
	_, deniedAsked := p.order(presetDeniedOrder, false)
	_, err := os.Stat(p.orders.forbidden)
	denied := "not asked"
	if deniedAsked {
		denied = yes(err != nil)
	}
	sent := p.sendFile()
	return []string{
		yes(streams), yes(asked), denied, picture, document, yes(strings.Contains(made, "made.txt")), yes(sent),
		map[int64]string{0: "none: the time counts", 7: "the last request of a turn", 14: "each request"}[used],
		yes(strings.Contains(abilities, "loading sessions")), yes(strings.Contains(abilities, "resuming sessions")), yes(strings.Contains(abilities, "closing sessions")),
	}
}

// remember runs the first turn, with a picture and a document. It returns how these reach the
// model.
func (p *presetRun) remember() (picture, document string) {
	p.t.Helper()
	dot, note := filepath.Join(p.t.TempDir(), "dot.png"), filepath.Join(p.t.TempDir(), "note.pdf")
	for path, content := range map[string]string{dot: string(presetPicture), note: presetDocument} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	if out := p.cli("send", "--file", dot, "--file", note, "remember the word apple"); !strings.Contains(out, presetAnswer) {
		p.t.Fatalf("the first turn: %s\n%s", out, p.g.Output())
	}
	how := func(name, content string) string {
		switch {
		case p.asked(base64.StdEncoding.EncodeToString([]byte(content))[:40]):
			return "yes"
		case p.asked(name):
			return "as a link"
		default:
			return "no"
		}
	}
	return how("dot.png", string(presetPicture)), how("note.pdf", presetDocument)
}

// sendFile orders a file in Telegram, where the tool send_file is offered, and allows it with the
// button. It reports whether the file arrives.
func (p *presetRun) sendFile() bool {
	p.t.Helper()
	answers := func() int { return strings.Count(strings.Join(p.bot.Texts(7), "\n"), presetAnswer) }
	before, pressed, sent := answers(), map[int]bool{}, false
	p.bot.Say(7, 7, presetSendOrder)
	ended := func() bool {
		for _, m := range p.bot.Messages(7) {
			sent = sent || m.File != nil && m.File.Name == "sent.txt" && string(m.File.Content) == "sent"
			for _, b := range slices.Concat(m.Buttons...) {
				if strings.HasPrefix(b.Text, "Allow") && !pressed[m.ID] {
					pressed[m.ID] = true
					p.bot.Press(7, 7, m.ID, b.Data)
				}
			}
		}
		return answers() > before
	}
	if !eventually(p.t, presetWait, ended) {
		p.t.Errorf("the file in Telegram: the bot has sent %q", p.bot.Texts(7))
	}
	p.t.Logf("%s: sent %v, pressed %d", presetSendOrder, sent, len(pressed))
	return sent
}

// used returns the agent's usage so far.
func (p *presetRun) used() (all messages.UsageCount) {
	p.t.Helper()
	var used struct{ Rows []messages.UsageRow }
	if err := json.Unmarshal([]byte(p.cli("usage", "--json")), &used); err != nil {
		p.t.Fatal(err)
	}
	for _, row := range used.Rows {
		all.Turns += row.Turns
		all.TotalTokens += row.TotalTokens
	}
	return all
}

// asked reports whether the last request with tools to the model contains a string.
func (p *presetRun) asked(text string) bool {
	for _, call := range slices.Backward(p.model.Calls()) {
		if len(call.Tools) > 0 {
			return bytes.Contains(call.Body, []byte(text))
		}
	}
	return false
}

// record returns the output of the process with the most turns.
func (p *presetRun) record() (found []byte) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.records, "*.jsonl"))
	if err != nil {
		p.t.Fatal(err)
	}
	turns := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			p.t.Fatal(err)
		}
		if n := bytes.Count(raw, []byte("stopReason")); n > turns {
			found, turns = raw, n
		}
	}
	return found
}

// keep writes the messages of the conversation, without the paths of this machine and the long
// lists of commands.
func (p *presetRun) keep(file string) {
	p.t.Helper()
	var kept strings.Builder
	for line := range strings.Lines(string(p.record())) {
		if json.Valid([]byte(line)) && !strings.Contains(line, "available_commands_update") {
			kept.WriteString(strings.ReplaceAll(p.clean.Replace(line), p.g.Dir, "/gateway"))
		}
	}
	if err := os.WriteFile(file, []byte(kept.String()), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// The orders: a message that contains one makes the model request one tool call.
const (
	presetOrder       = "run-the-command-now"
	presetDeniedOrder = "run-the-forbidden-command-now"
	presetSlowOrder   = "run-the-slow-command-now" // the command does not end
	presetReadOrder   = "read-the-picture-now"
	presetSendOrder   = "send-the-file-now"
)

const presetAnswer = "The word is apple."

var (
	// outputOf is the directory for files that the prompt names.
	outputOf = regexp.MustCompile(`write them to the directory (/[^"\\\s]+)`)
	// pictureOf is the path of the picture that the prompt of a command agent names.
	pictureOf = regexp.MustCompile(`dot\.png\\" of the message is (/[^"\\\s]+)`)
)

// presetModel answers each message with the same sentence. It requests the tool call of each order
// once.
type presetModel struct {
	mu   sync.Mutex
	done map[string]bool // the tool that was called, by order
	// source is a file that the commands of presetOrder and presetDeniedOrder copy, forbidden the
	// copy made by the second one. They copy instead of redirecting an echo, because OpenClaw
	// refuses a redirection, which it cannot bind to a program, without a question.
	source, forbidden string
	// escalates makes the model request commands outside of Codex's sandbox, for which Codex asks
	// the person.
	escalates bool
}

func startPresetModel(t *testing.T) (*testmodel.Server, *presetModel) {
	t.Helper()
	dir := t.TempDir()
	model, orders := testmodel.Start(t), &presetModel{done: map[string]bool{}, source: dir + "/source.txt", forbidden: dir + "/forbidden.txt"}
	if err := os.WriteFile(orders.source, []byte("made"), 0o600); err != nil {
		t.Fatal(err)
	}
	model.Answer(orders.answer)
	return model, orders
}

func (m *presetModel) answer(c testmodel.Call) testmodel.Reply {
	if c.Protocol == testmodel.Gemini && !c.Stream { // the agent uses this request to choose a model
		return testmodel.Reply{Pieces: []string{`{"reasoning":"none","model_choice":"flash"}`}, Whole: true, InputTokens: 3, OutputTokens: 4}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, order := range []string{presetOrder, presetDeniedOrder, presetSlowOrder, presetReadOrder, presetSendOrder} {
		if !bytes.Contains(c.Body, []byte(order)) {
			continue
		}
		name, args := m.call(order, c)
		call := order + "-" + name
		if name == "" || m.done[call] {
			continue
		}
		raw, err := json.Marshal(args)
		if err != nil {
			panic(err)
		}
		m.done[call] = true
		return testmodel.Reply{Calls: []testmodel.ToolCall{{ID: "call_" + order, Name: name, Args: string(raw)}}, InputTokens: 3, OutputTokens: 4}
	}
	return testmodel.Reply{Pieces: []string{"The word ", "is apple."}, InputTokens: 3, OutputTokens: 4}
}

// call returns the tool call of an order, and "" when the request offers no tool for it.
func (m *presetModel) call(order string, c testmodel.Call) (name string, args map[string]any) {
	last := func(of *regexp.Regexp) string {
		found := of.FindAllSubmatch(c.Body, -1)
		if len(found) == 0 {
			return ""
		}
		return string(found[len(found)-1][1])
	}
	switch order {
	case presetOrder:
		return m.shellCall(c.Tools, "cp "+m.source+" "+last(outputOf)+"/made.txt")
	case presetDeniedOrder:
		return m.shellCall(c.Tools, "cp "+m.source+" "+m.forbidden)
	case presetSlowOrder:
		return m.shellCall(c.Tools, presetSlow)
	case presetReadOrder:
		if slices.Contains(c.Tools, "Read") {
			return "Read", map[string]any{"file_path": last(pictureOf)}
		}
	case presetSendOrder:
		if i := slices.IndexFunc(c.Tools, func(tool string) bool { return strings.HasSuffix(tool, "send_file") }); i >= 0 {
			return c.Tools[i], map[string]any{"name": "sent.txt", "text": "sent"}
		}
		// Qwen Code offers the tools of MCP servers only after a search for them.
		if slices.Contains(c.Tools, "tool_search") {
			return "tool_search", map[string]any{"query": "send_file"}
		}
	}
	return "", nil
}

// shellCall returns the call that runs a command with the agent's own tool.
func (m *presetModel) shellCall(tools []string, command string) (name string, args map[string]any) {
	for _, name := range []string{"Bash", "bash", "run_shell_command", "exec", "exec_command"} {
		switch {
		case !slices.Contains(tools, name):
		case name != "exec_command":
			return name, map[string]any{"command": command, "description": "Make a file"}
		case m.escalates:
			return name, map[string]any{"cmd": command, "sandbox_permissions": "require_escalated", "justification": "Make a file?"}
		default:
			return name, map[string]any{"cmd": command}
		}
	}
	return "", nil
}

const (
	openClawToken = "openclaw-0123456789-0123456789"
	// openClawConfig is what `openclaw onboard` writes for a model at an address, with the port of
	// its gateway. Without the mode in tools.exec, it runs every command without a question.
	openClawConfig = `{"agents": {"defaults": {"model": {"primary": "test/test"}, "models": {"test/test": {}}}}, "tools": {"exec": {"mode": "ask"}},
"gateway": {"mode": "local", "port": %d, "bind": "loopback", "auth": {"mode": "token", "token": "` + openClawToken + `"}},
"models": {"mode": "merge", "providers": {"test": {"baseUrl": "%s/v1", "api": "openai-completions", "apiKey": "sk-test-0123456789", "models": [
{"id": "test", "name": "test", "contextWindow": 128000, "maxTokens": 4096, "input": ["text", "image"], "reasoning": false}]}}}}`
)

// startOpenClaw starts the gateway of OpenClaw, to which its preset connects, and ends it with the
// test.
func startOpenClaw(t *testing.T, dir, home, model string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(home, ".openclaw"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(openClawConfig, listener.Addr().(*net.TCPAddr).Port, model)
	if err := os.WriteFile(filepath.Join(home, ".openclaw", "openclaw.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "node_modules", ".bin")
	gateway := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bin, "openclaw"), "gateway", "run")
	gateway.Env = []string{"HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH")}
	gateway.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := os.Create(filepath.Join(t.TempDir(), "openclaw.log"))
	if err != nil {
		t.Fatal(err)
	}
	gateway.Stdout, gateway.Stderr = said, said
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-gateway.Process.Pid, syscall.SIGKILL)
		_ = gateway.Wait() // it was killed
		_ = said.Close()
	})
	if !eventually(t, presetWait, func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}) {
		raw, _ := os.ReadFile(said.Name())
		t.Fatalf("the gateway of OpenClaw does not listen:\n%s", raw)
	}
}
