package storetest

import (
	"fmt"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// waitingTests check messages before their turn: held by the debounce window, and ended without a turn.
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
	p.Hold = 30 * time.Second
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
	p.Hold = time.Second
	w.accept(p)
	w.clock.advance(900 * time.Millisecond)
	q := w.message(first, key)
	q.Hold = time.Second
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
	p.Hold = time.Second
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
	held.Hold = time.Minute
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

// endWaitingAgain repeats a call whose result was lost: it returns the same messages and those that still wait, and none that another call has ended.
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

// endWaitingAgainReturnsTheRun: with the message of a job's run, the repetition returns the row of the ledger that ended with it.
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
