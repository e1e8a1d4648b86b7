package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func noticeTests() []test {
	return []test{
		{"DropsOfABurstAreOneNotice", dropsAreOneNotice},
		{"SeveralVictimsAreCounted", severalDroppedAreCounted},
		{"NoticeThatWasTriedIsNotJoined", triedNoticeIsNotJoined},
		{"EnqueueCountsTheRowsOfAWord", enqueueCountsAWord},
		{"OtherWordsAreOtherNotices", otherWords},
		{"NoticeWithoutAWordStandsAlone", withoutAWord},
		{"NoMessageEndedNoNotice", noMessageEnded},
		{"EndWaitingAndDropsShareANotice", endWaitingShares},
		{"NoticeOfAFailedTurn", noticeOfAFailedTurn},
	}
}

// tele is a message of a person on a channel where failures need a notice.
func (w *world) tele(node string, key chat.SessionKey) store.AcceptParams {
	p := w.message(node, key)
	p.Message.Channel = "telegram:1"
	p.Queue.Cap = 1
	p.DropNotice = w.notice(key)
	return p
}

func (w *world) notice(key chat.SessionKey) *store.Outgoing {
	return &store.Outgoing{
		Session: key, Kind: store.KindNotice, Text: "one message was dropped", TextMany: "%d messages were dropped",
		Coalesce: "drop:" + key.String(), Delay: time.Second, Target: chat.Target{Channel: "telegram:1", ChatID: "5"},
	}
}

func (w *world) notices(node string) []store.Outgoing {
	w.Helper()
	return w.claim(node, "telegram:1")
}

func dropsAreOneNotice(w *world) {
	node, key := w.node(), w.key()
	w.turn(node, key)
	for range 4 {
		w.accept(w.tele(node, key))
	}
	equal(w, "notices before the delay has passed", len(w.notices(node)), 0)
	w.clock.advance(time.Second)
	list := w.notices(node)
	equal(w, "number of notices", len(list), 1)
	equal(w, "count and text", []any{list[0].Count, list[0].TextMany}, []any{3, "%d messages were dropped"})
	equal(w, "kind, session and word", []any{list[0].Kind, list[0].Session, list[0].Coalesce}, []any{store.KindNotice, key, "drop:" + key.String()})
}

func severalDroppedAreCounted(w *world) {
	node, key := w.node(), w.key()
	w.turn(node, key)
	for range 3 {
		p := w.tele(node, key)
		p.Queue.Cap = 0
		w.accept(p)
	}
	w.accept(w.tele(node, key))
	for range 2 {
		p := w.tele(node, key)
		p.Queue.Cap = 0
		w.accept(p)
	}
	w.accept(w.tele(node, key)) // three more, on the notice of the first three
	w.clock.advance(time.Second)
	list := w.notices(node)
	equal(w, "number of notices", len(list), 1)
	equal(w, "count", list[0].Count, 6)
}

func triedNoticeIsNotJoined(w *world) {
	node, key := w.node(), w.key()
	w.turn(node, key)
	w.accept(w.tele(node, key))
	w.accept(w.tele(node, key))
	w.clock.advance(time.Second)
	first := w.notices(node)
	equal(w, "number of notices", len(first), 1)
	equal(w, "count and text", []any{first[0].Count, first[0].Text}, []any{1, "one message was dropped"})
	w.accept(w.tele(node, key)) // while the first is being sent
	w.undelivered(store.UndeliveredParams{Node: node, ID: first[0].ID, Error: "reset", RetryIn: 5 * time.Second})
	w.accept(w.tele(node, key)) // joins the second
	w.clock.advance(time.Second)
	equal(w, "after a notice that waits for its second attempt", len(w.notices(node)), 0)
	w.clock.advance(4 * time.Second)
	w.beat(node)
	again := w.notices(node)
	equal(w, "its second attempt", []any{len(again), again[0].ID, again[0].Count}, []any{1, first[0].ID, 1})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: again[0].ID, ProviderID: "p0"})).ok(w)
	second := w.notices(node)
	equal(w, "number of notices", len(second), 1)
	equal(w, "count", second[0].Count, 2)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: second[0].ID, ProviderID: "p"})).ok(w)
	w.accept(w.tele(node, key))
	w.clock.advance(time.Second)
	third := w.notices(node)
	equal(w, "number of notices", len(third), 1)
	equal(w, "count", third[0].Count, 1)
}

