package teste2e

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// shortLease lets the next process take over some seconds after a kill.
const shortLease = "cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}\n"

// TestAKillAroundATaskInTheBackgroundAnnouncesItOnce kills the gateway at the steps of a task for which no turn waits. Where a commit lies behind the step, its
// rows are taken back.
func TestAKillAroundATaskInTheBackgroundAnnouncesItOnce(t *testing.T) {
	NeedsProcesses(t)
	const (
		notNoted     = "UPDATE inbox SET announce = 1 WHERE parent IS NOT NULL"
		announcement = "(SELECT message_id FROM inbox WHERE channel = 'task' AND parent IS NULL)"
		noTurn       = "DELETE FROM runs WHERE id IN " + announcement
		noText       = "DELETE FROM transcript WHERE run_id IN " + announcement
		noNumber     = "UPDATE sessions SET last_seq = 1, taken_seq = 1, transcript_seq = transcript_seq - 1 WHERE key = 'agent:main:words'"
		noMessage    = "DELETE FROM inbox WHERE message_id IN " + announcement
	)
	steps := []backgroundKill{
		{name: "BeforeTheTurnThatAskedHasEnded", hang: []string{"second", "task"}, work: 2, reads: 1},
		{name: "WhileTheTaskRuns", hang: []string{"task"}, work: 2, reads: 1},
		{name: "BeforeTheEndIsAnnounced", hang: []string{"read"}, undo: []string{notNoted, noText, noNumber, noTurn, noMessage}, work: 1, reads: 2},
		{name: "BeforeTheAnnouncementIsNoted", hang: []string{"read"}, undo: []string{notNoted}, work: 1, reads: 2},
		{name: "WhileTheAnnouncementIsRead", hang: []string{"read"}, work: 1, reads: 2},
	}
	onBothStores(t, func(t *testing.T, database string) {
		for _, step := range steps {
			t.Run(step.name, func(t *testing.T) {
				database := database
				if database != "" {
					database = testpg.DB(t)
				}
				step.run(t, database)
			})
		}
	})
}

// backgroundKill is a kill while the model has each of the requests of hang.
type backgroundKill struct {
	name        string
	hang, undo  []string
	work, reads int // how often the model is asked to work on the task, and to read its announcement
}

func (k backgroundKill) run(t *testing.T, database string) {
	t.Helper()
	model := testmodel.Start(t)
	killed, hangs := make(chan struct{}), make(chan string, 16)
	var asked [3]atomic.Int32
	places := []string{"second", "task", "read"}
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		replies := map[string]string{"second": "Started.", "task": "The report is short.", "read": "Read."}
		place := "second"
		switch {
		case strings.Contains(call.Last(), "has ended. Its answer:"):
			place = "read"
		case call.Last() == "write a report":
			place = "task"
		case len(call.Results()) == 0:
			return testmodel.Reply{Calls: []testmodel.ToolCall{taskCall("a", "", "write a report", false)}}
		}
		asked[slices.Index(places, place)].Add(1)
		select {
		case <-killed:
		default:
			if slices.Contains(k.hang, place) {
				hangs <- place
				return testmodel.Reply{HangFirst: true}
			}
		}
		return testmodel.Reply{Pieces: []string{replies[place]}}
	})
	g := Install(t, database, toolsConfig(model)+shortLease).AtOnce()
	g.Start()
	o := OpenOracle(t, g, database)
	const session = "agent:main:words"
	say(t, mustDial(t, g, nil), session, "wish", "report in the background")
	for range k.hang {
		select {
		case <-hangs:
		case <-time.After(30 * time.Second):
			t.Fatal("the model was not asked")
		}
	}
	if !slices.Contains(k.hang, "second") {
		testrun.Eventually(t, "the turn that asked has ended", func() bool { return o.Count("SELECT count(*) FROM runs WHERE id = 'wish' AND state = 'ok'") == 1 })
	}
	g.Kill()
	close(killed)
	db := writable(t, g, database)
	for _, statement := range k.undo {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	g.Start()
	c := mustDial(t, g, nil)
	testrun.Eventually(t, "the announcement is read", func() bool { return strings.Contains(historyOf(t, c, session), "assistant: Read.") })
	testrun.Eventually(t, "nothing is left to do", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state <> 'done' OR announce = 1") == 0 })
	text := historyOf(t, c, session)
	for part, want := range map[string]int{"Tool spawn": 1, "assistant: Started.": 1, "Its answer:\n\nThe report is short.": 1, "assistant: Read.": 1} {
		if n := strings.Count(text, part); n != want {
			t.Errorf("the history has %q %d times, want %d:\n%s", part, n, want, text)
		}
	}
	if n := o.Count("SELECT count(*) FROM inbox WHERE parent IS NOT NULL AND outcome = 'answered'"); n != 1 {
		t.Errorf("%d answered tasks, want one: %v", n, o.Rows("SELECT message_id, state, outcome FROM inbox"))
	}
	if work, reads := int(asked[1].Load()), int(asked[2].Load()); work != k.work || reads != k.reads {
		t.Errorf("the model worked %d times and read %d times, want %d and %d", work, reads, k.work, k.reads)
	}
	o.Check(15 * time.Second)
}
