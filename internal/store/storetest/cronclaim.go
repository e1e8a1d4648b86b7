package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

func cronClaimTests() []test {
	return []test{
		{"RowMessageAndNextSlotAreOneThing", claimIsOneThing},
		{"RacersGetEachSlotOnce", racersGetEachSlotOnce},
		{"ClaimsWhatIsDueAndSaysWhenMoreIs", firesWhenDue},
		{"TakesTheEarliestInBatches", earliestInBatches},
		{"ClaimsOnlyJobsOfAgentsOfTheNode", claimsOfAgents},
		{"NothingDueTouchesNothing", nothingDueTouchesNothing},
		{"JobWithoutAVerdictStaysDue", noVerdict},
		{"RunThatExistsIsNotMadeAgain", existingRun},
		{"JobThatIsNotUnderstoodIsLeftAlone", jobNotUnderstood},
		{"BrokenRowDelaysNoOtherJob", brokenRow},
		{"TakenMessageIDEndsOnlyItsRun", takenMessageID},
		{"TakenSessionGetsNothingFromTheJob", takenSession},
		{"TakenSessionGetsNothingFromHooks", takenByHook},
		{"ReservedSessionGoesWithItsLastName", reservedSessions},
		{"ClaimThatCannotBeWrittenLeavesNothing", failedClaim},
		{"DisabledAndPausedJobsDoNotFire", sleepingJobs},
		{"PauseEndsByItself", pauseEndsByItself},
		{"ActiveRunsAndBudgetAreTold", activeRunsAreGiven},
		{"MessageGoesToTheOwnerOfItsSession", ownerOfTheSession},
		{"DrainingNodeTakesNoSession", drainingNodeClaims},
		{"OlderZoneRulesArePlannedAgainInSteps", replanned},
	}
}

func claimIsOneThing(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.JitterMs = 500 })
	w.pass(interval+700*time.Millisecond, node)
	var told []cron.DueJob
	c := try(w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Decide: func(now time.Time, due []cron.DueJob) []cron.Verdict {
		equal(w, "clock", now.UTC(), w.clock.now())
		told = due
		return decide(now, due)
	}})).ok(w)
	equal(w, "due", told, []cron.DueJob{{Job: j}})
	slot := j.State.Next
	want := decide(w.clock.now(), []cron.DueJob{{Job: j}})[0].Runs[0]
	equal(w, "planned", []time.Time{want.Run.ScheduledFor, want.Run.FireAt}, []time.Time{slot, slot.Add(cron.Jitter(j.ID, slot, 500))})
	want.Run.ClaimedAt, want.Run.Node = w.clock.now(), node
	l := c.Launched[0]
	equal(w, "launched", []any{len(c.Launched), l.Message, l.Seq, l.Mine, l.Owner, l.Behind, c.More, c.Now.UTC()},
		[]any{1, want.Message, int64(1), true, node, 0, false, w.clock.now()})
	equal(w, "ledger", w.ledger(want.Run.ID), want.Run)
	m := w.row(l.Message.ID)
	equal(w, "message", []any{m.Session, m.State, m.Content.Text, m.Lane, m.Principal}, []any{want.Message.Session, store.StateWaiting, "work", "cron", "ann"})
	s := w.session(m.Session)
	equal(w, "session", []any{s.Owner, s.Epoch, s.SessionID}, []any{node, l.Epoch, l.SessionID})
	after := w.stored(j.ID)
	equal(w, "next slot", []any{after.State.Next, after.State.Fired, after.State.Queued, after.Revision, after.Enabled},
		[]any{slot.Add(interval), 1, 1, j.Revision, true})
	equal(w, "job as the claim returns it", c.Jobs, []cron.Job{after})
	equal(w, "nothing more is due", len(w.claimDue(node).Launched), 0)
}

