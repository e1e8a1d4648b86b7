package dispatch_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
)

// jobModel runs a random history of one job, on a store and some processes, and on the plain model.
// After each step both must have made the same agent calls and must show the same ledger, job and
// events.
type jobModel struct {
	t    *testing.T
	dice *rand.Rand
	st   cronStore
	open func(st cronStore) *modelProcess
	live []*modelProcess
	dead []*modelProcess

	wake  modelWake
	plain *plain
	steps int
	log   []string
	fault string

	mu     sync.Mutex
	events []string
}

// modelProcess is one process of a model.
type modelProcess struct {
	*jobHarness

	off *atomic.Bool
}

// modelSteps are the steps of people and machines, with their frequencies.
var modelSteps = []struct {
	name   string
	weight int
	do     func(m *jobModel)
}{
	{"wait", 30, (*jobModel).wait},
	{"add", 3, (*jobModel).add},
	{"update", 8, (*jobModel).update},
	{"upsert", 6, (*jobModel).upsert},
	{"pause", 7, (*jobModel).pause},
	{"resume", 7, (*jobModel).resume},
	{"disable", 4, (*jobModel).disable},
	{"enable", 5, (*jobModel).enable},
	{"remove", 3, (*jobModel).remove},
	{"run", 4, (*jobModel).run},
	{"cancel", 3, (*jobModel).cancel},
	{"backfill", 2, (*jobModel).backfill},
	{"drain", 2, (*jobModel).drain},
	{"kill", 2, (*jobModel).kill},
}

// history executes n steps, or fewer when one shows a difference. It returns how many it executed.
func (m *jobModel) history(n int) int {
	time.Sleep(5 * time.Millisecond) // from here on people act at x5 ms: slots are at x0 and x3, ends of pauses at x2, ends of runs at x4
	m.plain = &plain{now: m.now(), up: true, rows: map[string]string{}}
	total := 0
	for _, s := range modelSteps {
		total += s.weight
	}
	for m.steps = 0; m.steps < n && m.fault == ""; m.steps++ {
		dice := m.dice.IntN(total)
		if !m.plain.exists && m.dice.IntN(2) == 0 {
			m.add()
		}
		for _, s := range modelSteps {
			if dice -= s.weight; dice < 0 {
				if m.plain.exists {
					m.note("%s", s.name)
				}
				s.do(m)
				break
			}
		}
		m.compare()
	}
	return m.steps
}

