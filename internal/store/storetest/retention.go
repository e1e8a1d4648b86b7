package storetest

import (
	"fmt"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func retentionTests() []test {
	return []test{
		{"OldMessagesGoWithTheirRuns", oldMessagesGo},
		{"MessagesOfOneTurnGoTogether", oneTurnGoesTogether},
		{"WhatIsNotOverStays", unfinishedStays},
		{"NothingIsDoneTwice", pruneTwice},
		{"ASessionGoesOnAfterItsMessagesHaveGone", sessionGoesOn},
		{"OldOutgoingMessagesGo", oldOutgoingGoes},
		{"NoticesStayAsLongAsTheirMessages", noticesStay},
		{"OldSessionsOfTasksAndCompactionsGo", oldSideTurnsGo},
		{"SessionsOfTasksStayWhileTheyAreNeeded", neededSideTurnsStay},
		{"FilesAreInUseUntilTheirMessagesAreOver", filesInUse},
	}
}

// pruneAll repeats an operation until nothing is left to do.
func (w *world) pruneAll(what store.Prunable, before time.Time, limit int) (total int) {
	w.Helper()
	for range 1000 {
		n := try(w.st.Prune(w.ctx, store.PruneParams{What: what, Before: before, Limit: limit})).ok(w)
		if n == 0 {
			return total
		}
		total += n
	}
	w.Fatalf("it never ends")
	return total
}

// isGone expects that a message and its run do not exist any more.
func (w *world) isGone(id string) {
	w.Helper()
	try(w.st.MessageByID(w.ctx, id)).fails(w, chat.ErrNotFound)
	try(w.st.RunByID(w.ctx, id)).fails(w, chat.ErrNotFound)
}

func oldMessagesGo(w *world) {
	node := w.node()
	var old, young []string
	for range 7 {
		c, run, _ := w.turn(node, w.key())
		w.finish(answered(c, run))
		old = append(old, run)
	}
	w.clock.advance(time.Second)
	border := w.clock.now()
	for range 3 {
		c, run, _ := w.turn(node, w.key())
		w.finish(answered(c, run))
		young = append(young, run)
	}
	n := try(w.st.Prune(w.ctx, store.PruneParams{What: store.PruneMessages, Before: border, Limit: 3})).ok(w)
	equal(w, "one piece", n, 3)
	equal(w, "the rest", w.pruneAll(store.PruneMessages, border, 3), 4)
	for _, id := range old {
		w.isGone(id)
	}
	for _, id := range young {
		equal(w, "outcome", w.row(id).Outcome, chat.OutcomeAnswered)
		equal(w, "run", w.run(id).State, store.RunOK)
	}
	w.checkInvariants("after the messages have gone")
}

func oneTurnGoesTogether(w *world) {
	node, key := w.node(), w.key()
	first, a := w.acceptText(node, key)
	second, b := w.acceptText(node, key)
	third, c := w.acceptText(node, key)
	claim := claimOf(key, a)
	w.start(claim, second, a.Seq, b.Seq)
	equal(w, "joined", w.join(claim, second, c.Seq), []int64{c.Seq})
	w.finish(answered(claim, second))
	equal(w, "merged", w.row(first).Outcome, chat.OutcomeMerged)
	equal(w, "joined", w.row(third).Outcome, chat.OutcomeMerged)
	w.clock.advance(time.Second)
	n := try(w.st.Prune(w.ctx, store.PruneParams{What: store.PruneMessages, Before: w.clock.now(), Limit: 1})).ok(w)
	equal(w, "with one row asked for", n, 3)
	for _, id := range []string{first, second, third} {
		w.isGone(id)
	}
	w.checkInvariants("after the turn has gone")
}

func unfinishedStays(w *world) {
	node, key := w.node(), w.key()
	c, running, _ := w.turn(node, key)
	waiting, _ := w.acceptText(node, key)
	other := w.key()
	stopped, run, _ := w.turn(node, other)
	w.finish(store.FinishParams{Claim: stopped, RunID: run, State: store.RunStopped, Outcome: chat.OutcomeStopped, StillRunning: true})
	w.clock.advance(time.Second)
	equal(w, "removed", w.pruneAll(store.PruneMessages, w.clock.now(), 10), 0)
	equal(w, "running", w.row(running).State, store.StateRunning)
	equal(w, "waiting", w.row(waiting).State, store.StateWaiting)
	equal(w, "stopping", w.run(run).State, store.RunStopping)
	w.ok(w.st.EndStopping(w.ctx, stopped, run))
	equal(w, "removed when it has ended", w.pruneAll(store.PruneMessages, w.clock.now(), 10), 1)
	w.finish(answered(c, running))
	w.checkInvariants("after the end")
}

func pruneTwice(w *world) {
	c, run, _ := w.turn(w.node(), w.key())
	w.finish(answered(c, run))
	w.clock.advance(time.Second)
	equal(w, "removed", w.pruneAll(store.PruneMessages, w.clock.now(), 0), 1)
	equal(w, "removed again", w.pruneAll(store.PruneMessages, w.clock.now(), 0), 0)
}

func sessionGoesOn(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	p := answered(c, run)
	p.Transcript = []chat.TranscriptEntry{{RunID: run, Role: chat.RoleAssistant, Text: "still known"}}
	w.finish(p)
	before := w.session(key)
	w.clock.advance(time.Second)
	equal(w, "removed", w.pruneAll(store.PruneMessages, w.clock.now(), 0), 1)
	equal(w, "last sequence number", w.session(key).LastSeq, before.LastSeq)
	entries := w.transcript(store.TranscriptQuery{Session: key}).Entries
	equal(w, "the conversation is kept", entries[len(entries)-1].Text, "still known")
	c, run, seq := w.turn(node, key)
	equal(w, "next sequence number", seq, before.LastSeq+1)
	w.finish(answered(c, run))
	w.checkInvariants("after the session continued")
}

func oldOutgoingGoes(w *world) {
	node := w.node()
	for _, chatID := range []string{"1", "2", "3"} {
		w.enqueue(w.outgoing("web", chatID))
	}
	rows := w.claim(node)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: rows[0].ID, ProviderID: "p1"})).ok(w)
	w.undelivered(store.UndeliveredParams{Node: node, ID: rows[1].ID, Error: "no", Permanent: true})
	w.clock.advance(time.Second)
	equal(w, "removed", w.pruneAll(store.PruneOutgoing, w.clock.now(), 1), 2) // the third is being sent
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: rows[2].ID, ProviderID: "p3"})).ok(w)
	equal(w, "too young", w.pruneAll(store.PruneOutgoing, w.clock.now(), 1), 0)
	w.clock.advance(time.Millisecond)
	equal(w, "removed", w.pruneAll(store.PruneOutgoing, w.clock.now(), 1), 1)
	equal(w, "failed ones", w.counts().Failed, 0)
}