// claimsOfAgents makes a job of an agent that the node lacks due, then a retry of one: the node
// claims neither, and neither is part of the next due time.
func claimsOfAgents(w *world) {
	node := w.nodeOf("main")
	other := w.job(func(j *cron.Job) { j.Agent = "coder" })
	system := w.job(func(j *cron.Job) { j.Agent, j.Owner = "coder", cron.SystemOwner })
	w.pass(interval, node)
	claim := func(agents ...string) (ids []string, next time.Time) {
		c := try(w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Agents: agents, Decide: decide})).ok(w)
		equal(w, "jobs that another operation had locked", c.Passed, 0)
		for _, l := range c.Launched {
			ids = append(ids, l.Run.JobID)
		}
		return ids, c.Next
	}
	ids, _ := claim("main")
	equal(w, "launched without the agent", ids, []string{system.ID})
	ids, next := claim("main")
	equal(w, "launched again", []any{len(ids), next.UTC()}, []any{0, w.stored(system.ID).State.NextRunAt.UTC()})
	equal(w, "left for a node with the agent", w.unowned(), map[string]store.Unowned{"coder": {Jobs: 1}})
	equal(w, "slot of the other job", w.stored(other.ID).State.Next, other.State.Next)

	c := try(w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Agents: []string{"main", "coder"}, Decide: decide})).ok(w)
	equal(w, "launched with the agent", []any{len(c.Launched), c.Launched[0].Run.JobID}, []any{1, other.ID})
	w.failAgain(c.Launched[0], time.Second)
	w.clock.advance(2 * time.Second)
	ids, next = claim("main")
	equal(w, "retries without the agent", []any{len(ids), next.UTC()}, []any{0, w.stored(system.ID).State.NextRunAt.UTC()})
	equal(w, "retries that are left for a node with the agent", w.unowned(), map[string]store.Unowned{"coder": {Jobs: 1}})
	ids, _ = claim("coder")
	equal(w, "retries with the agent", ids, []string{other.ID})
}

func racersGetEachSlotOnce(w *world) {
	const jobs = 50
	var nodes []string
	for range 4 {
		nodes = append(nodes, w.node())
	}
	var want []string
	for range jobs {
		j := w.job(nil)
		want = append(want, cron.RunID(cron.TriggerSchedule, j.ID, j.State.Next))
	}
	w.pass(interval, nodes...)
	var mu sync.Mutex
	var got []string
	w.race(racers, func(st store.Store, i int) error {
		for more := true; more; {
			c, err := w.cronOf(st).Claim(w.ctx, cron.ClaimParams{Node: nodes[i%len(nodes)], Limit: 7, Decide: decide})
			if err != nil {
				return err
			}
			more = c.More
			mu.Lock()
			for _, l := range c.Launched {
				got = append(got, l.Run.ID)
			}
			mu.Unlock()
		}
		return nil
	})
	for _, l := range w.claimDue(nodes[0]).Launched { // jobs that every racer skipped because another one had locked them
		got = append(got, l.Run.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	equal(w, "launched runs", got, want)
	equal(w, "messages", w.unfinished(), jobs)
}

// firesWhenDue: nothing is claimed before it is due, and a claim returns the next due time.
func firesWhenDue(w *world) {
	node := w.node()
	equal(w, "nothing planned", w.claimDue(node).Next, time.Time{})
	j := w.job(nil)
	w.pass(interval-time.Millisecond, node)
	c := w.claimDue(node)
	equal(w, "a millisecond before it is due", []any{len(c.Launched), c.Next.UTC()}, []any{0, j.State.Next})
	w.pass(time.Millisecond, node)
	l := w.launchOne(node)
	equal(w, "fire time and claim", []time.Time{l.Run.FireAt.UTC(), l.Run.ClaimedAt.UTC()}, []time.Time{j.State.Next, w.clock.now()})
	equal(w, "the next slot", w.claimDue(node).Next.UTC(), j.State.Next.Add(interval))
	retry := w.clock.now().Add(time.Second)
	w.endRun(w.begin(l), l.Message.ID, cron.RunRetrying, func(e *cron.AttemptEnd) { e.NextAttempt = retry })
	equal(w, "the retry comes first", w.claimDue(node).Next.UTC(), retry)
}

func earliestInBatches(w *world) {
	node := w.node()
	var want []string
	for i := range 10 {
		j := w.job(func(j *cron.Job) {
			j.ID = fmt.Sprintf("job-%c", 'z'-i)
			j.Schedule.AnchorMs += int64(i * 1000)
			j.State.Next = j.State.Next.Add(time.Duration(i) * time.Second)
			j.State.NextRunAt = j.State.Next
		})
		want = append(want, j.ID)
	}
	w.pass(interval+9*time.Second, node)
	var got []string
	for _, size := range []int{4, 4, 2} {
		c := try(w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: 4, Decide: decide})).ok(w)
		equal(w, "size of the batch", len(c.Launched), size)
		if size == 2 {
			equal(w, "more", c.More, false)
		} else {
			equal(w, "more", c.More, true)
		}
		var batch []string
		for _, l := range c.Launched {
			batch = append(batch, l.Run.JobID)
		}
		slices.SortFunc(batch, func(a, b string) int { return slices.Index(want, a) - slices.Index(want, b) })
		got = append(got, batch...)
	}
	equal(w, "order of the batches", got, want)
}

