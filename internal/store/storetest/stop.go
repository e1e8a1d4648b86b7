package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func stopTests() []test {
	return []test{
		{"OneStopsTheOldestRun", oneStopsTheOldestRun},
		{"OneStopsTheOldestWaitingMessage", oneStopsWaiting},
		{"OneStopsAHeldMessage", oneStopsHeld},
		{"OneStopsNothing", oneStopsNothing},
		{"RunStopsARunOrAMessage", runStops},
		{"RunStopsNothingOfAnotherSession", runStopsNothingElse},
		{"AllStopsEverythingAndSetsTheCutoff", allStops},
		{"CutoffLeavesLaterMessagesAlone", cutoffLeavesLater},
		{"HeartbeatBringsStopRequests", heartbeatBringsStops},
		{"StopRequestSurvivesATakeover", stopSurvivesTakeover},
		{"StopRequestSurvivesARequeue", stopSurvivesRequeue},
		{"FirstStopNamesWho", firstStopNamesWho},
		{"StoppedMessageNeverStarts", stoppedNeverStarts},
	}
}

func (w *world) stop(key chat.SessionKey, scope store.StopScope, id string) store.Stopped {
	w.Helper()
	return try(w.st.Stop(w.ctx, store.StopParams{Session: key, Scope: scope, MessageID: id, By: "bob", Reason: "stop"})).ok(w)
}

func oneStopsTheOldestRun(w *world) {
	node, key := w.node(), w.key()
	var runs []string
	var c store.Claim
	for range 2 {
		p := w.message(node, key)
		p.RunLimit = 2
		a := w.accept(p)
		c = claimOf(key, a)
		w.start(c, p.Message.ID, a.Seq)
		runs = append(runs, p.Message.ID)
		w.clock.advance(time.Millisecond)
	}
	p := w.message(node, key)
	p.RunLimit = 2
	waiting := p.Message.ID
	w.accept(p)
	for _, run := range runs {
		s := w.stop(key, store.StopOne, "")
		equal(w, "running", s.Running, []store.RunningRun{{RunID: run, Node: node}})
		equal(w, "waiting", len(s.Waiting), 0)
		equal(w, "stop_by", w.run(run).StopBy, "bob")
		equal(w, "state: cancelling is a request", w.run(run).State, store.RunRunning)
	}
	s := w.stop(key, store.StopOne, "")
	equal(w, "running", len(s.Running), 0)
	equal(w, "waiting", idsOf(s.Waiting), []string{waiting})
	w.ended(waiting, chat.OutcomeStopped)
	for _, run := range runs {
		w.finish(stopped(c, run))
		w.ended(run, chat.OutcomeStopped)
	}
}

func oneStopsWaiting(w *world) {
	node, key := w.node(), w.key()
	first, _ := w.acceptText(node, key)
	second, _ := w.acceptText(node, key)
	s := w.stop(key, store.StopOne, "")
	equal(w, "waiting", idsOf(s.Waiting), []string{first})
	equal(w, "outcome", s.Waiting[0].Outcome, chat.OutcomeStopped)
	equal(w, "reason", w.ended(first, chat.OutcomeStopped).Reason, "stop")
	equal(w, "the other", w.row(second).State, store.StateWaiting)
	equal(w, "done_seq", w.session(key).DoneSeq, 1)
	equal(w, "waiting", w.session(key).Waiting, 1)
}

func oneStopsHeld(w *world) {
	node, key := w.node(), w.key()
	p := w.message(node, key)
	p.Hold = time.Second
	w.accept(p)
	equal(w, "waiting", idsOf(w.stop(key, store.StopOne, "").Waiting), []string{p.Message.ID})
	w.clock.advance(time.Minute)
	equal(w, "swept", len(w.sweep(w.node())), 0)
}

func oneStopsNothing(w *world) {
	node, key := w.node(), w.key()
	s := w.stop(key, store.StopOne, "")
	equal(w, "met", len(s.Waiting)+len(s.Running), 0)
	try(w.st.Session(w.ctx, key, "")).fails(w, chat.ErrSessionNotFound)
	c, run, _ := w.turn(node, key)
	w.finish(answered(c, run))
	s = w.stop(key, store.StopOne, "")
	equal(w, "met", len(s.Waiting)+len(s.Running), 0)
	w.ended(run, chat.OutcomeAnswered)
}

func runStops(w *world) {
	node, key := w.node(), w.key()
	merged, a := w.acceptText(node, key)
	lead, _ := w.acceptText(node, key)
	c := claimOf(key, a)
	w.start(c, lead, 1, 2)
	other, _ := w.acceptText(node, key)
	third, _ := w.acceptText(node, key)
	equal(w, "waiting", idsOf(w.stop(key, store.StopRun, third).Waiting), []string{third})
	s := w.stop(key, store.StopRun, merged) // a message that a run has taken stands for the run
	equal(w, "running", s.Running, []store.RunningRun{{RunID: lead, Node: node}})
	equal(w, "waiting", len(s.Waiting), 0)
	equal(w, "the other", w.row(other).State, store.StateWaiting)
	w.finish(stopped(c, lead))
	w.ended(merged, chat.OutcomeStopped)
	s = w.stop(key, store.StopRun, lead)
	equal(w, "met after the end", len(s.Waiting)+len(s.Running), 0)
}

