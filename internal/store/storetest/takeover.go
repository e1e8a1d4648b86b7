package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func takeoverTests() []test {
	return []test{
		{"TakeoverAfterExpiryAndNotBefore", takeoverAfterExpiry},
		{"EveryTakeoverHasANewEpoch", everyTakeoverHasANewEpoch},
		{"TakeoverKnowsTheNewestNumber", takeoverKnowsTheNewestNumber},
		{"TakeoverBringsEverythingUnfinished", takeoverBringsEverything},
		{"CrashesAreCounted", crashesAreCounted},
		{"CleanStopIsNoCrash", cleanStopIsNoCrash},
		{"RequeuedRunIsNoCrash", requeuedRunIsNoCrash},
		{"LongDeadNodeIsStillACrash", longDeadIsACrash},
		{"AcceptAfterACrashStrandsNothing", acceptStrandsNothing},
		{"StoppingRunOfADeadNodeEnds", stoppingRunOfDeadNodeEnds},
		{"StoppingRunOfACleanStopEnds", stoppingRunOfCleanStopEnds},
		{"AcceptAfterAStoppingOwnerDied", acceptAfterStoppingOwner},
		{"AcceptBetweenStartAndFinishKeepsTheOwner", acceptBeforeFinish},
		{"AcceptAfterFinishHasANewEpoch", acceptAfterFinish},
		{"SweepTakesAtMostTheLimit", sweepLimit},
		{"SweepLeavesWhatWaitsForAnotherAgent", sweepAgents},
		{"DeadNodeSweepsNothing", deadNodeSweepsNothing},
		{"IdleSessionsAreLeftAlone", idleSessionsAreLeftAlone},
		{"EverythingSurvivesReopen", survivesReopen},
	}
}

func takeoverKnowsTheNewestNumber(w *world) {
	node, key := w.node(), w.key()
	w.turn(node, key)
	w.acceptText(node, key)
	p := w.message(node, key)
	p.Unqueued = true
	last := w.accept(p)
	w.clock.advance(lease)
	taken := w.sweepOne(w.node(), key)
	equal(w, "newest number, a command's", taken.LastSeq, last.Seq)
	for _, m := range taken.Messages {
		if m.State == store.StateRunning {
			w.Errorf("message %d still runs after the takeover", m.Seq)
		}
	}
}

func takeoverAfterExpiry(w *world) {
	first, key := w.node(), w.key()
	w.turn(first, key)
	w.clock.advance(lease - time.Millisecond)
	second := w.node()
	equal(w, "swept one millisecond before the lease ends", len(w.sweep(second)), 0)
	w.beat(first)
	w.clock.advance(lease - time.Millisecond)
	equal(w, "the second node died", len(w.sweep(w.node())), 0)
	w.clock.advance(time.Millisecond)
	third := w.node()
	taken := w.sweepOne(third, key)
	equal(w, "owner", w.session(key).Owner, third)
	equal(w, "claim", taken.Claim, store.Claim{Session: key, Node: third, Epoch: 2})
	equal(w, "swept again", len(w.sweep(third)), 0)
}

func everyTakeoverHasANewEpoch(w *world) {
	key := w.key()
	_, a := w.acceptText(w.node(), key)
	epoch := a.Epoch
	for range 4 {
		w.clock.advance(lease)
		taken := w.sweepOne(w.node(), key)
		equal(w, "epoch", taken.Epoch, epoch+1)
		epoch = taken.Epoch
	}
	equal(w, "epoch of the session", w.session(key).Epoch, epoch)
}

func takeoverBringsEverything(w *world) {
	first, key := w.node(), w.key()
	w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Mode: new(chat.ModeCollect)}))
	done, a := w.acceptText(first, key)
	c := claimOf(key, a)
	w.start(c, done, a.Seq)
	w.finish(answered(c, done))
	p := w.message(first, key)
	p.Queue.MaxConcurrent = 2
	b := w.accept(p)
	c = claimOf(key, b)
	w.start(c, p.Message.ID, b.Seq)
	q := w.message(first, key)
	q.Queue.MaxConcurrent = 2
	waiting := w.accept(q)
	w.clock.advance(lease)
	taken := w.sweepOne(w.node(), key)
	equal(w, "messages", idsOf(taken.Messages), []string{p.Message.ID, q.Message.ID})
	equal(w, "runs of the messages", []string{taken.Messages[0].RunID, taken.Messages[1].RunID}, []string{p.Message.ID, ""})
	equal(w, "newest sequence number", taken.LastSeq, waiting.Seq)
	equal(w, "text", taken.Messages[1].Content.Text, q.Message.Content.Text)
	equal(w, "run limit, mode and principal", []any{w.session(key).RunLimit, w.session(key).Mode, w.session(key).Principal}, []any{2, chat.ModeCollect, "ann"})
	r, ok := taken.Runs[p.Message.ID]
	if !ok || len(taken.Runs) != 1 || r.Attempt != 1 || r.Crashes != 1 || r.SeqFrom != b.Seq {
		w.Fatalf("runs: %+v", taken.Runs)
	}
	equal(w, "started", w.start(taken.Claim, q.Message.ID, waiting.Seq).Seqs, []int64{waiting.Seq})
}

