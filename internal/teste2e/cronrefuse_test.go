package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// badJob is a job that has to be refused: members that replace those of a valid one, and a part of
// the sentence.
type badJob struct {
	name    string
	members string // JSON, so that numbers and strings are exactly what a client may send
	part    string
}

func badSchedule(name, schedule, part string) badJob {
	return badJob{name, `{"schedule":` + schedule + `}`, part}
}

func badEvery(ms, part string) badJob {
	return badSchedule("every "+ms, `{"kind":"every","everyMs":`+ms+`}`, part)
}

func badExpr(expr, part string) badJob {
	text, err := json.Marshal(map[string]string{"kind": "cron", "expr": expr})
	if err != nil {
		panic(err)
	}
	return badSchedule("expression "+expr[:min(len(expr), 20)], string(text), part)
}

// badJobs are jobs that must be refused, some of each kind; package cron has the others.
func badJobs() []badJob {
	return []badJob{
		badEvery("999", "1000-"), badEvery("9223372036854775808", ""),
		badSchedule("at in the past", `{"kind":"at","at":"2020-01-01T00:00:00Z"}`, "before now"),
		badExpr("99 99 * * *", "out of range"), badExpr("0 0 30 2 *", "never fires"), badExpr(strings.Repeat("1,", 124)+"1 * * * *", "257"),
		badSchedule("zone of another file", `{"kind":"cron","expr":"0 9 * * *","tz":"../../etc/passwd"}`, ""),
		badSchedule("unknown member", `{"kind":"every","everyMs":60000,"evry":1}`, ""),
		{"unknown agent", `{"agentId":"absent"}`, "absent"},
		{"unknown channel", `{"delivery":{"mode":"announce","channel":"pigeon","to":"1"}}`, "there is no channel pigeon; an answer goes to CHANNEL:CHAT"},
		{"unknown session target", `{"sessionTarget":"attic"}`, "attic"},
		{"NUL in the name", `{"name":"a\u0000b"}`, "U+0000"},
		{"long text", `{"payload":{"kind":"agentTurn","message":"` + strings.Repeat("x", 70_000) + `"}}`, "65536"},
		{"program that is not allowed", `{"payload":{"kind":"command","argv":["true"]}}`, "LANEWAY_CRON_PAYLOADS"},
		{"much catch-up", `{"missed":{"policy":"fire_all","maxCatchup":101}}`, "1-100"},
		{"ends before it starts", `{"startsAtMs":4000000000000,"endsAtMs":3900000000000}`, ""},
		{"two keys", `{"key":"a","declarationKey":"b"}`, "different"},
	}
}

// aSentence fails unless a refusal describes the fault in one line.
func aSentence(t *testing.T, what, got, part string) {
	t.Helper()
	got = strings.TrimSpace(got)
	if len(got) < 12 || strings.Contains(got, "\n") || strings.Contains(got, "\x00") || !strings.Contains(got, part) {
		t.Errorf("%s: %q is no sentence with %q", what, got, part)
	}
}

// Every bad job is sent over the protocol: to make it, and as a change of a valid one.
func TestBadJobsAreRefusedWithASentenceAndNothingIsStored(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		c := connect(t, g)
		good := addJob(t, c, "good", every(time.Hour), nil)
		o := OpenOracle(t, g, database)
		picture := func() string { // the gateway may still be adding its own jobs
			return strings.Join(o.Rows("SELECT * FROM cron_jobs WHERE owner <> 'system' ORDER BY id"), "\n")
		}
		before := picture()
		for _, bad := range badJobs() {
			// The JSON is sent unchanged: a number that no float64 represents must arrive exactly.
			members := decodeInto[map[string]json.RawMessage](t, json.RawMessage(bad.members))
			added, patch := jobParams("bad", every(time.Hour), nil), any(members)
			for k, v := range members {
				added[k] = v
			}
			if strings.Contains(bad.name, "key") {
				patch = map[string]any{"key": "other"}
			}
			_, err := c.Call("cron.add", added, 10*time.Second)
			aSentence(t, bad.name, refusedForGood(t, "cron.add, "+bad.name, err), bad.part)
			_, err = c.Call("cron.update", map[string]any{"id": good.ID, "patch": patch}, 10*time.Second)
			refusedForGood(t, "cron.update, "+bad.name, err)
		}
		if after := picture(); after != before {
			t.Errorf("something was stored:\n%s\nwas\n%s", after, before)
		}
		for _, p := range []map[string]any{
			{"id": good.ID, "count": -1}, {"id": good.ID, "count": 101}, {"count": 1}, {"id": "none"}, {"schedule": map[string]any{"kind": "cron", "expr": "nonsense"}},
		} {
			_, err := c.Call("cron.preview", p, 10*time.Second)
			aSentence(t, fmt.Sprint("preview of ", p), refusal(t, err).Message, "")
		}
	})
}

