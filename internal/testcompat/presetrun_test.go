//go:build compat

package testcompat

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	// records has a file with the output of each process; clean removes the paths of this machine from it.
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

// answer answers the open question of a session with the option that allows or refuses only this act, and reports whether a question was open.
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

// remember runs the first turn, with a picture and a document. It returns how these reach the model.
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

// sendFile orders a file in Telegram, where the tool send_file is offered, and allows it with the button. It reports whether the file arrives.
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

// keep writes the messages of the conversation, without the paths of this machine and the long lists of commands.
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
