package teste2e

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// People and places of the Telegram scenarios.
const (
	anna  = int64(7)
	bob   = int64(8)
	forum = int64(-100500)
)

// Chatroom is a gateway with a bot: the fake Telegram and the fake model are in the process of the test, the gateway is the binary.
type Chatroom struct {
	*Gateway
	t        *testing.T
	Telegram *testtelegram.Server
	Model    *testmodel.Server
	database string
	install  func() *Gateway // another replica on the same database
	spoken   []string        // output of earlier processes

	installed []*Gateway
}

// openChatroom creates an installation whose bot has its token in TELEGRAM_TOKEN; settings are additional lines below channels.telegram.
func openChatroom(t *testing.T, database, settings string, telegram testtelegram.Config) *Chatroom {
	t.Helper()
	return openChatroomOf(t, database, "", settings, telegram)
}

// openChatroomOf is openChatroom with a different agent; "" = the fake model.
func openChatroomOf(t *testing.T, database, agent, settings string, telegram testtelegram.Config) *Chatroom {
	t.Helper()
	c := &Chatroom{t: t, Telegram: testtelegram.New(telegram), Model: testmodel.Start(t), database: database}
	c.Telegram.AddPrivate(anna, "Anna")
	c.Telegram.AddPrivate(bob, "Bob")
	c.Telegram.AddGroup(forum, "Friends", 10, 20)
	api := httptest.NewServer(c.Telegram)
	t.Cleanup(api.CloseClientConnections) // a blocked poll must not delay the test
	t.Cleanup(api.Close)
	if agent == "" {
		agent = fmt.Sprintf("{runner: openai, model: test, base_url: %q, retries: 0}", c.Model.URL()+"/v1")
	}
	config := fmt.Sprintf("agents: {main: %s}\ncluster: {lease: 3s, heartbeat: 500ms}\n"+
		"channels:\n  telegram:\n    api_url: %s\n    poll_timeout: 5s\n%s", agent, api.URL, settings)
	c.install = func() *Gateway {
		g := Install(t, database, config, "--log-level", "debug", "--metrics-listen", "main")
		g.env = append(g.env, "TELEGRAM_TOKEN="+c.Telegram.Token())
		c.installed = append(c.installed, g)
		return g
	}
	c.Gateway = c.install()
	return c
}

// Close checks what must hold after every scenario: the invariants of the tables, no improper call at the fake server, and no occurrence of
// the bot's token.
func (c *Chatroom) Close() {
	c.t.Helper()
	OpenOracle(c.t, c.Gateway, c.database).Check(4 * time.Second)
	for _, v := range c.Telegram.Violations() {
		c.t.Errorf("the fake server complains: %s", v)
	}
	c.wantNoSecret()
}

// Restart kills the process and starts it again.
func (c *Chatroom) Restart() {
	c.t.Helper()
	c.Kill()
	c.remember()
	c.Start()
}

func (c *Chatroom) remember() { c.spoken = append(c.spoken, c.Output()) }

// wantNoSecret searches the output, metrics and store of the gateways for the secret half of the bot's token.
// TestPlantedSecretsAreFoundNowhere searches the output of commands.
func (c *Chatroom) wantNoSecret() {
	c.t.Helper()
	_, secret, _ := strings.Cut(c.Telegram.Token(), ":")
	places := map[string]string{"output": c.Output(), "output of earlier processes": strings.Join(c.spoken, "\n")}
	testrun.Eventually(c.t, "a gateway has called Telegram since its start, and its metrics say so", func() bool {
		places["metrics"] = c.metrics() // of a replica that may have left the bot to another one
		return strings.Contains(places["metrics"], "laneway_telegram_calls_total") && strings.Contains(places["metrics"], `laneway_channel_connected{account="default",channel="telegram"}`)
	})
	oracle := OpenOracle(c.t, c.Gateway, c.database)
	for _, table := range []string{
		"nodes", "leases", "sessions", "inbox", "runs", "outbox", "transcript", "audit_log", "pairings", "pairing_grants", "channel_groups", "buttons",
		"cron_jobs", "cron_run_logs",
	} {
		places["table "+table] = strings.Join(oracle.Rows("SELECT * FROM "+table), "\n")
	}
	for place, text := range places {
		if strings.Contains(text, secret) {
			c.t.Errorf("the token of the bot is in: %s", place)
		}
	}
	if places["output"] == "" || places["table nodes"] == "" {
		c.t.Error("the search for the token saw nothing")
	}
	if files, err := filepath.Glob(filepath.Join(c.Dir, "*")); err != nil || len(files) == 0 {
		c.t.Errorf("the installation is empty: %v", err)
	}
}

