package teste2e

import (
	"context"
	"strings"
	"testing"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// A standby that lacks the ends of two turns becomes the primary. The gateway detects that, the two run again, a stop works, and the loss
// is reported in the log, in the metrics and by doctor.
func TestAFailoverThatLosesCommitsLeavesNoTurnStuck(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	primary, err := testpg.StartServer(t.Context(), testpg.ServerConfig{NoFsync: true, MaxConnections: 50})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = primary.Stop() })
	replication := cuttable(t, primary.URL())
	standby, err := primary.StartStandby(t.Context(), replication.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = standby.Stop() })
	line := cuttable(t, primary.URL())
	g := Install(t, line.url, "cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}\nagents: {main: {runner: echo, script: true}}\ndrain_timeout: 2s\n", "--metrics-listen", "main")
	g.env = append(g.env, "LANEWAY_DATABASE_URL="+line.url)
	g.Start()
	c, events := mustDial(t, g, nil), watch(t, g)
	say(t, c, "agent:main:one", "first", "sleep 2s")
	say(t, c, "agent:main:two", "second", "sleep 2s")
	behind := OpenOracle(t, g, standby.URL())
	testrun.Eventually(t, "the standby has the starts of both turns", func() bool {
		return behind.Count("SELECT count(*) FROM runs WHERE state = 'running'") == 2
	})
	replication.cut()
	for _, run := range []string{"first", "second"} {
		if end := events.await(t, run); end.state != "final" {
			t.Fatalf("%s ended %s before the failover", run, end)
		}
	}
	line.cut()
	if err := primary.Halt(true); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if n := behind.Count("SELECT count(*) FROM runs WHERE state = 'running'"); n != 2 {
		t.Fatalf("the promoted standby has %d turns that run, want the 2 whose ends it never received", n)
	}
	line.lead(t, standby.URL())
	line.mend()
	testrun.Eventually(t, "the turns whose ends were lost have ended again", func() bool {
		return behind.Count("SELECT count(*) FROM inbox WHERE state = 'done' AND outcome = 'answered' AND message_id IN ('first', 'second')") == 2 &&
			behind.Count("SELECT count(*) FROM runs WHERE state IN ('running', 'stopping')") == 0
	})
	c = mustDial(t, g, nil)
	say(t, c, "agent:main:one", "third", "sleep 1h")
	testrun.Eventually(t, "a turn runs", func() bool {
		return behind.Count("SELECT count(*) FROM runs WHERE id = 'third' AND state = 'running'") == 1
	})
	if out, errs, code := g.CLI(t.Context(), "", "sessions", "stop", "agent:main:one"); code != 0 {
		t.Errorf("sessions stop: %d\n%s%s", code, out, errs)
	}
	testrun.Eventually(t, "the stop has its effect", func() bool {
		return behind.Count("SELECT count(*) FROM inbox WHERE message_id = 'third' AND outcome = 'stopped'") == 1
	})
	said := g.Output()
	if !strings.Contains(said, "the database has lost commits") || !strings.Contains(said, "timeline 00000001") || !strings.Contains(said, "timeline 00000002") {
		t.Errorf("the log does not name the loss with both timelines:\n%s", said)
	}
	if n := g.metric(t, g.Token(), `laneway_database_rollbacks_total{reason="history"}`); n != 1 {
		t.Errorf("the loss was counted %v times, want once", n)
	}
	out, _, _ := g.CLI(t.Context(), "", "doctor", "--config", g.config)
	if !strings.Contains(out, "the database lost commits before ") {
		t.Errorf("the doctor does not report the loss:\n%s", out)
	}
}