func nothingDueTouchesNothing(w *world) {
	node := w.node()
	for range 5 {
		w.job(nil)
	}
	w.pass(interval-2*time.Second, node)
	rows := func() string {
		return fmt.Sprint(w.h.Query(w.tb, "SELECT * FROM cron_jobs ORDER BY id"), w.h.Query(w.tb, "SELECT * FROM cron_run_logs ORDER BY id"))
	}
	before, list := rows(), w.revision()
	for range 3 {
		c := try(w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Decide: decide})).ok(w)
		equal(w, "claimed", []int{len(c.Launched), len(c.Recorded), len(c.Jobs)}, []int{0, 0, 0})
	}
	equal(w, "tables", rows(), before)
	equal(w, "revision of the list", w.revision(), list)
}

func noVerdict(w *world) {
	node := w.node()
	j := w.job(nil)
	w.pass(interval, node)
	c := try(w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Decide: func(time.Time, []cron.DueJob) []cron.Verdict { return nil }})).ok(w)
	equal(w, "launched", len(c.Launched), 0)
	equal(w, "job", w.stored(j.ID), j)
	w.launchOne(node)
}

// existingRun: a change moved the next slot back to one that has fired.
func existingRun(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	before := w.ledger(l.Run.ID)
	w.alter(j.ID, func(j *cron.Job) { j.State.Next, j.State.NextRunAt = l.Run.ScheduledFor, l.Run.ScheduledFor })
	equal(w, "launched again", len(w.claimDue(node).Launched), 0)
	equal(w, "ledger", w.ledger(l.Run.ID), before)
	equal(w, "next slot", w.stored(j.ID).State.Next, l.Run.ScheduledFor.Add(interval))
}

func jobNotUnderstood(w *world) {
	node := w.node()
	bad := w.job(func(j *cron.Job) { j.Schedule = schedule.Spec{Kind: schedule.KindCron, Expr: "99 99 * * *"} })
	good := w.job(nil)
	w.pass(interval, node)
	equal(w, "the other job fires", w.launchOne(node).Run.JobID, good.ID)
	after := w.stored(bad.ID)
	equal(w, "marked", after.Invalid != "" && after.Enabled && !after.MayFire(), true)
	equal(w, "next slot", after.State.Next, bad.State.Next)
	w.pass(interval, node)
	c := w.claimDue(node)
	equal(w, "jobs that the next claim looked at", len(c.Jobs), 1)
}