// metrics returns the metrics of all running gateways.
func (c *Chatroom) metrics() string {
	c.t.Helper()
	var all strings.Builder
	for _, g := range c.installed {
		if g.runs() {
			all.WriteString(g.metrics(c.t, g.Token()))
		}
	}
	return all.String()
}

// Await waits until Telegram shows something.
func (c *Chatroom) Await(what string, ok func() bool) {
	c.t.Helper()
	began := time.Now()
	ctx := withTimeout(c.t, testrun.Patience)
	if err := c.Telegram.Await(ctx, ok); err != nil {
		c.t.Fatalf("not shown: %s\nanna reads %q\n%s", what, c.Telegram.Texts(anna), tail(c.Output()))
	}
	if took := time.Since(began); took > 4*time.Second {
		c.t.Logf("%s took %s", what, took.Round(time.Millisecond))
	}
}

func tail(s string) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// Says waits until the last message of a chat contains part.
func (c *Chatroom) Says(chat int64, part string) {
	c.t.Helper()
	c.Await(fmt.Sprintf("%q in %d", part, chat), func() bool {
		texts := c.Telegram.Texts(chat)
		return len(texts) > 0 && strings.Contains(texts[len(texts)-1], part)
	})
}

// Count returns how many messages of a chat contain part.
func (c *Chatroom) Count(chat int64, part string) int {
	n := 0
	for _, text := range c.Telegram.Texts(chat) {
		if strings.Contains(text, part) {
			n++
		}
	}
	return n
}

// last returns the newest message of a chat.
func (c *Chatroom) last(chat int64) shown {
	c.t.Helper()
	all := c.Telegram.Messages(chat)
	if len(all) == 0 {
		c.t.Fatalf("there is no message in %d", chat)
	}
	return shown{all[len(all)-1]}
}

// shown is a message as it was shown.
type shown struct{ testtelegram.Message }

// button returns the button with a label.
func (m shown) button(t *testing.T, label string) testtelegram.Button {
	t.Helper()
	for _, row := range m.Buttons {
		for _, b := range row {
			if b.Text == label {
				return b
			}
		}
	}
	t.Fatalf("%q has no button %q: %v", m.Text, label, m.Buttons)
	return testtelegram.Button{}
}

// Press lets a person press a button of a message in their chat, and waits for the answer.
func (c *Chatroom) Press(person int64, m shown, label, answer string) {
	c.t.Helper()
	c.Telegram.Press(person, person, m.ID, m.button(c.t, label).Data)
	c.Await(fmt.Sprintf("%q below %q", answer, m.Text), func() bool {
		last := c.last(person)
		return last.ID > m.ID && strings.Contains(last.Text, answer)
	})
}

// pressAnswers returns how often a press was answered with a text.
func (c *Chatroom) pressAnswers(text string) int {
	n := 0
	for _, call := range c.Telegram.Calls("answerCallbackQuery") {
		if strings.Contains(call.Params.Get("text"), text) {
			n++
		}
	}
	return n
}

var pairingCode = regexp.MustCompile(`laneway pair approve ([A-Z2-7]{8})`)

// LetIn grants a person access through their code and the command of the operator.
func (c *Chatroom) LetIn(person int64) {
	c.t.Helper()
	c.Telegram.Say(person, person, "Hello?")
	c.Says(person, "laneway pair approve")
	texts := c.Telegram.Texts(person)
	code := pairingCode.FindStringSubmatch(texts[len(texts)-1])
	if code == nil {
		c.t.Fatalf("no code in %q", texts)
	}
	ctx := withTimeout(c.t, 30*time.Second)
	if out, errs, exit := c.CLI(ctx, "", "pair", "list", "--json"); exit != 0 || !strings.Contains(out, fmt.Sprintf(`"senderId": "%d"`, person)) || strings.Contains(out, code[1]) {
		c.t.Errorf("pair list: %q %q, code %d; want the person and not the code", out, errs, exit)
	}
	out, errs, exit := c.CLI(ctx, "", "pair", "approve", strings.ToLower(code[1]))
	if exit != 0 || !strings.Contains(out, "may talk") {
		c.t.Fatalf("pair approve: %q %q, code %d", out, errs, exit)
	}
	c.Says(person, "You are let in")
}

// attachments returns the files that people sent.
func (c *Chatroom) attachments() []string {
	c.t.Helper()
	var files []string
	err := filepath.WalkDir(filepath.Join(c.Dir, "data", "attachments"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return files
}

// storyteller answers with the question, in bold.
func storyteller(call testmodel.Call) testmodel.Reply {
	return testmodel.Reply{Pieces: []string{"You said: **" + call.Last() + "**"}}
}