func (m *jobModel) now() time.Time {
	now, err := m.st.Now(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return now
}

func (m *jobModel) note(format string, args ...any) {
	if len(m.log) > 0 && strings.HasSuffix(m.log[len(m.log)-1], strings.Fields(format)[0]) {
		m.log = m.log[:len(m.log)-1]
	}
	m.log = append(m.log, m.now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (m *jobModel) any() *modelProcess { return m.live[m.dice.IntN(len(m.live))] }

// let waits between two steps, until a time at which no slot is.
func (m *jobModel) let(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	m.plain.advance(m.now())
}

func (m *jobModel) wait() {
	d := time.Duration(1+m.dice.IntN(300)) * 10 * time.Millisecond
	if next := m.plain.next; !next.IsZero() && m.dice.IntN(3) > 0 { // close to the next slot, before or after it
		if d = next.Sub(m.now()).Truncate(10*time.Millisecond) - time.Duration(m.dice.IntN(160)-30)*10*time.Millisecond; d <= 0 || d > 20*time.Second {
			d = 10 * time.Millisecond
		}
	}
	m.note("wait %s", d)
	m.let(d)
}

// schedule returns a schedule that fires within seconds. People act at times without a slot, see
// history.
func (m *jobModel) schedule() schedule.Spec {
	in := time.Duration(20+m.dice.IntN(400)) * 10 * time.Millisecond
	at := m.now().Truncate(10 * time.Millisecond).Add(in + 3*time.Millisecond)
	switch m.dice.IntN(5) {
	case 0, 1:
		return schedule.Spec{Kind: schedule.KindAt, At: at.UTC()}
	case 2:
		return schedule.Spec{Kind: schedule.KindCron, Expr: fmt.Sprintf("%d/%d * * * * *", m.dice.IntN(3), 1+m.dice.IntN(4))}
	}
	return schedule.Spec{Kind: schedule.KindEvery, EveryMs: int64(1+m.dice.IntN(4)) * 1000, AnchorMs: at.UnixMilli()}
}

func scheduleJSON(s schedule.Spec) json.RawMessage {
	if s.Kind == schedule.KindAt {
		return fmt.Appendf(nil, `{"kind":"at","atMs":%d}`, s.At.UnixMilli())
	}
	if s.Kind == schedule.KindCron {
		return fmt.Appendf(nil, `{"kind":"cron","expr":%q}`, s.Expr)
	}
	return fmt.Appendf(nil, `{"kind":"every","everyMs":%d,"anchorMs":%d}`, s.EveryMs, s.AnchorMs)
}

func (m *jobModel) add() {
	p := m.plain
	if p.exists {
		return
	}
	m.fresh()
	p.lasts = []time.Duration{0, 0, 344_000_100, 1264_000_100, 2504_000_100}[m.dice.IntN(5)] // no run ends at a slot
	p.overlap = []cron.OverlapPolicy{cron.OverlapSkip, cron.OverlapSkip, cron.OverlapConcurrent, cron.OverlapBufferOne, cron.OverlapCancelPrevious}[m.dice.IntN(5)]
	p.missed = cron.MissedPolicy{Rule: []cron.MissedRule{cron.MissedFireOnce, cron.MissedFireAll, cron.MissedSkip}[m.dice.IntN(3)], MaxCatchup: 2}
	p.deletes = m.dice.IntN(4) == 0
	p.spec, p.maxRuns, p.key = m.schedule(), 0, fmt.Sprintf("model-%d", m.steps)
	if m.dice.IntN(3) == 0 && p.spec.Kind != schedule.KindAt {
		p.maxRuns = 1 + m.dice.IntN(3)
	}
	m.put()
}

// fresh removes the state of an earlier job.
func (m *jobModel) fresh() {
	p := m.plain
	m.settle()
	*p = plain{now: p.now, up: p.up, rows: map[string]string{}}
	m.log = nil
	m.forget()
}

func (m *jobModel) members() cron.Members {
	p := m.plain
	text := "hello"
	if p.lasts > 0 {
		text = "sleep " + p.lasts.String()
	}
	return cron.Members{
		"name": []byte(`"model"`), "declarationKey": fmt.Appendf(nil, "%q", p.key), "schedule": scheduleJSON(p.spec), "sessionTarget": []byte(`"isolated"`),
		"payload":        fmt.Appendf(nil, `{"kind":"agentTurn","message":%q}`, text),
		"overlap":        fmt.Appendf(nil, "%q", p.overlap),
		"missed":         fmt.Appendf(nil, `{"policy":%q,"maxCatchup":%d}`, p.missed.Rule, p.missed.MaxCatchup),
		"deleteAfterRun": fmt.Appendf(nil, "%v", p.deletes),
		"maxRuns":        fmt.Appendf(nil, "%d", p.maxRuns),
		"failureAlert":   []byte("false"),
	}
}

// put adds the current job of the model.
func (m *jobModel) put() {
	p := m.plain
	out, err := m.any().d.Jobs.Add(m.t.Context(), m.members(), operator(), nil)
	if err != nil || !out.Created {
		m.fail("adding: %+v, %v", out, err)
		return
	}
	p.id, p.exists, p.enabled = out.Job.ID, true, true
	m.note("%s %s %s lasts %s max %d delete %v missed %s", p.overlap, p.spec.Kind, scheduleJSON(p.spec), p.lasts, p.maxRuns, p.deletes, p.missed.Rule)
	p.plan()
	p.publish(cron.ActionAdded, "")
	if m.dice.IntN(2) == 0 { // while the first slot is being claimed, a change races with the claim
		[]func(*jobModel){(*jobModel).pause, (*jobModel).remove, (*jobModel).update, (*jobModel).disable, (*jobModel).upsert}[m.dice.IntN(5)](m)
	}
	synctest.Wait()
}

// both applies a change to the program and to the model; both must accept or refuse it.
func (m *jobModel) both(what string, model func() bool, program func(d *dispatch.Dispatcher) error) {
	if !m.plain.exists {
		return
	}
	want := model()
	err := program(m.any().d)
	synctest.Wait()
	if (err == nil) != want {
		m.fail("%s: the program returns %v, the model that it is accepted: %v", what, err, want)
	}
}

func (m *jobModel) fail(format string, args ...any) {
	if m.fault == "" {
		m.fault = fmt.Sprintf("step %d: ", m.steps) + fmt.Sprintf(format, args...) + "\n\t" + strings.Join(m.log, "\n\t")
	}
}

func (m *jobModel) update() {
	spec := m.schedule()
	m.note("update %s", scheduleJSON(spec))
	m.both("update", func() bool { return m.plain.change(spec, false) }, func(d *dispatch.Dispatcher) error {
		_, err := d.Jobs.Update(m.t.Context(), m.plain.id, cron.Members{"schedule": scheduleJSON(spec)}, "", operator())
		return err
	})
}

func (m *jobModel) upsert() {
	if !m.plain.exists {
		return
	}
	spec := m.schedule()
	if m.dice.IntN(4) == 0 {
		if spec = m.plain.spec; spec.Kind == schedule.KindAt {
			return
		}
	}
	m.note("upsert %s", scheduleJSON(spec))
	all := m.members()
	all["schedule"] = scheduleJSON(spec)
	m.both("upsert", func() bool { return m.plain.change(spec, true) }, func(d *dispatch.Dispatcher) error {
		_, err := d.Jobs.Add(m.t.Context(), all, operator(), nil)
		return err
	})
}

func (m *jobModel) pause() {
	var until time.Time
	if m.dice.IntN(2) == 0 {
		until = m.now().Truncate(10 * time.Millisecond).Add(time.Duration(1+m.dice.IntN(300))*10*time.Millisecond + 2*time.Millisecond)
	}
	m.note("pause until %s", until.Format("04:05.000"))
	m.both("pause", func() bool { return m.plain.pause(until) }, func(d *dispatch.Dispatcher) error {
		_, err := d.Jobs.Pause(m.t.Context(), m.plain.id, "model", until, operator())
		return err
	})
}

func (m *jobModel) resume() {
	m.both("resume", m.plain.resume, func(d *dispatch.Dispatcher) error {
		_, err := d.Jobs.Resume(m.t.Context(), m.plain.id, operator())
		return err
	})
}

func (m *jobModel) enable()  { m.switchTo(true) }
func (m *jobModel) disable() { m.switchTo(false) }

func (m *jobModel) switchTo(on bool) {
	m.both(fmt.Sprint("enabled ", on), func() bool { return m.plain.enable(on) }, func(d *dispatch.Dispatcher) error {
		_, err := d.Jobs.Update(m.t.Context(), m.plain.id, cron.Members{"enabled": fmt.Appendf(nil, "%v", on)}, "", operator())
		return err
	})
}

func (m *jobModel) remove() {
	m.both("remove", m.plain.remove, func(d *dispatch.Dispatcher) error {
		return d.Jobs.Remove(m.t.Context(), m.plain.id, false, operator())
	})
}

func (m *jobModel) run() {
	m.both("run", m.plain.run, func(d *dispatch.Dispatcher) error {
		_, _, err := d.Jobs.Start(m.t.Context(), m.plain.id, cron.RunForce, operator(), nil)
		return err
	})
}

func (m *jobModel) cancel() {
	m.both("cancel", m.plain.cancel, func(d *dispatch.Dispatcher) error {
		_, err := d.Jobs.Cancel(m.t.Context(), cron.CancelParams{JobID: m.plain.id}, operator())
		return err
	})
}

func (m *jobModel) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = nil
	for _, h := range slices.Concat(m.live, m.dead) {
		h.runner.mu.Lock()
		h.runner.calls, h.runner.starts = nil, nil
		h.runner.mu.Unlock()
	}
}

// compare compares everything that is visible from outside.
func (m *jobModel) compare() {
	p := m.plain
	if p.id == "" || m.fault != "" {
		return
	}
	m.same("calls of the agent", m.calls(), inOrder(p.calls))
	m.same("ledger", m.ledger(), linesOf(p.rows))
	m.sameJob()
	m.mu.Lock()
	events := slices.Sorted(slices.Values(m.events))
	m.mu.Unlock()
	m.same("events", events, slices.Sorted(slices.Values(p.events)))
}

func (m *jobModel) same(what string, got, want []string) {
	if !slices.Equal(got, want) {
		m.fail("%s: the program has\n\t\t%s\n\tthe model\n\t\t%s\n\tthe ledger\n\t\t%s", what, strings.Join(got, "\n\t\t"), strings.Join(want, "\n\t\t"), strings.Join(m.ledger(), "\n\t\t"))
	}
}

func linesOf(rows map[string]string) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, id+" "+rows[id])
	}
	return out
}

