package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func leaseTests() []test {
	return []test{
		{"OneHolderAtATime", oneHolder},
		{"NewHolderNewEpoch", newHolderNewEpoch},
		{"ReleaseGivesBack", releaseGivesBack},
		{"DeadNodeGetsNoLease", deadNodeGetsNoLease},
		{"OffsetMovesWithTheMessage", offsetMoves},
		{"DuplicateMovesTheOffset", duplicateMovesOffset},
		{"OffsetNeverGoesBack", offsetNeverGoesBack},
		{"LostLeaseStoresNothing", lostLeaseStoresNothing},
		{"RefusalMovesNothing", refusalMovesNothing},
	}
}

const poller = "telegram:1"

// leaseNames are the named leases, and whether a live node holds them.
func (w *world) leaseNames() map[string]bool {
	w.Helper()
	held, err := w.st.NamedLeases(w.ctx)
	w.ok(err)
	return held
}

func (w *world) acquire(node string) (store.Lease, bool) {
	w.Helper()
	l, ok, err := w.st.AcquireLease(w.ctx, poller, node)
	w.ok(err)
	return l, ok
}

// hold takes the lease, which must be free.
func (w *world) hold(node string) store.Lease {
	w.Helper()
	l, ok := w.acquire(node)
	if !ok || l.Owner != node || l.Name != poller || l.Epoch < 1 {
		w.Fatalf("lease: %+v, %v", l, ok)
	}
	return l
}

// update is a message of the poller; the offset moves behind it.
func (w *world) update(l store.Lease, key chat.SessionKey, number int64) store.AcceptParams {
	p := w.message(l.Owner, key)
	p.Message.Channel, p.Message.ExternalID = poller, number
	l.NextOffset = number + 1
	p.Offset = &l
	return p
}

func oneHolder(w *world) {
	first, second := w.node(), w.node()
	l := w.hold(first)
	equal(w, "offset", l.NextOffset, 0)
	_, ok := w.acquire(second)
	equal(w, "taken by a second node", ok, false)
	again := w.hold(first)
	equal(w, "confirmed", again, l)
	equal(w, "leases", w.beat(first).Leases, []string{poller})
	equal(w, "named leases", w.leaseNames(), map[string]bool{poller: true})
	equal(w, "leases of the other node", len(w.beat(second).Leases), 0)
}

func newHolderNewEpoch(w *world) {
	first := w.node()
	l := w.hold(first)
	w.accept(w.update(l, w.key(), 10))
	w.clock.advance(lease - time.Millisecond)
	second := w.node()
	_, ok := w.acquire(second)
	equal(w, "taken before the owner died", ok, false)
	w.clock.advance(time.Millisecond)
	next := w.hold(second)
	equal(w, "lease of the second node", next, store.Lease{Name: poller, Owner: second, Epoch: l.Epoch + 1, NextOffset: 11})
	w.ok(w.st.Unregister(w.ctx, second))
	third := w.hold(w.node()) // at once after a clean stop
	equal(w, "epoch and offset", []int64{third.Epoch, third.NextOffset}, []int64{l.Epoch + 2, 11})
}

func releaseGivesBack(w *world) {
	first, second := w.node(), w.node()
	l := w.hold(first)
	w.accept(w.update(l, w.key(), 10))
	for _, stale := range []store.Lease{
		{Name: poller, Owner: first, Epoch: l.Epoch - 1}, {Name: poller, Owner: second, Epoch: l.Epoch}, {Name: "other", Owner: first, Epoch: 1},
	} {
		w.ok(w.st.ReleaseLease(w.ctx, stale))
	}
	_, ok := w.acquire(second)
	equal(w, "taken after a release that is not current", ok, false)
	w.ok(w.st.ReleaseLease(w.ctx, l))
	equal(w, "leases", len(w.beat(first).Leases), 0)
	equal(w, "named leases after the release", w.leaseNames(), map[string]bool{poller: false})
	next := w.hold(second)
	equal(w, "epoch and offset", []int64{next.Epoch, next.NextOffset}, []int64{l.Epoch + 1, 11})
	w.ok(w.st.ReleaseLease(w.ctx, l))
	equal(w, "leases of the second node", w.beat(second).Leases, []string{poller})
}