// brokenRow damages columns of a row without the store.
func brokenRow(w *world) {
	node := w.node()
	var bad []cron.Job
	for _, spoil := range []string{
		`schedule = '{"kind":"weekly"}'`, `schedule = '{'`, `payload = '[]'`, `payload = '{"kind":"unknown"}'`, `policy = 'x'`, `delivery = ''`,
	} {
		j := w.job(nil)
		w.h.Exec(w.tb, fmt.Sprintf("UPDATE cron_jobs SET %s WHERE id = '%s'", spoil, j.ID))
		bad = append(bad, j)
	}
	good := w.job(nil)
	w.pass(interval, node)
	equal(w, "the other job fires", w.launchOne(node).Run.JobID, good.ID)
	for _, j := range bad {
		after := w.stored(j.ID)
		equal(w, "marked, and named still", []any{after.Invalid != "", after.MayFire(), after.Name, after.Owner}, []any{true, false, j.Name, j.Owner})
	}
	equal(w, "listed", len(w.jobIDs(cron.JobFilter{Limit: many})), len(bad)+1)
	w.pass(interval, node)
	equal(w, "jobs that the next claim looked at", len(w.claimDue(node).Jobs), 1)
	for _, j := range bad { // a change of another column keeps the damaged ones, which can be repaired
		text := w.h.Query(w.tb, "SELECT schedule, payload, policy, delivery FROM cron_jobs WHERE id = '"+j.ID+"'")
		w.alter(j.ID, func(j *cron.Job) { j.Pause = &cron.Pause{By: "ann", At: w.clock.now()} })
		equal(w, "stored texts", w.h.Query(w.tb, "SELECT schedule, payload, policy, delivery FROM cron_jobs WHERE id = '"+j.ID+"'"), text)
	}
	good.ID, good.Key = bad[0].ID, bad[0].Key
	w.alter(bad[0].ID, func(j *cron.Job) { *j = good })
	equal(w, "written again", w.stored(bad[0].ID).Invalid, "")
}

// takenMessageID: clients choose the ids of their messages, so a client may use the id of a later
// run.
func takenMessageID(w *world) {
	node := w.node()
	j, other := w.job(nil), w.job(nil)
	p := w.message(node, w.key())
	p.Message.ID = cron.RunID(cron.TriggerSchedule, j.ID, j.State.Next)
	w.accept(p)
	w.pass(interval, node)
	equal(w, "the other job fires", w.launchOne(node).Run.JobID, other.ID)
	want := decide(w.clock.now(), []cron.DueJob{{Job: j}})[0].Runs[0].Run
	want.State, want.ErrorClass, want.Error = cron.RunError, "unknown", "another message has the name of this run: the run cannot use it"
	want.ClaimedAt, want.FinishedAt, want.Node = w.clock.now(), w.clock.now(), node
	equal(w, "ledger", w.ledger(p.Message.ID), want)
	equal(w, "sessions that were made for it", w.h.Query(w.tb, "SELECT key FROM sessions WHERE key LIKE '%:cron:"+j.ID+":%'"), nil)
	w.pass(interval, node)
	equal(w, "launched in the next minute", w.launchOne(node).Run.JobID, j.ID)
}

// takenSession deletes the session that a job names, and lets another principal make it again: the
// job writes neither its message nor its answer there. A session that was older than the name gets
// both.
func takenSession(w *world) {
	node, key := w.node(), w.key()
	older := w.key()
	w.acceptText(node, older)
	name := func(to chat.SessionKey) func(j *cron.Job) {
		return func(j *cron.Job) {
			j.Owner, j.Session = "operator", cron.NamedSession+to.Rest
			j.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "web", To: to.String()}
		}
	}
	j, other := w.job(name(key)), w.job(name(older))
	equal(w, "owner of the named session", w.session(key).Principal, "operator")
	w.clock.advance(time.Second)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	w.acceptText(node, key)
	w.pass(interval, node)
	c := w.claimDue(node)
	equal(w, "launched", []any{len(c.Launched), c.Launched[0].Run.JobID}, []any{1, other.ID})
	r := w.ledger(cron.RunID(cron.TriggerSchedule, j.ID, j.State.Next))
	equal(w, "run", []any{r.State, r.ErrorClass, len(c.Finished), c.Finished[0].ID}, []any{cron.RunError, cron.ClassTaken, 1, r.ID})
	equal(w, "messages of the session", w.session(key).LastSeq, int64(1))
	p := w.reply(key, "a", "the answer")
	p.Principal, p.Own, p.Job = "operator", false, j.ID
	try(w.st.AppendReply(w.ctx, p)).fails(w, chat.ErrSessionNotFound)
	p.Session, p.Job = older, other.ID
	try(w.st.AppendReply(w.ctx, p)).ok(w)
}

