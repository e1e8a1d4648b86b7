package teste2e

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// Chatroom is a gateway with a bot: the fake Telegram and the fake model are in the process of the
// test, the gateway is the binary.
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

// openChatroom creates an installation whose bot has its token in TELEGRAM_TOKEN; settings are
// additional lines below channels.telegram.
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

// Close checks what must hold after every scenario: the invariants of the tables, no improper call
// at the fake server, and no occurrence of the bot's token.
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

// wantNoSecret searches the output, metrics and store of the gateways for the secret half of the
// bot's token. TestPlantedSecretsAreFoundNowhere searches the output of commands.
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
	if exit != 0 || !strings.Contains(out, "can now use the bot") {
		c.t.Fatalf("pair approve: %q %q, code %d", out, errs, exit)
	}
	c.Says(person, "You can now use this bot")
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

// askingGroup is a group with a bot and the example agent of the SDK, which asks before it writes a
// file. patience is how long it waits for the answer.
func askingGroup(t *testing.T, patience string) *Chatroom {
	t.Helper()
	program := buildExample(t, "github.com/coder/acp-go-sdk/example/agent")
	c := openChatroomOf(t, "", "{runner: acp, command: ["+program+"], question_timeout: "+patience+"}",
		"    groups: [-100500]\n    members: any\n    activation: always\n", testtelegram.Config{})
	c.Start()
	c.Telegram.Say(forum, anna, "change the configuration")
	return c
}

// The press of another member is refused and the question stays open; that of the asked person
// counts.
func TestAnAgentIsAllowedByAButtonInTelegram(t *testing.T) {
	c := askingGroup(t, "5m")
	c.pressAsAnother(bob)
	messages := c.Telegram.Messages(forum)
	asked := messages[slices.IndexFunc(messages, func(m testtelegram.Message) bool { return len(m.Buttons) > 0 })]
	c.Telegram.Press(forum, anna, asked.ID, shown{asked}.button(t, "Allow: this change").Data)
	c.Await("the answer after the press", func() bool { return c.Count(forum, "The changes have been applied.") == 1 })
	c.Close()
}

// The person is informed of the refusal.
func TestAnAgentWithoutAnAnswerIsRefusedInTelegram(t *testing.T) {
	c := askingGroup(t, "2s")
	c.Await("the report", func() bool {
		return c.Count(forum, "No answer came within 2s, so the agent main may not: change the file “/home/user/project/config.json”") == 1
	})
	c.Await("the answer of the agent", func() bool { return c.Count(forum, "I understand you prefer not to make that change") == 1 })
	if n := c.Count(forum, "The changes have been applied."); n != 0 {
		t.Error("the agent was allowed without an answer")
	}
	c.Close()
}

