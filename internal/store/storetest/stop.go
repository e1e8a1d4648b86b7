package storetest

import (
	"context"
	"errors"
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
		{"RepeatedStopReturnsWhatTheFirstEnded", repeatedStop},
		{"WaitingMessagesAreCountedByPrincipalAndNode", waitingOf},
	}
}

func (w *world) stop(key chat.SessionKey, scope store.StopScope, id string) store.Stopped {
	w.Helper()
	return try(w.st.Stop(w.ctx, store.StopParams{Session: key, Scope: scope, MessageID: id, By: "bob", Reason: "stop"})).ok(w)
}

// repeatedStop loses the response to a stop.
func repeatedStop(w *world) {
	node, key := w.node(), w.key()
	earlier, _ := w.acceptText(node, key)
	w.stop(key, store.StopAll, "")
	w.clock.advance(time.Minute)
	first, _ := w.acceptText(node, key)
	second, _ := w.acceptText(node, key)
	w.clock.advance(time.Second)
	w.stop(key, store.StopAll, "")
	w.clock.advance(time.Second)
	third, _ := w.acceptText(node, key)
	p := store.StopParams{Session: key, Scope: store.StopAll, By: "bob", Reason: "stop", Again: 2 * time.Second}
	s := try(w.st.Stop(w.ctx, p)).ok(w)
	equal(w, "ended by both, and none that ended before", idsOf(s.Waiting), []string{first, second, third})
	equal(w, "the earlier one", w.row(earlier).Outcome, chat.OutcomeStopped)
	p = store.StopParams{Session: key, Scope: store.StopRun, MessageID: second, By: "bob", Reason: "stop", Again: 3 * time.Second}
	equal(w, "one", idsOf(try(w.st.Stop(w.ctx, p)).ok(w).Waiting), []string{second})
}

func waitingOf(w *world) {
	node, other := w.node(), w.node()
	count := func(node, principal string, most int) int {
		return try(w.st.WaitingOf(w.ctx, node, principal, most)).ok(w)
	}
	key := w.key()
	id, a := w.acceptText(node, key)
	for range 3 {
		w.acceptText(node, key)
	}
	p := w.message(node, key)
	p.Message.Principal = "ben"
	w.accept(p)
	w.acceptText(other, w.key())
	equal(w, "of ann", []int{count(node, "ann", 10), count(other, "ann", 10), count(node, "ben", 10), count(node, "nemo", 10)}, []int{4, 1, 1, 0})
	equal(w, "as far as it matters", count(node, "ann", 2), 3)
	w.start(claimOf(key, a), id, a.Seq)
	equal(w, "when one runs", count(node, "ann", 10), 3)
	var ahead []int
	for _, t := range w.turns(store.TurnFilter{Which: store.TurnsWaiting, Session: key}) {
		ahead = append(ahead, t.Ahead)
	}
	equal(w, "messages ahead", ahead, []int{0, 1, 2, 3})
	w.stop(key, store.StopAll, "")
	equal(w, "when they have ended", count(node, "ann", 10), 0)
}

func oneStopsTheOldestRun(w *world) {
	node, key := w.node(), w.key()
	var runs []string
	var c store.Claim
	for range 2 {
		p := w.message(node, key)
		p.Queue.MaxConcurrent = 2
		a := w.accept(p)
		c = claimOf(key, a)
		w.start(c, p.Message.ID, a.Seq)
		runs = append(runs, p.Message.ID)
		w.clock.advance(time.Millisecond)
	}
	p := w.message(node, key)
	p.Queue.MaxConcurrent = 2
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
	typed(&p, time.Second)
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
	typed(&held, time.Minute)
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
	equal(w, "cutoff", w.stop(key, store.StopAll, "").Cutoff, 1)
	later, a := w.acceptText(node, key)
	w.clock.advance(lease)
	taken := w.sweepOne(w.node(), key)
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

func cancelTests() []test {
	return []test{
		{"EndedBeforeTheStart", endedBeforeTheStart},
		{"EndedAtAnyPoint", endedAtAnyPoint},
	}
}

// endedBeforeTheStart calls every writing operation with a context that has ended: it returns the
// context's error and writes nothing.
func endedBeforeTheStart(w *world) {
	node, key := w.node(), w.key()
	l := w.hold(node)
	c, run, _ := w.turn(node, key)
	waiting, a := w.acceptText(node, key)
	out := w.outgoing("web", "1")
	w.enqueue(out)
	w.claimOne(node)
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	before := w.picture(key, run)
	todo := leftOver{lease: l, claim: c, run: run, waiting: waiting, seq: a.Seq, out: out.ID}
	for name, call := range w.writes(ctx, todo) {
		if err := call(); err == nil {
			w.Errorf("%s returns no error although its context has ended", name)
		} else if errors.Is(err, chat.ErrFenced) || errors.Is(err, chat.ErrConflict) {
			w.Errorf("%s was refused (%v) although its context has ended", name, err)
		}
	}
	equal(w, "the store", w.picture(key, run), before)
	equal(w, "lease", w.hold(node), l)
	equal(w, "waiting message", w.row(waiting).State, store.StateWaiting)
	w.beat(node)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: out.ID, ProviderID: "p"})).ok(w)
	w.finish(answered(c, run))
}

// leftOver are the objects of the writes: a run in progress, a waiting message, an outgoing one and
// a lease.
type leftOver struct {
	lease        store.Lease
	claim        store.Claim
	run, waiting string
	seq          int64
	out          string
}