func crashesAreCounted(w *world) {
	key := w.key()
	c, run, seq := w.turn(w.node(), key)
	for crashes := 1; crashes <= store.MaxCrashes; crashes++ {
		w.clock.advance(lease)
		taken := w.sweepOne(w.node(), key)
		equal(w, "crashes in the sweep", taken.Runs[run].Crashes, crashes)
		s := w.start(taken.Claim, run, seq)
		equal(w, "attempt and crashes", []int{s.Attempt, s.Crashes}, []int{crashes + 1, crashes})
		c = taken.Claim
	}
	p := store.FinishParams{Claim: c, RunID: run, State: store.RunDead, Outcome: chat.OutcomeDead, Cause: "dead", Error: "it ended its process three times"}
	equal(w, "released", w.finish(p).Released, true)
	w.ended(run, chat.OutcomeDead)
	r := w.run(run)
	equal(w, "state", r.State, store.RunDead)
	equal(w, "attempt and crashes", []int{r.Attempt, r.Crashes}, []int{4, 3})
}

func cleanStopIsNoCrash(w *world) {
	first, key := w.node(), w.key()
	c, run, seq := w.turn(first, key)
	waiting, _ := w.acceptText(first, key)
	w.ok(w.st.Unregister(w.ctx, first))
	equal(w, "owner", w.session(key).Owner, "")
	try(w.st.Finish(w.ctx, answered(c, run))).fails(w, chat.ErrFenced)
	taken := w.sweepOne(w.node(), key) // immediately, although the lease would have lasted
	equal(w, "messages", idsOf(taken.Messages), []string{run, waiting})
	s := w.start(taken.Claim, run, seq)
	equal(w, "attempt and crashes", []int{s.Attempt, s.Crashes}, []int{2, 0})
}

func requeuedRunIsNoCrash(w *world) {
	first, key := w.node(), w.key()
	c, run, seq := w.turn(first, key)
	w.finish(requeued(c, run))
	w.clock.advance(lease)
	taken := w.sweepOne(w.node(), key)
	equal(w, "state", taken.Runs[run].State, store.RunInterrupted)
	s := w.start(taken.Claim, run, seq)
	equal(w, "attempt and crashes", []int{s.Attempt, s.Crashes}, []int{2, 0})
}

func longDeadIsACrash(w *world) {
	first, a, b := w.node(), w.key(), w.key()
	w.turn(first, a)
	w.turn(first, b)
	w.clock.advance(lease + 61*time.Minute)
	next := w.node()
	for range 2 { // the first sweep must not delete the node: the other session still needs its row to count the crash
		list := try(w.st.Sweep(w.ctx, store.SweepParams{Node: next, Limit: 1})).ok(w)
		equal(w, "taken", len(list), 1)
		equal(w, "crashes", w.run(list[0].Row.RunID).Crashes, 1)
	}
}

// acceptStrandsNothing accepts both ways: the new node may take the session immediately or leave it
// to the sweep. But all work of the dead owner must be taken over: with the accept, a sweep or a
// hint.
func acceptStrandsNothing(w *world) {
	first, second, key := w.node(), w.node(), w.key()
	_, run, _ := w.turn(first, key)
	own, _ := w.acceptText(first, key)
	w.clock.advance(lease - time.Second)
	w.beat(second)
	byOther, _ := w.acceptText(second, key)
	w.clock.advance(time.Second)
	last, a := w.acceptText(second, key)
	seen := map[string]bool{last: a.Mine}
	for _, taken := range w.sweep(second) {
		for _, m := range taken.Messages {
			seen[m.MessageID] = true
		}
	}
	for _, taken := range w.fronts(second) {
		for _, m := range taken.Messages {
			seen[m.MessageID] = true
		}
	}
	equal(w, "messages that came back", seen, map[string]bool{run: true, own: true, byOther: true, last: true})
}

