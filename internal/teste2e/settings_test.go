package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
	"laneway/internal/wire"
)

// Messages are sent to every agent through each of three replicas while they restart one after the
// other with one additional agent. Input is answered, or refused because no replica has its agent
// at that time. After a kill the remaining replicas report what the work of the dead one waits for.
func TestReplicasWithDifferentAgentsRestartOneAfterTheOther(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	database := testpg.DB(t)
	const config = "cluster: {lease: 3s, heartbeat: 500ms}\nlimits: {chat: 0, requests: 0}\ndefault_agent: main\nagents: {main: {runner: echo, script: true}%s}\n"
	var replicas []*Gateway
	for _, own := range []string{"", ", coder: {runner: echo, script: true}", ", writer: {runner: echo, script: true}"} {
		g := Install(t, database, fmt.Sprintf(config, own))
		g.Start()
		replicas = append(replicas, g)
	}
	oracle := OpenOracle(t, replicas[0], database)
	accepted, refused := 0, 0
	talk := func(round string, agents ...string) {
		t.Helper()
		for i, g := range replicas {
			c := mustDial(t, g, nil)
			for _, agent := range agents {
				_, err := c.Call("chat.send", map[string]any{
					"sessionKey": fmt.Sprintf("agent:%s:s%d", agent, i), "message": "sleep 20ms", "idempotencyKey": fmt.Sprintf("%s-%s-%d", round, agent, i),
				}, 10*time.Second)
				var refusal *WireError
				switch {
				case err == nil:
					accepted++
				case errors.As(err, &refusal) && refusal.Details["code"] == "UNKNOWN_AGENT_ID":
					refused++
				default:
					t.Errorf("%s, agent %s through replica %d: %v", round, agent, i, err)
				}
			}
		}
	}
	talk("before", "main", "coder", "writer")
	if accepted != 9 || refused != 0 {
		t.Errorf("%d messages were accepted and %d refused, want 9 and none", accepted, refused)
	}
	for i, g := range replicas {
		g.Signal(syscall.SIGTERM)
		if took, code := g.WaitExit(40 * time.Second); code != 0 {
			t.Errorf("replica %d ended with %d after %s", i, code, took)
		}
		whole, err := os.ReadFile(g.config)
		if err != nil {
			t.Fatal(err)
		}
		more := strings.Replace(string(whole), "agents: {main: {runner: echo, script: true}", "agents: {main: {runner: echo, script: true}, editor: {runner: echo, script: true}", 1)
		if err := os.WriteFile(g.config, []byte(more), 0o600); err != nil || more == string(whole) {
			t.Fatal("the configuration was not changed", err)
		}
		g.Start()
		talk(fmt.Sprintf("restart-%d", i), "main", "coder", "writer", "editor")
	}
	talk("after", "main", "coder", "writer", "editor")
	if refused != 0 {
		t.Errorf("%d messages were refused although a replica had their agent", refused)
	}
	ended := func(what string) {
		t.Helper()
		testrun.Eventually(t, what, func() bool { return oracle.Count(`SELECT count(*) FROM inbox WHERE state <> 'done'`) == 0 })
		if n := oracle.Count(`SELECT count(*) FROM inbox WHERE outcome <> 'answered'`); n != 0 {
			t.Errorf("%s: %d messages were not answered", what, n)
		}
	}
	ended("everything has an end")

	c := mustDial(t, replicas[0], nil)
	say(t, c, "agent:coder:s0", "left", "sleep 1s")
	testrun.Eventually(t, "the turn runs", func() bool { return oracle.Count(`SELECT count(*) FROM runs WHERE state = 'running'`) == 1 })
	replicas[1].Kill()
	const cause = "agent coder: 1 message waits for it, and no running gateway has it"
	said := ""
	testrun.Eventually(t, "status names the cause", func() bool {
		said, _, _ = replicas[0].CLI(t.Context(), "", "status")
		return strings.Contains(said, cause)
	})
	testrun.Eventually(t, "doctor names the cause", func() bool {
		said, _, _ = replicas[0].CLI(t.Context(), "", "doctor", "--config", replicas[0].config)
		return strings.Contains(said, cause) && !strings.Contains(said, "rule I5")
	})
	replicas[1].Start()
	ended("the work of the dead replica has an end")
	for i, g := range replicas {
		if strings.Contains(g.Output(), "panic") {
			t.Errorf("replica %d panicked:\n%s", i, g.Output())
		}
	}
	oracle.Check(3 * time.Second)
}

// A request to the model of these tests costs a hundred tokens; their turns make sixteen requests,
// the last one without tools.
const (
	budgetTurns = 30
	budgetRound = 100
	budgetLimit = 20_000
)

func budgetConfig(model *testmodel.Server) string {
	return fmt.Sprintf(`
agents:
  main: {runner: openai, model: test, base_url: "%s/v1", price: {input: 2, output: 10}}
limits: {chat: 0, requests: 0, cron_writes: 0}
budgets: {currency: EUR, day: {tokens: %d}, principal: {money: 100}}
cluster: {lease: 3s, heartbeat: 500ms}
`, model.URL(), budgetLimit)
}