func runStopsNothingElse(w *world) {
	node, key, other := w.node(), w.key(), w.key()
	_, run, _ := w.turn(node, key)
	waiting, _ := w.acceptText(node, key)
	w.acceptText(node, other)
	for _, id := range []string{run, waiting, "unknown"} {
		s := w.stop(other, store.StopRun, id)
		equal(w, "met", len(s.Waiting)+len(s.Running), 0)
	}
	equal(w, "stop_by", w.run(run).StopBy, "")
	equal(w, "waiting", w.row(waiting).State, store.StateWaiting)
}

func allStops(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	waiting, _ := w.acceptText(node, key)
	held := w.message(node, key)
	held.Hold = time.Minute
	w.accept(held)
	other, _ := w.acceptText(node, w.key())
	s := w.stop(key, store.StopAll, "")
	equal(w, "waiting", idsOf(s.Waiting), []string{waiting, held.Message.ID})
	equal(w, "running", s.Running, []store.RunningRun{{RunID: run, Node: node}})
	equal(w, "cutoff", s.Cutoff, 3)
	equal(w, "stop_seq", w.session(key).StopSeq, 3)
	equal(w, "waiting", w.session(key).Waiting, 0)
	equal(w, "another session", w.row(other).State, store.StateWaiting)
	w.ended(waiting, chat.OutcomeStopped)
	w.ended(held.Message.ID, chat.OutcomeStopped)
	equal(w, "released", w.finish(stopped(c, run)).Released, true)
	unknown := w.key()
	s = w.stop(unknown, store.StopAll, "")
	equal(w, "met in an unknown session", len(s.Waiting)+len(s.Running), 0)
}

func cutoffLeavesLater(w *world) {
	node, key := w.node(), w.key()
	w.acceptText(node, key)
	w.stop(key, store.StopAll, "")
	later, a := w.acceptText(node, key)
	w.clock.advance(lease)
	taken := w.sweepOne(w.node(), key)
	equal(w, "cutoff", taken.Cutoff, 1)
	equal(w, "messages", idsOf(taken.Messages), []string{later})
	w.start(taken.Claim, later, a.Seq)
	w.finish(answered(taken.Claim, later))
	w.ended(later, chat.OutcomeAnswered)
}

func heartbeatBringsStops(w *world) {
	owner, other, key := w.node(), w.node(), w.key()
	c, run, _ := w.turn(owner, key)
	equal(w, "stops", len(w.beat(owner).Stops), 0)
	w.stop(key, store.StopAll, "")
	for range 2 { // until the run has ended
		equal(w, "stops", w.beat(owner).Stops, []store.StopRequest{{Session: key, RunID: run, By: "bob"}})
	}
	equal(w, "stops of another node", len(w.beat(other).Stops), 0)
	w.finish(stopped(c, run))
	equal(w, "stops after the end", len(w.beat(owner).Stops), 0)
}

func stopSurvivesTakeover(w *world) {
	key := w.key()
	_, run, seq := w.turn(w.node(), key)
	w.stop(key, store.StopAll, "")
	w.clock.advance(lease)
	taken := w.sweepOne(w.node(), key)
	equal(w, "stop_by in the sweep", taken.Runs[run].StopBy, "bob")
	equal(w, "stop_by at the start", w.start(taken.Claim, run, seq).StopBy, "bob")
	w.finish(stopped(taken.Claim, run))
	w.ended(run, chat.OutcomeStopped)
}

func stopSurvivesRequeue(w *world) {
	node, key := w.node(), w.key()
	c, run, seq := w.turn(node, key)
	w.stop(key, store.StopOne, "")
	w.finish(requeued(c, run))
	equal(w, "stop_by at the start", w.start(c, run, seq).StopBy, "bob")
	w.finish(stopped(c, run))
}

func firstStopNamesWho(w *world) {
	node, key := w.node(), w.key()
	_, run, _ := w.turn(node, key)
	w.stop(key, store.StopOne, "")
	try(w.st.Stop(w.ctx, store.StopParams{Session: key, Scope: store.StopAll, By: "eve", Reason: "stopall"})).ok(w)
	equal(w, "stop_by", w.run(run).StopBy, "bob")
}

func stoppedNeverStarts(w *world) {
	node, key := w.node(), w.key()
	id, a := w.acceptText(node, key)
	w.stop(key, store.StopAll, "")
	s, err := w.st.Start(w.ctx, store.StartParams{Claim: claimOf(key, a), RunID: id, Lane: "main", Seqs: []int64{a.Seq}})
	if err == nil {
		equal(w, "started", len(s.Seqs), 0)
	} else {
		w.fails(err, chat.ErrFenced)
	}
	w.ended(id, chat.OutcomeStopped)
}