func stoppingRunOfDeadNodeEnds(w *world) {
	node, key, busy := w.node(), w.key(), w.key()
	c, idle, _ := w.turn(node, key)
	p := stopped(c, idle)
	p.StillRunning = true
	w.finish(p)
	c, run, _ := w.turn(node, busy)
	p = stopped(c, run)
	p.StillRunning = true
	w.finish(p)
	w.acceptText(node, busy)
	w.clock.advance(lease)
	next := w.node()
	w.sweepOne(next, busy)
	for _, id := range []string{idle, run} {
		r := w.run(id)
		equal(w, "state and crashes", []any{r.State, r.Crashes}, []any{store.RunStopped, 0})
		equal(w, "ended", r.EndedAt.IsZero(), false)
	}
}

func stoppingRunOfCleanStopEnds(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	p := stopped(c, run)
	p.StillRunning = true
	w.finish(p)
	w.ok(w.st.Unregister(w.ctx, node))
	next := w.node()
	w.sweep(next)
	equal(w, "state", w.run(run).State, store.RunStopped)
	w.turn(next, key)
}

// acceptAfterStoppingOwner: the only work to take over is a run whose goroutine died with its
// process. Whether the accept or the sweep ends it, the next turn does not run concurrently with
// it.
func acceptAfterStoppingOwner(w *world) {
	for _, leave := range []func(node string){
		func(node string) { w.ok(w.st.Unregister(w.ctx, node)) },
		func(string) { w.clock.advance(lease) },
	} {
		node, key := w.node(), w.key()
		c, run, _ := w.turn(node, key)
		p := stopped(c, run)
		p.StillRunning = true
		w.finish(p)
		leave(node)
		next := w.node()
		id, a := w.acceptText(next, key)
		if !a.Mine {
			a.Owner, a.Epoch = next, w.sweepOne(next, key).Epoch
		}
		w.start(claimOf(key, a), id, a.Seq)
		w.checkInvariants("while the next turn runs")
		equal(w, "state of the old run", w.run(run).State, store.RunStopped)
	}
}

func acceptBeforeFinish(w *world) {
	owner, other, key := w.node(), w.node(), w.key()
	c, run, _ := w.turn(owner, key)
	id, a := w.acceptText(other, key)
	equal(w, "owner", a.Owner, owner)
	f := w.finish(answered(c, run))
	equal(w, "released", f.Released, false)
	equal(w, "owner", w.session(key).Owner, owner)
	equal(w, "what the owner finds", idsOf(w.fronts(owner)[0].Messages), []string{id})
	w.start(c, id, a.Seq)
	equal(w, "released", w.finish(answered(c, id)).Released, true)
}

func acceptAfterFinish(w *world) {
	owner, other, key := w.node(), w.node(), w.key()
	c, run, _ := w.turn(owner, key)
	equal(w, "released", w.finish(answered(c, run)).Released, true)
	id, a := w.acceptText(other, key)
	if !a.Mine || a.Epoch != c.Epoch+1 {
		w.Fatalf("accept after the release: %+v", a)
	}
	try(w.st.Start(w.ctx, store.StartParams{Claim: c, RunID: id, Lane: "main", Seqs: []int64{a.Seq}})).fails(w, chat.ErrFenced)
}

func sweepLimit(w *world) {
	first := w.node()
	for range 5 {
		w.acceptText(first, w.key())
	}
	w.clock.advance(lease)
	second := w.node()
	seen := map[chat.SessionKey]bool{}
	for _, want := range []int{2, 2, 1, 0} {
		list := try(w.st.Sweep(w.ctx, store.SweepParams{Node: second, Limit: 2})).ok(w)
		equal(w, "taken", len(list), want)
		for _, taken := range list {
			seen[taken.Session] = true
		}
	}
	equal(w, "sessions", len(seen), 5)
}

func deadNodeSweepsNothing(w *world) {
	first, key := w.node(), w.key()
	w.acceptText(first, key)
	w.clock.advance(lease)
	for _, dead := range []string{first, "unregistered"} {
		list, err := w.st.Sweep(w.ctx, store.SweepParams{Node: dead, Limit: many})
		if err == nil {
			equal(w, "swept by a dead node", len(list), 0)
		}
	}
	w.sweepOne(w.node(), key)
}