// takenByHook deletes the session that hooks name, and lets another principal make it again: no
// start of a process changes since when the hooks name it. The hooks share their session.
func takenByHook(w *world) {
	node, key, older := w.node(), w.key(), w.key()
	w.acceptText(node, older)
	hooks := map[string]chat.SessionKey{"hook:a": key, "hook:b": key, "hook:late": older}
	start := func() {
		w.clock.advance(time.Second)
		w.ok(w.st.NameSessions(w.ctx, hooks))
	}
	call := func(hook string) result[store.Accepted] {
		p := w.message(node, hooks[hook])
		p.Message.Principal, p.Named = hook, true
		return try(w.st.Accept(w.ctx, p))
	}
	start()
	equal(w, "owner of the named session", w.session(key).Principal, "hook:a")
	call("hook:late").ok(w)
	w.clock.advance(time.Second)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	call("hook:b").ok(w)
	call("hook:a").ok(w)
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})).ok(w)
	w.acceptText(node, key)
	for range 2 {
		call("hook:a").fails(w, chat.ErrSessionNotFound)
		call("hook:b").fails(w, chat.ErrSessionNotFound)
		start()
	}
}

// reservedSessions go with the last job or hook that names them, unless they have an entry, and
// belong to the first that does.
func reservedSessions(w *world) {
	node, shared, used, alone, other := w.node(), w.key(), w.key(), w.key(), w.key()
	job := func(owner string, key chat.SessionKey) cron.Job {
		w.clock.advance(time.Second)
		return w.job(func(j *cron.Job) { j.Owner, j.Session = owner, cron.NamedSession+key.Rest })
	}
	owner := func(key chat.SessionKey) string {
		rows := w.h.Query(w.tb, "SELECT principal FROM sessions WHERE key = '"+key.String()+"'")
		if len(rows) == 0 {
			return ""
		}
		return fmt.Sprint(rows[0][0])
	}
	remove := func(j cron.Job) { w.ok(w.remove(w.st, j.ID)) }
	first, second, third := job("bob", shared), job("operator", shared), job("operator", used)
	moved := job("operator", alone)
	w.acceptText(node, used)
	remove(first)
	equal(w, "the next that names it", owner(shared), "operator")
	remove(second)
	remove(third)
	w.alter(moved.ID, func(j *cron.Job) { j.Session = cron.NamedSession + other.Rest })
	equal(w, "owners", []string{owner(shared), owner(used), owner(alone), owner(other)}, []string{"", "operator", "", "operator"})
	equal(w, "entry", w.session(used).LastSeq, int64(1))

	// Names of hooks that no live process has.
	hooks := func(names map[string]chat.SessionKey) {
		w.clock.advance(time.Second)
		w.ok(w.st.NameSessions(w.ctx, names))
	}
	hooks(map[string]chat.SessionKey{"hook:a": shared, "hook:b": other})
	hooks(nil)
	equal(w, "while the process lives", owner(shared), "hook:a")
	w.ok(w.st.Unregister(w.ctx, node))
	w.node()
	hooks(map[string]chat.SessionKey{"hook:a": alone})
	equal(w, "after the next start", []string{owner(shared), owner(alone), owner(other)}, []string{"", "hook:a", "operator"})
}

// failedClaim: a claim writes many rows, and a failure in the middle rolls all of them back.
func failedClaim(w *world) {
	node := w.node()
	jobs := []cron.Job{w.job(nil), w.job(nil), w.job(nil)}
	w.pass(interval, node)
	_, err := w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Decide: func(now time.Time, due []cron.DueJob) []cron.Verdict {
		all := decide(now, due)
		all[1].Runs[0].Message.Content.Options.Params = map[string]any{"no JSON": func() {}}
		return all
	}})
	equal(w, "refused", err != nil, true)
	equal(w, "messages", w.unfinished(), 0)
	for _, j := range jobs {
		equal(w, "job", w.stored(j.ID), j)
		equal(w, "ledger", w.history(j.ID), nil)
	}
	equal(w, "launched after it", len(w.claimDue(node).Launched), 3)
}

