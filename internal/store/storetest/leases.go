package storetest

import (
	"time"

	"laneway/internal/store"
)

func leaseTests() []test {
	return []test{
		{"OneHolderAtATime", oneHolder},
		{"NewHolderNewEpoch", newHolderNewEpoch},
		{"ReleaseGivesBack", releaseGivesBack},
		{"DeadNodeGetsNoLease", deadNodeGetsNoLease},
	}
}

const poller = "telegram:1"

// leaseNames are the named leases, and whether a live node holds them.
func (w *world) leaseNames() map[string]bool {
	w.Helper()
	return try(w.st.Cluster(w.ctx)).ok(w).Leases
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

func oneHolder(w *world) {
	first, second := w.node(), w.node()
	l := w.hold(first)
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
	w.clock.advance(lease - time.Millisecond)
	second := w.node()
	_, ok := w.acquire(second)
	equal(w, "taken before the owner died", ok, false)
	w.clock.advance(time.Millisecond)
	next := w.hold(second)
	equal(w, "lease of the second node", next, store.Lease{Name: poller, Owner: second, Epoch: l.Epoch + 1})
	w.ok(w.st.Unregister(w.ctx, second))
	third := w.hold(w.node()) // immediately after a clean stop
	equal(w, "epoch after a clean stop", third.Epoch, l.Epoch+2)
}

func releaseGivesBack(w *world) {
	first, second := w.node(), w.node()
	l := w.hold(first)
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
	equal(w, "epoch after a release", next.Epoch, l.Epoch+1)
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
