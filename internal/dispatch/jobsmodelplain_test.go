package dispatch_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// resumeIsPublished: the end of a pause is an event, and so are the slots that passed.
const resumeIsPublished = true

// plain is one job according to the documentation, with a clock that is set to each moment in turn:
// nothing runs concurrently, and nothing is stored. It shares only the arithmetic of schedules with
// the program.
type plain struct {
	now time.Time
	up  bool // a process fires jobs

	id, key string
	spec    schedule.Spec
	overlap cron.OverlapPolicy
	missed  cron.MissedPolicy
	maxRuns int
	lasts   time.Duration // duration of a run
	deletes bool          // after its first fire that succeeded

	exists, enabled, paused bool
	pausedAt, until         time.Time
	changed                 time.Time // when its configuration was last changed
	next                    time.Time // the slot; of a paused job the one that was next before the pause
	fired                   int

	active []*plainRun
	rows   map[string]string
	calls  []modelCall
	events []string
}

// modelCall is a call of the agent.
type modelCall struct {
	at  time.Time
	run string
}

// inOrder lists calls; calls at the same time are sorted.
func inOrder(calls []modelCall) []string {
	slices.SortFunc(calls, func(a, b modelCall) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.run, b.run)) })
	var out []string
	for _, c := range calls {
		out = append(out, c.run)
	}
	return out
}

type plainRun struct {
	id      string
	slot    time.Time
	planned bool
	ends    time.Time // zero = it waits for the previous run
	behind  *plainRun
}

func (p *plain) times() cron.Timetable {
	s, err := schedule.Compile(p.spec)
	if err != nil {
		panic(err)
	}
	return cron.Timetable{Schedule: s, JobID: p.id, MaxRuns: p.maxRuns, Fired: p.fired}
}

func (p *plain) after(t time.Time) time.Time {
	fire, _ := p.times().Next(t)
	return fire.Slot
}

func (p *plain) fires() bool { return p.exists && p.enabled && !p.paused }

func (p *plain) publish(action cron.Action, run string) {
	if action == cron.ActionUpdated {
		p.changed = p.now
	}
	p.events = append(p.events, strings.TrimSpace(string(action)+" "+run))
}

// advance moves the clock forward: events happen in the order of their times, and overdue ones
// happen now.
func (p *plain) advance(to time.Time) {
	for {
		var at time.Time
		var what func()
		first := func(t time.Time, f func()) {
			if !t.IsZero() && !t.After(to) && (what == nil || t.Before(at)) {
				at, what = t, f
			}
		}
		for _, r := range p.active {
			if !r.ends.IsZero() {
				first(r.ends, func() { p.end(r) })
			}
		}
		switch {
		case !p.up || !p.exists || !p.enabled:
		case p.paused:
			first(p.until, p.autoResume)
		default:
			first(p.next, p.fire)
		}
		if what == nil {
			p.now = to
			return
		}
		if at.After(p.now) {
			p.now = at
		}
		what()
	}
}

// goDown stops the only process after its runs have ended, and goUp starts another.
func (p *plain) goDown() { p.up = false }

func (p *plain) goUp() {
	p.up = true
	p.beginWaiting()
	p.advance(p.now)
}

// beginWaiting starts the runs that waited for a run that has ended.
func (p *plain) beginWaiting() {
	for _, w := range slices.Clone(p.active) {
		if w.ends.IsZero() && !slices.Contains(p.active, w.behind) {
			p.begin(w)
		}
	}
}

// wait queues a run after another one.
func (p *plain) wait(r, behind *plainRun) {
	r.behind = behind
	p.rows[r.id] = "queued"
	p.active = append(p.active, r)
}

// fire handles the due slot, or the slots that the policy selects after an outage.
func (p *plain) fire() {
	d := p.times().Decide(cron.DueSlot{Planned: p.next, Now: p.now, Policy: p.missed})
	for _, m := range d.Missed {
		p.record(m, cron.RunMissed)
	}
	before, row := len(p.active), 0
	for _, r := range d.Runs {
		late := r.Trigger == cron.TriggerCatchup || r.Late > 2*time.Second
		p.fired++
		n := before
		if !late {
			n += row
		}
		if p.launch(&plainRun{id: cron.RunID(r.Trigger, p.id, r.Slot), slot: r.Slot, planned: true}, late, n, row) {
			row++
		}
	}
	if !p.exists {
		return
	}
	p.next = time.Time{}
	if d.More {
		p.next = d.Next.Slot
	}
	p.enabled = d.More
}

