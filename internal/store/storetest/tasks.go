package storetest

import (
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func taskTests() []test {
	return []test{
		{"ASubTurnIsAMessageWithAParent", spawned},
		{"ARepeatedSpawnIsADuplicate", spawnedTwice},
		{"SpawnNeedsTheClaimAndARunningParent", spawnIsFenced},
		{"AStoppedRunSpawnsNothing", spawnAfterStop},
		{"ARunHasSoManyChildren", childrenAreBounded},
		{"ATreeHasSoManySubTurns", treesAreBounded},
		{"AYieldedRunGoesOnAsIfItRan", yieldedRunGoesOn},
		{"AYieldedRunIsTakenOverWithoutACrash", yieldedRunIsTakenOver},
		{"AYieldedRunIsStopped", yieldedRunIsStopped},
		{"YieldNeedsTheClaim", yieldIsFenced},
		{"TasksAreListedByWhatTheyBelongTo", tasksAreListed},
		{"WhatACrashLeavesIsListed", leftTasks},
	}
}

// spawn is a sub-turn of a run, with the bounds of the tests.
func (w *world) spawn(c store.Claim, parent, root string) store.SpawnParams {
	p := w.message(c.Node, chat.TaskKey("main", w.id("task")))
	p.Message.Lane, p.Message.Channel, p.Message.Dedupe, p.Message.ParamsHash = "team", chat.ChannelTask, "", ""
	p.Message.Content.Options.Task = &chat.Task{Root: root, Depth: 1, Parent: parent}
	return store.SpawnParams{Claim: c, RunID: parent, Root: root, MaxChildren: 2, MaxTree: 3, Accept: p}
}

func (w *world) spawned(p store.SpawnParams) store.Accepted {
	w.Helper()
	return try(w.st.Spawn(w.ctx, p)).ok(w)
}

func (w *world) tasks(f store.TaskFilter) []string {
	w.Helper()
	list := try(w.st.Tasks(w.ctx, f)).ok(w)
	return taskIDs(list)
}

func (w *world) left() []string {
	w.Helper()
	list := try(w.st.Tasks(w.ctx, store.TaskFilter{Left: true, Limit: many})).ok(w)
	return taskIDs(list)
}

func taskIDs(list []store.Task) []string {
	var ids []string
	for _, t := range list {
		ids = append(ids, t.ID)
	}
	return ids
}

func spawned(w *world) {
	c, parent, _ := w.turn(w.node(), w.key())
	p := w.spawn(c, parent, parent)
	p.Accept.Message.Content.Text = strings.Repeat("ü", 300)
	id := p.Accept.Message.ID
	a := w.spawned(p)
	equal(w, "the accepting node owns it", a.Mine, true)
	equal(w, "it waits", w.row(id).State, store.StateWaiting)
	equal(w, "place in the tree", w.row(id).Content.Options.Task, &chat.Task{Root: parent, Depth: 1, Parent: parent})
	list := try(w.st.Tasks(w.ctx, store.TaskFilter{ID: id})).ok(w)
	want := store.Task{
		ID: id, Session: p.Accept.Message.Session, Parent: parent, Root: parent, Lane: "team", Text: strings.Repeat("ü", store.TaskText), Principal: "ann",
		Agent: "main", State: store.StateWaiting, AcceptedAt: a.AcceptedAt,
	}
	equal(w, "task", list, []store.Task{want})
	claim := claimOf(p.Accept.Message.Session, a)
	started := w.start(claim, id, a.Seq)
	w.ok(w.st.Yield(w.ctx, claim, id, true))
	want.State, want.StartedAt = store.RunYielded, started.StartedAt
	list = try(w.st.Tasks(w.ctx, store.TaskFilter{ID: id})).ok(w)
	equal(w, "task that waits for others", list, []store.Task{want})
	end := w.finish(answered(claim, id))
	want.State, want.Outcome, want.EndedAt = store.StateDone, chat.OutcomeAnswered, end.EndedAt
	list = try(w.st.Tasks(w.ctx, store.TaskFilter{ID: id})).ok(w)
	equal(w, "task that has ended", list, []store.Task{want})
	equal(w, "left", len(w.left()), 0)
}

// spawnedTwice: a parent that runs again gets the existing sub-turn, even when the bounds are
// reached and another process runs the parent.
func spawnedTwice(w *world) {
	key := w.key()
	c, parent, seq := w.turn(w.node(), key)
	p := w.spawn(c, parent, parent)
	p.MaxChildren = 1
	w.spawned(p)
	again := w.spawned(p)
	equal(w, "duplicate", again.Duplicate, true)
	equal(w, "its row", again.Existing.MessageID, p.Accept.Message.ID)
	w.clock.advance(time.Minute)
	node := w.node()
	for _, taken := range w.sweep(node) {
		if taken.Session == key {
			p.Claim = taken.Claim
		}
	}
	w.start(p.Claim, parent, seq)
	p.Accept.Node = node
	again = w.spawned(p)
	equal(w, "duplicate after a takeover", again.Duplicate, true)
	equal(w, "sub-turns", len(w.tasks(store.TaskFilter{})), 1)
}

func spawnIsFenced(w *world) {
	node := w.node()
	c, parent, _ := w.turn(node, w.key())
	p := w.spawn(c, parent, parent)
	wrong := []store.Claim{c, c}
	wrong[0].Epoch++
	wrong[1].Node = w.node()
	for _, claim := range wrong {
		bad := p
		bad.Claim = claim
		try(w.st.Spawn(w.ctx, bad)).fails(w, chat.ErrFenced)
	}
	w.finish(answered(c, parent))
	try(w.st.Spawn(w.ctx, p)).fails(w, chat.ErrFenced)
	try(w.st.MessageByID(w.ctx, p.Accept.Message.ID)).fails(w, chat.ErrNotFound)
}

func spawnAfterStop(w *world) {
	c, parent, _ := w.turn(w.node(), w.key())
	before := w.spawn(c, parent, parent)
	w.spawned(before)
	try(w.st.Stop(w.ctx, store.StopParams{Session: c.Session, Scope: store.StopRun, MessageID: parent, By: "stop ann", Reason: "stop"})).ok(w)
	try(w.st.Spawn(w.ctx, w.spawn(c, parent, parent))).fails(w, store.ErrRunStops)
	equal(w, "the stop lists what was spawned before it", w.tasks(store.TaskFilter{Parents: []string{parent}, Open: true}), []string{before.Accept.Message.ID})
}

func childrenAreBounded(w *world) {
	c, parent, _ := w.turn(w.node(), w.key())
	for range 2 {
		p := w.spawn(c, parent, parent)
		a := w.spawned(p)
		claim := claimOf(p.Accept.Message.Session, a)
		w.start(claim, p.Accept.Message.ID, a.Seq)
		w.finish(answered(claim, p.Accept.Message.ID)) // an ended one counts too
	}
	try(w.st.Spawn(w.ctx, w.spawn(c, parent, parent))).fails(w, store.ErrManyChildren)
}

// treesAreBounded lets the two branches of a tree spawn at the same moment: together they do not
// exceed the bound of the tree.
func treesAreBounded(w *world) {
	node := w.node()
	c, root, _ := w.turn(node, w.key())
	var branches []store.SpawnParams
	for range 2 {
		p := w.spawn(c, root, root)
		a := w.spawned(p)
		claim := claimOf(p.Accept.Message.Session, a)
		w.start(claim, p.Accept.Message.ID, a.Seq)
		branches = append(branches, w.spawn(claim, p.Accept.Message.ID, root))
	}
	errs := make([]error, len(branches))
	var all sync.WaitGroup
	for i := range branches {
		all.Go(func() { _, errs[i] = w.st.Spawn(w.ctx, branches[i]) })
	}
	all.Wait()
	if errs[0] == nil {
		errs[0], errs[1] = errs[1], errs[0]
	}
	w.fails(errs[0], store.ErrManyInTree)
	w.ok(errs[1])
}

func yieldedRunGoesOn(w *world) {
	key := w.key()
	c, run, _ := w.turn(w.node(), key)
	for range 2 {
		w.ok(w.st.Yield(w.ctx, c, run, true))
	}
	equal(w, "state", w.run(run).State, store.RunYielded)
	equal(w, "it is active", w.session(key).ActiveRuns, []string{run})
	w.ok(w.st.Record(w.ctx, c, run, w.asked(round(1, "a"))))
	w.ok(w.st.Record(w.ctx, c, run, w.result(store.CallRef{Round: 1, Call: 0}, chat.ToolResult{Text: "ok"})))
	_, deleted := w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key})
	w.fails(deleted, chat.ErrConflict)
	w.ok(w.st.Yield(w.ctx, c, run, false))
	equal(w, "state", w.run(run).State, store.RunRunning)
	w.ok(w.st.Yield(w.ctx, c, run, true))
	equal(w, "released", w.finish(answered(c, run)).Released, true)
	w.ended(run, chat.OutcomeAnswered)
	equal(w, "state", w.run(run).State, store.RunOK)
}

