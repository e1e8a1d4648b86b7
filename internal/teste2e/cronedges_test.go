package teste2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// inFuture is a schedule of one job that fires each hour, for the first time then.
func inFuture(first time.Time) map[string]any {
	return map[string]any{"kind": "every", "everyMs": time.Hour.Milliseconds(), "anchorMs": first.UnixMilli()}
}

// history lists the ledger of a job: trigger, state and reason, and how long after its slot the run began, in milliseconds.
func history(o *Oracle, job string) []string {
	return o.Rows(fmt.Sprintf(`SELECT trigger, state, coalesce(reason, '') FROM cron_run_logs WHERE job_id = '%s' ORDER BY scheduled_for`, job))
}

// slots lists the slots of a job that began, in milliseconds since 1970.
func slots(o *Oracle, job string) []string {
	return o.Rows(fmt.Sprintf(`SELECT scheduled_for FROM cron_run_logs WHERE job_id = '%s' AND coalesce(started_at, 0) > 0 ORDER BY scheduled_for`, job))
}

// edge is one job that is changed shortly before its slot.
type edge struct {
	kind   string
	job    string
	slot   time.Time
	change time.Time
	want   []string // slots that begin
	late   bool     // the answer came too late to say
}

// do makes the change over the wire.
func (p *edge) do(t *testing.T, c *Client) {
	t.Helper()
	moved := p.slot.Add(2 * time.Second)
	switch p.kind {
	case "pause":
		object(t, c, "cron.pause", map[string]any{"id": p.job, "note": "probe"})
	case "remove":
		object(t, c, "cron.remove", map[string]any{"id": p.job})
	case "disable":
		object(t, c, "cron.update", map[string]any{"id": p.job, "patch": map[string]any{"enabled": false}})
	case "move":
		object(t, c, "cron.update", map[string]any{"id": p.job, "patch": map[string]any{"schedule": at(moved)}})
		p.want = []string{strconv.FormatInt(moved.UnixMilli(), 10)}
	case "upsert":
		object(t, c, "cron.add", jobParams(p.job, at(moved), map[string]any{"declarationKey": "probe " + p.slot.String(), "deleteAfterRun": false}))
		p.want = []string{strconv.FormatInt(moved.UnixMilli(), 10)}
	case "pause and resume", "off and on":
		if p.kind == "off and on" {
			object(t, c, "cron.update", map[string]any{"id": p.job, "patch": map[string]any{"enabled": false}})
			object(t, c, "cron.update", map[string]any{"id": p.job, "patch": map[string]any{"enabled": true}})
		} else {
			object(t, c, "cron.pause", map[string]any{"id": p.job, "note": "probe"})
			object(t, c, "cron.resume", map[string]any{"id": p.job})
		}
		p.want = []string{strconv.FormatInt(p.slot.UnixMilli(), 10)}
	}
	p.late = !time.Now().Before(p.slot)
}

// TestChangesShortlyBeforeASlotAreAsIfNothingHadBeenClaimed changes jobs 0 to 1,300 ms before their slot, some of them while the claim of the slot is under way: what
// begins is what the job says then, on its slot, and nothing else leaves a row.
func TestChangesShortlyBeforeASlotAreAsIfNothingHadBeenClaimed(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig).AtOnce()
		g.Start()
		gates := []*Client{connect(t, g)}
		if database != "" {
			other := Install(t, database, cronConfig).AtOnce()
			other.Start()
			gates = append(gates, connect(t, other))
		}
		n := testrun.Size(28, 200)
		kinds := []string{"pause", "remove", "move", "pause and resume", "upsert", "disable", "off and on"}
		var list []*edge
		begin := time.Now().Add(3*time.Second + time.Duration(n)*100*time.Millisecond)
		for i := range n {
			slot := begin.Add(time.Duration(i) * 150 * time.Millisecond)
			p := &edge{kind: kinds[i%len(kinds)], slot: slot, change: slot.Add(-time.Duration(i*1300/n) * time.Millisecond)}
			schedule := inFuture(slot)
			if p.kind == "move" || p.kind == "upsert" {
				schedule = at(slot)
			}
			p.job = addJob(t, gates[i%len(gates)], fmt.Sprint("probe", i), schedule, map[string]any{"declarationKey": "probe " + slot.String(), "deleteAfterRun": false}).ID
			list = append(list, p)
		}
		slices.SortFunc(list, func(a, b *edge) int { return a.change.Compare(b.change) })
		for i, p := range list {
			time.Sleep(time.Until(p.change))
			p.do(t, gates[(i+1)%len(gates)])
		}
		time.Sleep(4 * time.Second)
		o := OpenOracle(t, g, database)
		judged := 0
		for _, p := range list {
			if p.late {
				continue
			}
			judged++
			if got := slots(o, p.job); !slices.Equal(got, p.want) {
				t.Errorf("%s %s before the slot %d: begun %q, want %q; the ledger: %q", p.kind, p.slot.Sub(p.change), p.slot.UnixMilli(), got, p.want, history(o, p.job))
			}
			if rows := history(o, p.job); len(rows) != len(p.want) {
				t.Errorf("%s %s before the slot leaves %q", p.kind, p.slot.Sub(p.change), rows)
			}
		}
		t.Logf("%d of %d changes were answered before their slot", judged, n)
		if judged == 0 { // how many there are depends on the machine
			t.Errorf("none of %d changes was answered before its slot", n)
		}
		o.Check(cronLease)
	})
}

