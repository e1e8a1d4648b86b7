package command_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the table of docs/chat-commands.md")

// Readers of the page know every command. -update writes its table.
func TestPageOfChatCommandsHasTheTable(t *testing.T) {
	t.Parallel()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| command | does |\n|---|---|\n")
	for _, c := range table.Infos() {
		name := "/" + c.Name
		if c.ArgsHint != "" {
			name += " " + strings.ReplaceAll(c.ArgsHint, "|", "\\|")
		}
		name = strings.Join(append([]string{name}, c.Aliases...), "`, `/")
		fmt.Fprintf(&want, "| `%s` | %s |\n", name, c.Description)
	}
	const page = "../../docs/chat-commands.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(text), "-update -->\n")
	have, tail, ends := strings.Cut(rest, "<!-- end -->")
	switch {
	case !begins || !ends:
		t.Fatalf("%s has no marks for the table", page)
	case have == want.String():
	case !*update:
		t.Errorf("%s has not the commands of the table; run: go test ./internal/command -run Page -update", page)
	default:
		if err := os.WriteFile(page, []byte(head+"-update -->\n"+want.String()+"<!-- end -->"+tail), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

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

// fakeBackend executes each call and records it.
type fakeBackend struct {
	did   []string
	queue command.QueueReport
	stop  command.StopReport
	jobs  []cron.Job
	zone  string
	quiet *schedule.Quiet
	err   error
}

// now is a Sunday.
func now() time.Time { return time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC) }

func (h *fakeBackend) Clock(context.Context, command.Call) (time.Time, string, error) {
	return now(), cmp.Or(h.zone, "Europe/Berlin"), h.err
}

func (h *fakeBackend) Zone(context.Context, command.Call) (string, error) { return h.zone, h.err }
func (h *fakeBackend) SetZone(_ context.Context, _ command.Call, zone string) error {
	h.zone = zone
	return h.err
}

func (h *fakeBackend) QuietHours(context.Context, command.Call) (q schedule.Quiet, ok bool, err error) {
	if h.quiet == nil {
		return q, false, h.err
	}
	return *h.quiet, true, h.err
}

func (h *fakeBackend) SetQuietHours(_ context.Context, _ command.Call, q *schedule.Quiet) error {
	h.quiet = q
	return h.err
}

func (h *fakeBackend) AddJob(_ context.Context, _ command.Call, n command.NewJob) (cron.Put, error) {
	j := cron.Job{Name: command.JobName(n.Text), Schedule: n.Schedule, Enabled: true}
	s, err := schedule.Check(n.Schedule, now(), schedule.Rules{})
	if err != nil {
		return cron.Put{}, chat.Errorf(chat.CodeInvalid, "%s", err)
	}
	fire, _ := s.Next(now())
	j.State.NextRunAt = fire.At
	return cron.Put{Job: j, Created: n.Key == "", Updated: n.Key != ""}, h.note(fmt.Sprintf("add %s %t %q%s", n.Schedule.Signature(), n.Reminder, n.Text, n.Key))
}

func (h *fakeBackend) Jobs(context.Context, command.Call) ([]cron.Job, error) { return h.jobs, h.err }

func (h *fakeBackend) RemoveJob(_ context.Context, _ command.Call, id string) error {
	return h.note("rm " + id)
}

func (h *fakeBackend) PauseJob(_ context.Context, _ command.Call, id, note string) error {
	return h.note("pause " + id + " " + note)
}

func (h *fakeBackend) ResumeJob(_ context.Context, _ command.Call, id string) (cron.Job, error) {
	j := h.jobs[1]
	j.Pause, j.State.NextRunAt = nil, now().Add(time.Hour)
	return j, h.note("resume " + id)
}

func (h *fakeBackend) RunJob(_ context.Context, _ command.Call, id string) (string, error) {
	return "", h.note("run " + id)
}

func (h *fakeBackend) RemovedJob(_ context.Context, _ command.Call, name string) (string, error) {
	if name == "last year" {
		return "removed", h.err
	}
	return "", h.err
}

func (h *fakeBackend) ExplainJob(_ context.Context, _ command.Call, id, when string) (cron.Explanation, error) {
	return cron.Explanation{Text: "It was skipped.", Cure: cron.Cure{Text: "wait"}}, h.note("why " + id + " " + when)
}

func (h *fakeBackend) note(s string) error { h.did = append(h.did, s); return h.err }

func (h *fakeBackend) StopOne(context.Context, command.Call) (command.StopReport, error) {
	return h.stop, h.note("stop")
}

func (h *fakeBackend) StopAll(context.Context, command.Call) (command.StopReport, error) {
	return h.stop, h.note("stopall")
}

func (h *fakeBackend) Tasks(context.Context, command.Call) ([]command.Task, error) {
	return []command.Task{{ID: "t-1", Agent: "coder", State: "yielded", Text: "count\nthe lines"}, {ID: "t-2", Agent: "main", State: "waiting", Text: strings.Repeat("word ", 20)}}, h.err
}

func (h *fakeBackend) StopTask(_ context.Context, _ command.Call, id string) error {
	return h.note("stop task " + id)
}

func (h *fakeBackend) ExplainTurn(_ context.Context, _ command.Call, id string) (store.TurnExplanation, error) {
	return store.TurnExplanation{Why: store.WhyWaiting, Text: "It waits for its turn."}, h.note("where " + id)
}

func (h *fakeBackend) NewSession(context.Context, command.Call) error { return h.note("new") }
func (h *fakeBackend) Queue(context.Context, command.Call) (command.QueueReport, error) {
	return h.queue, h.note("queue")
}

func (h *fakeBackend) SetMode(_ context.Context, _ command.Call, m chat.QueueMode) error {
	return h.note("mode " + string(m))
}

func (h *fakeBackend) ClearQueue(context.Context, command.Call) (int, error) {
	return 3, h.note("clear")
}

func (h *fakeBackend) Dirs(context.Context, command.Call) (all []string, chosen string, err error) {
	return []string{"/srv/app", "/srv/site"}, "/srv/app", h.err
}

func (h *fakeBackend) SetDir(_ context.Context, _ command.Call, dir string) error {
	return h.note("dir " + dir)
}

func (h *fakeBackend) Approvals(context.Context, command.Call) ([]chat.Approval, error) {
	return []chat.Approval{{ID: "q1", Agent: "coder", Act: "run the command “make”", Label: "Allow always", At: now().Add(-30 * time.Minute)}}, nil
}

func (h *fakeBackend) RevokeApprovals(_ context.Context, _ command.Call, id string) (int, error) {
	if id == "unknown" {
		return 0, nil
	}
	return 1, h.note("revoke " + id)
}

func (h *fakeBackend) AnswerQuestion(_ context.Context, _ command.Call, a command.QuestionAnswer) (string, error) {
	return fmt.Sprintf("question %s: %t %d", a.ID, a.Allow, a.Option), h.note("answer " + a.ID)
}

func (h *fakeBackend) SetModel(_ context.Context, _ command.Call, m string) error {
	return h.note("model " + m)
}

func (h *fakeBackend) Toc(_ context.Context, _ command.Call, level string) ([]command.TocLine, error) {
	return []command.TocLine{{Period: level + " 1", Session: "agent:main:other", Text: strings.Repeat("ä", 400)}, {Period: level + " 2", Text: "bread"}}, h.note("toc")
}

func (h *fakeBackend) Compact(context.Context, command.Call) (command.Compaction, error) {
	if len(h.jobs) == 0 {
		return command.CompactionNothing, h.note("compact")
	}
	return command.CompactionBegun, h.note("compact")
}

func (h *fakeBackend) Overview(context.Context, command.Call) (command.Overview, error) {
	return command.Overview{Version: "1", Store: "sqlite", Agent: "main", Model: "m", Uptime: "1s", Queue: h.queue, Usage: []string{"today: 12 tokens"}, Problems: []string{"database: away"}}, h.note("overview")
}
func (h *fakeBackend) Agents() []agent.Info { return []agent.Info{{ID: "main", Runner: "echo"}} }

func someJobs() []cron.Job {
	return []cron.Job{
		{ID: "a", Key: "key of tea", Name: "tea", Enabled: true, Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 5_400_000}, State: cron.JobState{Plan: cron.Plan{NextRunAt: now().Add(time.Hour)}, LastRunAt: now().Add(-30 * time.Minute), LastState: cron.RunOK}, Payload: cron.Payload{Text: "make tea"}},
		{ID: "b", Name: "news", Enabled: true, Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * *", TZ: "UTC"}, Pause: &cron.Pause{}},
		{ID: "c", Name: "NEWS", Schedule: schedule.Spec{Kind: schedule.KindAt, At: now().Add(2 * time.Hour)}},
	}
}

func TestEveryCommandAnswers(t *testing.T) {
	t.Parallel()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, answer, did string }{
		{"/new", "Started a new conversation.", "new"},
		{"/reset", "Started a new conversation.", "new"},
		{"/toc week", "week 1  agent:main:other\n" + strings.Repeat("ä", 300) + " …\n\nweek 2\nbread", "toc"},
		{"/compact", "The older part of this conversation is being summarised. You can continue meanwhile.", "compact"},
		{"/stop", "Stopped the running turn.", "stop"},
		{"/stopall", "Stopped 1 running turn and 2 waiting messages.", "stopall"},
		{"/queue", "Mode collect, 1 running turn, 2 waiting messages of at most 10, lane main.", "queue"},
		{"/queue clear", "Removed 3 waiting messages.", "clear"},
		{"/queue STEER", "Messages here now use the mode steer.", "mode steer"},
		{"/queue default", "Using the default mode again.", "mode "},

		{"/model", "The model here is m.", "overview"},
		{"/model big-1", "This conversation now uses big-1.", "model big-1"},
		{"/dir", "The agent works in /srv/app.", ""},
		{"/dir 2", "From the next turn on, the agent works in /srv/site.", "dir /srv/site"},
		{"/dir /srv/site", "From the next turn on, the agent works in /srv/site.", "dir /srv/site"},
		{"/dir 1", "From the next turn on, the agent works in /srv/app.", "dir "},
		{"/dir default", "From the next turn on, the agent works in /srv/app.", "dir "},
		{"/model default", "Using the agent's default model again.", "model "},
		{"/allow 0a1b2c", "question 0a1b2c: true 0", "answer 0a1b2c"},
		{"/deny 0a1b2c", "question 0a1b2c: false 0", "answer 0a1b2c"},
		{"/answer 0a1b2c 2", "question 0a1b2c: false 2", "answer 0a1b2c"},
		{"/agent", "main: echo (default) <- this conversation", ""},
		{"/remind in 20m call Anna", "I will remind you at Sun 22 Nov 2026 15:20 CET: call Anna", `add at:1795357200000 true "call Anna"`},
		{"/remind 15:00 tea", "I will remind you at Mon 23 Nov 2026 15:00 CET: tea", `add at:1795442400000 true "tea"`},
		{"/remind tomorrow 9:00 walk\nthe dog", "I will remind you at Mon 23 Nov 2026 09:00 CET: walk\nthe dog", `add at:1795420800000 true "walk\nthe dog"`},
		{"/remind every 30m stretch", "I will remind you every 30m, next Sun 22 Nov 2026 15:30 CET: stretch", `add every:1800000 true "stretch"`},
		{`/cron add "0 9 * * 1-5" morning briefing`, "Planned: morning briefing (weekdays at 09:00, Berlin), next Mon 23 Nov 2026 09:00 CET.", `add cron:0 9 * * 1-5:Europe/Berlin false "morning briefing"`},
		{"/cron replace every 2h TEA", "Planned: TEA (every 2h), next Sun 22 Nov 2026 17:00 CET.", `add every:7200000 false "TEA"key of tea`},
		{"/cron new every 2h tea", "Planned: tea (every 2h), next Sun 22 Nov 2026 17:00 CET.", `add every:7200000 false "tea"`},
		{"/jobs", "1. tea (every 1h30m), next Sun 22 Nov 2026 16:00 CET\n2. news (daily at 09:00, UTC), paused\n3. NEWS (at Sun 22 Nov 2026 17:00 CET), no longer planned", ""},
		{"/cron", "1. tea (every 1h30m), next Sun 22 Nov 2026 16:00 CET\n2. news (daily at 09:00, UTC), paused\n3. NEWS (at Sun 22 Nov 2026 17:00 CET), no longer planned", ""},
		{"/cron show 1", "tea (every 1h30m), next Sun 22 Nov 2026 16:00 CET\nlast run Sun 22 Nov 2026 14:30 CET: ok\nmake tea", ""},
		{"/cron why tea", "It was skipped.\nWhat to do: wait", "why a "},
		{"/cron why 1 9:00", "It was skipped.\nWhat to do: wait", "why a 9:00"},
		{"/cron why tea yesterday 9:00", "It was skipped.\nWhat to do: wait", "why a yesterday 9:00"},
		{"/cron why TEA 2026-11-22 09:00", "It was skipped.\nWhat to do: wait", "why a 2026-11-22 09:00"},
		{"/cron why last year yesterday 9:00", "It was skipped.\nWhat to do: wait", "why removed yesterday 9:00"},
		{"/cron pause 1 on holiday", "Paused: tea.", "pause a on holiday"},
		{"/cron pause tea", "Paused: tea.", "pause a paused in the chat"},
		{"/cron RESUME 2", "Resumed: news, next Sun 22 Nov 2026 15:00 UTC.", "resume b"},
		{"/cron run tea", "Started: tea.", "run a"},
		{"/cron rm 3", "Removed: NEWS.", "rm c"},
		{"/timezone", "Your time zone is Europe/Berlin, the gateway's; change it with /timezone Europe/Berlin. It's Sun 22 Nov 2026 15:00 CET there.", ""},
		{"/timezone Asia/Tokyo", "Your time zone is Asia/Tokyo. It's Sun 22 Nov 2026 23:00 JST there.", ""},
		{"/timezone +05:30", "Your time zone is +05:30. It's Sun 22 Nov 2026 19:30 +05:30 there.", ""},
		{"/tasks", "1. coder: count the lines (yielded)\n2. main: " + strings.Repeat("word ", 15) + "word… (waiting)", ""},
		{"/tasks stop 1", "Stopped: coder: count the lines", "stop task t-1"},
		{"/tasks STOP t-2", "Stopped: main: " + strings.Repeat("word ", 15) + "word…", "stop task t-2"},
		{
			"/approvals", "Allowed in this conversation until /new:\nq1: coder may run the command “make” (Allow always, Sun 22 Nov 2026 14:30 CET)\n" +
				"/approvals revoke q1 revokes one, /approvals revoke all revokes all.", "",
		},
		{"/approvals revoke q1", "Revoked: 1. The agent will ask again, unless it remembers your answer itself; /new makes it forget.", "revoke q1"},
		{"/approvals REVOKE all", "Revoked: 1. The agent will ask again, unless it remembers your answer itself; /new makes it forget.", "revoke "},
		{"/whoami", "You are gateway (web user 7).", ""},
		{"/why", "It waits for its turn.", "where 4711"},
		{"/why r-1", "It waits for its turn.", "where r-1"},
		{"/id", "This conversation is agent:main:main. Its address is web:5.", ""},
	} {
		h := &fakeBackend{jobs: someJobs(), stop: command.StopReport{Running: 1, Waiting: 2}, queue: command.QueueReport{Mode: chat.ModeCollect, Running: 1, Waiting: 2, Cap: 10, Lane: "main"}}
		cmd, name, args, ok := table.Parse(c.text, "")
		if !ok {
			t.Errorf("%s was not recognised", c.text)
			continue
		}
		call := command.Call{
			Session: chat.MainKey("main"), Principal: "gateway", Sender: chat.Sender{ID: "7"}, Channel: "web", Answered: "4711",
			Target: chat.Target{Channel: "web", ChatID: "5"}, Name: name, Args: args,
		}
		answer, err := cmd.Run(t.Context(), h, call)
		if err != nil || answer.Text != c.answer || strings.Join(h.did, ",") != c.did {
			t.Errorf("%s: %q, %v, did %v; want %q and %q", c.text, answer.Text, err, h.did, c.answer, c.did)
		}
		h.err = errors.New("away")
		if c.did != "" {
			if answer, err := cmd.Run(t.Context(), h, call); err == nil {
				t.Errorf("%s with a failing backend answered %q", c.text, answer.Text)
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
		if !strings.Contains(table.Help(true), "/"+c.Name) {
			t.Errorf("/help does not know /%s", c.Name)
		}
	}
	status, _ := table.Lookup("status")
	answer, err := status.Run(t.Context(), &fakeBackend{}, command.Call{})
	if err != nil || !strings.Contains(answer.Text, "problem: database: away") || !strings.Contains(answer.Text, "\ntoday: 12 tokens\n") {
		t.Errorf("status %q, %v", answer.Text, err)
	}
}

// A person in a chat sees the few commands that people use, an operator sees every command.
func TestHelpIsShortForPeople(t *testing.T) {
	t.Parallel()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	help, _ := table.Lookup("help")
	for _, c := range []struct {
		call command.Call
		all  bool
	}{{command.Call{}, false}, {command.Call{Scope: chat.ScopeWrite}, false}, {command.Call{Args: "ALL"}, true}, {command.Call{Scope: chat.ScopeAdmin}, true}} {
		answer, err := help.Run(t.Context(), &fakeBackend{}, c.call)
		has := func(part string) bool { return strings.Contains(answer.Text, part) }
		if err != nil || !has("/remind ") || !has("/timezone ") || has("/whoami") != c.all || has("/help all lists") == c.all {
			t.Errorf("%+v: %v\n%s", c.call, err, answer.Text)
		}
	}
}

// The times that a person writes and reads are in the zone that they chose.
func TestTheZoneOfAPersonIsThatOfTheirReminders(t *testing.T) {
	t.Parallel()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	h := &fakeBackend{}
	for _, c := range []struct{ text, want string }{
		{"/timezone Asia/Tokyo", "Your time zone is Asia/Tokyo"},
		{"/remind tomorrow 9:00 walk", "Mon 23 Nov 2026 09:00 JST"},
		{"/timezone default", "Europe/Berlin, the gateway's"},
		{"/remind tomorrow 9:00 walk", "Mon 23 Nov 2026 09:00 CET"},
	} {
		cmd, name, args, _ := table.Parse(c.text, "")
		answer, err := cmd.Run(t.Context(), h, command.Call{Name: name, Args: args})
		if err != nil || !strings.Contains(answer.Text, c.want) {
			t.Errorf("%s: %q, %v; want %q", c.text, answer.Text, err, c.want)
		}
	}
}

func TestQuietHoursAreShownSetAndEnded(t *testing.T) {
	t.Parallel()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	h := &fakeBackend{}
	for _, c := range []struct{ text, want string }{
		{"/quiet", "No quiet hours are set here"},
		{"/quiet 22-7", "22:00-7:00, Europe/Berlin"},
		{"/quiet", "Quiet hours here are 22:00-7:00, Europe/Berlin"},
		{"/quiet at night", `"at night" is not hours such as 22:00-7:00`},
		{"/quiet 22:00 – 24:00", "22:00-0:00"},
		{"/quiet off", "Quiet hours are off here"},
		{"/quiet", "No quiet hours are set here"},
	} {
		cmd, name, args, _ := table.Parse(c.text, "")
		answer, err := cmd.Run(t.Context(), h, command.Call{Name: name, Args: args})
		text := answer.Text
		if err != nil {
			text = chat.SentenceOf(err)
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: %q; want %q", c.text, text, c.want)
		}
	}
}

// Before, a second /cron add under a name made another job, and both fired.
func TestANameIdentifiesAJobOfAChat(t *testing.T) {
	t.Parallel()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	write := func(h *fakeBackend, text string, again bool) (string, error) {
		cmd, name, args, _ := table.Parse(text, "")
		answer, err := cmd.Run(t.Context(), h, command.Call{Name: name, Args: args, Again: again})
		return answer.Text, err
	}
	jobs := someJobs()
	jobs[0].Payload.Text = "tea"
	refused := "a job with this name already exists: 1. tea (every 1h30m), next Sun 22 Nov 2026 16:00 CET. Write /cron replace WHEN TEXT to change it, or /cron new WHEN TEXT for a second one"
	for _, row := range []struct {
		text    string
		again   bool
		refusal string
		did     string
	}{
		{"/cron add every 2h tea", false, refused, ""},
		{"/cron add every 90m tea\nwith milk", false, refused, ""},
		{"/cron add every 2h tea", true, "I was interrupted and don't know whether it's done; check /jobs, and repeat the command if it isn't", ""},
		{"/cron add every 90m tea", false, "", `add every:5400000 false "tea"key of tea`},
		{"/cron add every 2h news", false, "a job with this name already exists: 2. news (daily at 09:00, UTC), paused. Write /cron replace WHEN TEXT to change it, or /cron new WHEN TEXT for a second one", ""},
		{"/cron replace every 2h coffee", false, "there is no job named coffee to replace; /cron add creates one", ""},
		{"/remind every 2h tea", false, "", `add every:7200000 true "tea"`},
	} {
		h := &fakeBackend{jobs: jobs}
		if text, err := write(h, row.text, row.again); strings.Join(h.did, ",") != row.did || (row.refusal == "") != (err == nil) || err != nil && err.Error() != row.refusal {
			t.Errorf("%s: %q, %v, did %v", row.text, text, err, h.did)
		}
	}
	twice := append(jobs, jobs[0])
	if _, err := write(&fakeBackend{jobs: twice}, "/cron replace every 2h tea", false); err == nil || !strings.Contains(err.Error(), "several jobs are named tea") {
		t.Errorf("replacing one of two: %v", err)
	}
}

func TestBadArgumentsAreRefusedAndChangeNothing(t *testing.T) {
	t.Parallel()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"/queue sideways", "/timezone Mars/Olympus", "/dir 0", "/dir 3", "/dir /etc", "/dir ../app", "/approvals revoke", "/approvals forget q1", "/approvals revoke unknown", "/timezone Local", "/model " + strings.Repeat("x", 201), "/model a\u202eb",
		"/remind", "/remind tea", "/remind in 20m", "/remind 25:00 tea", "/remind every", "/remind yesterday 9:00 tea", "/cron add", "/cron add 99 99 * * * x",
		`/cron add "0 9 * *" x`, "/cron add @every 1s x", "/cron fly", "/cron pause 0", "/cron show 9", "/cron pause 4", "/cron rm nothing", "/cron rm news", "/cron run -1", "/cron why", "/cron why nothing 9:00", "/cron why 7 9:00", "/cron why 1 2 3 4 5 6",
		"/tasks stop", "/tasks stop 3", "/tasks 1", "/tasks fly 1",
		"/allow", "/deny", "/answer", "/answer 0a1b2c", "/answer 0a1b2c 0", "/answer 0a1b2c x",
		"/cron add every 2h tea", "/cron add every 2h Tea\nwith milk", "/cron replace every 2h coffee", "/cron new every 2h",
	} {
		h := &fakeBackend{jobs: someJobs()}
		cmd, name, args, ok := table.Parse(text, "")
		if !ok {
			t.Fatalf("%s was not recognised", text)
		}
		if answer, err := cmd.Run(t.Context(), h, command.Call{Name: name, Args: args}); !errors.Is(err, chat.ErrInvalid) || len(h.did) > 0 {
			t.Errorf("%q: %q, %v, did %v", text, answer.Text, err, h.did)
		}
	}
}

func TestATableRefusesRowsThatCannotWork(t *testing.T) {
	t.Parallel()
	run := func(context.Context, command.Actions, command.Call) (command.Answer, error) {
		return command.Answer{}, nil
	}
	good := command.Command{Name: "x", Description: "d", Method: "status", Run: run}
	for name, change := range map[string]func(*command.Command){
		"no function": func(c *command.Command) { c.Run = nil }, "no help": func(c *command.Command) { c.Description = "" },
		"no method": func(c *command.Command) { c.Method = "" }, "taken": func(c *command.Command) { c.Name = "stop" },
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

// execute executes what a person typed or chose with a button.
func execute(t *testing.T, h *fakeBackend, text string) command.Answer {
	t.Helper()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	cmd, name, args, ok := table.Parse(text, "")
	if !ok {
		t.Fatalf("%s is no command", text)
	}
	answer, err := cmd.Run(t.Context(), h, command.Call{Session: chat.MainKey("main"), Name: name, Args: args})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return answer
}

// offered returns the labels and commands of the buttons below an answer.
func offered(a command.Answer) (labels, texts string) {
	if a.Choice == nil {
		return "", ""
	}
	var l, s []string
	for _, row := range a.Choice.Rows {
		for _, b := range row {
			l, s = append(l, b.Label), append(s, b.Text)
		}
	}
	return strings.Join(l, "|"), strings.Join(s, "|")
}

func TestCommandsOfferWhatAPersonMayChoose(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, labels, texts, typed string }{
		{"/queue", "queue|followup|interrupt|✓ collect|steer|default|Remove 2 waiting messages", "/queue queue|/queue followup|/queue interrupt|/queue collect|/queue steer|/queue default|/queue clear", "Write /queue queue, "},
		{"/jobs", "1. tea|2. news|3. NEWS", "/cron show a|/cron show b|/cron show c", "Write /cron show N"},
		{"/cron list", "1. tea|2. news|3. NEWS", "/cron show a|/cron show b|/cron show c", "Write /cron show N"},
		{"/cron show 1", "Pause|Run now|Remove", "/cron pause a|/cron run a|/cron rm a", "Write /cron pause, "},
		{"/cron show 2", "Resume|Run now|Remove", "/cron resume b|/cron run b|/cron rm b", "Write /cron resume, "},
		{"/cron pause", "1. tea", "/cron pause a", "Write /cron pause and the number"},
		{"/cron resume", "2. news", "/cron resume b", "Write /cron resume and the number"},
		{"/cron rm", "1. tea|2. news|3. NEWS", "/cron rm a|/cron rm b|/cron rm c", "Write /cron rm and the number"},
		{"/dir", "✓ /srv/app|/srv/site", "/dir 1|/dir 2", "Write /dir 1 (/srv/app), /dir 2 (/srv/site) to choose another."},
		{"/stopall", "", "", ""},
		{"/new", "", "", ""},
	} {
		h := &fakeBackend{jobs: someJobs(), queue: command.QueueReport{Mode: chat.ModeCollect, Waiting: 2, Cap: 10}}
		answer := execute(t, h, c.text)
		labels, texts := offered(answer)
		if labels != c.labels || texts != c.texts {
			t.Errorf("%s offers %q, which say %q; want %q and %q", c.text, labels, texts, c.labels, c.texts)
		}
		if answer.Choice != nil && !strings.HasPrefix(answer.Choice.Typed, c.typed) {
			t.Errorf("%s says to those without buttons: %q", c.text, answer.Choice.Typed)
		}
		for text := range strings.SplitSeq(texts, "|") {
			if text != "" && execute(t, h, text).Text == "" {
				t.Errorf("%s offers %s, which answers nothing", c.text, text)
			}
		}
	}
}

// Such a job is not paused, but it can be resumed.
func TestAJobThatDoesNotDoAllItWasMadeForSaysSoAndCanBeResumed(t *testing.T) {
	t.Parallel()
	for word, change := range map[string]func(j *cron.Job){
		"; its answers are not sent (blocked)": func(j *cron.Job) {
			j.State.DeliveryPause = cron.DeliveryPause{Since: now(), Reason: "blocked", Channel: "telegram:1", ChatID: "7"}
		},
		", switched off after failures": func(j *cron.Job) { j.Enabled, j.AutoDisabled = false, true },
	} {
		jobs := someJobs()[:1]
		change(&jobs[0])
		h := &fakeBackend{jobs: jobs}
		for _, text := range []string{"/jobs", "/cron show 1"} {
			if answer := execute(t, h, text); !strings.Contains(answer.Text, word) {
				t.Errorf("%s says %q, want %q in it", text, answer.Text, word)
			}
		}
		for _, text := range []string{"/cron show 1", "/cron resume"} {
			if _, texts := offered(execute(t, h, text)); !strings.HasPrefix(texts, "/cron resume a") {
				t.Errorf("%s offers %q", text, texts)
			}
		}
	}
}

// A button refers to the job that it showed, even when the list has changed since.
func TestAButtonMeansItsJobWhateverBecameOfTheList(t *testing.T) {
	t.Parallel()
	h := &fakeBackend{jobs: someJobs()}
	_, texts := offered(execute(t, h, "/cron rm"))
	third := strings.Split(texts, "|")[2]
	h.jobs = append([]cron.Job{{ID: "d", Name: "c", Enabled: true}}, h.jobs[1:]...)
	execute(t, h, third)
	if got := strings.Join(h.did, ","); got != "rm c" {
		t.Errorf("the button did %q; want the job with the id c to be removed and not the one with the name c", got)
	}
}

func TestManyJobsAreOfferedInPartAndListedInFull(t *testing.T) {
	t.Parallel()
	h := &fakeBackend{}
	for range 50 {
		h.jobs = append(h.jobs, cron.Job{ID: "x", Name: strings.Repeat("long ", 20), Enabled: true})
	}
	answer := execute(t, h, "/jobs")
	if len(answer.Choice.Rows) != 20 || strings.Count(answer.Text, "\n") != 49 {
		t.Errorf("%d of 50 are offered, %d lines", len(answer.Choice.Rows), strings.Count(answer.Text, "\n")+1)
	}
	if label := answer.Choice.Rows[0][0].Label; len([]rune(label)) > 45 {
		t.Errorf("a button is named %q", label)
	}
	if answer := execute(t, &fakeBackend{}, "/cron pause"); answer.Choice != nil || !strings.HasPrefix(answer.Text, "There are no jobs here") {
		t.Errorf("without jobs: %q, %+v", answer.Text, answer.Choice)
	}
}

func TestPastAndMisspeltMomentsSayWhatToWrite(t *testing.T) {
	t.Parallel()
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"/remind yesterday 9:00 tea": "this is in the past: ",
		"/remind tomorow 9:00 tea":   "; did you mean tomorrow 9:00?",
		"/cron pause newz":           "; did you mean NEWS?",
	} {
		cmd, name, args, _ := table.Parse(text, "")
		if _, err := cmd.Run(t.Context(), &fakeBackend{jobs: someJobs()}, command.Call{Name: name, Args: args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