func idleSessionsAreLeftAlone(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	w.finish(answered(c, run))
	before := w.session(key)
	w.clock.advance(time.Hour)
	equal(w, "swept", len(w.sweep(w.node())), 0)
	equal(w, "session", w.session(key), before)
}

func survivesReopen(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	typed(&p, 50*time.Second)
	w.accept(p)
	c, run, _ := w.turn(node, key)
	try(w.st.AppendTranscript(w.ctx, key, "ann", []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "hello"}})).ok(w)
	w.ok(w.st.Enqueue(w.ctx, []store.Outgoing{{Kind: store.KindNotice, Text: "later", Delay: time.Minute, Target: chat.Target{Channel: "web", ChatID: "1"}}}))
	_, _, err := w.st.AcquireLease(w.ctx, "telegram:1", node)
	w.ok(err)
	w.accept(w.message(node, w.key()))
	before := w.picture(key, run)
	w.st = w.h.Reopen()
	equal(w, "the store after it was opened again", w.picture(key, run), before)
	if a := w.accept(p); !a.Duplicate {
		w.Fatalf("a message was forgotten: %+v", a)
	}
	w.finish(answered(c, run)) // the lease has not ended: a database may restart during the life of a node
	w.clock.advance(lease)
	next := w.node()
	equal(w, "swept before the window ends", len(w.sweep(next)), 1) // the other session, which has no window
	l, ok, err := w.st.AcquireLease(w.ctx, "telegram:1", next)
	w.ok(err)
	equal(w, "lease after the owner died", []any{ok, l.Epoch}, []any{true, int64(2)})
}

// sweepAgents ends the only node of an agent during a run: a node without the agent leaves the
// session unchanged, however often it sweeps.
func sweepAgents(w *world) {
	first := w.node()
	coder, system := chat.SessionKey{Agent: "coder", Rest: "main"}, chat.SessionKey{Agent: "coder", Rest: "cron:upkeep"}
	_, run, _ := w.turn(first, coder)
	p := w.message(first, system)
	p.Message.Principal = cron.SystemOwner
	w.accept(p)
	w.clock.advance(lease)
	second := w.nodeOf("main", "writer")
	sweep := func(agents ...string) []store.Front {
		return try(w.st.Sweep(w.ctx, store.SweepParams{Node: second, Limit: 1, Agents: agents})).ok(w)
	}
	taken := sweep("main", "writer")
	equal(w, "taken without the agent", len(taken), 1)
	equal(w, "session of a job of the gateway", taken[0].Session, system)
	equal(w, "taken again", len(sweep("main", "writer")), 0)
	equal(w, "left for a node with the agent", w.unowned(), map[string]store.Unowned{"coder": {Messages: 1}})
	equal(w, "run and owner", []any{w.run(run).State, w.run(run).Crashes, w.session(coder).Owner, w.session(coder).Epoch}, []any{store.RunRunning, 0, first, int64(1)})
	having := w.nodeOf("coder")
	equal(w, "left while a node that has it has not looked", w.unowned(), nil)
	w.ok(w.st.Unregister(w.ctx, having))
	equal(w, "left when that node is gone", w.unowned(), map[string]store.Unowned{"coder": {Messages: 1}})
	taken = sweep("main", "coder")
	equal(w, "taken with the agent", len(taken), 1)
	equal(w, "session, epoch and crashes", []any{taken[0].Session, w.session(coder).Epoch, w.run(run).Crashes}, []any{coder, int64(2), 1})
	equal(w, "left when a node has it", w.unowned(), nil)
}

// unowned is the work without a live node, by agent.
func (w *world) unowned() map[string]store.Unowned {
	w.Helper()
	return try(w.st.Unowned(w.ctx)).ok(w)
}

func leaseTests() []test {
	return []test{
		{"OneHolderAtATime", oneHolder},
		{"NewHolderNewEpoch", newHolderNewEpoch},
		{"ReleaseGivesBack", releaseGivesBack},
		{"DeadNodeGetsNoLease", deadNodeGetsNoLease},
	}
}

const poller = "telegram:1"

// leaseNames are the named leases, and whether a live node holds them.
func (w *world) leaseNames() map[string]bool {
	w.Helper()
	return try(w.st.Cluster(w.ctx)).ok(w).Leases
}

func (w *world) acquire(node string) (store.Lease, bool) {
	w.Helper()
	l, ok, err := w.st.AcquireLease(w.ctx, poller, node)
	w.ok(err)
	return l, ok
}

