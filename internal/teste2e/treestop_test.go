package teste2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

// treeModel answers `tree` with calls for two branches and a task in the background, and a branch with calls for two leaves. Tasks hang while hold is open.
// A branch that is asked again asks for other work.
type treeModel struct {
	*testmodel.Server

	hold chan struct{}

	mu    sync.Mutex
	asked map[string]int
}

// The tasks below the root, and those of them that do not wait for others.
const treeTasks, treeLeaves = 7, 5

func startTreeModel(t *testing.T) *treeModel {
	t.Helper()
	m := &treeModel{Server: testmodel.Start(t), hold: make(chan struct{}), asked: map[string]int{}}
	m.Answer(m.reply)
	return m
}

func (m *treeModel) reply(call testmodel.Call) testmodel.Reply {
	last := call.Last()
	switch {
	case strings.Contains(last, "has ended. Its answer:"):
		return testmodel.Reply{Pieces: []string{"Read."}}
	case len(call.Results()) > 0:
		return testmodel.Reply{Pieces: []string{"done"}}
	case strings.HasPrefix(last, "tree") || strings.HasPrefix(last, "branch"):
		if m.again(last) {
			return testmodel.Reply{Calls: []testmodel.ToolCall{taskCall("z", "", "other work", true)}}
		}
	}
	switch {
	case strings.HasPrefix(last, "tree"):
		name := strings.TrimPrefix(last, "tree ")
		return testmodel.Reply{Calls: []testmodel.ToolCall{
			taskCall("a", "sister", "branch one of "+name, true), taskCall("b", "", "branch two of "+name, true), taskCall("c", "", "leaf in the background", false),
		}}
	case strings.HasPrefix(last, "branch"):
		return testmodel.Reply{Calls: []testmodel.ToolCall{taskCall("d", "", "leaf", true), taskCall("e", "main", "leaf", true)}}
	}
	select {
	case <-m.hold:
		return testmodel.Reply{Pieces: []string{"grown"}}
	default:
		return testmodel.Reply{HangFirst: true}
	}
}

// again reports whether a text was asked before.
func (m *treeModel) again(text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked[text]++
	return m.asked[text] > 1
}

// times is how often a text was asked that asks for tasks.
func (m *treeModel) times(text string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[text]
}

// awaitGrown waits until the branches of a tree wait and its leaves are with the model.
func (m *treeModel) awaitGrown(t *testing.T, c *Client, session string) {
	t.Helper()
	testrun.Eventually(t, "the leaves run", func() bool {
		states := taskStates(t, c, session)
		return states["yielded"] == treeTasks-treeLeaves && states["running"] == treeLeaves && m.Active() == treeLeaves // a turn runs before its request arrives
	})
}

// taskStates counts the tasks of a tree by state and outcome, as tasks.list has them.
func taskStates(t *testing.T, c *Client, session string) map[string]int {
	t.Helper()
	var list struct {
		Tasks []struct{ ID, State, Outcome string }
	}
	if err := c.Into(&list, "tasks.list", map[string]any{"sessionKey": session}); err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	for _, task := range list.Tasks {
		states[strings.Trim(task.State+" "+task.Outcome, " ")]++
	}
	return states
}

// The bounds of a stop: the signal in the process that was asked and in another one, and the end of all turns.
const (
	signalHere  = 500 * time.Millisecond
	signalThere = time.Second
	stopEnds    = 3500 * time.Millisecond
)

// TestAStopReachesAWholeTree stops trees by each way there is, with PostgreSQL through the replica that runs them and through another one. The signal is there
// when the model has lost all of its requests.
func TestAStopReachesAWholeTree(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		model := startTreeModel(t)
		s := &treeStop{t: t, model: model}
		a := Install(t, database, toolsConfig(model.Server)).AtOnce()
		a.Start()
		s.c, s.o = mustDial(t, a, nil), OpenOracle(t, a, database)
		through := map[string]*Client{"the same replica": s.c}
		if database != "" {
			b := Install(t, database, toolsConfig(model.Server)).AtOnce()
			b.Start()
			through["another replica"] = mustDial(t, b, nil)
		}
		for _, way := range []string{"/stop", "/stopall", "chat.abort"} {
			for name, c := range through {
				limit := signalHere
				if c != s.c {
					limit = signalThere
				}
				s.stop(way, name, c, limit)
			}
		}
		s.o.Check(15 * time.Second)
	})
}

type treeStop struct {
	t     *testing.T
	model *treeModel
	c     *Client // of the replica that runs the trees
	o     *Oracle
}

func (s *treeStop) stop(way, name string, through *Client, limit time.Duration) {
	t := s.t
	t.Helper()
	id := strings.ReplaceAll(strings.Trim(way, "/")+" "+name, " ", "-")
	session, what := "agent:main:"+id, way+" through "+name
	say(t, s.c, session, id, "tree "+id)
	s.model.awaitGrown(t, through, session)
	before := s.model.Active()
	asked := time.Now()
	signalled := make(chan time.Duration, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := s.model.WaitFor(ctx, 0, 0); err != nil {
			t.Errorf("%s: %d of %d requests to the model go on: %v", what, s.model.Active(), before, err)
		}
		signalled <- time.Since(asked)
	}()
	if way == "chat.abort" {
		if _, err := through.Call(way, map[string]any{"sessionKey": session, "runId": id}, 10*time.Second); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	} else {
		say(t, through, session, id+"-stop", way)
	}
	open := fmt.Sprintf("SELECT count(*) FROM runs WHERE ended_at IS NULL AND (id = '%s' OR id IN (SELECT message_id FROM inbox WHERE root = '%s'))", id, id)
	testrun.Eventually(t, "the tree has ended", func() bool { return s.o.Count(open) == 0 })
	gone, signal := time.Since(asked), <-signalled
	t.Logf("%s: signals after %s, gone after %s", what, signal.Round(time.Millisecond), gone.Round(time.Millisecond))
	if before != treeLeaves || signal > limit || gone > stopEnds {
		t.Errorf("%s: %d requests lost their turn after %s, want %d within %s; the tree was gone after %s, want %s", what, before, signal, treeLeaves, limit, gone, stopEnds)
	}
	if n := s.o.Count(fmt.Sprintf("SELECT count(*) FROM inbox WHERE (root = '%s' OR message_id = '%s') AND outcome <> 'stopped'", id, id)); n != 0 {
		t.Errorf("%s: %d messages of the tree ended otherwise", what, n)
	}
	if states := taskStates(t, s.c, session); states["done stopped"] != treeTasks {
		t.Errorf("%s: tasks %v", what, states)
	}
}