// Two bots run in one process. Their updates have the same numbers, and the same person writes to
// both: each has its own people, conversations and faults.
func TestTwoBotsShareAGatewayAndNothingElse(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		work := testtelegram.New(testtelegram.Config{Token: "555555555:WORK-Token-canary-9876543210zyxwvutsrqp", Username: "work_bot", Drafts: true})
		work.AddPrivate(anna, "Anna")
		work.AddPrivate(bob, "Bob")
		api := httptest.NewServer(work)
		t.Cleanup(api.CloseClientConnections)
		t.Cleanup(api.Close)
		c := openChatroom(t, database, fmt.Sprintf("    token_env: TELEGRAM_TOKEN\n    accounts:\n"+
			"      work: {token_env: WORK_BOT, api_url: %s, poll_timeout: 5s, access: allowlist, allow: [8]}\n", api.URL), testtelegram.Config{Drafts: true})
		c.env = append(c.env, "WORK_BOT="+work.Token())
		c.Model.Answer(storyteller)
		c.Start()
		ctx := withTimeout(t, 2*time.Minute)
		c.Await("the first bot polls", c.Telegram.Polling)
		await := func(what string, ok func() bool) {
			t.Helper()
			if err := work.Await(ctx, ok); err != nil {
				t.Fatalf("%s: %v; anna reads %q, bob %q", what, err, work.Texts(anna), work.Texts(bob))
			}
		}
		last := func(chat int64) string {
			texts := work.Texts(chat)
			return strings.Join(texts[max(0, len(texts)-1):], "")
		}

		c.LetIn(anna) // only by the bot of the family, not by the other one
		work.Say(anna, anna, "let me in")
		await("anna is refused at work", func() bool { return strings.Contains(last(anna), "Only people on a list") })

		work.Say(bob, bob, "the plan for Monday")
		await("bob is answered at work", func() bool { return strings.Contains(last(bob), "the plan for Monday") })
		c.Telegram.Say(anna, anna, "the plan for the birthday")
		c.Says(anna, "the plan for the birthday")
		for _, call := range c.Model.Calls() {
			if body := string(call.Body); strings.Contains(body, "Monday") && strings.Contains(body, "birthday") {
				t.Errorf("the conversations of two bots are mixed: %s", body)
			}
		}

		// The faults of one do not affect the other.
		c.Telegram.BreakAlways(testtelegram.Fault{HTML: 502})
		began := time.Now()
		work.Say(bob, bob, "are you still there?")
		await("the other bot answers", func() bool { return strings.Contains(last(bob), "are you still there?") })
		t.Logf("with one bot's Telegram away the other answered after %s", time.Since(began).Round(time.Millisecond))
		testrun.Eventually(t, "status tells them apart", func() bool {
			out, _, _ := c.CLI(ctx, "", "status")
			return regexp.MustCompile(`telegram +default +degraded`).MatchString(out) && regexp.MustCompile(`telegram +work +connected`).MatchString(out)
		})
		c.Telegram.Mend()
		c.Telegram.Say(anna, anna, "and you?")
		c.Says(anna, "and you?")
		for _, v := range work.Violations() {
			t.Errorf("the other fake server complains: %s", v)
		}
		c.Close()
	})
}

// TestRefusedFormsAreSeenFromOutside: Telegram refuses each form of an answer for good. The status,
// the ledger and the run say that it was not delivered.
func TestRefusedFormsAreSeenFromOutside(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7]\n", testtelegram.Config{})
		c.Model.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{Pieces: []string{"**bold** answer"}} })
		c.Start()
		refusals := make([]testtelegram.Fault, 20)
		for i := range refusals {
			refusals[i] = testtelegram.Refuse(400, "Bad Request: BUTTON_DATA_INVALID")
		}
		c.Telegram.Break("sendMessage", refusals...)
		c.Telegram.Break("editMessageText", refusals...)
		run := func(args ...string) string {
			out, errs, _ := c.CLI(t.Context(), "", args...)
			return out + errs
		}
		if out := run("cron", "add", "--name", "daily", "--at", "in 60m", "--message", "hi", "--deliver", fmt.Sprintf("telegram:%d", anna)); !strings.Contains(out, "daily") {
			t.Fatal(out)
		}
		run("cron", "run", "daily")
		testrun.Eventually(t, "the ledger says that the answer was not delivered", func() bool { return strings.Contains(run("cron", "runs", "daily"), "not delivered: bad_request") })
		testrun.Eventually(t, "the status counts it", func() bool {
			out := run("status")
			return strings.Contains(out, "1 message was given up") && strings.Contains(out, "laneway why RUN")
		})
		o := OpenOracle(t, c.Gateway, database)
		id := o.Rows("SELECT run_id FROM outbox WHERE state = 'failed'")
		if len(id) != 1 {
			t.Fatalf("given up: %q", id)
		}
		if out := run("why", id[0]); !strings.Contains(out, "was given up") || !strings.Contains(out, "bad_request") {
			t.Errorf("why says: %s", out)
		}
		c.Close()
	})
}
