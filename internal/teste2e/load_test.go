package teste2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testrun"
)

type lanesStatus struct {
	Lanes []struct {
		Name                                 string
		Capacity, Active, Stopping, Waiting  int
		Yielded                              int
		Started, Finished, Failed, Cancelled int64
	}
	Drops struct{ Old, New int64 }
}

func (l lanesStatus) main() (capacity, active int, finished int64) {
	for _, lane := range l.Lanes {
		if lane.Name == "main" {
			return lane.Capacity, lane.Active, lane.Finished
		}
	}
	return 0, 0, 0
}

// This load stops some gateways of this kind for ever: 25 groups with three concurrent turns each need half as much again as 30 slots can
// do. A person who waits for the lane sends /stop.
func TestAFullLaneKeepsMoving(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		length := time.Duration(testrun.Size(24, 600)) * time.Second
		const groups, slots, mean = 25, 30, 3 * time.Second
		g := Install(t, database, "agents: {main: {runner: echo, script: true}}\nlimits: {chat: 0, requests: 0}\ndrain_timeout: 1s\n").AtOnce()
		g.Start()
		token := g.Token()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var accepted atomic.Int64
		for i := range groups {
			wg.Go(func() {
				c, err := Dial(g.URL(), token, nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				dice := rand.New(rand.NewPCG(1, uint64(i)))
				pause := mean * groups * 2 / (slots * 3) // half as much again as the slots can do
				for n := 0; ; n++ {
					text := fmt.Sprintf("sleep %dms", 2000+dice.IntN(2000))
					_, err := c.Call("chat.send", map[string]any{
						"sessionKey": fmt.Sprintf("agent:main:load:group:%d", i), "message": text, "idempotencyKey": fmt.Sprintf("g%d-%d", i, n),
					}, 10*time.Second)
					if err != nil {
						t.Errorf("message %d of group %d: %v", n, i, err)
						return
					}
					accepted.Add(1)
					timer := time.NewTimer(pause/2 + time.Duration(dice.Int64N(int64(pause))))
					select {
					case <-timer.C:
					case <-stop:
						timer.Stop()
						return
					}
				}
			})
		}
		watchThroughput(t, g, token, length, slots, mean)
		stopBehindTheFullLane(t, g, token)
		close(stop)
		wg.Wait()
		if accepted.Load() < 100 {
			t.Errorf("only %d messages were accepted", accepted.Load())
		}
		OpenOracle(t, g, database).Check(15 * time.Second)
		g.Signal(syscall.SIGTERM)
		if took, code := g.WaitExit(10 * time.Second); code != 0 || took > 6*time.Second {
			t.Errorf("exit code %d after %s, want 0 within the drain timeout of 1s and 5s more", code, took)
		}
	})
}

// watchThroughput compares what the lane finishes, in each window and in total, with what its slots can do. A mean alone would hide a lane
// that is blocked with every slot in use.
func watchThroughput(t *testing.T, g *Gateway, token string, length time.Duration, slots int, mean time.Duration) {
	t.Helper()
	c, err := Dial(g.URL(), token, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const window = 8 * time.Second // more than twice the longest turn
	testrun.Eventually(t, "the lane is full", func() bool {
		var l lanesStatus
		if err := c.Into(&l, "lanes.status", nil); err != nil {
			t.Fatal(err)
		}
		_, active, finished := l.main()
		return active == slots && finished > int64(slots)
	})
	var before lanesStatus
	if err := c.Into(&before, "lanes.status", nil); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	busy, samples := 0, 0
	began := time.Now()
	full := float64(slots) / mean.Seconds()
	_, _, first := before.main()
	slowest, windowBegan, windowFirst := full, began, first
	for time.Since(began) < length {
		<-tick.C
		var now lanesStatus
		if err := c.Into(&now, "lanes.status", nil); err != nil {
			t.Fatal(err)
		}
		capacity, active, finished := now.main()
		if active > capacity {
			t.Errorf("%d turns in %d slots", active, capacity)
		}
		busy, samples = busy+active, samples+1
		if took := time.Since(windowBegan); took >= window {
			slowest = min(slowest, float64(finished-windowFirst)/took.Seconds())
			windowBegan, windowFirst = time.Now(), finished
		}
	}
	var after lanesStatus
	if err := c.Into(&after, "lanes.status", nil); err != nil {
		t.Fatal(err)
	}
	_, _, last := after.main()
	took := time.Since(began)
	share := float64(busy) / float64(samples*slots)
	rate := float64(last-first) / took.Seconds()
	t.Logf("slots busy %.1f %%, %.2f turns/s of %.2f possible over %s, %.2f in the slowest window of %s", 100*share, rate, full, took.Round(time.Second), slowest, window)
	if share < 0.95 {
		t.Errorf("slots were busy %.1f %% of the time, want 95 %%", 100*share)
	}
	if rate < full/4 { // the busy share is the sharp figure; this one depends on the machine and only shows that turns end
		t.Errorf("%.2f turns/s of %.2f: the lane is busy with nothing", rate, full)
	}
	if slowest < 0.7*full {
		t.Errorf("%.2f turns/s of %.2f in a window of %s: the lane is blocked with its slots taken", slowest, full, window)
	}
}

// stopBehindTheFullLane sends a message in a new session, which has to wait, and stops it.
func stopBehindTheFullLane(t *testing.T, g *Gateway, token string) {
	t.Helper()
	ends := make(chan string, 10)
	c, err := Dial(g.URL(), token, func(e Event) {
		var p struct{ RunID, State string }
		if e.Name == "chat" && json.Unmarshal(e.Payload, &p) == nil && p.State != "delta" {
			ends <- p.RunID + " " + p.State
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send := func(key, text string) {
		if _, err := c.Call("chat.send", map[string]any{"sessionKey": "agent:main:impatient", "message": text, "idempotencyKey": key}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	send("waits", "hello")
	began := time.Now()
	send("stops", "/stop")
	got := map[string]bool{}
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	for !got["waits aborted"] || !got["stops final"] {
		select {
		case e := <-ends:
			got[e] = true
		case <-limit.C:
			t.Fatalf("after /stop with a full lane came only %v", got)
		}
	}
	took := time.Since(began)
	t.Logf("/stop with a full lane was answered after %s", took.Round(time.Millisecond))
	if took > time.Second {
		t.Errorf("/stop with a full lane was answered after %s, want 1s", took)
	}
}

// A gateway whose turn never ends receives the signal twice.
func TestASecondSignalEndsTheDrainAtOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo, script: true}}\ndrain_timeout: 10m\n")
		g.Start()
		c, err := Dial(g.URL(), g.Token(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Call("chat.send", map[string]any{"sessionKey": "main", "message": "sleep 1h", "idempotencyKey": "long"}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "the turn runs", func() bool { return o.Count("SELECT count(*) FROM runs WHERE state = 'running'") == 1 })
		g.Signal(syscall.SIGTERM)
		testrun.Eventually(t, "the gateway says that it drains", func() bool { code, _ := g.Get("/readyz"); return code == 503 })
		g.Signal(syscall.SIGTERM)
		if took, _ := g.WaitExit(10 * time.Second); took > 6*time.Second {
			t.Errorf("the second signal took %s", took)
		}
	})
}