func otherWords(w *world) {
	node, a, b := w.node(), w.key(), w.key()
	for _, key := range []chat.SessionKey{a, b} {
		w.turn(node, key)
		for range 3 {
			p := w.tele(node, key)
			p.DropNotice.Target.ChatID = key.Rest
			w.accept(p)
		}
	}
	w.clock.advance(time.Second)
	list := w.notices(node)
	equal(w, "number of notices", len(list), 2)
	equal(w, "counts", []int{list[0].Count, list[1].Count}, []int{2, 2})
}

func withoutAWord(w *world) {
	node, key := w.node(), w.key()
	w.turn(node, key)
	for range 3 {
		p := w.tele(node, key)
		p.DropNotice.Coalesce = ""
		w.accept(p)
	}
	w.clock.advance(time.Second)
	for range 2 {
		list := w.notices(node)
		equal(w, "number of notices", len(list), 1)
		equal(w, "count", list[0].Count, 1)
		try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: list[0].ID, ProviderID: "p"})).ok(w)
	}
	equal(w, "number of notices", len(w.notices(node)), 0)
}

func noMessageEnded(w *world) {
	node, key := w.node(), w.key()
	w.accept(w.tele(node, key))
	end := store.EndParams{Session: key, Seqs: []int64{7}, Outcome: chat.OutcomeDropped, Notice: w.notice(key)}
	list := try(w.st.EndWaiting(w.ctx, end)).ok(w)
	equal(w, "ended", len(list), 0)
	w.clock.advance(time.Minute)
	equal(w, "number of notices", len(w.notices(w.node())), 0)
}

func endWaitingShares(w *world) {
	node, key := w.node(), w.key()
	w.turn(node, key)
	w.accept(w.tele(node, key))
	w.accept(w.tele(node, key))
	end := store.EndParams{Session: key, Seqs: []int64{2, 3}, Outcome: chat.OutcomeDropped, Reason: "queue_full", Notice: w.notice(key)}
	list := try(w.st.EndWaiting(w.ctx, end)).ok(w)
	equal(w, "ended", seqsOf(list), []int64{3})
	w.clock.advance(time.Second)
	notices := w.notices(node)
	equal(w, "number of notices", len(notices), 1)
	equal(w, "count", notices[0].Count, 2)
}

func noticeOfAFailedTurn(w *world) {
	node, key := w.node(), w.key()
	p := w.tele(node, key)
	a := w.accept(p)
	c := claimOf(key, a)
	w.start(c, p.Message.ID, a.Seq)
	w.finish(store.FinishParams{
		Claim: c, RunID: p.Message.ID, State: store.RunFailed, Outcome: chat.OutcomeFailed, Cause: "auth",
		Outgoing: []store.Outgoing{{N: 1, Session: key, Kind: store.KindNotice, Text: "no answer", Target: chat.Target{Channel: "telegram:1", ChatID: "5"}}},
	})
	list := w.notices(node)
	equal(w, "number of notices", len(list), 1)
	equal(w, "run", list[0].RunID, p.Message.ID)
	w.checkInvariants("after a failed turn of a person")
}

func enqueueCountsAWord(w *world) {
	node, key := w.node(), w.key()
	w.acceptText(node, key)
	enqueue := func(change func(*store.Outgoing)) {
		o := w.notice(key)
		o.ID, o.Count = w.id("notice"), 1
		change(o)
		w.ok(w.st.Enqueue(w.ctx, []store.Outgoing{*o}))
	}
	for range 3 {
		enqueue(func(*store.Outgoing) {})
	}
	enqueue(func(o *store.Outgoing) { o.Coalesce = "another word"; o.Target.ChatID = "6" })
	enqueue(func(o *store.Outgoing) { o.Coalesce = ""; o.Target.ChatID = "7" })
	enqueue(func(o *store.Outgoing) { o.Coalesce = ""; o.Target.ChatID = "8" })
	equal(w, "sent before the delay has passed", len(w.notices(node)), 0)
	w.clock.advance(time.Second)
	var counts []int
	for _, o := range w.notices(node) {
		counts = append(counts, o.Count)
	}
	equal(w, "numbers of the notices", counts, []int{3, 1, 1, 1})
	enqueue(func(*store.Outgoing) {}) // the first one is being sent: a further message gets a notice of its own
	w.clock.advance(time.Second)
	equal(w, "notices while the first is under way", len(w.notices(node)), 0)
}

// unsentAnswer: a run that succeeds without an outgoing row has the reason in its row and in its
// job.
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

// addressGoneOfAChangedJob: the missing address is not the one to which the changed job now sends
// its answers.
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