// endless requests a call in every answer, as long as it may.
func endless(t *testing.T) *testmodel.Server {
	t.Helper()
	model := testmodel.Start(t)
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		reply := testmodel.Reply{Delay: 10 * time.Millisecond, InputTokens: 90, OutputTokens: 10}
		if call.ToolChoice == "none" {
			reply.Pieces = []string{"Done."}
			return reply
		}
		reply.Calls = []testmodel.ToolCall{{ID: "a", Name: "sessions", Args: `{"action":"list"}`}}
		return reply
	})
	return model
}

const countTokens = "SELECT coalesce(sum(input_tokens + output_tokens), 0) FROM usage_counters"

// Each turn exceeds the budget by one round at most, a killed process loses no count, and the next
// one continues it.
func TestABudgetHoldsForThirtyTurnsAndOverAKill(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		model := endless(t)
		g := Install(t, database, budgetConfig(model)).AtOnce()
		g.Start()
		o, c := OpenOracle(t, g, database), mustDial(t, g, nil)
		for i := range budgetTurns {
			say(t, c, fmt.Sprintf("agent:main:s%d", i), fmt.Sprintf("m%d", i), "go on")
		}
		testrun.Eventually(t, "a third of the budget is used", func() bool { return o.Count(countTokens) > budgetLimit/3 })
		g.Kill()
		atKill := o.Count(countTokens)
		g.Start()
		testrun.Eventually(t, "every turn has ended", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0 })
		counted, asked := o.Count(countTokens), len(model.Calls())*budgetRound
		if counted < budgetLimit || counted > budgetLimit+budgetTurns*budgetRound {
			t.Errorf("%d tokens are counted, want %d to %d", counted, budgetLimit, budgetLimit+budgetTurns*budgetRound)
		}
		if asked < counted || asked > counted+budgetTurns*budgetRound { // requests in progress when the process was killed
			t.Errorf("the model was asked for %d tokens and %d are counted; at most %d requests were under way at the kill", asked, counted, budgetTurns)
		}
		if n := o.Count("SELECT count(*) FROM runs WHERE cause = 'budget'"); n == 0 {
			t.Error("no turn was ended by the budget")
		}
		checkUsageShown(t, g, counted)
		before := len(model.Calls())
		w := watch(t, g)
		say(t, mustDial(t, g, nil), "agent:main:later", "later", "hello")
		if end := w.await(t, "later"); end.state != "error" || len(model.Calls()) != before {
			t.Errorf("a later turn ended %s, and the model was asked %d times", end, len(model.Calls())-before)
		}
		t.Logf("counted %d of %d, at the kill %d; asked for %d", counted, budgetLimit, atKill, asked)
	})
}

// checkUsageShown compares the output of the command line with the store.
func checkUsageShown(t *testing.T, g *Gateway, counted int) {
	t.Helper()
	out, fault, code := g.CLI(t.Context(), "", "usage", "--by", "agent", "--json")
	var shown struct {
		Status wire.UsageStatusResult
		Rows   []wire.UsageRow
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != 0 {
		t.Fatalf("laneway usage: %v, %d, %s", err, code, fault)
	}
	if len(shown.Rows) != 1 || shown.Rows[0].Name != "main" || shown.Rows[0].TotalTokens != int64(counted) || shown.Rows[0].CostMicros != int64(counted/budgetRound)*280 {
		t.Errorf("laneway usage shows %+v, want %d tokens of main", shown.Rows, counted)
	}
	levels := map[string]string{}
	for _, b := range shown.Status.Budgets {
		levels[b.Kind] = b.Level
	}
	if levels["day"] != "reached" || levels["principal"] != "free" {
		t.Errorf("the levels are %v", levels)
	}
	if out, _, _ := g.CLI(t.Context(), "", "usage"); !strings.Contains(out, "reached") || !strings.Contains(out, "EUR") {
		t.Errorf("laneway usage prints\n%s", out)
	}
}

// The turns run on two replicas; people receive one notice for each level.
func TestReplicasShareABudget(t *testing.T) {
	t.Parallel()
	model, database := endless(t), testpg.DB(t)
	a, b := Install(t, database, budgetConfig(model)).AtOnce(), Install(t, database, budgetConfig(model)).AtOnce()
	a.Start()
	b.Start()
	clients, o := []*Client{mustDial(t, a, nil), mustDial(t, b, nil)}, OpenOracle(t, a, database)
	for i := range budgetTurns {
		say(t, clients[i%2], fmt.Sprintf("agent:main:s%d", i), fmt.Sprintf("m%d", i), "go on")
	}
	testrun.Eventually(t, "every turn has ended", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0 })
	counted, asked := o.Count(countTokens), len(model.Calls())*budgetRound
	if counted != asked || counted < budgetLimit || counted > budgetLimit+budgetTurns*budgetRound {
		t.Errorf("%d tokens are counted, the model was asked for %d, want %d to %d", counted, asked, budgetLimit, budgetLimit+budgetTurns*budgetRound)
	}
	for _, level := range []int{80, 100} {
		if n := o.Count(fmt.Sprintf("SELECT count(*) FROM outbox WHERE run_id LIKE 'budget/%%/day/' AND n = %d", level)); n != 1 {
			t.Errorf("%d notices at %d %%, want 1", n, level)
		}
	}
	t.Logf("counted %d of %d with two replicas", counted, budgetLimit)
}
