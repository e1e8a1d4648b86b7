package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func deadNodeMayHaveSent(w *world) {
	first := w.node()
	o, next := w.outgoing("web", "1"), w.outgoing("web", "1")
	w.enqueue(o)
	w.clock.advance(time.Millisecond)
	w.enqueue(next)
	w.claimOne(first)
	w.clock.advance(lease)
	second := w.node()
	got := w.claimOne(second)
	equal(w, "row, attempt and maybe sent", []any{got.ID, got.Attempt, got.MaybeSent}, []any{o.ID, 2, true})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: first, ID: o.ID, ProviderID: "late"})).fails(w, chat.ErrFenced)
	w.undelivered(store.UndeliveredParams{Node: second, ID: o.ID, Error: "reset"})
	again := w.claimOne(second)
	equal(w, "maybe sent stays", []any{again.ID, again.MaybeSent}, []any{o.ID, true})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: second, ID: o.ID, ProviderID: "p"})).ok(w)
	got = w.claimOne(second)
	equal(w, "row and maybe sent", []any{got.ID, got.MaybeSent}, []any{next.ID, false})
}

func cleanStopMayHaveSent(w *world) {
	first := w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	w.claimOne(first)
	w.ok(w.st.Unregister(w.ctx, first))
	got := w.claimOne(w.node())
	equal(w, "row and maybe sent", []any{got.ID, got.MaybeSent}, []any{o.ID, true})
}

func progressIsKept(w *world) {
	first, other := w.node(), w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	w.fails(w.st.RecordProgress(w.ctx, first, o.ID, "early"), chat.ErrFenced)
	equal(w, "progress of the first attempt", w.claimOne(first).Progress, "")
	w.fails(w.st.RecordProgress(w.ctx, other, o.ID, "foreign"), chat.ErrFenced)
	w.ok(w.st.RecordProgress(w.ctx, first, o.ID, "part 1"))
	w.ok(w.st.RecordProgress(w.ctx, first, o.ID, "part 2"))
	w.undelivered(store.UndeliveredParams{Node: first, ID: o.ID, Error: "429"})
	equal(w, "progress after a failure", w.claimOne(first).Progress, "part 2")
	w.undelivered(store.UndeliveredParams{Node: first, ID: o.ID, Error: "429", Progress: "part 3"})
	equal(w, "progress that came with a failure", w.claimOne(first).Progress, "part 3")
	w.ok(w.st.Unregister(w.ctx, first))
	equal(w, "progress after the end of its node", w.claimOne(other).Progress, "part 3")
	w.fails(w.st.RecordProgress(w.ctx, first, o.ID, "late"), chat.ErrFenced)
}

// itsNodeSendsFirst checks that a row of a node waits for it, and holds back later rows of its chat.
func itsNodeSendsFirst(w *world) {
	own, other := w.node(), w.node()
	o, next := w.outgoing("web", "1"), w.outgoing("web", "1")
	o.First, o.Progress = own, "preview 7"
	w.enqueue(o, next)
	equal(w, "rows for the other node", len(w.claim(other)), 0)
	got := w.claimOne(own)
	equal(w, "row and progress", []any{got.ID, got.Progress}, []any{o.ID, "preview 7"})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: own, ID: o.ID, ProviderID: "p"})).ok(w)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: other, ID: w.claimOne(other).ID, ProviderID: "p"})).ok(w)

	late, failed := w.outgoing("web", "1"), w.outgoing("web", "2")
	late.First, failed.First = own, own
	w.enqueue(late)
	w.clock.advance(store.FirstTime - time.Millisecond)
	equal(w, "rows for the other node just before the end", len(w.claim(other)), 0)
	w.clock.advance(time.Millisecond)
	equal(w, "row after the end", w.claimOne(other).ID, late.ID)
	w.enqueue(failed)
	w.claimOne(own)
	w.undelivered(store.UndeliveredParams{Node: own, ID: failed.ID, Error: "429"})
	equal(w, "row after a failed attempt", w.claimOne(other).ID, failed.ID)
}

// previewIsKept checks that a later attempt of a run gets what shows its unfinished answer, and the mark that its agent has read text from outside.
func previewIsKept(w *world) {
	node, key := w.node(), w.key()
	c, run, seq := w.turn(node, key)
	w.fails(w.st.RecordPreview(w.ctx, store.Claim{Session: key, Node: node, Epoch: c.Epoch + 1}, run, "foreign"), chat.ErrFenced)
	w.ok(w.st.RecordPreview(w.ctx, c, run, "message 1"))
	w.ok(w.st.RecordPreview(w.ctx, c, run, "message 2"))
	w.fails(w.st.RecordOutside(w.ctx, store.Claim{Session: key, Node: node, Epoch: c.Epoch + 1}, run), chat.ErrFenced)
	equal(w, "mark of a run under another claim", w.run(run).Outside, false)
	w.ok(w.st.RecordOutside(w.ctx, c, run))
	program := chat.Program{Host: "a", PID: 7, Started: "boot 9"}
	w.fails(w.st.RecordProgram(w.ctx, store.Claim{Session: key, Node: node, Epoch: c.Epoch + 1}, run, program), chat.ErrFenced)
	w.ok(w.st.RecordProgram(w.ctx, c, run, chat.Program{PID: 6}))
	w.ok(w.st.RecordProgram(w.ctx, c, run, program))
	w.ok(w.st.Unregister(w.ctx, node))
	next := w.node()
	taken := w.sweepOne(next, key)
	again := w.start(taken.Claim, run, seq)
	equal(w, "preview, mark and program at the start of the next attempt", []any{again.Preview, again.Outside, again.Program}, []any{"message 2", true, program})
	equal(w, "preview and mark of the run", []any{w.run(run).Preview, w.run(run).Outside}, []any{"message 2", true})
	oc, other, _ := w.turn(next, w.key())
	p := answered(oc, other)
	p.Outside = true
	try(w.st.Finish(w.ctx, p)).ok(w)
	equal(w, "mark at the end", w.run(other).Outside, true)
}