// refusedForGood requires a refusal that is not retryable, and returns its sentence.
func refusedForGood(t *testing.T, what string, err error) string {
	t.Helper()
	var r *WireError
	switch {
	case !errors.As(err, &r):
		t.Errorf("%s: want a refusal, got %v", what, err)
		return "was not refused at all"
	case r.Retryable, r.Code != "INVALID_REQUEST" && r.Code != "UNKNOWN_AGENT_ID" && r.Code != "LIMIT_EXCEEDED":
		t.Errorf("%s: %v", what, r)
	}
	return r.Message
}

// refusal returns the refusal of a call; any other result fails the test.
func refusal(t testing.TB, err error) *WireError {
	t.Helper()
	var r *WireError
	if !errors.As(err, &r) {
		t.Fatalf("want a refusal, got %v", err)
	}
	return r
}

func decodeInto[T any](t testing.TB, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("decoding %s: %v", raw, err)
	}
	return v
}

// neighbours are jobs that fire each second and must not be affected by a faulty one. On a busy
// machine a slot may be late, but it still fires.
func neighbours(t *testing.T, c *Client, n int) map[string]int64 {
	t.Helper()
	first := map[string]int64{}
	for i := range n {
		j := addJob(t, c, fmt.Sprintf("neighbour %d", i), every(time.Second), map[string]any{
			"overlap": "concurrent", "missed": map[string]any{"policy": "fire_all", "maxCatchup": 100, "windowSeconds": nil},
		})
		first[j.ID] = j.State.NextRunAtMs
	}
	return first
}

// unharmed ends a scenario: every slot of the neighbours has a row, and every run succeeded.
func unharmed(t *testing.T, g *Gateway, database string, first map[string]int64) census {
	t.Helper()
	o := OpenOracle(t, g, database)
	retire(t, g, o, database)
	found := countSlots(t, o, time.Second, first)
	found.check(t)
	if found.states["ok"] == 0 || found.states["ok"]+found.states["skipped"] != found.rows { // a job with ten active runs skips a slot
		t.Errorf("the neighbours ended %v", found.states)
	}
	o.Check(cronLease)
	return found
}

