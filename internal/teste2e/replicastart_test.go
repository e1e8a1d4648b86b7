package teste2e

import (
	"testing"
	"time"

	"laneway/internal/testpg"
)

// The LISTEN of a starting replica is delayed. The end of a run on the other replica, right after the first client has connected, must
// still reach that client.
func TestTheFirstClientOfAReplicaReceivesEveryEnd(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	config := "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0}\n"
	a, b := Install(t, database, config), Install(t, database, config)
	a.Start()
	ca := mustDial(t, a, nil)
	line := cuttable(t, database)
	line.listens = time.Second
	b.env = append(b.env, "LANEWAY_DATABASE_URL="+line.url)
	b.Start()
	onB := watch(t, b)
	say(t, ca, "agent:main:first", "first", "hello")
	if end := onB.await(t, "first"); end.state != "final" {
		t.Errorf("the first client of the new replica received %s, want the answer", end)
	}
}