func sleepingJobs(w *world) {
	w.job(func(j *cron.Job) { j.Enabled = false })
	w.job(func(j *cron.Job) {
		j.Pause, j.State.Next, j.State.NextRunAt = &cron.Pause{Note: "x", By: "ann", At: w.clock.now()}, time.Time{}, time.Time{}
	})
	w.job(func(j *cron.Job) { j.Invalid = "not understood" })
	w.clock.advance(10 * interval)
	c := w.claimDue(w.node())
	equal(w, "claimed", []int{len(c.Launched), len(c.Recorded), len(c.Jobs)}, []int{0, 0, 0})
}

func pauseEndsByItself(w *world) {
	until := w.clock.now().Add(10*interval + 5*time.Second)
	j := w.job(func(j *cron.Job) {
		j.Pause = &cron.Pause{Note: "holidays", By: "ann", At: w.clock.now(), Until: until}
		j.State.Next, j.State.NextRunAt = time.Time{}, until
	})
	w.clock.advance(5 * interval)
	node := w.node()
	equal(w, "claimed in the pause", len(w.claimDue(node).Jobs), 0)
	w.clock.advance(until.Sub(w.clock.now()))
	node = w.node()
	c := w.claimDue(node)
	equal(w, "claimed after the pause", []int{len(c.Launched), len(c.Recorded), len(c.Jobs)}, []int{0, 1, 1})
	after := w.stored(j.ID)
	equal(w, "resumed", []any{after.Pause == nil, after.MayFire(), after.State.Next}, []any{true, true, j.CreatedAt.Add(11 * interval)})
	row := w.history(j.ID)[0]
	equal(w, "row", []any{row.State, row.Reason, row.SlotCount}, []any{cron.RunSkipped, cron.ReasonPaused, int64(10)})
}

func activeRunsAreGiven(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Owner, j.Overlap = "telegram:7", cron.OverlapConcurrent })
	first := w.due(node)
	w.begin(first)
	second := w.due(node)
	w.pass(interval, node)
	var told cron.DueJob
	c := try(w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Decide: func(now time.Time, due []cron.DueJob) []cron.Verdict {
		told = due[0]
		return decide(now, due)
	}})).ok(w)
	equal(w, "active runs", told.Active, []string{first.Run.ID, second.Run.ID})
	equal(w, "running, queued and today", []int{told.Running, told.Job.State.Queued, told.RunsToday}, []int{1, 2, 2})
	equal(w, "running since", told.Job.State.RunningAt.UTC(), w.ledger(first.Run.ID).StartedAt)
	equal(w, "launched", len(c.Launched), 1)
	w.clock.advance(25 * time.Hour)
	node = w.node()
	try(w.cron().Claim(w.ctx, cron.ClaimParams{Node: node, Limit: many, Decide: func(_ time.Time, due []cron.DueJob) []cron.Verdict {
		told = due[0]
		return nil
	}})).ok(w)
	equal(w, "runs of the last day, a day later", told.RunsToday, 0)
	equal(w, "queued runs of the job", w.stored(j.ID).State.Queued, 3)
}

func ownerOfTheSession(w *world) {
	here, there := w.node(), w.node()
	j := w.job(func(j *cron.Job) { j.Session = "session:room" })
	key := chat.SessionKey{Agent: "main", Rest: "room"}
	p := w.message(there, key)
	p.Queue.MaxConcurrent, p.Message.Lane = 3, "team"
	a := w.accept(p)
	w.pass(interval, here, there)
	equal(w, "owner", a.Owner, there)
	l := w.launchOne(here)
	equal(w, "launched", []any{l.Run.JobID, l.Mine, l.Seq, l.Behind, l.Message.Session}, []any{j.ID, false, int64(2), 1, key})
	equal(w, "limit and lane of the session", []any{w.session(key).RunLimit, w.session(key).Lane}, []any{3, "team"})
	equal(w, "what the owner finds", idsOf(w.fronts(there)[0].Messages), []string{p.Message.ID, l.Message.ID})
}

