package teste2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// toolsConfig is a gateway whose agents may call tools, in a zone that is not UTC.
func toolsConfig(model *testmodel.Server) string {
	return providersConfig(model) + "cron: {timezone: Europe/Berlin}\n"
}

// remindCall asks for a reminder; the text is that of the person's wish.
func remindCall(id, when string) testmodel.ToolCall {
	args, err := json.Marshal(map[string]string{"when": when, "text": "call Ada"})
	if err != nil {
		panic(err)
	}
	return testmodel.ToolCall{ID: id, Name: "remind", Args: string(args)}
}

// tomorrow is a time of day in the zone of toolsConfig, in milliseconds.
func tomorrow(t *testing.T, hour int) int64 {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().In(zone)
	return time.Date(now.Year(), now.Month(), now.Day()+1, hour, 0, 0, 0, zone).UnixMilli()
}

const countReminders = "SELECT count(*) FROM cron_jobs WHERE name = 'call Ada'"

// TestAnAgentSetsAReminderThatFires asks an agent in words for two reminders, one for tomorrow and one for in a moment. The second is delivered.
func TestAnAgentSetsAReminderThatFires(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			results := call.Results()
			switch {
			case len(results) > 0:
				return testmodel.Reply{Pieces: []string{"Set: " + results[len(results)-1].Text}}
			case strings.Contains(call.Last(), "soon"):
				return testmodel.Reply{Calls: []testmodel.ToolCall{remindCall("b", "in 2s")}}
			default:
				return testmodel.Reply{Pieces: []string{"I do that."}, Calls: []testmodel.ToolCall{remindCall("a", "tomorrow at 15:00")}}
			}
		})
		w, c, o := startWatched(t, database, toolsConfig(model))
		for _, agent := range []string{"main", "sister"} {
			session := "agent:" + agent + ":words"
			say(t, c, session, "tomorrow-"+agent, "remind me tomorrow at 15:00 to call Ada")
			w.await(t, "tomorrow-"+agent)
			want := tomorrow(t, 15)
			if n := o.Count(fmt.Sprintf("%s AND next_run_at = %d AND agent = '%s'", countReminders, want, agent)); n != 1 {
				t.Errorf("%s: %d jobs at tomorrow 15:00 in Berlin (%d), want 1; there are %v", agent, n, want, o.Rows("SELECT name, next_run_at FROM cron_jobs"))
			}
			text := historyOf(t, c, session)
			if !strings.Contains(text, "I do that.\n\nSet: Reminder ") || !strings.Contains(text, "15:00 CE") || !strings.Contains(text, "system: Tool remind") {
				t.Errorf("%s: the history has neither the exact local time nor the call:\n%s", agent, text)
			}
			say(t, c, session, "soon-"+agent, "remind me soon")
			w.await(t, "soon-"+agent)
			testrun.Eventually(t, "the reminder is delivered", func() bool {
				return strings.Count(historyOf(t, c, session), "assistant: Reminder: call Ada") == 1
			})
		}
		if n := o.Count("SELECT count(*) FROM turn_rounds"); n != 0 {
			t.Errorf("%d rows of journals are left behind ended turns", n)
		}
	})
}

func historyOf(t *testing.T, c *Client, session string) string {
	t.Helper()
	var history struct {
		Messages []struct {
			Role    string
			Content []struct{ Text string }
		}
	}
	if err := c.Into(&history, "chat.history", map[string]any{"sessionKey": session}); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, m := range history.Messages {
		for _, part := range m.Content {
			out.WriteString(m.Role + ": " + part.Text + "\n")
		}
	}
	return out.String()
}

// TestAKillAtAnyStepOfACallDoublesNothing kills the gateway in a turn that sets a reminder. Each step is a commit: the process is killed behind the last one,
// and the rows of the later commits are taken back, which leaves what a kill at that step leaves. The model would ask for another time when it is
// asked anew; only where nothing was recorded it is.
func TestAKillAtAnyStepOfACallDoublesNothing(t *testing.T) {
	NeedsProcesses(t)
	const (
		noResult = "DELETE FROM turn_rounds WHERE kind = 'result'"
		noJob    = "DELETE FROM cron_jobs WHERE name = 'call Ada'"
		noAnswer = "DELETE FROM answers"
	)
	steps := []struct {
		name string
		undo []string
		hour int
		asks int // how often the model is asked for the first round
	}{
		{"BeforeTheRoundIsRecorded", []string{"DELETE FROM turn_rounds", noJob, noAnswer}, 17, 2},
		{"AfterTheRoundIsRecorded", []string{noResult, noJob, noAnswer}, 15, 1},
		{"AfterTheToolHasRun", []string{noResult}, 15, 1},
		{"AfterTheResultIsRecorded", nil, 15, 1},
	}
	onBothStores(t, func(t *testing.T, database string) {
		for _, step := range steps {
			t.Run(step.name, func(t *testing.T) {
				t.Parallel()
				database := database
				if database != "" {
					database = testpg.DB(t)
				}
				killAtStep(t, database, step.undo, step.hour, step.asks)
			})
		}
	})
}