// calls returns the runs of the job for which the agent was called, in the order of the calls.
func (m *jobModel) calls() []string {
	var all []modelCall
	for _, h := range slices.Concat(m.live, m.dead) {
		h.runner.mu.Lock()
		for i, c := range h.runner.calls {
			if strings.Contains(c.RunID, m.plain.id) {
				all = append(all, modelCall{h.runner.starts[i], c.RunID})
			}
		}
		h.runner.mu.Unlock()
	}
	return inOrder(all)
}

func (m *jobModel) runs() []cron.Run {
	page, err := m.st.Runs(m.t.Context(), cron.RunFilter{JobID: m.plain.id, IncludeActive: true})
	if err != nil {
		m.t.Fatal(err)
	}
	return page.Runs
}

// ledger returns the history of the job.
func (m *jobModel) ledger() []string {
	rows := map[string]string{}
	for _, r := range m.runs() {
		word := string(r.State)
		if r.State == cron.RunSkipped || r.State == cron.RunMissed || r.State == cron.RunCancelled {
			word = fmt.Sprintf("%s %s", r.State, r.Reason)
		}
		if r.SlotCount > 1 {
			word += fmt.Sprintf(" x%d", r.SlotCount)
		}
		rows[r.ID] = word
	}
	return linesOf(rows)
}

