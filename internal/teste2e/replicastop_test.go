package teste2e

import (
	"fmt"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// A run of one replica is stopped through another one, in every possible way: the call is cancelled within a second and its end has the
// reason of the stop.
func TestAStopReachesAnotherReplicaWithinASecond(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	config := "cluster: {lease: 15s}\nagents: {main: {runner: echo, script: true}}\nlimits: {chat: 0, requests: 0}\n"
	a, b := Install(t, database, config), Install(t, database, config)
	a.Start()
	b.Start()
	onA, onB := watch(t, a), watch(t, b)
	ca, cb := mustDial(t, a, nil), mustDial(t, b, nil)
	ways := []struct {
		name, reason string
		stop         func(session, id string) error
	}{
		{"chat.abort", "stop", func(session, _ string) error {
			_, err := cb.Call("chat.abort", map[string]any{"sessionKey": session}, 10*time.Second)
			return err
		}},
		{"chat.abort of a run", "stop", func(session, id string) error {
			_, err := cb.Call("chat.abort", map[string]any{"sessionKey": session, "runId": id}, 10*time.Second)
			return err
		}},
		{"chat.abort of all", "stopall", func(session, _ string) error {
			_, err := cb.Call("chat.abort", map[string]any{"sessionKey": session, "all": true}, 10*time.Second)
			return err
		}},
		{"/stop", "stop", func(session, id string) error { say(t, cb, session, id+"-stop", "/stop"); return nil }},
		{"/stopall", "stopall", func(session, id string) error { say(t, cb, session, id+"-stop", "/stopall"); return nil }},
	}
	var took []time.Duration
	for round := range 4 {
		for i, way := range ways {
			session, id := fmt.Sprintf("agent:main:s%d", i), fmt.Sprintf("s%d-%d", i, round)
			if round%2 == 1 {
				session = fmt.Sprintf("agent:main:web:group:%d", i)
			}
			say(t, ca, session, id, "sleep 1h")
			testrun.Eventually(t, id+" runs", func() bool {
				for _, e := range onA.of(id) {
					if e.state == "start" {
						return true
					}
				}
				return false
			})
			asked := time.Now()
			if err := way.stop(session, id); err != nil {
				t.Fatalf("%s: %v", way.name, err)
			}
			end := onA.await(t, id)
			took = append(took, end.at.Sub(asked))
			if end.state != "aborted" || end.reason != way.reason {
				t.Errorf("%s: the run ended %s, want stopReason %s", way.name, end, way.reason)
			}
			if limit := time.Second; end.at.Sub(asked) > limit {
				t.Errorf("%s: the turn on the other replica was stopped after %s, want %s", way.name, end.at.Sub(asked).Round(time.Millisecond), limit)
			}
			if end := onB.await(t, id); end.state != "aborted" || end.reason != way.reason {
				t.Errorf("%s: a client of the stopping replica received %s, want stopReason %s", way.name, end, way.reason)
			}
		}
	}
	t.Logf("stops from another replica: p50 %s, worst %s", quantile(took, 0.5).Round(time.Millisecond), quantile(took, 1).Round(time.Millisecond))
	OpenOracle(t, a, database).Check(15 * time.Second)
}