// yieldedRunIsTakenOver: a waiting run did not crash its process, so it counts no crash.
func yieldedRunIsTakenOver(w *world) {
	key := w.key()
	c, run, seq := w.turn(w.node(), key)
	w.ok(w.st.Yield(w.ctx, c, run, true))
	w.clock.advance(time.Minute)
	taken := w.sweepOne(w.node(), key)
	equal(w, "state", taken.Runs[run].State, store.RunInterrupted)
	s := w.start(taken.Claim, run, seq)
	equal(w, "attempt and crashes", []int{s.Attempt, s.Crashes}, []int{2, 0})
	equal(w, "state", w.run(run).State, store.RunRunning)
	w.fails(w.st.Yield(w.ctx, c, run, true), chat.ErrFenced)
}

func yieldedRunIsStopped(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	w.ok(w.st.Yield(w.ctx, c, run, true))
	s := try(w.st.Stop(w.ctx, store.StopParams{Session: key, Scope: store.StopOne, By: "stop ann", Reason: "stop"})).ok(w)
	equal(w, "running", s.Running, []store.RunningRun{{RunID: run, Node: node}})
	equal(w, "requests for the node", w.beat(node).Stops, []store.StopRequest{{Session: key, RunID: run, By: "stop ann"}})
	w.finish(stopped(c, run))
	w.ended(run, chat.OutcomeStopped)
}

