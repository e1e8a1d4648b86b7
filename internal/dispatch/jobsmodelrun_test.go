package dispatch_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"laneway/internal/cron"
	"laneway/internal/dispatch"
)

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
		_, err := d.CronBackfill(m.t.Context(), cron.BackfillParams{ID: p.id, From: from, To: to, MaxRuns: 100}, operator())
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

// kill ends a process without its clean-up. Its claimed and running runs are taken over when its lease has expired; the time of that is not
// known in advance.
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

// takenOver waits until the takeover from a dead process has ended, checks that every slot has one entry and none is missing, and removes
// the job.
func (m *jobModel) takenOver() {
	p := m.plain
	time.Sleep(40 * time.Second)
	if p.exists {
		if err := m.any().d.CronRemove(m.t.Context(), p.id, true, operator()); err != nil && !strings.Contains(err.Error(), "not found") {
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