func drainingNodeClaims(w *world) {
	node := w.node()
	w.job(nil)
	try(w.st.Heartbeat(w.ctx, node, true)).ok(w)
	w.pass(interval, node)
	other := w.node()
	l := w.launchOne(node)
	equal(w, "taken", []any{l.Mine, l.Owner}, []any{false, ""})
	taken := w.sweepOne(other, l.Message.Session)
	equal(w, "found by the sweep", idsOf(taken.Messages), []string{l.Message.ID})
}

// Five jobs were planned by the rules of 2026a; others by newer or unknown ones, by none, or are
// paused. Steps of two take the five once each.
func replanned(w *world) {
	at := w.clock.now().Add(time.Hour)
	of := func(release string, change func(j *cron.Job)) cron.Job {
		return w.job(func(j *cron.Job) {
			j.State.NextWall, j.State.ZoneRelease = at, release
			if change != nil {
				change(j)
			}
		})
	}
	var want, got []string
	for range 5 {
		want = append(want, of("2026a", nil).ID)
	}
	left := []cron.Job{
		of("2026f", nil), of("2026g", nil), of("unknown", nil), of("", nil),
		of("2026a", func(j *cron.Job) { j.Enabled = false }),
		of("2026a", func(j *cron.Job) { j.Pause = &cron.Pause{At: w.clock.now(), Until: at} }),
	}
	p := cron.ReplanParams{Release: "2026f", Limit: 2, Replan: func(j cron.Job, now time.Time) (cron.Plan, bool) {
		equal(w, "clock", now.UTC(), w.clock.now())
		plan := cron.Plan{Next: at, NextRunAt: at.Add(time.Second), NextWall: at.Add(2 * time.Second), ZoneRelease: "2026f"}
		return plan, j.ID != want[0]
	}}
	steps := 0
	for more := true; more; steps++ {
		out := try(w.cron().Replan(w.ctx, p)).ok(w)
		for _, j := range out.Jobs {
			equal(w, "changed", w.stored(j.ID), j)
			equal(w, "plan", j.State.Plan, cron.Plan{Next: at, NextRunAt: at.Add(time.Second), NextWall: at.Add(2 * time.Second), ZoneRelease: "2026f"})
			got = append(got, j.ID)
		}
		p.After, more = out.Last, out.More
	}
	slices.Sort(got)
	equal(w, "planned again", got, slices.Sorted(slices.Values(want[1:])))
	equal(w, "steps", steps, 3)
	for _, j := range left {
		equal(w, "left alone", w.stored(j.ID), j)
	}
	p.After = cron.PlanPlace{}
	equal(w, "afterwards", len(try(w.cron().Replan(w.ctx, p)).ok(w).Jobs), 0)
}

func cronHandTests() []test {
	return []test{
		{"RunByHandMovesNothing", runByHand},
		{"BackfillRunsWhatDidNotRunWell", backfill},
		{"NextWakeIsTheEarliestPlan", nextWake},
	}
}

func runByHand(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Enabled = false })
	at := w.clock.now()
	params := cron.EnqueueParams{
		Node: node, JobID: j.ID, Visible: "ann", Audit: &cron.Audit{Who: "ann", Verb: "run", Object: j.ID},
		Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
			equal(w, "the job and the clock", []any{d.Job.ID, now.UTC()}, []any{j.ID, at})
			return []cron.Launch{launch(d.Job, cron.TriggerManual, schedule.Fire{Slot: now, At: now})}, nil
		},
	}
	e := try(w.cron().EnqueueRuns(w.ctx, params)).ok(w)
	equal(w, "made", []any{len(e.Launched), len(e.Existing), e.Launched[0].Mine, e.Job.ID}, []any{1, 0, true, j.ID})
	id := cron.RunID(cron.TriggerManual, j.ID, at)
	again := try(w.cron().EnqueueRuns(w.ctx, params)).ok(w)
	equal(w, "made again", []any{len(again.Launched), again.Existing}, []any{0, []string{id}})
	equal(w, "audit rows", len(w.audits()), 1)
	l := e.Launched[0]
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	equal(w, "row", []any{w.ledger(id).State, w.ledger(id).Trigger}, []any{cron.RunOK, cron.TriggerManual})
	equal(w, "job", w.stored(j.ID), j)
	refuse := chat.ErrLimit
	params.Make = func(cron.DueJob, time.Time) ([]cron.Launch, error) { return nil, refuse }
	try(w.cron().EnqueueRuns(w.ctx, params)).fails(w, refuse)
	params.JobID = "nothing"
	try(w.cron().EnqueueRuns(w.ctx, params)).fails(w, chat.ErrNotFound)
}