func deadNodeGetsNoLease(w *world) {
	dead := w.node()
	w.clock.advance(lease)
	for _, node := range []string{dead, "unregistered"} {
		_, ok, err := w.st.AcquireLease(w.ctx, poller, node)
		equal(w, "taken by a dead node", err == nil && ok, false)
	}
	w.hold(w.node())
}

func offsetMoves(w *world) {
	node, key := w.node(), w.key()
	l := w.hold(node)
	for number := int64(100); number < 103; number++ {
		w.accept(w.update(l, key, number))
		equal(w, "offset", w.hold(node).NextOffset, number+1)
	}
	command := w.update(l, key, 103)
	command.Unqueued = true
	w.accept(command)
	equal(w, "offset after a command", w.hold(node).NextOffset, 104)
}

func duplicateMovesOffset(w *world) {
	node, key := w.node(), w.key()
	l := w.hold(node)
	p := w.update(l, key, 100)
	without := p
	without.Offset = nil
	w.accept(without)
	if a := w.accept(p); !a.Duplicate {
		w.Fatalf("want a duplicate, got %+v", a)
	}
	equal(w, "offset", w.hold(node).NextOffset, 101)
}

func offsetNeverGoesBack(w *world) {
	node, key := w.node(), w.key()
	l := w.hold(node)
	old := w.update(l, key, 100)
	w.accept(old)
	w.accept(w.update(l, key, 101))
	if a := w.accept(old); !a.Duplicate {
		w.Fatalf("want a duplicate, got %+v", a)
	}
	equal(w, "offset", w.hold(node).NextOffset, 102)
}

func lostLeaseStoresNothing(w *world) {
	first, key := w.node(), w.key()
	l := w.hold(first)
	known := w.update(l, key, 1)
	w.accept(known)
	w.clock.advance(lease)
	second := w.node()
	refused := func(p store.AcceptParams, why string) {
		w.Helper()
		_, err := w.st.Accept(w.ctx, p)
		w.fails(err, chat.ErrFenced)
		_, err = w.st.MessageByID(w.ctx, p.Message.ID)
		w.fails(err, chat.ErrNotFound)
		equal(w, "last_seq after "+why, w.session(key).LastSeq, 1)
	}
	refused(w.update(l, key, 2), "the owner died")
	next := w.hold(second)
	refused(w.update(l, key, 2), "another node took it")
	stale := next
	stale.Epoch--
	refused(w.update(stale, key, 2), "an old epoch")
	unknown := next
	unknown.Name = "telegram:2"
	refused(w.update(unknown, key, 2), "an unknown lease")
	fresh := w.update(l, w.key(), 2)
	_, err := w.st.Accept(w.ctx, fresh)
	w.fails(err, chat.ErrFenced)
	_, err = w.st.Session(w.ctx, fresh.Message.Session, "")
	w.fails(err, chat.ErrSessionNotFound)
	known.Offset.NextOffset = 50
	_, err = w.st.Accept(w.ctx, known)
	w.fails(err, chat.ErrFenced)
	equal(w, "offset", w.hold(second).NextOffset, 2)
	w.accept(w.update(next, key, 2))
	equal(w, "offset", w.hold(second).NextOffset, 3)
}

func refusalMovesNothing(w *world) {
	node, key := w.node(), w.key()
	l := w.hold(node)
	w.accept(w.update(l, key, 1))
	p := w.update(l, key, 2)
	p.Cap, p.Drop = 1, chat.DropNew
	_, err := w.st.Accept(w.ctx, p)
	w.fails(err, chat.ErrQueueFull)
	equal(w, "offset", w.hold(node).NextOffset, 2)
}