// launch applies the overlap policy, with n earlier runs, row of them from the same catch-up. A run
// that catches up waits for the runs before it and is never skipped.
func (p *plain) launch(r *plainRun, late bool, n, row int) bool {
	waits := late || p.overlap == cron.OverlapBufferOne && n == 1
	beside := p.overlap == cron.OverlapConcurrent && (row == 0 || strings.HasPrefix(r.id, string(cron.TriggerSchedule)))
	switch {
	case p.overlap == cron.OverlapCancelPrevious:
		if row == 0 && n > 0 {
			p.cancelAll(cron.ReasonReplaced)
		}
		if late && len(p.active) > 0 {
			p.wait(r, p.active[len(p.active)-1])
			return true
		}
		p.begin(r)
	case n == 0 && (row == 0 || len(p.active) == 0), beside:
		p.begin(r)
	case waits && len(p.active) == 0:
		p.begin(r)
	case waits:
		p.wait(r, p.active[len(p.active)-1])
	case p.overlap == cron.OverlapBufferOne:
		p.rows[r.id] = "skipped buffer_full"
		p.publish(cron.ActionFinished, r.id)
		return false
	default:
		p.rows[r.id] = "skipped overlap"
		p.publish(cron.ActionFinished, r.id)
		return false
	}
	return true
}

func (p *plain) begin(r *plainRun) {
	p.calls = append(p.calls, modelCall{p.now, r.id})
	p.rows[r.id] = "running"
	p.publish(cron.ActionStarted, r.id)
	r.ends = p.now.Add(p.lasts)
	if !slices.Contains(p.active, r) {
		p.active = append(p.active, r)
	}
	if p.lasts == 0 {
		p.end(r)
	}
}

func (p *plain) end(r *plainRun) {
	p.active = slices.DeleteFunc(p.active, func(a *plainRun) bool { return a == r })
	p.rows[r.id] = "ok"
	p.publish(cron.ActionFinished, r.id)
	if p.deletes && r.planned && p.exists {
		p.exists = false
	}
	if p.up {
		p.beginWaiting()
	}
}

// record adds slots that did not run.
func (p *plain) record(m cron.MissedSpan, state cron.RunState) {
	id := cron.RunID(cron.TriggerSchedule, p.id, m.First)
	p.rows[id] = strings.TrimSuffix(fmt.Sprintf("%s %s x%d", state, m.Reason, m.Count), " x1")
	if resumeIsPublished || m.Reason != cron.ReasonPaused {
		p.publish(cron.ActionFinished, id)
	}
}

func (p *plain) plan() {
	p.next = time.Time{}
	if p.fires() {
		fire, _ := p.times().First(p.now)
		p.next = fire.Slot
	}
}

// endWaiting cancels planned fires that wait to start, or all waiting runs when the job is removed.
func (p *plain) endWaiting(reason cron.Reason) {
	p.active = slices.DeleteFunc(p.active, func(r *plainRun) bool {
		if !r.ends.IsZero() || (!r.planned && reason != cron.ReasonRemoved) {
			return false
		}
		p.rows[r.id] = "cancelled " + string(reason)
		p.publish(cron.ActionFinished, r.id)
		if r.planned {
			p.fired = max(0, p.fired-1)
			p.enabled = true
		}
		return true
	})
}

func (p *plain) pause(until time.Time) bool {
	p.endWaiting(cron.ReasonPaused)
	if p.paused && p.until.Equal(until) && p.now.Equal(p.changed) { // nothing changes, not even the time
		return true
	}
	if !p.paused {
		p.pausedAt = p.now
	}
	p.paused, p.until = true, until
	p.publish(cron.ActionUpdated, "")
	return true
}

// pausedSlots adds the slots that passed during a pause.
func (p *plain) pausedSlots() {
	from := p.pausedAt
	if !p.next.IsZero() {
		from = p.next.Add(-1)
	}
	if span, ok := p.times().Span(cron.ReasonPaused, from, p.now); ok {
		p.record(span, cron.RunSkipped)
	}
}

func (p *plain) autoResume() {
	p.pausedSlots()
	p.paused, p.until = false, time.Time{}
	p.next = p.after(p.now)
	p.enabled = !p.next.IsZero()
	if resumeIsPublished {
		p.publish(cron.ActionUpdated, "")
	}
}

func (p *plain) resume() bool {
	if !p.paused {
		return true
	}
	if p.enabled && p.after(p.now).IsZero() {
		return false
	}
	p.pausedSlots()
	p.paused, p.until = false, time.Time{}
	p.plan()
	p.publish(cron.ActionUpdated, "")
	return true
}

func (p *plain) enable(on bool) bool {
	if !on {
		p.endWaiting(cron.ReasonStopped)
	}
	switch {
	case on && p.after(p.now).IsZero():
		return false
	case on == p.enabled && (!on || !p.paused):
		return true
	}
	if on {
		p.paused, p.until = false, time.Time{}
	}
	p.enabled = on
	if p.paused {
		p.publish(cron.ActionUpdated, "")
		return true
	}
	p.plan()
	p.publish(cron.ActionUpdated, "")
	return true
}

// change sets another schedule, by an edit or by a second add under the job's key.
func (p *plain) change(spec schedule.Spec, upsert bool) bool {
	if p.maxRuns > 0 && p.fired >= p.maxRuns {
		return false
	}
	if spec == p.spec {
		return true
	}
	if upsert && p.spec.Kind == schedule.KindAt && !p.enabled && p.fired > 0 && !p.paused {
		p.fired, p.enabled = 0, true
	}
	if !upsert && spec.Kind != p.spec.Kind {
		p.deletes = spec.Kind == schedule.KindAt
	}
	p.spec = spec
	if !p.paused {
		p.plan()
	}
	p.publish(cron.ActionUpdated, "")
	return true
}