// sameJob compares the visible state of the job.
func (m *jobModel) sameJob() {
	p := m.plain
	j, err := m.st.Job(m.t.Context(), p.id, "")
	if (err == nil) != p.exists {
		m.fail("the job exists: %v, in the model %v", err == nil, p.exists)
		return
	}
	if err != nil {
		return
	}
	want := p.next
	if p.paused {
		want = p.until
	} else if !p.fires() {
		want = time.Time{}
	}
	got := fmt.Sprintf("fires %v, paused %v, next %s, fired %d", j.MayFire(), j.Pause != nil, j.State.NextRunAt.Format("04:05.000"), j.State.Fired)
	m.same("job", []string{got}, []string{fmt.Sprintf("fires %v, paused %v, next %s, fired %d", p.fires(), p.paused, want.UTC().Format("04:05.000"), p.fired)})
}

// settle waits until no run of an earlier job is active.
func (m *jobModel) settle() {
	if m.plain.id != "" {
		m.let(6 * time.Second)
		m.compare()
	}
}

// backfill runs those slots of the last seconds that did not succeed.
func (m *jobModel) backfill() {
	p := m.plain
	if !p.exists || len(p.active) > 0 || p.lasts > 0 {
		return
	}
	to := m.now()
	from := to.Add(-time.Duration(1+m.dice.IntN(5)) * time.Second)
	fires, _ := p.times().Between(from.Add(-1), to, 100)
	m.both("backfill", func() bool {
		for _, f := range fires {
			if !p.ran(f.Slot) {
				p.begin(&plainRun{id: cron.RunID(cron.TriggerBackfill, p.id, f.Slot), slot: f.Slot})
			}
		}
		return true
	}, func(d *dispatch.Dispatcher) error {
		_, err := d.Jobs.Backfill(m.t.Context(), cron.BackfillParams{ID: p.id, From: from, To: to, MaxRuns: 100}, operator())
		return err
	})
}

// ran reports whether a slot has a run that succeeded, whatever started it.
func (p *plain) ran(slot time.Time) bool {
	for id, state := range p.rows {
		if state == "ok" && strings.HasSuffix(id, fmt.Sprint(":", slot.UnixMilli())) {
			return true
		}
	}
	return false
}