func (w *world) writes(ctx context.Context, todo leftOver) map[string]func() error {
	l, c, run, waiting, seq, out := todo.lease, todo.claim, todo.run, todo.waiting, todo.seq, todo.out
	key, node := c.Session, c.Node
	end := store.EndParams{Session: key, Seqs: []int64{seq}, Outcome: chat.OutcomeDropped}
	stop := store.StopParams{Session: key, Scope: store.StopAll, By: "bob"}
	start := store.StartParams{Claim: c, RunID: waiting, Lane: "main", Seqs: []int64{seq}}
	return map[string]func() error{
		"Register":     func() error { return w.st.Register(ctx, store.Node{ID: "late", Exclusive: true}) },
		"Unregister":   func() error { return w.st.Unregister(ctx, node) },
		"ReleaseLease": func() error { return w.st.ReleaseLease(ctx, l) },
		"EndStopping":  func() error { return w.st.EndStopping(ctx, c, run) },
		"Heartbeat":    func() error { _, err := w.st.Heartbeat(ctx, node, false); return err },
		"Accept":       func() error { _, err := w.st.Accept(ctx, w.message(node, key)); return err },
		"Start":        func() error { _, err := w.st.Start(ctx, start); return err },
		"Join":         func() error { start.RunID = run; _, err := w.st.Join(ctx, start); return err },
		"Finish":       func() error { _, err := w.st.Finish(ctx, answered(c, run)); return err },
		"EndWaiting":   func() error { _, err := w.st.EndWaiting(ctx, end); return err },
		"Stop":         func() error { _, err := w.st.Stop(ctx, stop); return err },
		"Sweep":        func() error { _, err := w.st.Sweep(ctx, store.SweepParams{Node: node, Limit: many}); return err },
		"ResetSession": func() error {
			_, err := w.st.ResetSession(ctx, store.ResetParams{Session: key, Principal: "ann", NewID: "late"})
			return err
		},
		"DeleteSession": func() error { _, err := w.st.DeleteSession(ctx, store.DeleteParams{Session: key}); return err },
		"SetSession": func() error {
			return w.st.SetSession(ctx, key, "ann", store.SessionSettings{Mode: new(chat.ModeCollect)})
		},
		"GiveSession": func() error { return w.st.GiveSession(ctx, key, "ann", "late") },
		"Enqueue":     func() error { return w.st.Enqueue(ctx, []store.Outgoing{w.outgoing("web", "9")}) },
		"Delivered": func() error {
			_, err := w.st.Delivered(ctx, store.DeliveredParams{Node: node, ID: out, ProviderID: "late"})
			return err
		},
		"Undelivered": func() error {
			_, err := w.st.Undelivered(ctx, store.UndeliveredParams{Node: node, ID: out})
			return err
		},
		"address gone": func() error {
			_, err := w.st.Undelivered(ctx, store.UndeliveredParams{Node: node, ID: out, Permanent: true, Gone: &store.GoneAddress{}})
			return err
		},
		"AppendTranscript": func() error { _, err := w.st.AppendTranscript(ctx, key, "ann", nil); return err },
		"ClaimOutgoing": func() error {
			_, err := w.st.ClaimOutgoing(ctx, store.ClaimOutgoingParams{Node: node, Channels: []string{"web"}, Limit: many})
			return err
		},
	}
}

// endedAtAnyPoint cancels an operation in progress. Whatever it returns, repeating the operation
// leads to the same state as running it once.
func endedAtAnyPoint(w *world) {
	node, key := w.node(), w.key()
	for i := range 25 {
		p := w.message(node, key)
		var first store.Accepted
		err := w.cancelled(func(ctx context.Context) (err error) {
			first, err = w.st.Accept(ctx, p)
			return err
		})
		a := w.accept(p)
		if err == nil && (!a.Duplicate || first.Seq != a.Seq) {
			w.Fatalf("acknowledged as %+v, and then %+v", first, a)
		}
		equal(w, "sequence number", a.Seq, int64(i+1))
		w.cancelledTurn(store.Claim{Session: key, Node: node, Epoch: w.session(key).Epoch}, p.Message.ID, a.Seq)
	}
}

func (w *world) cancelledTurn(c store.Claim, run string, seq int64) {
	w.Helper()
	start := store.StartParams{Claim: c, RunID: run, Lane: "main", Seqs: []int64{seq}}
	_ = w.cancelled(func(ctx context.Context) error { // both ends are legal, the repetition decides
		_, err := w.st.Start(ctx, start)
		return err
	})
	try(w.st.Start(w.ctx, start)).ok(w)
	r := w.run(run)
	equal(w, "state and attempt", []any{r.State, r.Attempt}, []any{store.RunRunning, 1})
	_ = w.cancelled(func(ctx context.Context) error { // both ends are legal, the repetition decides
		_, err := w.st.Finish(ctx, answered(c, run))
		return err
	})
	try(w.st.Finish(w.ctx, answered(c, run))).ok(w)
	w.ended(run, chat.OutcomeAnswered)
	equal(w, "done_seq", w.session(c.Session).DoneSeq, seq)
}

// cancelled runs op while another goroutine cancels its context, and waits for both.
func (w *world) cancelled(op func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		cancel()
	}()
	err := op(ctx)
	<-done
	return err
}
