package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func holdTests() []test {
	return []test{
		{"AHeldGatewayDoesNothingOnItsOwn", heldDoesNothing},
		{"AHoldKeepsWhoSetItFirst", holdOnce},
		{"MessagesAreAcceptedAndAnsweredWhileHeld", heldAnswers},
	}
}

func (w *world) holdGateway(reason string) {
	w.Helper()
	w.ok(w.st.SetHold(w.ctx, &store.Hold{Who: "ann", Reason: reason}, store.ChangedBy{Who: "cli", Peer: "ann"}))
}

func heldDoesNothing(w *world) {
	node := w.node()
	w.enqueue(w.outgoing("web", "7"))
	w.job(nil)
	dead, _ := w.acceptText(w.node(), w.key())
	w.holdGateway("moving")
	w.pass(2*interval, node)
	equal(w, "the heartbeat", w.beat(node).Hold, &store.Hold{Since: w.clock.now().Add(-2 * interval), Who: "ann", Reason: "moving"})
	equal(w, "outgoing", len(w.claim(node)), 0)
	equal(w, "fires", len(w.claimDue(node).Launched), 0)
	equal(w, "taken over", len(w.sweep(node)), 0)
	waits := try(w.st.Held(w.ctx)).ok(w)
	equal(w, "what waits", []int{waits.Outgoing, waits.Unfinished, len(waits.Due)}, []int{1, 1, 1})
	w.ok(w.st.SetHold(w.ctx, nil, store.ChangedBy{Who: "cli", Peer: "ann"}))
	equal(w, "the heartbeat", w.beat(node).Hold, nil)
	equal(w, "outgoing", len(w.claim(node)), 1)
	equal(w, "a fire", len(w.claimDue(node).Launched), 1)
	taken := w.sweep(node)
	equal(w, "taken over", []any{len(taken), taken[0].Messages[0].MessageID}, []any{1, dead})
	equal(w, "the log of changes", len(w.h.Query(w.tb, `SELECT 1 FROM audit_log WHERE verb IN ('gateway.hold', 'gateway.release')`)), 2)
	w.runTaken(taken[0])
	w.pass(time.Minute, node)
}

func holdOnce(w *world) {
	w.ok(w.st.SetHold(w.ctx, nil, store.ChangedBy{Who: "cli"}))
	w.holdGateway("first")
	w.clock.advance(time.Second)
	w.holdGateway("second")
	h := try(w.st.Hold(w.ctx)).ok(w)
	equal(w, "hold", h, &store.Hold{Since: w.clock.now().Add(-time.Second), Who: "ann", Reason: "first"})
	w.ok(w.st.SetHold(w.ctx, nil, store.ChangedBy{Who: "cli"}))
	h = try(w.st.Hold(w.ctx)).ok(w)
	equal(w, "after the release", h, nil)
	equal(w, "the log of changes has those that changed something", len(w.h.Query(w.tb, `SELECT 1 FROM audit_log`)), 2)
}

func heldAnswers(w *world) {
	w.holdGateway("")
	c, run, _ := w.turn(w.node(), w.key())
	w.finish(answered(c, run))
	w.ended(run, chat.OutcomeAnswered)
	w.ok(w.st.SetHold(w.ctx, nil, store.ChangedBy{Who: "cli"}))
}