// hold takes the lease, which must be free.
func (w *world) hold(node string) store.Lease {
	w.Helper()
	l, ok := w.acquire(node)
	if !ok || l.Owner != node || l.Name != poller || l.Epoch < 1 {
		w.Fatalf("lease: %+v, %v", l, ok)
	}
	return l
}

func oneHolder(w *world) {
	first, second := w.node(), w.node()
	l := w.hold(first)
	_, ok := w.acquire(second)
	equal(w, "taken by a second node", ok, false)
	again := w.hold(first)
	equal(w, "confirmed", again, l)
	equal(w, "leases", w.beat(first).Leases, []string{poller})
	equal(w, "named leases", w.leaseNames(), map[string]bool{poller: true})
	equal(w, "leases of the other node", len(w.beat(second).Leases), 0)
}

func newHolderNewEpoch(w *world) {
	first := w.node()
	l := w.hold(first)
	w.clock.advance(lease - time.Millisecond)
	second := w.node()
	_, ok := w.acquire(second)
	equal(w, "taken before the owner died", ok, false)
	w.clock.advance(time.Millisecond)
	next := w.hold(second)
	equal(w, "lease of the second node", next, store.Lease{Name: poller, Owner: second, Epoch: l.Epoch + 1})
	w.ok(w.st.Unregister(w.ctx, second))
	third := w.hold(w.node()) // immediately after a clean stop
	equal(w, "epoch after a clean stop", third.Epoch, l.Epoch+2)
}

func releaseGivesBack(w *world) {
	first, second := w.node(), w.node()
	l := w.hold(first)
	for _, stale := range []store.Lease{
		{Name: poller, Owner: first, Epoch: l.Epoch - 1}, {Name: poller, Owner: second, Epoch: l.Epoch}, {Name: "other", Owner: first, Epoch: 1},
	} {
		w.ok(w.st.ReleaseLease(w.ctx, stale))
	}
	_, ok := w.acquire(second)
	equal(w, "taken after a release that is not current", ok, false)
	w.ok(w.st.ReleaseLease(w.ctx, l))
	equal(w, "leases", len(w.beat(first).Leases), 0)
	equal(w, "named leases after the release", w.leaseNames(), map[string]bool{poller: false})
	next := w.hold(second)
	equal(w, "epoch after a release", next.Epoch, l.Epoch+1)
	w.ok(w.st.ReleaseLease(w.ctx, l))
	equal(w, "leases of the second node", w.beat(second).Leases, []string{poller})
}

func deadNodeGetsNoLease(w *world) {
	dead := w.node()
	w.clock.advance(lease)
	for _, node := range []string{dead, "unregistered"} {
		_, ok, err := w.st.AcquireLease(w.ctx, poller, node)
		equal(w, "taken by a dead node", err == nil && ok, false)
	}
	w.hold(w.node())
}

func fenceTests() []test {
	return []test{
		{"StaleEpochChangesNothing", fenced(func(_ *world, c store.Claim, run string) (store.Claim, string) {
			c.Epoch--
			return c, run
		})},
		{"EpochToComeChangesNothing", fenced(func(_ *world, c store.Claim, run string) (store.Claim, string) {
			c.Epoch++
			return c, run
		})},
		{"OtherNodeChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			c.Node = w.node()
			return c, run
		})},
		{"NoNodeChangesNothing", fenced(func(_ *world, c store.Claim, run string) (store.Claim, string) {
			c.Node = ""
			return c, run
		})},
		{"OtherSessionChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			other := w.key()
			_, a := w.acceptText(c.Node, other)
			return claimOf(other, a), run
		})},
		{"UnknownSessionChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			c.Session = w.key()
			return c, run
		})},
		{"UnknownRunChangesNothing", fenced(func(w *world, c store.Claim, _ string) (store.Claim, string) {
			return c, w.id("run")
		})},
		{"ExpiredNodeChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			w.clock.advance(lease)
			return c, run
		})},
		{"UnregisteredNodeChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			w.ok(w.st.Unregister(w.ctx, c.Node))
			return c, run
		})},
		{"NodeThatCameBackChangesNothing", fenced(func(w *world, c store.Claim, run string) (store.Claim, string) {
			w.clock.advance(lease)
			w.sweepOne(w.node(), c.Session)
			return c, run
		})},
		{"StartOfAStaleClaim", startOfStaleClaim},
		{"EndStoppingOfAStaleClaim", endStoppingOfStaleClaim},
		{"EndedRunChangesNothing", endedRunChangesNothing},
	}
}