func unknownEndIsClosed(w *world) {
	node := w.node()
	o, next := w.outgoing("web", "1"), w.outgoing("web", "1")
	w.enqueue(o)
	w.clock.advance(time.Millisecond)
	w.enqueue(next)
	w.claimOne(node)
	w.undelivered(store.UndeliveredParams{Node: node, ID: o.ID, Error: "canceled", Permanent: true, MaybeSent: true})
	equal(w, "counts", w.counts(), store.OutboxCount{Waiting: 1, MaybeSent: 1})
	equal(w, "the row that is claimed next", w.claimOne(node).ID, next.ID)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "late"})).fails(w, chat.ErrFenced)
}

func liveNodeKeepsItsRow(w *world) {
	first, second := w.node(), w.node()
	w.enqueue(w.outgoing("web", "1"))
	w.claimOne(first)
	for range 10 {
		w.clock.advance(lease - time.Second)
		w.beat(first)
		w.beat(second)
		equal(w, "claimed while the sender lives", len(w.claim(second)), 0)
		equal(w, "claimed by the sender again", len(w.claim(first)), 0)
	}
}

func deliveredNeedsID(w *world) {
	node := w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	w.claimOne(node)
	if _, err := w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: ""}); err == nil {
		w.Fatalf("delivered without the provider's id")
	}
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{Waiting: 1})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "p"})).ok(w)
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{})
}

func onlyTheSenderReports(w *world) {
	node, other := w.node(), w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "p"})).fails(w, chat.ErrFenced)
	w.claimOne(node)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: other, ID: o.ID, ProviderID: "p"})).fails(w, chat.ErrFenced)
	try(w.st.Undelivered(w.ctx, store.UndeliveredParams{Node: other, ID: o.ID, Permanent: true})).fails(w, chat.ErrFenced)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: w.id("out"), ProviderID: "p"})).fails(w, chat.ErrFenced)
	equal(w, "claimed", len(w.claim(other)), 0)
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{Waiting: 1})
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "p"})).ok(w)
}

func tooLateExpires(w *world) {
	node := w.node()
	o, onTime := w.outgoing("web", "1"), w.outgoing("web", "2")
	o.ExpiresAt = w.clock.now().Add(10 * time.Second)
	onTime.ExpiresAt = w.clock.now().Add(11 * time.Second)
	w.enqueue(o, onTime)
	w.clock.advance(10*time.Second + time.Millisecond)
	list := w.claim(node)
	byID := map[string]bool{}
	for _, got := range list {
		byID[got.ID] = got.Expired
	}
	equal(w, "expired", byID, map[string]bool{o.ID: true, onTime.ID: false})
	equal(w, "told again", len(w.claim(node)), 0)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: o.ID, ProviderID: "p"})).fails(w, chat.ErrFenced)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: onTime.ID, ProviderID: "p"})).ok(w)
	equal(w, "waiting and failed", w.counts(), store.OutboxCount{})
}

func deadNodeClaimsNothing(w *world) {
	dead := w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	w.clock.advance(lease)
	for _, node := range []string{dead, "unregistered"} {
		list, err := w.st.ClaimOutgoing(w.ctx, store.ClaimOutgoingParams{Node: node, Channels: []string{"web"}, Limit: many})
		if err == nil {
			equal(w, "claimed by a dead node", len(list), 0)
		}
	}
	got := w.claimOne(w.node())
	equal(w, "attempt and maybe sent", []any{got.Attempt, got.MaybeSent}, []any{1, false})
}

// lostClaimIsRepeated: the result of a claim was lost, so the node does not know what it has taken.
func lostClaimIsRepeated(w *world) {
	node, other := w.node(), w.node()
	first, sent, second := w.outgoing("web", "1"), w.outgoing("web", "2"), w.outgoing("web", "1")
	w.enqueue(first, sent)
	w.clock.advance(time.Millisecond)
	w.enqueue(second)
	lost := w.claim(node)
	equal(w, "claimed", outIDs(lost), []string{first.ID, sent.ID})
	w.sending[node] = []string{sent.ID}
	equal(w, "claimed by another node", len(w.claim(other)), 0)
	w.clock.advance(time.Second)
	for range 2 {
		w.sending[node] = []string{sent.ID}
		again := w.claim(node)
		equal(w, "claimed again", again, lost[:1])
	}
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: sent.ID, ProviderID: "p"})).ok(w)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: first.ID, ProviderID: "p"})).ok(w)
	equal(w, "the next of the chat", w.claimOne(node).ID, second.ID)
}

// unrecordedMayHaveBeenSent: the attempt has ended, and its result could not be written.
func unrecordedMayHaveBeenSent(w *world) {
	node := w.node()
	o := w.outgoing("web", "1")
	w.enqueue(o)
	w.claimOne(node)
	equal(w, "claimed while it is sent", len(w.claim(node)), 0)
	w.sending[node] = nil
	got := w.claimAtMost(store.ClaimOutgoingParams{Node: node, Channels: []string{"web"}, Limit: many, Unrecorded: []string{o.ID}})
	equal(w, "claimed", outIDs(got), []string{o.ID})
	equal(w, "attempt and maybe sent", []any{got[0].Attempt, got[0].MaybeSent}, []any{2, true})
}