func noticesStay(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	for range 3 { // one waits, the others are dropped
		w.accept(w.tele(node, key))
	}
	w.clock.advance(2 * time.Second)
	list := w.notices(node)
	equal(w, "notices", len(list), 1)
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: list[0].ID, ProviderID: "p"})).ok(w)
	w.clock.advance(time.Second)
	border := w.clock.now()
	equal(w, "messages removed", w.pruneAll(store.PruneMessages, border, 1), 2)
	equal(w, "notices removed", w.pruneAll(store.PruneOutgoing, border, 0), 1)
	w.checkInvariants("after the notice has gone")
	w.finish(answered(c, run))
}

func filesInUse(w *world) {
	node, key := w.node(), w.key()
	inUse := func(when string, want ...string) {
		w.Helper()
		got := try(w.st.FilesInUse(w.ctx)).ok(w)
		slices.Sort(got)
		equal(w, "files in use "+when, slices.Compact(got), want)
	}
	inUse("at first")
	p := w.message(node, key)
	p.Message.Content.Attachments = []chat.Attachment{{Name: "a", Path: "in/1.png"}, {Name: "gone"}, {Name: "b", Path: "in/\"2\".txt"}}
	a := w.accept(p)
	plain, b := w.acceptText(node, key)
	inUse("while the message waits", "in/\"2\".txt", "in/1.png")
	c := claimOf(key, a)
	w.start(c, plain, a.Seq, b.Seq)
	inUse("while it runs", "in/\"2\".txt", "in/1.png")
	end := answered(c, plain)
	for n, path := range []string{"", "out/1", "out/2"} {
		o := store.Outgoing{N: n, Session: key, Kind: store.KindReply, Text: path, Target: chat.Target{Channel: "web", ChatID: path}}
		if path != "" {
			o.File = &chat.Attachment{Name: "f", Path: path}
		}
		end.Outgoing = append(end.Outgoing, o)
	}
	w.finish(end)
	inUse("after the answer", "out/1", "out/2")
	rows := w.claim(node)
	equal(w, "claimed", len(rows), 3)
	inUse("while they are sent", "out/1", "out/2")
	try(w.st.Delivered(w.ctx, store.DeliveredParams{Node: node, ID: rows[1].ID, ProviderID: "p"})).ok(w)
	inUse("after the first was delivered", "out/2")
	w.undelivered(store.UndeliveredParams{Node: node, ID: rows[2].ID, Error: "no", Permanent: true})
	inUse("after the second failed")
}