// picture is everything that a refused finish could have changed.
type picture struct {
	Session    store.Session
	Run        store.Run
	Message    store.Waiting
	Transcript store.Transcript
	Outgoing   map[string]store.OutboxCount
	Unfinished int
}

func (w *world) picture(key chat.SessionKey, run string) picture {
	w.Helper()
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key})).ok(w)
	counts := try(w.st.OutboxCounts(w.ctx)).ok(w)
	return picture{
		Session: w.session(key), Run: w.run(run), Message: w.row(run), Transcript: tr, Outgoing: counts, Unfinished: w.unfinished(),
	}
}

// fenced makes a test: spoil invalidates the claim of a run in progress, and no way to finish
// writes anything.
func fenced(spoil func(w *world, c store.Claim, run string) (store.Claim, string)) func(w *world) {
	return func(w *world) {
		node, key := w.node(), w.key()
		c, run, _ := w.turn(node, key)
		w.acceptText(node, key)
		wrong, wrongRun := spoil(w, c, run)
		before := w.picture(key, run)
		w.clock.advance(time.Millisecond)
		for _, p := range []store.FinishParams{answered(wrong, wrongRun), requeued(wrong, wrongRun), stopped(wrong, wrongRun)} {
			p.StillRunning = p.State == store.RunStopped
			p.Usage = chat.Usage{InputTokens: 1, OutputTokens: 1}
			p.Preview = "late"
			p.Transcript = []chat.TranscriptEntry{{RunID: wrongRun, Role: chat.RoleAssistant, Text: "late"}}
			p.Outgoing = []store.Outgoing{{Session: key, Kind: store.KindReply, Text: "late", Target: chat.Target{Channel: "web", ChatID: "1"}}}
			try(w.st.Finish(w.ctx, p)).fails(w, chat.ErrFenced)
			equal(w, "the store after a refused finish", w.picture(key, run), before)
		}
	}
}

func startOfStaleClaim(w *world) {
	node, key := w.node(), w.key()
	id, a := w.acceptText(node, key)
	c := claimOf(key, a)
	w.clock.advance(lease)
	try(w.st.Start(w.ctx, store.StartParams{Claim: c, RunID: id, Lane: "main", Seqs: []int64{a.Seq}})).fails(w, chat.ErrFenced)
	next := w.node()
	taken := w.sweepOne(next, key)
	for _, wrong := range []store.Claim{c, {Session: key, Node: node, Epoch: taken.Epoch}, {Session: key, Node: next, Epoch: a.Epoch}} {
		try(w.st.Start(w.ctx, store.StartParams{
			Claim: wrong, RunID: id, Lane: "main", Seqs: []int64{a.Seq}, Transcript: []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "late"}},
		})).fails(w, chat.ErrFenced)
	}
	equal(w, "state", w.row(id).State, store.StateWaiting)
	try(w.st.RunByID(w.ctx, id)).fails(w, chat.ErrNotFound)
	tr := try(w.st.Transcript(w.ctx, store.TranscriptQuery{Session: key})).ok(w)
	equal(w, "transcript", len(tr.Entries), 0)
	w.start(taken.Claim, id, a.Seq)
}

func endStoppingOfStaleClaim(w *world) {
	node, key := w.node(), w.key()
	c, id, _ := w.turn(node, key)
	p := stopped(c, id)
	p.StillRunning = true
	w.finish(p)
	wrong := c
	wrong.Epoch++
	w.fails(w.st.EndStopping(w.ctx, wrong, id), chat.ErrFenced)
	wrong = c
	wrong.Node = w.node()
	w.fails(w.st.EndStopping(w.ctx, wrong, id), chat.ErrFenced)
	equal(w, "state", w.run(id).State, store.RunStopping)
	w.ok(w.st.EndStopping(w.ctx, c, id))
}

func endedRunChangesNothing(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	w.acceptText(node, key)
	w.finish(stopped(c, run))
	before := w.picture(key, run)
	w.clock.advance(time.Millisecond)
	for _, p := range []store.FinishParams{answered(c, run), requeued(c, run)} {
		try(w.st.Finish(w.ctx, p)).fails(w, chat.ErrFenced)
		equal(w, "the store after a refused finish", w.picture(key, run), before)
	}
}