// TestAJobThatIsPausedOrRemovedWhileItIsClaimedDoesNotFire pauses and removes jobs within milliseconds of being made: the change meets the claim of the first slot.
func TestAJobThatIsPausedOrRemovedWhileItIsClaimedDoesNotFire(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig).AtOnce()
		g.Start()
		c := connect(t, g)
		var ids []string
		for i := range testrun.Size(20, 200) {
			j := addJob(t, c, fmt.Sprint("meets", i), inFuture(time.Now().Add(time.Second)), nil)
			time.Sleep(time.Duration(i%10) * 2 * time.Millisecond)
			if i%2 == 0 {
				object(t, c, "cron.pause", map[string]any{"id": j.ID, "note": "probe"})
			} else {
				object(t, c, "cron.remove", map[string]any{"id": j.ID})
			}
			ids = append(ids, j.ID)
		}
		g.Kill() // what was answered holds for the next process, too
		g.Start()
		time.Sleep(2*time.Second + cronLease)
		o := OpenOracle(t, g, database)
		if rows := o.Rows(`SELECT job_id, state FROM cron_run_logs WHERE job_id IN ('` + strings.Join(ids, `', '`) + `')`); len(rows) > 0 {
			t.Errorf("%d of %d jobs left rows: %q", len(rows), len(ids), rows)
		}
	})
}

// TestOnlyFiresCountAgainstMaxRuns pauses and resumes a job of one run before its slot.
func TestOnlyFiresCountAgainstMaxRuns(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig).AtOnce()
		g.Start()
		c := connect(t, g)
		slot := time.Now().Add(1500 * time.Millisecond)
		j := addJob(t, c, "once", map[string]any{"kind": "every", "everyMs": 2000, "anchorMs": slot.UnixMilli()}, map[string]any{"maxRuns": 1})
		time.Sleep(time.Until(slot.Add(-400 * time.Millisecond)))
		object(t, c, "cron.pause", map[string]any{"id": j.ID, "note": "probe"})
		time.Sleep(time.Until(slot.Add(500 * time.Millisecond)))
		object(t, c, "cron.resume", map[string]any{"id": j.ID})
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "the next slot has run", func() bool {
			return slices.Equal(history(o, j.ID), []string{"schedule|skipped|paused", "schedule|ok|"})
		})
		if got, want := slots(o, j.ID), []string{strconv.FormatInt(slot.UnixMilli()+2000, 10)}; !slices.Equal(got, want) {
			t.Errorf("begun %q, want %q", got, want)
		}
	})
}

// TestSlotsThatPassedWaitBehindWhatAnOutageLeft ends a process shortly before a slot, by a kill and in order: nothing of the catch-up is skipped for overlap.
func TestSlotsThatPassedWaitBehindWhatAnOutageLeft(t *testing.T) {
	NeedsProcesses(t)
	for _, end := range []string{"kill", "drain"} {
		t.Run(end, func(t *testing.T) {
			onBothStores(t, func(t *testing.T, database string) {
				g := Install(t, database, cronConfig).AtOnce()
				g.Start()
				slot := time.Now().Add(2 * time.Second)
				j := addJob(t, connect(t, g), "caught up", map[string]any{"kind": "every", "everyMs": 2000, "anchorMs": slot.UnixMilli()},
					map[string]any{"missed": map[string]any{"policy": "fire_all", "maxCatchup": 2}})
				time.Sleep(time.Until(slot.Add(-400 * time.Millisecond)))
				if end == "kill" {
					g.Kill()
				} else {
					g.Signal(syscall.SIGTERM)
					g.WaitExit(10 * time.Second)
				}
				o := OpenOracle(t, g, database)
				if rows := history(o, j.ID); end == "drain" && len(rows) > 0 {
					t.Errorf("the drained process leaves %q", rows)
				}
				time.Sleep(time.Until(slot.Add(7500 * time.Millisecond))) // four slots have passed
				g.Start()
				testrun.Eventually(t, "what passed has run", func() bool { return len(slots(o, j.ID)) >= 5 })
				rows := history(o, j.ID)
				if slices.ContainsFunc(rows, func(r string) bool { return strings.Contains(r, "catchup|skipped") }) {
					t.Errorf("the catch-up was eaten: %q", rows)
				}
			})
		})
	}
}

// TestAMomentThatPassedIsNotPromisedAgain resumes a job whose moment passed while it was paused, and enables one that has fired.
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
		testrun.Eventually(t, "the other one has fired", func() bool { return slices.Equal(history(o, over.ID), []string{"schedule|ok|"}) })
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
