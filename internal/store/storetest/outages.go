package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func outageTests() []test {
	return []test{
		{"ACleanStopBeginsOneAndAStartEndsIt", outageOfAStop},
		{"ACrashBeginsOneWithTheLastHeartbeat", outageOfACrash},
		{"NoneWhileAnotherProcessFires", noOutageWithAnother},
		{"AProcessThatFiresNoJobsChangesNothing", noOutageOfOthers},
		{"ChangesOfAJobAreListed", changesOfAJob},
	}
}

// firing registers a process that fires jobs.
func (w *world) firing(exclusive bool) string {
	w.Helper()
	id := w.id("node")
	w.ok(w.st.Register(w.ctx, store.Node{ID: id, Lease: lease, Fires: true, Exclusive: exclusive}))
	return id
}

// past is the store's history of jobs.
func (w *world) past() cron.History {
	w.Helper()
	h, ok := w.st.(cron.History)
	if !ok {
		w.Fatalf("the store keeps no history of jobs")
	}
	return h
}

func (w *world) outages() []cron.Outage {
	w.Helper()
	list := try(w.past().Past(w.ctx, "", "", time.UnixMilli(1), many)).ok(w).Outages
	for i := range list {
		list[i].From = list[i].From.UTC()
		if !list[i].Until.IsZero() {
			list[i].Until = list[i].Until.UTC()
		}
	}
	return list
}

func outageOfAStop(w *world) {
	node := w.firing(false)
	equal(w, "outages of the first start", len(w.outages()), 0)
	w.clock.advance(time.Minute)
	from := w.clock.now()
	w.ok(w.st.Unregister(w.ctx, node))
	equal(w, "outages", w.outages(), []cron.Outage{{From: from}})
	w.clock.advance(time.Hour)
	until := w.clock.now()
	w.firing(false)
	equal(w, "outages", w.outages(), []cron.Outage{{From: from, Until: until}})
	list := try(w.past().Past(w.ctx, "", "", until, many)).ok(w).Outages
	equal(w, "outages after its end", len(list), 0)
	w.clock.advance(401 * 24 * time.Hour)
	w.firing(true)
	equal(w, "outages that are kept", len(w.outages()), 1) // the outage of the process that has crashed meanwhile
}

func outageOfACrash(w *world) {
	node := w.firing(false)
	w.clock.advance(10 * time.Second)
	w.beat(node)
	from := w.clock.now()
	w.clock.advance(lease + time.Minute)
	until := w.clock.now()
	w.firing(false)
	equal(w, "outages", w.outages(), []cron.Outage{{From: from, Until: until}})
	w.clock.advance(time.Second)
	again := w.clock.now()
	w.firing(true) // the lock on its data directory proves that the previous process is dead, although its lease is valid
	equal(w, "outages", w.outages(), []cron.Outage{{From: from, Until: until}, {From: until, Until: again}})
}

func noOutageWithAnother(w *world) {
	first, second := w.firing(false), w.firing(false)
	w.clock.advance(time.Second)
	w.ok(w.st.Unregister(w.ctx, first))
	equal(w, "outages", len(w.outages()), 0)
	w.clock.advance(lease - 2*time.Second)
	w.firing(false)
	equal(w, "outages", len(w.outages()), 0)
	w.ok(w.st.Unregister(w.ctx, second))
	equal(w, "outages", len(w.outages()), 0)
}

func noOutageOfOthers(w *world) {
	node := w.node()
	w.ok(w.st.Unregister(w.ctx, node))
	equal(w, "outages", len(w.outages()), 0)
	fires := w.firing(false)
	w.ok(w.st.Unregister(w.ctx, fires))
	w.node()
	equal(w, "an outage continues", w.outages()[0].Until, time.Time{})
}

func changesOfAJob(w *world) {
	began := w.clock.now()
	note := func(who, verb, object string) {
		w.clock.advance(time.Second)
		w.ok(w.st.Audit(w.ctx, chat.Audit{Who: who, Verb: verb, Object: object}))
	}
	note("ann", "cron.add", "key")
	note("bob", "cron.update", "id")
	note("bob", "cron.update", "another")
	note("bob", "session.delete", "id")
	changes := func(since time.Time, limit int) []cron.JobChange {
		w.Helper()
		list := try(w.past().Past(w.ctx, "id", "key", since, limit)).ok(w).Changes
		for i := range list {
			list[i].At = list[i].At.UTC()
		}
		return list
	}
	added, updated := cron.JobChange{At: began.Add(time.Second), Who: "ann", Verb: "cron.add"}, cron.JobChange{At: began.Add(2 * time.Second), Who: "bob", Verb: "cron.update"}
	equal(w, "changes", changes(began, many), []cron.JobChange{updated, added})
	equal(w, "the newest", changes(began, 1), []cron.JobChange{updated})
	equal(w, "changes since", changes(began.Add(2*time.Second), many), []cron.JobChange{updated})
}
