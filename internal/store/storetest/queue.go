package storetest

import (
	"errors"
	"fmt"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

func queueTests() []test {
	return []test{
		{"FullQueueRefusesTheNewMessage", fullQueueRefuses},
		{"FullQueueDropsTheOldestMessage", fullQueueDropsOldest},
		{"SmallerCapDropsSeveral", smallerCapDropsSeveral},
		{"RunningMessagesDoNotCount", runningMessagesDoNotCount},
		{"RunningMessageIsNeverAVictim", runningIsNeverDropped},
		{"BurstCountsOnce", burstCountsOnce},
		{"AnnouncementsAreSpared", announcementsAreSpared},
		{"FirstMessageOfAnIdleSessionIsSpared", firstOfIdleIsSpared},
		{"CapZeroIsNoBound", capZeroIsNoBound},
		{"BehindCountsWhatWaits", behindCountsWhatWaits},
		{"InterruptedMessagesAreNotDropped", interruptedAreSpared},
		{"PendingInputsArePagedOldestFirst", pendingInputsArePaged},
		{"InterruptEndsWhatWaits", interruptEndsWhatWaits},
		{"ModeOfTheSessionInterruptsAFullQueue", storedModeInterrupts},
		{"FrontsFindWhatOthersAccepted", frontsFindWhatOthersAccepted},
		{"FrontsGoFromSessionToSession", frontsGoFromSessionToSession},
		{"FrontsOfADeadNodeAreEmpty", frontsOfDeadNode},
	}
}

func fullQueueRefuses(w *world) {
	node, key := w.node(), w.key()
	w.cap = 2
	w.turn(node, key)
	offer := func(key chat.SessionKey) store.AcceptParams {
		p := w.message(node, key)
		p.Queue.Cap, p.Queue.DropNew = 2, true
		return p
	}
	for range 2 {
		w.accept(offer(key))
	}
	p := offer(key)
	try(w.st.Accept(w.ctx, p)).fails(w, chat.ErrQueueFull)
	try(w.st.MessageByID(w.ctx, p.Message.ID)).fails(w, chat.ErrNotFound)
	equal(w, "last_seq", w.session(key).LastSeq, 3)
	equal(w, "another session has room", w.accept(offer(w.key())).Seq, 1)
	try(w.st.EndWaiting(w.ctx, store.EndParams{Session: key, Seqs: []int64{2}, Outcome: chat.OutcomeSuperseded})).ok(w)
	equal(w, "a place was freed, and the refused message is as if it had never been", w.accept(p).Seq, 4)
}

func fullQueueDropsOldest(w *world) {
	node, key := w.node(), w.key()
	w.cap = 2
	w.turn(node, key)
	var ids []string
	for i := range 4 {
		p := w.message(node, key)
		p.Queue.Cap = 2
		a := w.accept(p)
		ids = append(ids, p.Message.ID)
		equal(w, "sequence number", a.Seq, int64(i+2))
		if i < 2 {
			equal(w, "dropped", len(a.Dropped), 0)
			continue
		}
		equal(w, "dropped", idsOf(a.Dropped), ids[i-2:i-1])
		equal(w, "outcome of the dropped", a.Dropped[0].Outcome, chat.OutcomeDropped)
		w.ended(ids[i-2], chat.OutcomeDropped)
	}
	s := w.session(key)
	equal(w, "waiting", s.Waiting, 2)
	equal(w, "done_seq under the running message", s.DoneSeq, 0)
	list, _, err := w.st.PendingInputs(w.ctx, key, 0, 10)
	w.ok(err)
	equal(w, "waiting messages", idsOf(list), ids[2:])
}

func smallerCapDropsSeveral(w *world) {
	node, key := w.node(), w.key()
	w.cap = 2
	for range 5 {
		w.acceptText(node, key)
	}
	p := w.message(node, key)
	p.Queue.Cap = 2
	a := w.accept(p)
	equal(w, "dropped", seqsOf(a.Dropped), []int64{2, 3, 4})
	equal(w, "waiting", w.session(key).Waiting, 3)
}

func runningMessagesDoNotCount(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	p := w.message(node, key)
	p.Queue.Cap, p.Queue.DropNew = 1, true
	w.accept(p)
	q := w.message(node, key)
	q.Queue.Cap, q.Queue.DropNew = 1, true
	try(w.st.Accept(w.ctx, q)).fails(w, chat.ErrQueueFull)
	w.finish(answered(c, run))
	equal(w, "the first one that waits gets the next slot", w.accept(q).Seq, 3)
	r := w.message(node, key)
	r.Queue.Cap, r.Queue.DropNew = 1, true
	try(w.st.Accept(w.ctx, r)).fails(w, chat.ErrQueueFull)
	w.start(c, p.Message.ID, 2)
	try(w.st.Accept(w.ctx, r)).fails(w, chat.ErrQueueFull)
	w.cap = 1
}

func runningIsNeverDropped(w *world) {
	node, key := w.node(), w.key()
	_, run, _ := w.turn(node, key)
	var last string
	for i := range 3 {
		p := w.message(node, key)
		p.Queue.Cap = 1
		a := w.accept(p)
		equal(w, "dropped", len(a.Dropped), min(i, 1))
		last = p.Message.ID
	}
	equal(w, "state of the running message", w.row(run).State, store.StateRunning)
	equal(w, "state of the newest message", w.row(last).State, store.StateWaiting)
	equal(w, "done_seq under a running message", w.session(key).DoneSeq, 0)
}

// burstCountsOnce: what one person types within the window is one unit, which counts once and is
// dropped as a whole. Each difference that ends a batch is tried.
func burstCountsOnce(w *world) {
	node, key := w.node(), w.key()
	w.cap = 1
	w.turn(node, key)
	offer := func(change func(*store.AcceptParams)) store.AcceptParams {
		p := w.message(node, key)
		typed(&p, time.Second)
		p.Queue.Cap, p.Queue.DropNew = 1, true
		change(&p)
		return p
	}
	var burst []string
	for range 3 {
		p := offer(func(*store.AcceptParams) {})
		burst = append(burst, p.Message.ID)
		w.accept(p)
		w.clock.advance(999 * time.Millisecond)
	}
	equal(w, "waiting", w.session(key).Waiting, 3)
	for name, change := range map[string]func(*store.AcceptParams){
		"another sender":    func(p *store.AcceptParams) { p.Message.Content.Sender.ID = "8" },
		"another thread":    func(p *store.AcceptParams) { p.Message.Content.Thread = "x" },
		"another lane":      func(p *store.AcceptParams) { p.Message.Lane = "cron" },
		"not typed":         func(p *store.AcceptParams) { p.Message.Content.Options.Typed = false },
		"alone":             func(p *store.AcceptParams) { p.Message.Content.Options.NoMerge = true },
		"with a file":       func(p *store.AcceptParams) { p.Message.Content.Attachments = []chat.Attachment{{Path: "a"}} },
		"too long together": func(p *store.AcceptParams) { p.Queue.BatchBytes = 40 },
		"too many":          func(p *store.AcceptParams) { p.Queue.BatchMessages = 3 },
	} {
		_, err := w.st.Accept(w.ctx, offer(change))
		if !errors.Is(err, chat.ErrQueueFull) {
			w.Fatalf("%s: %v, want a refusal", name, err)
		}
	}
	w.clock.advance(time.Millisecond)
	late := offer(func(*store.AcceptParams) {})
	try(w.st.Accept(w.ctx, late)).fails(w, chat.ErrQueueFull)
	late.Queue.DropNew = false
	equal(w, "dropped", idsOf(w.accept(late).Dropped), burst)
	equal(w, "done_seq under a running message", w.session(key).DoneSeq, 0)
}

// announcementsAreSpared: announcements need no place, are not dropped, and supersede nothing, even
// in a session that interrupts.
func announcementsAreSpared(w *world) {
	node, key := w.node(), w.key()
	w.cap = 1
	w.turn(node, key)
	announce := func() store.Accepted {
		p := w.message(node, key)
		p.Queue = scheduler.Settings{Cap: 1, DropNew: true, Mode: scheduler.ModeInterrupt}
		p.Message.Content.Options.Task = &chat.Task{Announces: "task"}
		return w.accept(p)
	}
	announce()
	a := announce()
	equal(w, "ended by an announcement", len(a.Superseded)+len(a.Dropped), 0)
	for i := range 3 {
		p := w.message(node, key)
		p.Queue.Cap = 1
		equal(w, "dropped", len(w.accept(p).Dropped), min(i, 1))
	}
	equal(w, "waiting", w.session(key).Waiting, 3)
}

// firstOfIdleIsSpared: while no turn runs, the first message has a slot or gets the next one.
func firstOfIdleIsSpared(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	p := w.message(node, key)
	p.Queue.Cap, p.Queue.DropNew = 1, true
	w.accept(p)
	q := w.message(node, key)
	q.Queue.Cap, q.Queue.DropNew = 1, true
	try(w.st.Accept(w.ctx, q)).fails(w, chat.ErrQueueFull)
	q.Queue.DropNew = false
	equal(w, "dropped", idsOf(w.accept(q).Dropped), []string{p.Message.ID})
	equal(w, "state of the first one", w.row(first).State, store.StateWaiting)
	w.start(claimOf(key, a), first, a.Seq)
	w.cap = 1
}

func capZeroIsNoBound(w *world) {
	node, key := w.node(), w.key()
	for i := range 40 {
		p := w.message(node, key)
		p.Queue.DropNew = i%2 == 1
		a := w.accept(p)
		equal(w, "dropped", len(a.Dropped), 0)
	}
	equal(w, "waiting", w.session(key).Waiting, 40)
}

func behindCountsWhatWaits(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	equal(w, "before the first", a.Behind, 0)
	_, b := w.acceptText(node, key)
	equal(w, "before the second", b.Behind, 1)
	w.start(claimOf(key, a), first, a.Seq)
	_, c := w.acceptText(node, key)
	equal(w, "a running message does not count", c.Behind, 1)
}

// interruptedAreSpared: work that a drain interrupted runs again, whatever is accepted meanwhile.
func interruptedAreSpared(w *world) {
	node, key := w.node(), w.key()
	c, run, seq := w.turn(node, key)
	w.finish(requeued(c, run))
	for i := range 3 {
		p := w.message(node, key)
		p.Queue.Cap = 1
		equal(w, "dropped", len(w.accept(p).Dropped), min(i, 1))
	}
	equal(w, "started", w.start(c, run, seq).Seqs, []int64{seq})
	w.cap = 1
}

func pendingInputsArePaged(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	var ids []string
	for range 5 {
		id, _ := w.acceptText(node, key)
		ids = append(ids, id)
	}
	list, total, err := w.st.PendingInputs(w.ctx, key, 0, 2)
	w.ok(err)
	equal(w, "first two", idsOf(list), ids[:2])
	equal(w, "number of pending", total, 5)
	equal(w, "unfinished", w.unfinished(), 6)
	w.finish(answered(c, run))
	equal(w, "unfinished", w.unfinished(), 5)
}

func frontsFindWhatOthersAccepted(w *world) {
	owner, other, key := w.node(), w.node(), w.key()
	c, run, _ := w.turn(owner, key)
	mine, _ := w.acceptText(owner, key)
	equal(w, "its own", len(w.fronts(owner)), 0)
	equal(w, "its own, named", idsOf(w.fronts(owner, key)[0].Messages), []string{mine})
	hinted, a := w.acceptText(other, key)
	if a.Mine {
		w.Fatalf("the session changed hands: %+v", a)
	}
	list := w.fronts(owner)
	if len(list) != 1 {
		w.Fatalf("fronts: %+v", list)
	}
	equal(w, "claim", list[0].Claim, c)
	equal(w, "messages", idsOf(list[0].Messages), []string{mine, hinted})
	equal(w, "of the node that does not own", []int{len(w.fronts(other)), len(w.fronts(other, key))}, []int{0, 0})
	w.finish(answered(c, run))
	w.start(c, hinted, a.Seq)
	equal(w, "after its start", len(w.fronts(owner)), 0)
	w.finish(answered(c, hinted))
	equal(w, "still waiting", w.row(mine).State, store.StateWaiting)
	w.clock.advance(store.HintedAfter - time.Millisecond)
	equal(w, "its own a moment later", len(w.fronts(owner)), 0)
	w.clock.advance(time.Millisecond)
	list = w.fronts(owner)
	if len(list) != 1 {
		w.Fatalf("fronts after %s: %+v", store.HintedAfter, list)
	}
	equal(w, "its own", idsOf(list[0].Messages), []string{mine})
}

// frontsGoFromSessionToSession has many messages in some sessions; a page counts sessions.
func frontsGoFromSessionToSession(w *world) {
	owner, other := w.node(), w.node()
	var keys []chat.SessionKey
	for range 5 {
		key := w.key()
		keys = append(keys, key)
		w.turn(owner, key)
		for range 3 {
			w.acceptText(other, key)
		}
	}
	var pages []int
	seen := map[chat.SessionKey]int64{}
	p := store.FrontsParams{Node: owner, Limit: 2}
	for {
		list := try(w.st.Fronts(w.ctx, p)).ok(w)
		if len(list) == 0 {
			break
		}
		for _, f := range list {
			seen[f.Session] = f.Row.Seq
		}
		pages, p.After = append(pages, len(list)), list[len(list)-1].Session
	}
	equal(w, "pages", pages, []int{2, 2, 1})
	for _, key := range keys {
		equal(w, "first that waits", seen[key], int64(2))
	}
}

func frontsOfDeadNode(w *world) {
	owner, key := w.node(), w.key()
	w.turn(owner, key)
	w.clock.advance(lease - time.Second)
	other := w.node()
	w.acceptText(other, key)
	w.clock.advance(time.Second)
	list, err := w.st.Fronts(w.ctx, store.FrontsParams{Node: owner, Limit: many})
	if err == nil {
		equal(w, "of a dead node", len(list), 0)
	}
	taken := w.sweepOne(other, key)
	equal(w, "messages", seqsOf(taken.Messages), []int64{1, 2})
}

// interruptEndsWhatWaits interrupts a queue beside a running message, with a place and without one,
// under either policy.
func interruptEndsWhatWaits(w *world) {
	for _, limit := range []scheduler.Settings{{Cap: 3}, {Cap: 3, DropNew: true}, {Cap: 10}, {}} {
		node, key := w.node(), w.key()
		w.cap = 3
		offer := func(change func(*store.AcceptParams)) (store.AcceptParams, store.Accepted) {
			p := w.message(node, key)
			p.Queue, p.DropNotice = limit, w.notice(key)
			change(&p)
			return p, w.accept(p)
		}
		nothing := func(*store.AcceptParams) {}
		_, first := offer(nothing)
		w.start(claimOf(key, first), "run-"+key.Rest, first.Seq)
		var ids []string
		for range 3 {
			p, _ := offer(nothing)
			ids = append(ids, p.Message.ID)
		}
		p, a := offer(func(p *store.AcceptParams) { p.Message.Content.Options.Mode = chat.ModeInterrupt })
		equal(w, "superseded", idsOf(a.Superseded), ids)
		equal(w, "dropped", len(a.Dropped), 0)
		equal(w, "sequence number", a.Seq, 5)
		equal(w, "waiting", w.session(key).Waiting, 1)
		for _, id := range ids {
			m := try(w.st.MessageByID(w.ctx, id)).ok(w)
			equal(w, "outcome and reason", []any{m.Outcome, m.Reason}, []any{chat.OutcomeSuperseded, store.ReasonSuperseded})
		}
		again := w.accept(p)
		equal(w, "offered again", []any{again.Duplicate, len(again.Superseded)}, []any{true, 0})
		w.clock.advance(2 * time.Second)
		equal(w, "notices", len(w.notices(node)), 0)
	}
}

// storedModeInterrupts takes the mode from the session, and from the configuration when neither
// message nor session has one.
func storedModeInterrupts(w *world) {
	for _, c := range []struct {
		message, stored, usual chat.QueueMode
		interrupts             bool
	}{
		{"", chat.ModeInterrupt, "", true},
		{"", "", chat.ModeInterrupt, true},
		{chat.ModeCollect, chat.ModeInterrupt, chat.ModeInterrupt, false},
		{"", chat.ModeCollect, chat.ModeInterrupt, false},
	} {
		node, key := w.node(), w.key()
		w.cap = 1
		w.turn(node, key)
		first, _ := w.acceptText(node, key)
		w.ok(w.st.SetSession(w.ctx, key, "ann", store.SessionSettings{Mode: new(c.stored)}))
		p := w.message(node, key)
		p.Queue = scheduler.Settings{Cap: 1, Mode: scheduler.QueueMode(c.usual)}
		p.Message.Content.Options.Mode = c.message
		a := w.accept(p)
		gone, kept := a.Superseded, a.Dropped
		if !c.interrupts {
			gone, kept = kept, gone
		}
		equal(w, "ended as the mode says", []any{idsOf(gone), len(kept)}, []any{[]string{first}, 0})
	}
}

// waitingTests check messages before their turn: held by the debounce window, and ended without a
// turn.
func waitingTests() []test {
	return []test{
		{"HoldKeepsTheSweepAway", holdKeepsTheSweepAway},
		{"LaterHoldOpensTheWindowAgain", laterHoldOpensAgain},
		{"HeldMessageStarts", heldMessageStarts},
		{"EndWaitingGivesAnOutcome", endWaitingGivesAnOutcome},
		{"EndWaitingLeavesRunningAndDoneAlone", endWaitingLeavesAlone},
		{"EndWaitingMovesDone", endWaitingMovesDone},
		{"EndWaitingAgainReturnsTheSameEnds", endWaitingAgain},
		{"EndWaitingAgainReturnsTheRun", endWaitingAgainReturnsTheRun},
	}
}

func holdKeepsTheSweepAway(w *world) {
	first, key := w.node(), w.key()
	p := w.message(first, key)
	typed(&p, 30*time.Second)
	w.accept(p)
	w.clock.advance(lease + time.Second)
	second := w.node()
	equal(w, "swept inside the window", len(w.sweep(second)), 0)
	w.clock.advance(30*time.Second - lease - time.Second - time.Millisecond)
	w.beatOrRegister(second)
	equal(w, "swept one millisecond before the end", len(w.sweep(second)), 0)
	w.clock.advance(2 * time.Millisecond)
	taken := w.sweepOne(second, key)
	equal(w, "messages", idsOf(taken.Messages), []string{p.Message.ID})
}

// beatOrRegister keeps a node alive; a dead node is an error of the test.
func (w *world) beatOrRegister(node string) {
	w.Helper()
	if b := w.beat(node); !b.LeaseUntil.After(w.clock.now()) {
		w.Fatalf("the lease of %s ends at %v", node, b.LeaseUntil)
	}
}

func laterHoldOpensAgain(w *world) {
	first, key := w.node(), w.key()
	p := w.message(first, key)
	typed(&p, time.Second)
	w.accept(p)
	w.clock.advance(900 * time.Millisecond)
	q := w.message(first, key)
	typed(&q, time.Second)
	w.accept(q)
	w.ok(w.st.Unregister(w.ctx, first))
	second := w.node()
	w.clock.advance(900 * time.Millisecond)
	equal(w, "swept inside the second window", len(w.sweep(second)), 0)
	w.clock.advance(101 * time.Millisecond)
	taken := w.sweepOne(second, key)
	equal(w, "messages", seqsOf(taken.Messages), []int64{1, 2})
}

func heldMessageStarts(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	typed(&p, time.Second)
	a := w.accept(p)
	if !a.Mine {
		w.Fatalf("a held message is not owned: %+v", a)
	}
	w.clock.advance(time.Second)
	s := w.start(claimOf(key, a), p.Message.ID, a.Seq)
	equal(w, "started", s.Seqs, []int64{a.Seq})
	equal(w, "waiting", w.session(key).Waiting, 0)
	if f := w.finish(answered(claimOf(key, a), p.Message.ID)); !f.Released {
		w.Fatalf("ownership kept although nothing is left")
	}
}

func endWaitingGivesAnOutcome(w *world) {
	node, key := w.node(), w.key()
	held := w.message(node, key)
	typed(&held, time.Minute)
	w.accept(held)
	for i, outcome := range []chat.Outcome{chat.OutcomeSuperseded, chat.OutcomeStale, chat.OutcomeStopped, chat.OutcomeDropped} {
		id, a := w.acceptText(node, key)
		w.clock.advance(time.Second)
		reason := fmt.Sprintf("reason %d", i)
		list := try(w.st.EndWaiting(w.ctx, store.EndParams{Session: key, Seqs: []int64{a.Seq}, Outcome: outcome, Reason: reason})).ok(w)
		equal(w, "ended", idsOf(list), []string{id})
		equal(w, "returned outcome", list[0].Outcome, outcome)
		equal(w, "reason", w.ended(id, outcome).Reason, reason)
	}
	list := try(w.st.EndWaiting(w.ctx, store.EndParams{Session: key, Seqs: []int64{1}, Outcome: chat.OutcomeStopped})).ok(w)
	equal(w, "a held message ends, too", idsOf(list), []string{held.Message.ID})
	s := w.session(key)
	equal(w, "numbers", []int64{s.LastSeq, s.TakenSeq, s.DoneSeq}, []int64{5, 5, 5})
	equal(w, "waiting", s.Waiting, 0)
}

func endWaitingLeavesAlone(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	waiting, _ := w.acceptText(node, key)
	end := store.EndParams{Session: key, Seqs: []int64{1, 2, 3}, Outcome: chat.OutcomeSuperseded, Reason: "superseded"}
	list := try(w.st.EndWaiting(w.ctx, end)).ok(w)
	equal(w, "ended", idsOf(list), []string{waiting})
	equal(w, "running message", w.row(run).State, store.StateRunning)
	w.finish(answered(c, run))
	end.Outcome = chat.OutcomeStopped
	list = try(w.st.EndWaiting(w.ctx, end)).ok(w)
	equal(w, "ended twice", len(list), 0)
	w.ended(run, chat.OutcomeAnswered)
	w.ended(waiting, chat.OutcomeSuperseded)
	end.Session = w.key()
	list = try(w.st.EndWaiting(w.ctx, end)).ok(w)
	equal(w, "ended in an unknown session", len(list), 0)
}

func endWaitingMovesDone(w *world) {
	node, key := w.node(), w.key()
	for range 4 {
		w.acceptText(node, key)
	}
	for _, step := range []struct{ end, done int64 }{{3, 0}, {1, 1}, {2, 3}, {4, 4}} {
		try(w.st.EndWaiting(w.ctx, store.EndParams{Session: key, Seqs: []int64{step.end}, Outcome: chat.OutcomeSuperseded})).ok(w)
		s := w.session(key)
		equal(w, fmt.Sprintf("done_seq after %d ended", step.end), s.DoneSeq, step.done)
		if s.TakenSeq < s.DoneSeq {
			w.Fatalf("taken_seq %d < done_seq %d", s.TakenSeq, s.DoneSeq)
		}
	}
}

// endWaitingAgain repeats a call whose result was lost: it returns the same messages and those that
// still wait, and none that another call has ended.
func endWaitingAgain(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	first, a := w.acceptText(node, key)
	_, other := w.acceptText(node, key)
	second, b := w.acceptText(node, key)
	try(w.st.EndWaiting(w.ctx, store.EndParams{Session: key, Seqs: []int64{other.Seq}, Outcome: chat.OutcomeStopped, Reason: "cleared"})).ok(w)
	end := store.EndParams{
		Session: key, Seqs: []int64{1, a.Seq}, Outcome: chat.OutcomeStopped, Reason: "stop",
		Notice: &store.Outgoing{Session: key, Kind: store.KindNotice, Text: "stopped", Coalesce: "stopped", Target: chat.Target{Channel: "again", ChatID: "1"}},
	}
	lost := try(w.st.EndWaiting(w.ctx, end)).ok(w)
	end.Seqs = []int64{1, a.Seq, other.Seq, b.Seq}
	end.Again = true
	for range 2 {
		w.clock.advance(time.Second)
		list := try(w.st.EndWaiting(w.ctx, end)).ok(w)
		equal(w, "ended", idsOf(list), []string{first, second})
		equal(w, "the same end", list[0], lost[0])
	}
	rows := try(w.st.ClaimOutgoing(w.ctx, store.ClaimOutgoingParams{Node: node, Channels: []string{"again"}, Limit: many})).ok(w)
	equal(w, "notices", len(rows), 1)
	equal(w, "messages of the notice", rows[0].Count, 2)
	w.finish(answered(c, run))
	equal(w, "done", w.session(key).DoneSeq, b.Seq)
}

// endWaitingAgainReturnsTheRun: with the message of a job's run, the repetition returns the row of
// the ledger that ended with it.
func endWaitingAgainReturnsTheRun(w *world) {
	node := w.node()
	w.job(func(j *cron.Job) { j.Session = "session:room" })
	l := w.due(node)
	end := store.EndParams{Session: l.Message.Session, Seqs: []int64{l.Seq}, Outcome: chat.OutcomeStale, Reason: "stopall"}
	lost := try(w.st.EndWaiting(w.ctx, end)).ok(w)
	w.clock.advance(time.Second)
	end.Again = true
	list := try(w.st.EndWaiting(w.ctx, end)).ok(w)
	equal(w, "ended", idsOf(list), idsOf(lost))
	equal(w, "row of the ledger", list[0].CronRun, lost[0].CronRun)
	equal(w, "its state", list[0].CronRun.State, cron.RunCancelled)
}
