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
	p.RunLimit = 2
	b := w.accept(p)
	c = claimOf(key, b)
	w.start(c, p.Message.ID, b.Seq)
	q := w.message(first, key)
	q.RunLimit = 2
	waiting := w.accept(q)
	w.clock.advance(lease)
	taken := w.sweepOne(w.node(), key)
	equal(w, "messages", idsOf(taken.Messages), []string{p.Message.ID, q.Message.ID})
	equal(w, "runs of the messages", []string{taken.Messages[0].RunID, taken.Messages[1].RunID}, []string{p.Message.ID, ""})
	equal(w, "newest sequence number", taken.LastSeq, waiting.Seq)
	equal(w, "text", taken.Messages[1].Content.Text, q.Message.Content.Text)
	equal(w, "run limit, mode and principal", []any{taken.RunLimit, taken.Mode, taken.Principal}, []any{2, chat.ModeCollect, "ann"})
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
		for _, r := range list[0].Runs {
			equal(w, "crashes", r.Crashes, 1)
		}
		equal(w, "runs", len(list[0].Runs), 1)
	}
}

// acceptStrandsNothing accepts both ways: the new node may take the session immediately or leave it to the sweep. But all work of the dead owner must be taken
// over: with the accept, a sweep or a hint.
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
	hinted := try(w.st.Hinted(w.ctx, second, nothing, many)).ok(w)
	for _, taken := range hinted {
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

// acceptAfterStoppingOwner: the only work to take over is a run whose goroutine died with its process. Whether the accept or the sweep ends it, the next turn
// does not run concurrently with it.
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
	hinted := try(w.st.Hinted(w.ctx, owner, nothing, many)).ok(w)
	equal(w, "hinted", idsOf(hinted[0].Messages), []string{id})
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
	p.Hold = 50 * time.Second
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

// sweepAgents ends the only node of an agent during a run: a node without the agent leaves the session unchanged, however often it sweeps.
func sweepAgents(w *world) {
	first := w.node()
	coder, system := chat.SessionKey{Agent: "coder", Rest: "main"}, chat.SessionKey{Agent: "coder", Rest: "cron:upkeep"}
	_, run, _ := w.turn(first, coder)
	p := w.message(first, system)
	p.Message.Principal = cron.SystemOwner
	w.accept(p)
	w.clock.advance(lease)
	second := w.nodeOf("main", "writer")
	sweep := func(agents ...string) []store.Taken {
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
	equal(w, "session, epoch and crashes", []any{taken[0].Session, taken[0].Epoch, taken[0].Runs[run].Crashes}, []any{coder, int64(2), 1})
	equal(w, "left when a node has it", w.unowned(), nil)
}

// unowned is the work without a live node, by agent.
func (w *world) unowned() map[string]store.Unowned {
	w.Helper()
	return try(w.st.Unowned(w.ctx)).ok(w)
}
