package command_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/command"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ExampleTable_Parse() {
	table, err := command.New()
	if err != nil {
		panic(err)
	}
	for _, text := range []string{"/queue clear", "@lane_bot /STOP@lane_bot", "/stop@other_bot", "/unknown", "please /stop", "//stop"} {
		_, name, args, ok := table.Parse(text, "lane_bot")
		fmt.Printf("%q -> %v %q %q\n", text, ok, name, args)
	}
	// Output:
	// "/queue clear" -> true "queue" "clear"
	// "@lane_bot /STOP@lane_bot" -> true "stop" ""
	// "/stop@other_bot" -> false "" ""
	// "/unknown" -> false "unknown" ""
	// "please /stop" -> false "" ""
	// "//stop" -> false "/stop" ""
}

// house does what it is told and remembers it.
type house struct {
	did   []string
	queue command.QueueReport
	stop  command.StopReport
	err   error
}

func (h *house) note(s string) error { h.did = append(h.did, s); return h.err }

func (h *house) StopOne(context.Context, command.Call) (command.StopReport, error) {
	return h.stop, h.note("stop")
}

func (h *house) StopAll(context.Context, command.Call) (command.StopReport, error) {
	return h.stop, h.note("stopall")
}
func (h *house) NewSession(context.Context, command.Call) error { return h.note("new") }
func (h *house) Queue(context.Context, command.Call) (command.QueueReport, error) {
	return h.queue, h.note("queue")
}

func (h *house) SetMode(_ context.Context, _ command.Call, m chat.QueueMode) error {
	return h.note("mode " + string(m))
}
func (h *house) ClearQueue(context.Context, command.Call) (int, error) { return 3, h.note("clear") }
func (h *house) SetModel(_ context.Context, _ command.Call, m string) error {
	return h.note("model " + m)
}

func (h *house) Overview(context.Context, command.Call) (command.Overview, error) {
	return command.Overview{Version: "1", Store: "sqlite", Agent: "main", Model: "m", Uptime: "1s", Queue: h.queue, Problems: []string{"database: away"}}, h.note("overview")
}
func (h *house) Agents() []agent.Info { return []agent.Info{{ID: "main", Runner: "echo"}} }

func TestEveryCommandAnswers(t *testing.T) {
	t.Parallel()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, answer, did string }{
		{"/new", "A new conversation begins here.", "new"},
		{"/reset", "A new conversation begins here.", "new"},
		{"/stop", "Stopped the running turn.", "stop"},
		{"/stopall", "Stopped 1 running turn and 2 waiting messages.", "stopall"},
		{"/queue", "Mode collect, 1 running turn, 2 waiting messages of at most 10, lane main.", "queue"},
		{"/queue clear", "Removed 3 waiting messages.", "clear"},
		{"/queue STEER", "From now on messages here use the mode steer.", "mode steer"},
		{"/queue default", "Back to the default mode.", "mode "},
		{"/model", "The model here is m.", "overview"},
		{"/model big-1", "From now on this conversation uses big-1.", "model big-1"},
		{"/model default", "Back to the agent's own model.", "model "},
		{"/agent", "main: echo (default) <- this conversation", ""},
		{"/whoami", "You are gateway (web user 7).", ""},
		{"/id", "This conversation is agent:main:main. Its address is web:5.", ""},
	} {
		h := &house{stop: command.StopReport{Running: 1, Waiting: 2}, queue: command.QueueReport{Mode: chat.ModeCollect, Running: 1, Waiting: 2, Cap: 10, Lane: "main"}}
		cmd, name, args, ok := table.Parse(c.text, "")
		if !ok {
			t.Errorf("%s was not recognised", c.text)
			continue
		}
		call := command.Call{
			Session: chat.MainKey("main"), Principal: "gateway", Sender: chat.Sender{ID: "7"}, Channel: "web",
			Target: chat.Target{Channel: "web", ChatID: "5"}, Name: name, Args: args,
		}
		answer, err := cmd.Run(t.Context(), h, call)
		if err != nil || answer != c.answer || strings.Join(h.did, ",") != c.did {
			t.Errorf("%s: %q, %v, did %v; want %q and %q", c.text, answer, err, h.did, c.answer, c.did)
		}
		h.err = errors.New("away")
		if c.did != "" {
			if answer, err := cmd.Run(t.Context(), h, call); err == nil {
				t.Errorf("%s with a failing house answered %q", c.text, answer)
			}
		}
	}
}

func TestStatusAndHelpNameEverything(t *testing.T) {
	t.Parallel()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range table.Infos() {
		if !strings.Contains(table.Help(), "/"+c.Name) {
			t.Errorf("/help does not know /%s", c.Name)
		}
	}
	status, _ := table.Lookup("status")
	text, err := status.Run(t.Context(), &house{}, command.Call{})
	if err != nil || !strings.Contains(text, "problem: database: away") {
		t.Errorf("status %q, %v", text, err)
	}
}

func TestBadArgumentsAreRefusedAndChangeNothing(t *testing.T) {
	t.Parallel()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"/queue sideways", "/model " + strings.Repeat("x", 201), "/model a\u202eb"} {
		h := &house{}
		cmd, name, args, ok := table.Parse(text, "")
		if !ok {
			t.Fatalf("%s was not recognised", text)
		}
		if answer, err := cmd.Run(t.Context(), h, command.Call{Name: name, Args: args}); !errors.Is(err, chat.ErrInvalid) || len(h.did) > 0 {
			t.Errorf("%q: %q, %v, did %v", text, answer, err, h.did)
		}
	}
}

func TestATableRefusesRowsThatCannotWork(t *testing.T) {
	t.Parallel()
	run := func(context.Context, command.Actions, command.Call) (string, error) { return "", nil }
	good := command.Command{Name: "x", Description: "d", Scope: command.ScopeRead, Run: run}
	for name, change := range map[string]func(*command.Command){
		"no function": func(c *command.Command) { c.Run = nil }, "no help": func(c *command.Command) { c.Description = "" },
		"no scope": func(c *command.Command) { c.Scope = "" }, "taken": func(c *command.Command) { c.Name = "stop" },
		"taken alias": func(c *command.Command) { c.Aliases = []string{"help"} }, "blank": func(c *command.Command) { c.Name = "a b" },
	} {
		bad := good
		change(&bad)
		if _, err := command.New(bad); err == nil {
			t.Errorf("%s: the row was taken", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	table, err := command.New()
	if err != nil {
		f.Fatal(err)
	}
	f.Add("/stop", "bot")
	f.Add("@bot  /stop@bot\n now", "bot")
	f.Fuzz(func(t *testing.T, text, bot string) {
		cmd, name, args, ok := table.Parse(text, bot)
		if ok && (cmd.Run == nil || !strings.Contains(strings.ToLower(text), "/"+name) || !strings.Contains(text, args)) {
			t.Errorf("%q for %q gave %q %q", text, bot, name, args)
		}
	})
}
