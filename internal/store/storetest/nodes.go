package storetest

import (
	"fmt"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

func nodeTests() []test {
	return []test{
		{"HeartbeatExtendsTheLease", heartbeatExtends},
		{"RunsAreToldToTheirNode", ownRuns},
		{"DeadNodeStaysDead", deadNodeStaysDead},
		{"UnknownNodeHasNoHeartbeat", unknownNode},
		{"DefaultLease", defaultLease},
		{"LiveNodesAreListedOldestFirst", liveNodes},
		{"CrashedNodesAreGoneUntilAnotherReplacesThem", goneNodes},
		{"ExclusiveEndsEveryOtherNode", exclusiveEndsOthers},
		{"DrainingNodeTakesNothing", drainingTakesNothing},
		{"DrainingNodeKeepsWhatItHas", drainingKeeps},
		{"NodeTakesOnlySessionsOfItsAgents", takesItsAgents},
		{"UnregisterIsIdempotent", unregisterTwice},
		{"ForgottenNodesAreDeleted", forgottenNodes},
		{"TakenRowsAreListed", takenRows},
		{"RehearsalLeavesNothing", rehearsalLeavesNothing},
		{"RehearsalFailsWhereMessagesFail", rehearsalFails},
	}
}

// takenRows: turns that run, turns that stop, and the first messages of sessions that a node owns
// and that have no turn.
func takenRows(w *world) {
	node, waiting := w.node(), w.key()
	c, running, _ := w.turn(node, w.key())
	w.acceptText(node, c.Session) // it waits for the turn
	stopping, stopped, _ := w.turn(node, w.key())
	try(w.st.Finish(w.ctx, store.FinishParams{
		Claim: stopping, RunID: stopped, State: store.RunStopped, Outcome: chat.OutcomeStopped, StillRunning: true,
	})).ok(w)
	_, first := w.acceptText(node, waiting)
	w.acceptText(node, waiting)
	unowned := w.message(node, w.key())
	unowned.Take = false
	w.accept(unowned)
	equal(w, "taken rows", try(w.st.TakenRows(w.ctx)).ok(w), []store.TakenRow{
		{Kind: store.TakenTurn, ID: running, Node: node, Attempt: 1},
		{Kind: store.TakenStopping, ID: stopped, Node: node, Attempt: 1},
		{Kind: store.TakenMessage, ID: waiting.String(), Node: node, Attempt: first.Seq},
	})
}

func rehearsalLeavesNothing(w *world) {
	w.node()
	counts := func() (all []string) {
		for _, table := range []string{"nodes", "sessions", "inbox", "runs", "transcript"} {
			all = append(all, fmt.Sprint(w.h.Query(w.tb, `SELECT count(*) FROM `+table)))
		}
		return all
	}
	if w.h.Query == nil {
		return
	}
	before := counts()
	for range 3 {
		w.ok(w.st.Rehearse(w.ctx))
	}
	equal(w, "rows", counts(), before)
}

// rehearsalFails: a table that refuses the messages of all makes the rehearsal fail, although every
// read succeeds.
func rehearsalFails(w *world) {
	if w.h.Exec == nil {
		return
	}
	for _, table := range []string{"inbox", "runs"} {
		w.h.Exec(w.tb, `ALTER TABLE `+table+` RENAME COLUMN lane TO lanes`)
		if err := w.st.Rehearse(w.ctx); err == nil {
			w.Errorf("the rehearsal succeeds while %s refuses every row", table)
		}
		w.h.Exec(w.tb, `ALTER TABLE `+table+` RENAME COLUMN lanes TO lane`)
		w.ok(w.st.Rehearse(w.ctx))
	}
}

func heartbeatExtends(w *world) {
	node := w.node()
	for range 5 {
		w.clock.advance(lease - time.Millisecond)
		b := w.beat(node)
		equal(w, "the store's clock", b.Now.UTC(), w.clock.now())
		equal(w, "end of the lease", b.LeaseUntil.UTC(), w.clock.now().Add(lease))
		equal(w, "other nodes", b.OtherNodes, 0)
	}
	w.node()
	equal(w, "other nodes", w.beat(node).OtherNodes, 1)
}

// ownRuns: the runs that a heartbeat returns are those that the node has started and not ended.
func ownRuns(w *world) {
	node, other, key := w.node(), w.node(), w.key()
	c, first, _ := w.turn(node, key)
	_, stopping, _ := w.turn(node, w.key())
	_, foreign, _ := w.turn(other, w.key())
	runs := func(node string) []string {
		list := w.beat(node).Runs
		slices.Sort(list)
		return list
	}
	both := []string{first, stopping}
	slices.Sort(both)
	equal(w, "runs", runs(node), both)
	equal(w, "runs of another node", runs(other), []string{foreign})
	w.finish(answered(c, first))
	equal(w, "runs after an end", runs(node), []string{stopping})
	w.ok(w.st.Unregister(w.ctx, other))
	next := w.node()
	w.sweep(next)
	equal(w, "runs that were taken over and wait", len(runs(next)), 0)
}

func deadNodeStaysDead(w *world) {
	node := w.node()
	w.clock.advance(lease)
	for range 2 {
		try(w.st.Heartbeat(w.ctx, node, false)).fails(w, chat.ErrFenced)
	}
	list := try(w.st.Cluster(w.ctx)).ok(w).Nodes
	equal(w, "live nodes", len(list), 0)
}

func unknownNode(w *world) {
	try(w.st.Heartbeat(w.ctx, "unregistered", false)).fails(w, chat.ErrFenced)
	key := w.key()
	p := w.message("unregistered", key)
	if a, err := w.st.Accept(w.ctx, p); err == nil {
		equal(w, "a message of an unregistered node is swept", idsOf(w.sweepOne(w.node(), key).Messages), []string{p.Message.ID})
		equal(w, "owner", a.Mine, false)
	}
}

func defaultLease(w *world) {
	id := w.id("node")
	w.ok(w.st.Register(w.ctx, store.Node{ID: id}))
	w.clock.advance(lease - time.Millisecond)
	equal(w, "end of the lease", w.beat(id).LeaseUntil.UTC(), w.clock.now().Add(lease))
}

func liveNodes(w *world) {
	first := w.node()
	w.clock.advance(time.Second)
	second := w.nodeOf("main", "coder")
	try(w.st.Heartbeat(w.ctx, second, true)).ok(w)
	w.clock.advance(time.Second)
	third := w.id("node")
	w.ok(w.st.Register(w.ctx, store.Node{ID: third, Lease: lease}))
	list := try(w.st.Cluster(w.ctx)).ok(w).Nodes
	equal(w, "live nodes", list, []chat.NodeStatus{
		{ID: first, Name: "127.0.0.1:1", Version: "test", Lease: lease - 2*time.Second},
		{ID: second, Name: "127.0.0.1:1", Version: "test", Draining: true, Lease: lease - time.Second, Agents: []string{"main", "coder"}},
		{ID: third, Name: third, Lease: lease},
	})
	w.clock.advance(lease - time.Second)
	list = try(w.st.Cluster(w.ctx)).ok(w).Nodes
	equal(w, "live nodes", len(list), 1)
}

func goneNodes(w *world) {
	register := func(name string, exclusive bool) string {
		id := w.id("node")
		w.ok(w.st.Register(w.ctx, store.Node{ID: id, Addr: name, Lease: lease, Exclusive: exclusive}))
		return id
	}
	gone := func(what string, want ...chat.GoneNode) {
		w.Helper()
		equal(w, what, try(w.st.Cluster(w.ctx)).ok(w).Gone, want)
	}
	last, leaves, drains := register("gw-1", false), register("gw-2", false), register("gw-3", false)
	register("gw-4", false) // as the one without a name it sends no heartbeat after the start of gw-5
	register("", false)
	w.clock.advance(time.Second)
	stays := register("gw-5", false)
	w.ok(w.st.Unregister(w.ctx, leaves))
	try(w.st.Heartbeat(w.ctx, drains, true)).ok(w)
	w.clock.advance(time.Second)
	w.beat(last)
	w.clock.advance(lease - time.Second - time.Millisecond)
	w.beat(stays)
	w.clock.advance(time.Second)
	gone("gone before the end of a lease")
	w.clock.advance(time.Millisecond)
	since := w.clock.now()
	gone("gone without a successor", chat.GoneNode{Name: "gw-1", Since: since})
	w.clock.advance(time.Second)
	again := register("gw-1", false)
	gone("gone after a start under the same name")
	w.ok(w.st.Unregister(w.ctx, again))
	gone("gone after the clean stop of the successor", chat.GoneNode{Name: "gw-1", Since: since})
	register("gw-6", false)
	gone("gone after the start of another process")
	register("gw-7", true)
	gone("gone when one process has ended all others")
}

func exclusiveEndsOthers(w *world) {
	old, key := w.node(), w.key()
	c, run, seq := w.turn(old, key)
	next := w.id("node")
	w.ok(w.st.Register(w.ctx, store.Node{ID: next, Lease: lease, Exclusive: true}))
	try(w.st.Heartbeat(w.ctx, old, false)).fails(w, chat.ErrFenced)
	try(w.st.Finish(w.ctx, answered(c, run))).fails(w, chat.ErrFenced)
	taken := w.sweepOne(next, key)
	s := w.start(taken.Claim, run, seq)
	equal(w, "crashes", s.Crashes, 1)
	w.finish(answered(taken.Claim, run))
	equal(w, "other nodes", w.beat(next).OtherNodes, 0)
}

func drainingTakesNothing(w *world) {
	node, key := w.node(), w.key()
	try(w.st.Heartbeat(w.ctx, node, true)).ok(w)
	try(w.st.Heartbeat(w.ctx, node, true)).ok(w)
	id, a := w.acceptText(node, key)
	if a.Mine || a.Owner != "" {
		w.Fatalf("a draining node took a session: %+v", a)
	}
	w.beat(node)
	equal(w, "messages", idsOf(w.sweepOne(w.node(), key).Messages), []string{id})
}

func takesItsAgents(w *world) {
	node, coder, writer := w.nodeOf("main", "coder"), chat.SessionKey{Agent: "coder", Rest: "main"}, chat.SessionKey{Agent: "writer", Rest: "main"}
	_, a := w.acceptText(node, coder)
	equal(w, "session of its agent", []any{a.Mine, a.Owner, a.Epoch}, []any{true, node, int64(1)})
	id, a := w.acceptText(node, writer)
	equal(w, "session of another agent", []any{a.Mine, a.Owner, a.Epoch}, []any{false, "", int64(0)})
	equal(w, "messages for a node that has it", idsOf(w.sweepOne(w.nodeOf("writer"), writer).Messages), []string{id})
}

func drainingKeeps(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	try(w.st.Heartbeat(w.ctx, node, true)).ok(w)
	_, a := w.acceptText(node, key)
	equal(w, "owner", a.Mine, true)
	equal(w, "epoch", a.Epoch, c.Epoch)
	w.finish(answered(c, run))
	equal(w, "swept while the owner lives", len(w.sweep(w.node())), 0)
}

func unregisterTwice(w *world) {
	node := w.node()
	w.ok(w.st.Unregister(w.ctx, node))
	w.ok(w.st.Unregister(w.ctx, node))
	w.ok(w.st.Unregister(w.ctx, "unregistered"))
	try(w.st.Heartbeat(w.ctx, node, false)).fails(w, chat.ErrFenced)
}

func forgottenNodes(w *world) {
	dead := w.node()
	w.clock.advance(lease + 61*time.Minute)
	w.sweep(w.node())
	if w.h.Query == nil {
		return
	}
	rows := w.h.Query(w.tb, "SELECT id FROM nodes WHERE id = '"+dead+"'")
	equal(w, "rows of a node that is dead for 61 minutes", len(rows), 0)
}

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

func (w *world) outages() []cron.Outage {
	w.Helper()
	list := try(w.st.Past(w.ctx, "", "", time.UnixMilli(1), many)).ok(w).Outages
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
	list := try(w.st.Past(w.ctx, "", "", until, many)).ok(w).Outages
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
		list := try(w.st.Past(w.ctx, "id", "key", since, limit)).ok(w).Changes
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
