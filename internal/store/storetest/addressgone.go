package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// unsentAnswer: a run that succeeds without an outgoing row has the reason in its row and in its job.
func unsentAnswer(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) {
		e.Delivery, e.DeliveryError = cron.DeliveryNot, "no receiver"
		e.Job = func(old cron.Job, r cron.Run, now time.Time) *cron.Job {
			next, _ := old.After(r, now)
			return next
		}
	})
	r := w.ledger(l.Run.ID)
	equal(w, "run", []any{r.State, r.Delivery, r.DeliveryError}, []any{cron.RunOK, cron.DeliveryNot, "no receiver"})
	st := w.stored(j.ID).State
	equal(w, "job", []any{st.LastDelivery, st.LastDeliveryError}, []any{cron.DeliveryNot, "no receiver"})
}

// goneOf is what a node writes when the address of an answer no longer exists.
func (w *world) goneOf(node string, j cron.Job, o store.Outgoing) store.UndeliveredParams {
	return store.UndeliveredParams{
		Node: node, ID: o.ID, Error: "blocked", Permanent: true,
		Gone: &store.GoneAddress{JobID: j.ID, Revision: j.Revision, Outgoing: []store.Outgoing{w.outgoing("ops", "1")}},
	}
}

// wantNotices checks how many notices about a pause were added since the last check.
func (w *world) wantNotices(node string, notices int) {
	w.Helper()
	equal(w, "notices", len(w.claim(node, "ops")), notices)
}

func addressGone(w *world) {
	node := w.node()
	j := w.job(nil)
	before := w.revision()
	l, o := w.replied(node)
	p := w.goneOf(node, j, o)
	gone := try(w.st.Undelivered(w.ctx, p)).ok(w)
	r := w.ledger(l.Run.ID)
	equal(w, "run", []any{r.State, r.Delivery, r.DeliveryError}, []any{cron.RunOK, cron.DeliveryNot, "blocked"})
	want := cron.DeliveryPause{Since: w.clock.now(), Reason: "blocked", Channel: "web", ChatID: "1"}
	after := w.stored(j.ID)
	equal(w, "pause", after.State.DeliveryPause, want)
	equal(w, "definition", []any{after.Revision, after.MayFire(), after.State.NextRunAt.IsZero(), w.revision()}, []any{j.Revision, true, false, before})
	equal(w, "what the caller learns", *gone.Job, after)
	w.wantNotices(node, 1)
	try(w.st.Undelivered(w.ctx, p)).fails(w, chat.ErrFenced)

	// The answer of another run that was being sent ends, without a second notice.
	_, o = w.replied(node)
	again := w.goneOf(node, j, o)
	w.clock.advance(time.Second)
	gone = try(w.st.Undelivered(w.ctx, again)).ok(w)
	equal(w, "paused again", gone.Job == nil, true)
	equal(w, "pause", w.stored(j.ID).State.DeliveryPause, want)
	w.wantNotices(node, 0)
}

// addressGoneOfAChangedJob: the missing address is not the one to which the changed job now sends its answers.
func addressGoneOfAChangedJob(w *world) {
	node := w.node()
	j := w.job(nil)
	l, o := w.replied(node)
	w.alter(j.ID, func(j *cron.Job) { j.Delivery.To, j.Revision = "2", "r2" })
	gone := try(w.st.Undelivered(w.ctx, w.goneOf(node, j, o))).ok(w)
	equal(w, "paused", []any{gone.Job == nil, w.stored(j.ID).State.DeliveryPause}, []any{true, cron.DeliveryPause{}})
	equal(w, "run", w.ledger(l.Run.ID).Delivery, cron.DeliveryNot)
	w.wantNotices(node, 0)

	l, o = w.replied(node)
	try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Change: func(cron.Job, time.Time) (*cron.Job, error) { return nil, nil }})).ok(w)
	try(w.st.Undelivered(w.ctx, w.goneOf(node, j, o))).ok(w)
	equal(w, "run of a job that was removed", w.ledger(l.Run.ID).Delivery, cron.DeliveryNot)
	w.wantNotices(node, 0)
}

// addressGoneByAStaleNode: a node whose row is leased to another one changes nothing.
func addressGoneByAStaleNode(w *world) {
	old := w.node()
	j := w.job(nil)
	l, o := w.replied(old)
	w.ok(w.st.Unregister(w.ctx, old))
	node := w.node()
	equal(w, "given back", w.claimOne(node).ID, o.ID)
	try(w.st.Undelivered(w.ctx, w.goneOf(old, j, o))).fails(w, chat.ErrFenced)
	equal(w, "run", []any{w.ledger(l.Run.ID).Delivery, w.stored(j.ID).State.DeliveryPause}, []any{cron.DeliveryUnknown, cron.DeliveryPause{}})
	w.wantNotices(node, 0)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "7"})).ok(w)
	equal(w, "delivered", w.ledger(l.Run.ID).Delivery, cron.DeliveryDone)
}