// drain stops a process gracefully and starts another, at once or after a while.
func (m *jobModel) drain() {
	p := m.plain
	i := m.dice.IntN(len(m.live))
	h := m.live[i]
	if len(m.live) > 1 {
		if len(p.active) > 0 || m.mayBeClaimed() { // the other one takes over within a second
			return
		}
		m.live = slices.Delete(m.live, i, i+1)
		h.close()
		m.dead = append(m.dead, h)
		m.live = append(m.live, m.open(m.st))
		m.let(0)
		return
	}
	p.goDown()
	h.close()
	m.dead = append(m.dead, h)
	p.advance(m.now())
	m.down()
}

// mayBeClaimed reports whether the next slot may be claimed.
func (m *jobModel) mayBeClaimed() bool {
	next := m.plain.next
	if m.plain.paused {
		next = m.plain.until
	}
	return m.plain.exists && !next.IsZero() && next.Sub(m.now()) < 3*time.Second
}

// down advances the clock without a process to a time without events, and starts one.
func (m *jobModel) down() {
	d := time.Duration(m.dice.IntN(800)) * 10 * time.Millisecond
	now := m.now()
	time.Sleep(now.Truncate(10 * time.Millisecond).Add(15*time.Millisecond + d).Sub(now))
	m.plain.advance(m.now())
	m.note("down until here")
	m.live = []*modelProcess{m.open(m.st)}
	m.plain.goUp()
	m.let(0)
}

// kill ends a process without its clean-up. Its claimed and running runs are taken over when its
// lease has expired; the time of that is not known in advance.
func (m *jobModel) kill() {
	p := m.plain
	i := m.dice.IntN(len(m.live))
	h := m.live[i]
	left := len(p.active) > 0
	h.off.Store(true)
	m.dead = append(m.dead, h)
	m.live = slices.Delete(m.live, i, i+1)
	if len(m.live) > 0 {
		m.live = append(m.live, m.open(m.st))
		m.let(0)
	} else {
		p.goDown()
		if left {
			time.Sleep(time.Duration(m.dice.IntN(800)) * 10 * time.Millisecond)
			m.live = []*modelProcess{m.open(m.st)}
		} else {
			m.down()
		}
	}
	if left {
		m.note("it leaves something")
		m.takenOver()
	}
}

// takenOver waits until the takeover from a dead process has ended, checks that every slot has one
// entry and none is missing, and removes the job.
func (m *jobModel) takenOver() {
	p := m.plain
	time.Sleep(40 * time.Second)
	if p.exists {
		if err := m.any().d.Jobs.Remove(m.t.Context(), p.id, true, operator()); err != nil && !strings.Contains(err.Error(), "not found") {
			m.fail("removing: %v", err)
		}
	}
	time.Sleep(10 * time.Second)
	list := slices.DeleteFunc(m.runs(), func(r cron.Run) bool { return !r.Trigger.Planned() })
	slices.SortFunc(list, func(a, b cron.Run) int {
		return cmp.Or(a.ScheduledFor.Compare(b.ScheduledFor), cmp.Compare(a.ID, b.ID))
	})
	for i, r := range list {
		if i > 0 && list[i-1].ScheduledFor.Equal(r.ScheduledFor) {
			m.fail("the slot %s has two entries: %s, %s", r.ScheduledFor, list[i-1].ID, r.ID)
		}
		if r.Trigger == cron.TriggerCatchup && r.State == cron.RunSkipped {
			m.fail("a slot that was to be caught up is skipped: %s %s", r.ID, r.Reason)
		}
		if r.State.Active() {
			m.fail("%s is %s a minute after a kill", r.ID, r.State)
		}
	}
	now := m.now()
	time.Sleep(now.Truncate(10 * time.Millisecond).Add(15 * time.Millisecond).Sub(now))
	*p = plain{now: m.now(), up: true, rows: map[string]string{}}
	m.forget()
}

// finish ends the processes.
func (m *jobModel) finish() {
	for _, h := range m.live {
		h.close()
	}
	for _, h := range m.dead {
		if h.off.Load() {
			h.stop()
			h.abandon()
		}
	}
}
