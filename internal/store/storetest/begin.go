package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

func beginTests() []test {
	return []test{
		{"TurnsBeginInOrder", turnsBeginInOrder},
		{"WindowIsWaitedFor", windowIsWaitedFor},
		{"LostBeginIsFoundAgain", lostBeginIsFoundAgain},
		{"RunHasTheEpochOfItsSession", runHasTheEpoch},
		{"SlotIsForItsPrincipalAndLane", slotIsForItsFront},
		{"AnotherNodeBeginsNothing", anotherNodeBeginsNothing},
		{"CollectReadsBeyondThePage", collectReadsBeyondThePage},
		{"InterruptedRunBeginsAgainWhole", interruptedRunBeginsAgain},
		{"StopEndsTheWholeWindow", stopEndsTheWholeWindow},
		{"RunThatAStopOfAllCoversEndsStale", stoppedRunEndsStale},
		{"JoiningOvertakesNothing", joiningOvertakesNothing},
		{"PlanThatNeedsMoreBeginsNothing", planThatNeedsMore},
	}
}

// beginTurn asks for a turn of the session; change may alter the slot.
func (w *world) beginTurn(c store.Claim, change func(p *store.BeginParams, set *scheduler.Settings)) store.Begun {
	w.Helper()
	set := scheduler.DefaultSettings()
	p := store.BeginParams{Session: c.Session, Node: c.Node, Lane: "main", Principal: "ann", Plan: func(c store.Claim, batch []store.Waiting) (store.StartParams, bool) {
		lead := batch[len(batch)-1]
		s := store.StartParams{Claim: c, RunID: lead.MessageID, Lane: lead.Lane}
		if lead.RunID != "" {
			s.RunID = lead.RunID
		}
		for _, m := range batch {
			s.Seqs = append(s.Seqs, m.Seq)
			s.Transcript = append(s.Transcript, chat.TranscriptEntry{RunID: s.RunID, Role: chat.RoleUser, Text: m.Content.Text})
		}
		return s, true
	}}
	change(&p, &set)
	p.Settings = func(*store.Waiting) scheduler.Settings { return set }
	return try(w.st.Begin(w.ctx, p)).ok(w)
}

func usualSlot(*store.BeginParams, *scheduler.Settings) {}

func turnsBeginInOrder(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	second, _ := w.acceptText(node, key)
	c := claimOf(key, a)
	b := w.beginTurn(c, usualSlot)
	equal(w, "first turn", []any{b.RunID, seqsOf(b.Messages), b.Started.Attempt, len(b.Started.Entries)}, []any{first, []int64{1}, 1, 1})
	knows := func(p *store.BeginParams, _ *scheduler.Settings) { p.Known = []string{first} }
	while := w.beginTurn(c, knows)
	equal(w, "while it runs", []any{while.RunID, while.Next.ID, while.Last, while.Claim}, []any{"", second, int64(2), c})
	equal(w, "waiting", []int{w.session(key).Waiting, b.Next.Waiting, while.Next.Waiting}, []int{1, 1, 1})
	w.finish(answered(c, first))
	equal(w, "second turn", w.beginTurn(c, usualSlot).RunID, second)
	w.finish(answered(c, second))
	equal(w, "done", w.session(key).DoneSeq, 2)
}

func windowIsWaitedFor(w *world) {
	node, key := w.node(), w.key()
	var c store.Claim
	for range 2 {
		p := w.message(node, key)
		typed(&p, 800*time.Millisecond)
		c = claimOf(key, w.accept(p))
		w.clock.advance(500 * time.Millisecond)
	}
	b := w.beginTurn(c, usualSlot)
	equal(w, "window", []any{b.RunID, b.Wait}, []any{"", 300 * time.Millisecond})
	w.clock.advance(b.Wait)
	equal(w, "both", seqsOf(w.beginTurn(c, usualSlot).Messages), []int64{1, 2})
}

func lostBeginIsFoundAgain(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	w.acceptText(node, key)
	c := claimOf(key, a)
	group := func(_ *store.BeginParams, set *scheduler.Settings) { set.MaxConcurrent = 2 }
	lost := w.beginTurn(c, group)
	again := w.beginTurn(c, group)
	equal(w, "the same run", []any{again.RunID, seqsOf(again.Messages)}, []any{first, []int64{1}})
	equal(w, "its entries", again.Started.Entries, lost.Started.Entries)
	equal(w, "waiting", w.session(key).Waiting, 1)
}

// runHasTheEpoch begins a turn before a takeover and after it: the old claim ends nothing.
func runHasTheEpoch(w *world) {
	node, key := w.node(), w.key()
	run, a := w.acceptText(node, key)
	old := w.beginTurn(claimOf(key, a), usualSlot).Claim
	w.clock.advance(lease)
	next := w.sweepOne(w.node(), key).Claim
	b := w.beginTurn(next, usualSlot)
	equal(w, "claim", []any{old.Epoch, b.Claim}, []any{int64(1), next})
	equal(w, "run", []any{b.RunID, w.run(run).Epoch, w.run(run).Owner}, []any{run, next.Epoch, next.Node})
	_, err := w.st.Finish(w.ctx, answered(old, run))
	w.fails(err, chat.ErrFenced)
	w.finish(answered(b.Claim, run))
}