func killAtStep(t *testing.T, database string, undo []string, hour, asks int) {
	t.Helper()
	model := testmodel.Start(t)
	killed := make(chan struct{})
	first := 0
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		select {
		case <-killed:
			if len(call.Results()) > 0 {
				return testmodel.Reply{Pieces: []string{"Done."}}
			}
			first++
			return testmodel.Reply{Pieces: []string{"Something else."}, Calls: []testmodel.ToolCall{remindCall("z", "tomorrow at 17:00")}}
		default:
		}
		if len(call.Results()) > 0 {
			return testmodel.Reply{HangFirst: true}
		}
		first++
		return testmodel.Reply{Pieces: []string{"I do that."}, Calls: []testmodel.ToolCall{remindCall("a", "tomorrow at 15:00")}}
	})
	g := Install(t, database, toolsConfig(model)+"cluster: {lease: 3s, heartbeat: 500ms}\n").AtOnce()
	g.Start()
	c, o := mustDial(t, g, nil), OpenOracle(t, g, database)
	const session = "agent:main:words"
	say(t, c, session, "wish", "remind me tomorrow at 15:00 to call Ada")
	testrun.Eventually(t, "the model has the result", func() bool { return len(model.Calls()) == 2 })
	g.Kill()
	close(killed)
	db := writable(t, g, database)
	for _, statement := range undo {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	g.Start()
	testrun.Eventually(t, "the turn has ended", func() bool {
		return o.Count("SELECT count(*) FROM runs WHERE id = 'wish' AND state = 'ok'") == 1
	})
	if n := o.Count(countReminders); n != 1 {
		t.Errorf("%d reminders, want one: %v", n, o.Rows("SELECT name, next_run_at FROM cron_jobs"))
	}
	if n := o.Count(fmt.Sprintf("%s AND next_run_at = %d", countReminders, tomorrow(t, hour))); n != 1 {
		t.Errorf("the reminder is not at %d:00: %v", hour, o.Rows("SELECT name, next_run_at FROM cron_jobs"))
	}
	if first != asks {
		t.Errorf("the model was asked for the first round %d times, want %d", first, asks)
	}
	text := historyOf(t, mustDial(t, g, nil), session)
	if strings.Count(text, "Tool remind") != 1 || strings.Contains(text, "Something else.") != (asks > 1) || !strings.Contains(text, "\n\nDone.") {
		t.Errorf("history:\n%s", text)
	}
	if n := o.Count("SELECT count(*) FROM turn_rounds"); n != 0 {
		t.Errorf("%d rows of journals are left", n)
	}
	reminderFires(t, g, o, database, session)
}

// reminderFires moves the reminder of the day after to three seconds from now, as the clock does in a day, and kills the gateway when the slot is
// claimed, and again when the reminder is delivered. It is delivered once.
func reminderFires(t *testing.T, g *Gateway, o *Oracle, database, session string) {
	t.Helper()
	g.Kill()
	at := time.Now().Add(3 * time.Second).UTC()
	moved := fmt.Sprintf(`UPDATE cron_jobs SET schedule = '{"kind":"at","at":"%s"}', next_slot = %[2]d, next_run_at = %[2]d WHERE name = 'call Ada'`,
		at.Format("2006-01-02T15:04:05.000Z"), at.UnixMilli())
	if n := execute(t, writable(t, g, database), moved); n != 1 {
		t.Fatalf("%d jobs were moved", n)
	}
	g.Start()
	testrun.Eventually(t, "the slot is claimed", func() bool { return o.Count("SELECT count(*) FROM cron_run_logs") == 1 })
	g.Kill()
	g.Start()
	delivered := func() int {
		return strings.Count(historyOf(t, mustDial(t, g, nil), session), "assistant: Reminder: call Ada")
	}
	testrun.Eventually(t, "the reminder is delivered", func() bool { return delivered() > 0 })
	g.Kill()
	g.Start()
	testrun.Eventually(t, "the run has ended", func() bool {
		return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok'") == 1 && o.Count("SELECT count(*) FROM outbox WHERE state = 'pending'") == 0
	})
	if n := delivered(); n != 1 {
		t.Errorf("the reminder is in the transcript %d times", n)
	}
	if n := o.Count("SELECT count(*) FROM cron_run_logs"); n != 1 {
		t.Errorf("%d runs of the reminder", n)
	}
}