// The rows are changed directly in the database.
func TestAJobWhoseRowIsBrokenIsShownAndDisturbsNoOther(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig).AtOnce()
		g.Start()
		c := connect(t, g)
		db := writable(t, g, database)
		broken := map[string]string{}
		for i, spoiled := range []string{`schedule = '{"kind":"weekly"}'`, `schedule = '{'`, `payload = '[]'`, `payload = '{"kind":"unknown"}'`, `policy = 'x'`} {
			j := addJob(t, c, fmt.Sprintf("broken %d", i), every(time.Second), nil)
			if n := execute(t, db, "UPDATE cron_jobs SET "+spoiled+" WHERE id = '"+j.ID+"'"); n != 1 {
				t.Fatalf("%d rows spoiled", n)
			}
			broken[j.ID] = spoiled
		}
		first := neighbours(t, c, 3)
		invalid := func() (n int) {
			var page struct{ Jobs []jobView }
			if err := c.Into(&page, "cron.list", map[string]any{"includeDisabled": true, "extended": true}); err != nil {
				t.Fatal(err)
			}
			for _, j := range page.Jobs {
				if broken[j.ID] != "" && j.Invalid != "" && strings.HasPrefix(j.Name, "broken") {
					n++
				}
			}
			if len(page.Jobs) != len(broken)+len(first) {
				t.Fatalf("%d jobs are listed, want %d", len(page.Jobs), len(broken)+len(first))
			}
			return n
		}
		testrun.Eventually(t, "all broken jobs are shown as such", func() bool { return invalid() == len(broken) })
		pause(3 * time.Second)
		for id := range broken {
			var j jobView
			if err := c.Into(&j, "cron.get", map[string]any{"id": id, "extended": true}); err != nil || j.Invalid == "" {
				t.Errorf("%s: %+v, %v", broken[id], j, err)
			}
			if err := c.Into(&struct{}{}, "cron.remove", map[string]any{"id": id}); err != nil {
				t.Errorf("%s cannot be removed: %v", broken[id], err)
			}
		}
		t.Logf("neighbours: %s", unharmed(t, g, database, first))
	})
}

// The agent kills the gateway that runs it.
func TestAJobThatEndsTheProcessIsGivenUpAfterThreeCrashesAndItsOwnerIsNotified(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		script := filepath.Join(t.TempDir(), "killer.sh")
		if err := os.WriteFile(script, []byte("#!/bin/sh\nkill -9 $PPID\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		g := Install(t, database, strings.Replace(cronConfig, "agents:", "agents:\n  killer: {runner: command, command: ["+script+"]}", 1))
		g.Start()
		c := connect(t, g)
		first := neighbours(t, c, 2)
		poison := addJob(t, c, "poison", at(time.Now().Add(1500*time.Millisecond)), map[string]any{
			"agentId": "killer", "delivery": map[string]any{"mode": "announce", "channel": "last"},
		})
		for i := range 3 {
			if took, _ := g.WaitExit(cronLease + 20*time.Second); took > 0 {
				t.Logf("crash %d after %s", i+1, took.Round(time.Millisecond))
			}
			g.Start()
		}
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "the job is given up", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE job_id = '"+poison.ID+"' AND state = 'interrupted'") == 1
		})
		testrun.Eventually(t, "its owner is told", func() bool {
			return o.Count("SELECT count(*) FROM transcript WHERE session_key = 'agent:killer:main' AND content LIKE '%poison%failed%'") == 1
		})
		pause(2 * time.Second)
		g.Signal(syscall.Signal(0)) // checks that it is alive
		retire(t, g, o, database)
		found := countSlots(t, o, time.Second, first)
		found.check(t)
		o.Check(cronLease)
		t.Logf("neighbours: %s", found)
	})
}

// Jobs are made and removed as fast as the gateway accepts them.
func TestTenThousandJobsMadeAndRemovedCostNeighboursNoSlot(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		jobs, workers := testrun.Size(500, 10_000), 8
		g := Install(t, database, cronConfig).AtOnce()
		g.Start()
		first := neighbours(t, connect(t, g), 5)
		var next atomic.Int64
		var group sync.WaitGroup
		began := time.Now()
		for range workers {
			c := connect(t, g)
			group.Go(func() {
				for i := next.Add(1); i <= int64(jobs); i = next.Add(1) {
					var j jobView
					if err := c.Into(&j, "cron.add", jobParams(fmt.Sprintf("rapid %d", i), every(time.Hour), nil)); err != nil {
						t.Errorf("making job %d: %v", i, err)
						return
					}
					if err := c.Into(&struct{}{}, "cron.remove", map[string]any{"id": j.ID}); err != nil {
						t.Errorf("removing job %d: %v", i, err)
						return
					}
				}
			})
		}
		group.Wait()
		took := time.Since(began)
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "the neighbours have run", func() bool { return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok'") >= 5 })
		if n := o.Count("SELECT count(*) FROM cron_jobs WHERE name LIKE 'rapid%'"); n != 0 {
			t.Errorf("%d jobs are left", n)
		}
		t.Logf("%d jobs made and removed in %s (%.0f/s); neighbours: %s", jobs, took.Round(time.Millisecond), float64(jobs)/took.Seconds(), unharmed(t, g, database, first))
	})
}