func yieldIsFenced(w *world) {
	c, run, _ := w.turn(w.node(), w.key())
	wrong := c
	wrong.Epoch++
	w.fails(w.st.Yield(w.ctx, wrong, run, true), chat.ErrFenced)
	w.fails(w.st.Yield(w.ctx, c, "unknown", true), chat.ErrFenced)
	w.finish(answered(c, run))
	w.fails(w.st.Yield(w.ctx, c, run, true), chat.ErrFenced)
	equal(w, "state", w.run(run).State, store.RunOK)
}

func tasksAreListed(w *world) {
	node, key := w.node(), w.key()
	c, root, _ := w.turn(node, key)
	other, otherRoot, _ := w.turn(node, w.key())
	first := w.spawn(c, root, root)
	a := w.spawned(first)
	w.clock.advance(time.Second)
	claim := claimOf(first.Accept.Message.Session, a)
	w.start(claim, first.Accept.Message.ID, a.Seq)
	second := w.spawn(claim, first.Accept.Message.ID, root)
	second.Accept.Message.Principal = "bob"
	w.spawned(second)
	w.clock.advance(time.Second)
	third := w.spawn(other, otherRoot, otherRoot)
	w.spawned(third)
	ids := []string{third.Accept.Message.ID, second.Accept.Message.ID, first.Accept.Message.ID}
	equal(w, "all, newest first", w.tasks(store.TaskFilter{}), ids)
	equal(w, "so many", w.tasks(store.TaskFilter{Limit: 1}), ids[:1])
	equal(w, "of a session, at all depths", w.tasks(store.TaskFilter{RootSession: key}), ids[1:])
	equal(w, "of parents", w.tasks(store.TaskFilter{Parents: []string{first.Accept.Message.ID, otherRoot}}), ids[:2])
	equal(w, "of a principal", w.tasks(store.TaskFilter{Visible: "bob"}), ids[1:2])
	w.finish(answered(claim, first.Accept.Message.ID))
	equal(w, "open ones", w.tasks(store.TaskFilter{Open: true}), ids[:2])
	equal(w, "one", w.tasks(store.TaskFilter{ID: ids[2]}), ids[2:])
	equal(w, "none", len(w.tasks(store.TaskFilter{ID: "unknown"})), 0)
}

func leftTasks(w *world) {
	node := w.node()
	task := func(announce bool, end func(store.Claim, string) store.FinishParams) (child string, claim store.Claim) {
		c, parent, _ := w.turn(node, w.key())
		p := w.spawn(c, parent, parent)
		p.Announce = announce
		a := w.spawned(p)
		w.clock.advance(time.Millisecond)
		claim = claimOf(p.Accept.Message.Session, a)
		w.start(claim, p.Accept.Message.ID, a.Seq)
		if end != nil {
			w.finish(end(c, parent))
		}
		return p.Accept.Message.ID, claim
	}
	task(false, nil)
	task(true, nil)
	task(true, answered)
	waited, _ := task(false, answered)
	stoppedOne, _ := task(false, stopped)
	stoppedTwo, _ := task(true, stopped)
	task(false, requeued)
	ended, claim := task(true, answered)
	w.finish(answered(claim, ended))
	both, claim := task(false, nil)
	w.finish(answered(claim, both))
	equal(w, "left", w.left(), []string{waited, stoppedOne, stoppedTwo, ended})
	list := try(w.st.Tasks(w.ctx, store.TaskFilter{Left: true, Limit: 1})).ok(w)
	equal(w, "at most", taskIDs(list), []string{waited})
	for range 2 {
		w.ok(w.st.Announced(w.ctx, ended))
	}
	equal(w, "left after the announcement", w.left(), []string{waited, stoppedOne, stoppedTwo})
}
