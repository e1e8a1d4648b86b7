package teste2e

import (
	"fmt"
	"testing"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

// TestAbsurdUsageOfOneEndpointStopsNoOtherTurn has an endpoint that reports 2^62 tokens for each of its answers. The turns of other people with other agents
// are answered as before, within a budget of the day that covers them all.
func TestAbsurdUsageOfOneEndpointStopsNoOtherTurn(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			reply := testmodel.Reply{Pieces: []string{"Fine."}, InputTokens: 90, OutputTokens: 10}
			if call.Model == "absurd" {
				reply.InputTokens, reply.OutputTokens = 1<<62, 1<<62
			}
			return reply
		})
		g := Install(t, database, fmt.Sprintf(`
agents:
  main: {runner: openai, model: test, base_url: "%[1]s/v1", price: {input: 2, output: 10}}
  absurd: {runner: openai, model: absurd, base_url: "%[1]s/v1", price: {input: 2, output: 10}}
limits: {chat: 0, requests: 0}
budgets: {currency: EUR, day: {tokens: 100000000000}, principal: {money: 100000000}}
`, model.URL())).AtOnce()
		g.Start()
		o, c, w := OpenOracle(t, g, database), mustDial(t, g, nil), watch(t, g)
		turn := func(agent string, n int) {
			id := fmt.Sprint(agent, n)
			say(t, c, fmt.Sprintf("agent:%s:s%d", agent, n), id, "hello")
			if end := w.await(t, id); end.state != "final" {
				t.Errorf("turn %s ended %s", id, end)
			}
		}
		for n := range 4 {
			turn("absurd", n)
			turn("main", n)
		}
		testrun.Eventually(t, "the counters are written", func() bool { return o.Count("SELECT sum(turns) FROM usage_counters") == 8 })
		if n := o.Count("SELECT tokens FROM usage_totals WHERE scope = 'day'"); n != 4*2_000_000_000+4*100 {
			t.Errorf("%d tokens of the day, want those of four answers that are clamped and of four others", n)
		}
	})
}