// uuid is an id as the gateway gives it to a sub-turn.
func (w *world) uuid() string { return fmt.Sprintf("0194f7c2-9d0e-7c3a-8f21-%012d", w.ids.Add(1)) }

// aside runs one turn in a session, whose transcript then contains a needle.
func (w *world) aside(node string, key chat.SessionKey) string {
	w.Helper()
	c, run, _ := w.turn(node, key)
	p := answered(c, run)
	p.Transcript = []chat.TranscriptEntry{{RunID: run, Role: chat.RoleAssistant, Text: "needle of " + key.Rest}}
	w.finish(p)
	return run
}

func oldSideTurnsGo(w *world) {
	node := w.node()
	old := []chat.SessionKey{chat.TaskKey("main", w.uuid()), chat.TaskKey("main", w.uuid()), chat.CompactionKey("main", w.uuid())}
	var gone []string
	for _, key := range old {
		gone = append(gone, w.aside(node, key))
		w.ok(w.st.PutAgentSession(w.ctx, key, chat.AgentSession{ID: "a"}))
	}
	named := []chat.SessionKey{{Agent: "main", Rest: "task:garden"}, {Agent: "main", Rest: "x:" + chat.TaskKey("main", w.uuid()).Rest}, {Agent: "main", Rest: "Task:" + w.uuid()}, w.key()}
	for _, key := range named {
		w.aside(node, key)
	}
	goesOn, young := chat.CompactionKey("main", w.uuid()), chat.TaskKey("main", w.uuid())
	w.aside(node, goesOn)
	w.index()
	w.clock.advance(time.Second)
	border := w.clock.now()
	w.aside(node, goesOn)
	w.aside(node, young)
	equal(w, "one piece", w.pruneSessionsOnce(border, 1), 1)
	equal(w, "the rest", w.pruneAll(store.PruneSessions, border, 1), 2)
	for i, key := range old {
		w.isGone(gone[i])
		try(w.st.Session(w.ctx, key, "")).fails(w, chat.ErrSessionNotFound)
	}
	equal(w, "sessions of agents", len(w.h.Query(w.tb, `SELECT 1 FROM agent_sessions`)), 0)
	for _, key := range append(named, goesOn, young) {
		w.session(key)
	}
	equal(w, "found", len(w.search("needle", store.SearchQuery{}).Hits), len(named)+3)
	if n := w.indexed(); n > int64(len(named)+1) {
		w.Fatalf("%d entries are left in the index", n)
	}
	before := w.session(goesOn)
	w.clock.advance(time.Second)
	equal(w, "later", w.pruneAll(store.PruneSessions, w.clock.now(), many), 2)
	c, run, seq := w.turn(node, goesOn)
	equal(w, "number of the next message of a conversation's compactions", seq, before.LastSeq+1)
	if c.Epoch <= before.Epoch {
		w.Fatalf("the epoch %d is used again, it was %d", c.Epoch, before.Epoch)
	}
	w.finish(answered(c, run))
	w.checkInvariants("after the sessions have gone")
}

// neededSideTurnsStay covers running sessions, unannounced ones, and the tasks of a running tree.
func neededSideTurnsStay(w *world) {
	node, key := w.node(), w.key()
	c, parent, _ := w.turn(node, key)
	p := w.spawn(c, parent, parent)
	p.Announce = true
	p.Accept.Message.Session = chat.TaskKey("main", w.uuid())
	a, id := w.spawned(p), p.Accept.Message.ID
	prune := func(when string, want int) {
		w.Helper()
		w.clock.advance(time.Second)
		equal(w, when, w.pruneAll(store.PruneSessions, w.clock.now(), many), want)
	}
	prune("while the task waits", 0)
	child := claimOf(p.Accept.Message.Session, a)
	w.start(child, id, a.Seq)
	prune("while it runs", 0)
	w.finish(answered(child, id))
	prune("while its parent runs", 0)
	w.finish(answered(c, parent))
	prune("while its end is not announced", 0)
	w.ok(w.st.Announced(w.ctx, id))
	prune("when all of that has ended", 1)
	equal(w, "tasks", len(w.tasks(store.TaskFilter{ID: id})), 0)
	w.checkInvariants("after the task has gone")
}

func (w *world) pruneSessionsOnce(before time.Time, limit int) int {
	w.Helper()
	return try(w.st.Prune(w.ctx, store.PruneParams{What: store.PruneSessions, Before: before, Limit: limit})).ok(w)
}