func (p *plain) remove() bool {
	p.endWaiting(cron.ReasonRemoved)
	p.exists = false
	p.publish(cron.ActionRemoved, "")
	return true
}

// run starts a run by hand, unless the overlap policy refuses it.
func (p *plain) run() bool {
	n := len(p.active)
	if n > 0 && p.overlap == cron.OverlapSkip || n > 1 && p.overlap == cron.OverlapBufferOne {
		return true
	}
	r := &plainRun{slot: p.now}
	for r.id = cron.RunID(cron.TriggerManual, p.id, r.slot); p.rows[r.id] != ""; r.id = cron.RunID(cron.TriggerManual, p.id, r.slot) {
		r.slot = r.slot.Add(time.Millisecond)
	}
	if n == 0 || p.overlap == cron.OverlapConcurrent || p.overlap == cron.OverlapCancelPrevious {
		p.begin(r)
		return true
	}
	p.wait(r, p.active[len(p.active)-1])
	return true
}

// cancel ends active runs. A running one ends at once, because its agent returns when it is
// cancelled.
func (p *plain) cancel() bool {
	p.cancelAll(cron.ReasonStopped)
	return true
}

func (p *plain) cancelAll(reason cron.Reason) {
	for _, r := range p.active {
		p.rows[r.id] = "cancelled " + string(reason)
		p.publish(cron.ActionFinished, r.id)
	}
	p.active = nil
}

// historySteps is the number of steps of a history.
const historySteps = 100

// modelStore returns an empty store for each history. It is opened and closed within the bubble of
// the history.
type modelStore func(t *testing.T) cronStore

func sqliteModel(t *testing.T) cronStore { return newStore(t) }

func postgresModel(url string) modelStore {
	return func(t *testing.T) cronStore {
		wipeModel(t, url)
		st, err := postgres.Open(t.Context(), postgres.Config{URL: url, Now: time.Now, MaxConns: 2, WarmConns: -1})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
}

// wipeModel empties every table except the one of the migrations.
func wipeModel(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.Exec(t.Context(), `DO $$ DECLARE r record; BEGIN
		FOR r IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'laneway_migrations' LOOP
			EXECUTE 'DELETE FROM ' || quote_ident(r.tablename);
		END LOOP; END $$`)
	if err != nil {
		t.Fatal(err)
	}
}

// openProcess starts a process on the store of a history.
func (m *jobModel) openProcess(st cronStore) *modelProcess {
	off := &atomic.Bool{}
	watch := func(e cron.Event) {
		switch {
		case off.Load(), e.Job.Owner == cron.SystemOwner:
			return
		case e.Run != nil && e.Run.Reason == cron.ReasonPaused && e.Run.State == cron.RunSkipped && !resumeIsPublished:
			return
		}
		word := string(e.Action)
		if e.Run != nil {
			word += " " + e.Run.ID
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.events = append(m.events, word)
	}
	return &modelProcess{off: off, jobHarness: openWatched(m.t, dying{st, off, &m.wake}, watch)}
}

// modelHistories runs random histories of jobs, with a hundred steps each.
func modelHistories(t *testing.T, open modelStore, processes int, first, n uint64) {
	t.Helper()
	steps := 0
	for seed := first; seed < first+n; seed++ {
		fault := ""
		synctest.Test(t, func(t *testing.T) {
			st := open(t)
			m := &jobModel{t: t, dice: rand.New(rand.NewPCG(seed, 11)), st: st}
			m.open = m.openProcess
			for range processes {
				m.live = append(m.live, m.open(st))
			}
			steps += m.history(historySteps)
			m.finish()
			fault = m.fault
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
		if fault != "" {
			t.Fatalf("history %d, after %d steps in all (%s=%d): %s", seed, steps, testrun.SeedVariable, seed, fault)
		}
		if done := seed - first + 1; done%100 == 0 && done < n {
			t.Logf("%d steps in %d histories", steps, done)
		}
		if t.Failed() {
			t.Fatalf("history %d (%s=%d)", seed, testrun.SeedVariable, seed)
		}
	}
	t.Logf("%d steps in %d histories, no difference", steps, n)
}

// TestRandomHistoriesOfAJobAreThoseOfThePlainModel compares a job with the model on every store,
// with one process and with two.
func TestRandomHistoriesOfAJobAreThoseOfThePlainModel(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprintf("sqlite/%d", processes), func(t *testing.T) {
			first, n := testrun.Seeds(t, 10, 500)
			modelHistories(t, sqliteModel, processes, first, n)
		})
		t.Run(fmt.Sprintf("postgres/%d", processes), func(t *testing.T) {
			first, n := testrun.Seeds(t, 2, 500)
			modelHistories(t, postgresModel(testpg.DB(t)), processes, first, n)
		})
	}
}