func backfill(w *world) {
	node := w.node()
	j := w.job(nil)
	good := w.due(node)
	w.endRun(w.begin(good), good.Message.ID, cron.RunOK, nil)
	bad := w.due(node)
	w.endRun(w.begin(bad), bad.Message.ID, cron.RunError, nil)
	slots := []time.Time{good.Run.ScheduledFor, bad.Run.ScheduledFor, j.State.Next.Add(-interval)}
	launched := map[string]cron.Launched{}
	attempt := func(force bool) ([]string, []string) {
		e := try(w.cron().EnqueueRuns(w.ctx, cron.EnqueueParams{
			Node: node, JobID: j.ID, Slots: slots,
			Make: func(d cron.DueJob, _ time.Time) ([]cron.Launch, error) {
				var list []cron.Launch
				for _, slot := range slots {
					list = append(list, backfillOf(d, slot, force))
				}
				return list, nil
			},
		})).ok(w)
		var made []string
		for _, l := range e.Launched {
			made = append(made, l.Run.ID)
			launched[l.Run.ID] = l
		}
		return made, e.Existing
	}
	var ids []string
	for _, slot := range slots {
		ids = append(ids, cron.RunID(cron.TriggerBackfill, j.ID, slot))
	}
	made, existing := attempt(false)
	equal(w, "made and existing", [][]string{made, existing}, [][]string{ids[1:], ids[:1]})
	made, existing = attempt(false)
	equal(w, "made and existing again", [][]string{made, existing}, [][]string{nil, ids})
	made, existing = attempt(true)
	equal(w, "made and existing by force while some are under way", [][]string{made, existing}, [][]string{ids[:1], ids[1:]})
	for i, state := range []cron.RunState{cron.RunOK, cron.RunError, cron.RunOK} {
		l := launched[ids[i]]
		w.endRun(w.begin(l), l.Message.ID, state, nil)
	}
	second := func(i int) string { return cron.RunID(cron.BackfillTrigger(2), j.ID, slots[i]) }
	made, existing = attempt(false)
	equal(w, "made and existing when they have ended", [][]string{made, existing}, [][]string{{second(1)}, {ids[0], ids[2]}})
	w.endRun(w.begin(launched[second(1)]), second(1), cron.RunOK, nil)
	made, existing = attempt(true)
	third := cron.RunID(cron.BackfillTrigger(3), j.ID, slots[1])
	equal(w, "made and existing by force", [][]string{made, existing}, [][]string{{second(0), third, second(2)}, nil})
	equal(w, "trigger", w.ledger(third).Trigger, cron.BackfillTrigger(3))
}

// backfillOf is the launch of a slot by a backfill.
func backfillOf(d cron.DueJob, slot time.Time, force bool) cron.Launch {
	trigger, exists := cron.NextBackfill(d.Ran, slot, force)
	l := launch(d.Job, trigger, schedule.Fire{Slot: slot, At: slot})
	l.Exists = exists
	return l
}

func nextWake(w *world) {
	wake := func() time.Time {
		s := try(w.cron().Summary(w.ctx, "")).ok(w)
		return s.NextWake
	}
	equal(w, "no job", wake().IsZero(), true)
	node := w.node()
	j := w.job(nil)
	w.job(func(j *cron.Job) { j.Enabled, j.State.NextRunAt = false, w.clock.now() })
	equal(w, "one job", wake().UTC(), j.State.NextRunAt)
	l := w.due(node)
	c := w.begin(l)
	retry := w.clock.now().Add(10 * time.Second)
	equal(w, "while it runs", wake().UTC(), j.State.NextRunAt.Add(interval))
	w.endRun(c, l.Message.ID, cron.RunRetrying, func(e *cron.AttemptEnd) { e.NextAttempt = retry })
	equal(w, "with a retry", wake().UTC(), retry)
}