func slotIsForItsFront(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	c := claimOf(key, a)
	for _, other := range [][2]string{{"main", "bob"}, {"cron", "ann"}} {
		b := w.beginTurn(c, func(p *store.BeginParams, _ *scheduler.Settings) { p.Lane, p.Principal = other[0], other[1] })
		equal(w, "next", []any{b.RunID, b.Next.ID}, []any{"", first})
		equal(w, "waiting", w.session(key).Waiting, 1)
	}
	equal(w, "turn", w.beginTurn(c, usualSlot).RunID, first)
}

func anotherNodeBeginsNothing(w *world) {
	node, key := w.node(), w.key()
	_, a := w.acceptText(node, key)
	c := claimOf(key, a)
	for _, stale := range []string{"other", w.node()} {
		_, err := w.st.Begin(w.ctx, store.BeginParams{Session: c.Session, Node: stale})
		w.fails(err, chat.ErrFenced)
	}
	w.clock.advance(lease) // its own lease has ended
	_, err := w.st.Begin(w.ctx, store.BeginParams{Session: c.Session, Node: node})
	w.fails(err, chat.ErrFenced)
	equal(w, "waiting", w.session(key).Waiting, 1)
}

func collectReadsBeyondThePage(w *world) {
	node, key := w.node(), w.key()
	var c store.Claim
	for range 30 {
		_, a := w.acceptText(node, key)
		c = claimOf(key, a)
	}
	b := w.beginTurn(c, func(_ *store.BeginParams, set *scheduler.Settings) { set.Mode = scheduler.ModeCollect })
	equal(w, "messages", len(b.Messages), 30)
	equal(w, "waiting", w.session(key).Waiting, 0)
}

func interruptedRunBeginsAgain(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	w.acceptText(node, key)
	c := claimOf(key, a)
	w.start(c, first, 1, 2)
	w.acceptText(node, key)
	w.finish(requeued(c, first))
	b := w.beginTurn(c, usualSlot)
	equal(w, "the run", []any{b.RunID, seqsOf(b.Messages), b.Started.Attempt}, []any{first, []int64{1, 2}, 2})
}

func stopEndsTheWholeWindow(w *world) {
	node, key := w.node(), w.key()
	for range 2 {
		p := w.message(node, key)
		typed(&p, 800*time.Millisecond)
		w.accept(p)
	}
	w.acceptText(node, key)
	st := try(w.st.Stop(w.ctx, store.StopParams{Session: key, Scope: store.StopOne, By: "ann", Reason: "stop", Queue: scheduler.DefaultSettings()})).ok(w)
	equal(w, "ended", seqsOf(st.Waiting), []int64{1, 2})
	equal(w, "waiting", w.session(key).Waiting, 1)
}

// stoppedRunEndsStale stops everything in a session whose turn waits again after a drain or a
// crash.
func stoppedRunEndsStale(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	w.stop(key, store.StopAll, "")
	w.finish(requeued(c, run))
	later, _ := w.acceptText(node, key)
	b := w.beginTurn(c, usualSlot)
	equal(w, "ended, and begun", []any{idsOf(b.Stopped), b.RunID}, []any{[]string{run}, later})
	w.ended(run, chat.OutcomeStale)
	w.finish(answered(c, later))
}

func joiningOvertakesNothing(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	w.acceptText(node, key)
	w.acceptText(node, key)
	c := claimOf(key, a)
	equal(w, "turn", w.beginTurn(c, usualSlot).RunID, first)
	join := func(seqs ...int64) []int64 {
		return try(w.st.Join(w.ctx, store.StartParams{Claim: c, RunID: first, Lane: "main", Seqs: seqs})).ok(w)
	}
	equal(w, "the third alone", len(join(3)), 0)
	equal(w, "both", join(2, 3), []int64{2, 3})
	equal(w, "waiting", w.session(key).Waiting, 0)
}

func planThatNeedsMore(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	c := claimOf(key, a)
	var plan func(store.Claim, []store.Waiting) (store.StartParams, bool)
	b := w.beginTurn(c, func(p *store.BeginParams, _ *scheduler.Settings) {
		plan = p.Plan
		p.Plan = func(store.Claim, []store.Waiting) (store.StartParams, bool) { return store.StartParams{}, false }
	})
	equal(w, "unplanned", []any{b.RunID, seqsOf(b.Unplanned)}, []any{"", []int64{1}})
	equal(w, "waiting", w.session(key).Waiting, 1)
	equal(w, "turn", w.beginTurn(c, func(p *store.BeginParams, _ *scheduler.Settings) { p.Plan = plan }).RunID, first)
}