// One principal lists and searches without pause over 48 connections, in long messages. The goal
// for the 99th percentile of the time from a slot to its claim is 100 ms on an idle machine.
func TestFloodOfReadsDelaysNoClaim(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		c := connect(t, g)
		text := strings.Repeat("a sentence with many common words in it, ", 200)
		for i := range 100 {
			say(t, c, fmt.Sprintf("agent:main:flood-%d", i%10), fmt.Sprintf("m%d", i), text)
		}
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "the messages are answered", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0 })
		neighbours(t, c, 5)
		stop := make(chan struct{})
		var readers sync.WaitGroup
		var calls atomic.Int64
		for i := range 48 {
			reader := connect(t, g)
			readers.Go(func() {
				for n := i; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					method, params := "sessions.search", map[string]any{"query": "common words sentence"}
					switch n % 3 {
					case 1:
						method, params = "sessions.list", map[string]any{"limit": 200}
					case 2:
						method, params = "chat.history", map[string]any{"sessionKey": fmt.Sprintf("agent:main:flood-%d", n%10), "limit": 200}
					}
					_, _ = reader.Call(method, params, 30*time.Second) // a refusal is an answer
					calls.Add(1)
				}
			})
		}
		pause(time.Duration(testrun.Size(12, 60)) * time.Second)
		var late []int
		for _, row := range o.Rows("SELECT claimed_at - scheduled_for FROM cron_run_logs WHERE claimed_at > 0 AND trigger = 'schedule' ORDER BY 1") {
			n, err := strconv.Atoi(row)
			if err != nil {
				t.Fatal(err)
			}
			late = append(late, n)
		}
		close(stop)
		readers.Wait()
		if len(late) < 40 {
			t.Fatalf("%d slots of 5 jobs that fire each second were claimed", len(late))
		}
		p99 := late[len(late)*99/100]
		t.Logf("%d reads beside %d claims: p50 %d ms, p99 %d ms", calls.Load(), len(late), late[len(late)/2], p99)
		if p99 > 1000 {
			t.Errorf("the 99th percentile of claims is %d ms late, want at most ten times 100 ms", p99)
		}
	})
}

// A job whose time passed during its pause is resumed, and one that has fired is enabled.
func TestAMomentThatPassedIsNotPromisedAgain(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig).AtOnce()
		g.Start()
		c := connect(t, g)
		slot := time.Now().Add(1500 * time.Millisecond)
		paused := addJob(t, c, "paused", at(slot), nil)
		object(t, c, "cron.pause", map[string]any{"id": paused.ID, "note": "probe"})
		over := addJob(t, c, "over", at(slot), map[string]any{"deleteAfterRun": false})
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "the other one has fired", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok' AND job_id = '"+over.ID+"'") == 1
		})
		for method, params := range map[string]map[string]any{
			"cron.resume": {"id": paused.ID}, "cron.update": {"id": over.ID, "patch": map[string]any{"enabled": true}},
		} {
			if _, err := c.Call(method, params, 10*time.Second); err == nil || !strings.Contains(err.Error(), "no fire any more") {
				t.Errorf("%s of a job whose moment has passed: %v", method, err)
			}
		}
		for _, id := range []string{paused.ID, over.ID} {
			var j jobView
			if err := c.Into(&j, "cron.get", map[string]any{"id": id}); err != nil || j.Enabled || j.State.NextRunAtMs != 0 {
				t.Errorf("it shows %+v (%v)", j, err)
			}
		}
	})
}
