package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

func idempotencyTests() []test {
	return []test{
		{"ResetOnceBeginsOneTranscript", resetOnce},
		{"DeleteOnceSparesTheNextSession", deleteOnce},
		{"AKeyIsTheOwnersAndTheMethodsOwn", keysAreApart},
		{"OtherParamsWithTheKeyAreRefused", keyReused},
		{"ARefusalIsNotKept", refusalIsNotKept},
		{"AnAnswerOutlivesTheProcess", answerOutlives},
		{"AnAnswerIsKeptForADay", answerExpires},
		{"LogOfChangesLosesOldRows", changesExpire},
		{"TwoAtOnceHaveOneEffect", twoAtOnce},
		{"DeleteKeepsTranscripts", deleteKeepsTranscripts},
		{"ChangesOfSessionsAreLogged", sessionChangesAreLogged},
		{"AcceptRefusesTheSessionOfAnother", acceptRefusesOthers},
	}
}

func keyOf(owner, method, key string) *chat.IdempotencyKey {
	return &chat.IdempotencyKey{Owner: owner, Method: method, Key: key, Hash: "h"}
}

// resetAs resets a session with an idempotency key and returns the id of its transcript.
func (w *world) resetAs(key chat.SessionKey, o *chat.IdempotencyKey) string {
	w.Helper()
	s := try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: w.id("transcript"), IdempotencyKey: o})).ok(w)
	equal(w, "session", s.Key, key)
	return s.SessionID
}

func resetOnce(w *world) {
	key, o := w.key(), keyOf("ann", "sessions.reset", "k1")
	w.write(key, 1, 2)
	first := w.resetAs(key, o)
	w.write(key, 3, 1)
	equal(w, "repeated", w.resetAs(key, o), first)
	equal(w, "entries", len(w.transcript(store.TranscriptQuery{Session: key}).Entries), 1)
	raw := try(w.st.IdempotencyRecord(w.ctx, *o)).ok(w)
	equal(w, "answer", string(raw), `"`+first+`"`)
	if second := w.resetAs(key, keyOf("ann", "sessions.reset", "k2")); second == first {
		w.Fatalf("another key got the answer of the first")
	}
}

func deleteOnce(w *world) {
	key, o := w.key(), keyOf("ann", "sessions.delete", "k1")
	w.write(key, 1, 2)
	remove := func() store.Deleted {
		w.Helper()
		return try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, IdempotencyKey: o})).ok(w)
	}
	equal(w, "first", remove(), store.Deleted{Deleted: true})
	w.write(key, 1, 1)
	equal(w, "repeated", remove(), store.Deleted{Deleted: true})
	equal(w, "entries", len(w.transcript(store.TranscriptQuery{Session: key}).Entries), 1)
}

func keysAreApart(w *world) {
	key := w.key()
	seen := map[string]bool{}
	for _, o := range []*chat.IdempotencyKey{keyOf("ann", "a", "k"), keyOf("bob", "a", "k"), keyOf("ann", "b", "k"), keyOf("ann", "a", "K")} {
		seen[w.resetAs(key, o)] = true
	}
	equal(w, "transcripts", len(seen), 4)
}

func keyReused(w *world) {
	key, o := w.key(), keyOf("ann", "sessions.reset", "k1")
	id := w.resetAs(key, o)
	o.Hash = "other"
	try(w.st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: w.id("transcript"), IdempotencyKey: o})).fails(w, chat.ErrKeyReused)
	try(w.st.IdempotencyRecord(w.ctx, *o)).fails(w, chat.ErrKeyReused)
	equal(w, "transcript", w.session(key).SessionID, id)
}

func refusalIsNotKept(w *world) {
	node, key := w.node(), w.key()
	c, run, _ := w.turn(node, key)
	p := store.DeleteParams{Session: key, IdempotencyKey: keyOf("ann", "sessions.delete", "k1")}
	try(w.st.DeleteSession(w.ctx, p)).fails(w, chat.ErrConflict)
	raw := try(w.st.IdempotencyRecord(w.ctx, *p.IdempotencyKey)).ok(w)
	equal(w, "answer", string(raw), "")
	w.finish(answered(c, run))
	d := try(w.st.DeleteSession(w.ctx, p)).ok(w)
	equal(w, "deleted", d, store.Deleted{Deleted: true})
}

func answerOutlives(w *world) {
	key, o := w.key(), keyOf("ann", "sessions.reset", "k1")
	first := w.resetAs(key, o)
	w.st = w.h.Reopen()
	equal(w, "after a restart", w.resetAs(key, o), first)
}

func answerExpires(w *world) {
	key, o := w.key(), keyOf("ann", "sessions.reset", "k1")
	prune := func(limit int) int {
		w.Helper()
		return try(w.st.Prune(w.ctx, store.PruneParams{What: store.PruneRecords, Limit: limit})).ok(w)
	}
	first := w.resetAs(key, o)
	w.resetAs(key, keyOf("ann", "sessions.reset", "k2"))
	w.clock.advance(store.IdempotencyTTL - time.Millisecond)
	equal(w, "within the day", w.resetAs(key, o), first)
	equal(w, "pruned within the day", prune(many), 0)
	w.clock.advance(time.Millisecond)
	raw := try(w.st.IdempotencyRecord(w.ctx, *o)).ok(w)
	equal(w, "answer after the day", string(raw), "")
	o.Hash = "other" // the key is free again
	if w.resetAs(key, o) == first {
		w.Fatalf("the answer is older than a day")
	}
	w.resetAs(key, keyOf("ann", "sessions.reset", "k3"))
	w.clock.advance(store.IdempotencyTTL)
	equal(w, "first batch", prune(2), 2)
	equal(w, "second batch", prune(2), 1)
	equal(w, "nothing left", prune(2), 0)
}

// changesExpire: the log of changes loses its oldest rows, in batches.
func changesExpire(w *world) {
	key := w.key()
	for i := range 3 {
		w.resetAs(key, keyOf("ann", "sessions.reset", fmt.Sprint("k", i)))
		w.ok(w.st.Audit(w.ctx, chat.Audit{Who: "ann", Verb: "v", Object: fmt.Sprint("o", i)}))
		w.clock.advance(time.Minute)
	}
	all := len(w.audits())
	prune := func(before time.Time) int {
		w.Helper()
		return try(w.st.Prune(w.ctx, store.PruneParams{What: store.PruneChanges, Before: before, Limit: 1})).ok(w)
	}
	old := w.clock.now().Add(-150 * time.Second)
	equal(w, "of the first minute", prune(old), 1)
	for prune(old) > 0 { // until nothing is left
	}
	rows := w.h.Query(w.tb, "SELECT object FROM audit_log WHERE verb = 'v' ORDER BY at")
	equal(w, "left", fmt.Sprint(rows), "[[o1] [o2]]")
	equal(w, "others", len(w.audits()) < all, true)
}

func twoAtOnce(w *world) {
	const callers = 8
	key, o := w.key(), keyOf("ann", "sessions.reset", "k1")
	other := w.h.Open()
	ids, errs := make([]string, callers), make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		st := w.st
		if i%2 == 1 {
			st = other
		}
		all.Go(func() {
			var s store.Session
			s, errs[i] = st.ResetSession(w.ctx, store.ResetParams{Session: key, Principal: "ann", NewID: fmt.Sprintf("transcript-%d", i), IdempotencyKey: o})
			ids[i] = s.SessionID
		})
	}
	all.Wait()
	for i := range callers {
		w.ok(errs[i])
		equal(w, "transcript", ids[i], w.session(key).SessionID)
	}
}

func deleteKeepsTranscripts(w *world) {
	key := w.key()
	w.write(key, 1, 2)
	archived := w.session(key).SessionID
	current := w.resetAs(key, nil)
	w.write(key, 3, 1)
	d := try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, KeepTranscript: true})).ok(w)
	equal(w, "deleted", d, store.Deleted{Deleted: true, Kept: current})
	try(w.st.Session(w.ctx, key, "")).fails(w, chat.ErrSessionNotFound)
	w.write(key, 4, 3) // a new session with that key
	for id, want := range map[string]int{"": 3, current: 1, archived: 2} {
		equal(w, "entries of "+id, len(w.transcript(store.TranscriptQuery{Session: key, SessionID: id}).Entries), want)
	}
}

func sessionChangesAreLogged(w *world) {
	key := w.key()
	row := func(verb string) *chat.Audit {
		return &chat.Audit{Who: "ann", Verb: verb, Object: key.String(), Peer: "10.0.0.1", RequestID: "q7"}
	}
	reset := func(id string, a *chat.Audit) {
		w.Helper()
		p := store.ResetParams{Session: key, Principal: "ann", NewID: id, Audit: a, IdempotencyKey: keyOf("ann", "reset", id)}
		for range 2 { // the second one is a repetition and changes nothing
			try(w.st.ResetSession(w.ctx, p)).ok(w)
		}
	}
	reset("first", row("1"))
	reset("second", row("2"))
	try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, ExpectID: "first", Audit: row("refused")})).fails(w, chat.ErrConflict)
	for range 2 {
		try(w.st.DeleteSession(w.ctx, store.DeleteParams{Session: key, Audit: row("3")})).ok(w)
	}
	w.ok(w.st.Audit(w.ctx, *row("4")))
	one, two := chat.StateHash("first"), chat.StateHash("second")
	k := key.String()
	equal(w, "log", w.audits(), [][]any{
		{"ann", "1", k, "", one, "10.0.0.1", "q7"},
		{"ann", "2", k, one, two, "10.0.0.1", "q7"},
		{"ann", "3", k, two, "", "10.0.0.1", "q7"},
		{"ann", "4", k, "", "", "10.0.0.1", "q7"},
	})
}

func acceptRefusesOthers(w *world) {
	node, key := w.node(), w.key()
	mine := w.message(node, key)
	mine.Own = true
	first := w.accept(mine)
	theirs := w.message(node, key)
	theirs.Own, theirs.Message.Principal = true, "bob"
	refused := func(what string) {
		w.Helper()
		before := w.session(key)
		try(w.st.Accept(w.ctx, theirs)).fails(w, chat.ErrSessionNotFound)
		try(w.st.MessageByID(w.ctx, theirs.Message.ID)).fails(w, chat.ErrNotFound)
		equal(w, what, w.session(key), before)
	}
	refused("session")
	theirs.Queue.Cap = 1
	refused("session with a full queue that drops the oldest")
	theirs.Queue.DropNew = true
	refused("session with a full queue that takes no message")
	theirs.Queue.Cap, theirs.Unqueued = 0, true
	refused("session after a command")
	equal(w, "repeated by its owner", w.accept(mine).Duplicate, true)
	equal(w, "number", w.accept(w.message(node, key)).Seq, first.Seq+1)
	free := w.message(node, w.key())
	free.Own = true
	equal(w, "a free name", w.accept(free).Created, true)
}

func cronAnswerTests() []test {
	return []test{
		{"AddOnceWritesOnce", addOnce},
		{"RunOnceMakesOneRun", runOnce},
		{"ARunThatDidNotStartIsAnAnswer", notRunOnce},
		{"ATakenMomentIsNoAnswer", takenMoment},
		{"BackfillOnceFillsInOnce", backfillOnce},
		{"CancelOnceSparesLaterRuns", cancelOnce},
		{"OtherParamsWithTheKeyChangeNothing", cronKeyReused},
		{"ARefusedChangeIsNotKept", cronRefusalIsNotKept},
		{"AddsAtOnceMakeOneJob", addsAtOnce},
	}
}

// everywhere repeats a call through a second handle, and after a restart.
func (w *world) everywhere(again func(st cron.JobStore)) {
	w.Helper()
	again(w.cronOf(w.h.Open()))
	w.st = w.h.Reopen()
	again(w.cron())
}

func addOnce(w *world) {
	j := w.draft()
	p := putParams(j)
	p.IdempotencyKey, p.Audit = keyOf("ann", "cron.add", "k1"), &chat.Audit{Who: "ann", Verb: "1-add", Object: j.ID}
	first := try(w.cron().PutJob(w.ctx, p)).ok(w)
	equal(w, "made and repeated", []bool{first.Created, first.Repeated}, []bool{true, false})
	w.alter(j.ID, func(j *cron.Job) { j.Description, j.Revision = "of another edit", "r2" })
	try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Change: func(cron.Job, time.Time) (*cron.Job, error) {
		return nil, nil // removes the job
	}})).ok(w)
	w.everywhere(func(st cron.JobStore) {
		again := try(st.PutJob(w.ctx, p)).ok(w)
		equal(w, "repeated", []bool{again.Created, again.Repeated}, []bool{true, true})
		equal(w, "the job as it was answered", again.Job, first.Job)
		try(st.Job(w.ctx, j.ID, "")).fails(w, chat.ErrNotFound)
	})
	equal(w, "rows of the log", len(w.audits()), 1)
}

// manual requests a run as a caller does.
func manual(node, job string, o *chat.IdempotencyKey) cron.EnqueueParams {
	return cron.EnqueueParams{
		Node: node, JobID: job, New: true, IdempotencyKey: o, Audit: &chat.Audit{Who: "ann", Verb: "run", Object: job},
		Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
			if len(d.Active) > 0 {
				return nil, fmt.Errorf("asking: %w", cron.NotRunError("already-running"))
			}
			return []cron.Launch{launch(d.Job, cron.TriggerManual, schedule.Fire{Slot: now, At: now})}, nil
		},
	}
}

func runOnce(w *world) {
	j := w.job(nil)
	p := manual(w.node(), j.ID, keyOf("ann", "cron.run", "k1"))
	first := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	l := first.Launched[0]
	equal(w, "ids", first.IDs, []string{l.Run.ID})
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	w.clock.advance(time.Second)
	w.everywhere(func(st cron.JobStore) {
		again := try(st.EnqueueRuns(w.ctx, p)).ok(w)
		equal(w, "repeated", again, cron.Enqueued{IDs: first.IDs})
	})
	equal(w, "runs", len(w.history(j.ID)), 1)
	equal(w, "rows of the log", len(w.audits()), 1)
	p.IdempotencyKey.Key = "k2"
	second := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	equal(w, "made under another key", len(second.Launched), 1)
}

func notRunOnce(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	p := manual(node, j.ID, keyOf("ann", "cron.run", "k1"))
	first := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	equal(w, "answer", first, cron.Enqueued{Job: first.Job, NotRun: "already-running"})
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	again := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	equal(w, "repeated", again, cron.Enqueued{NotRun: "already-running"})
	equal(w, "runs", len(w.history(j.ID)), 1)
}

func takenMoment(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.byHand(node, j)
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	p := manual(node, j.ID, keyOf("ann", "cron.run", "k1"))
	try(w.cron().EnqueueRuns(w.ctx, p)).fails(w, chat.ErrConflict)
	equal(w, "runs", len(w.history(j.ID)), 1)
	w.clock.advance(time.Millisecond)
	e := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	equal(w, "made a moment later", len(e.Launched), 1)
}

func backfillOnce(w *world) {
	node := w.node()
	j := w.job(nil)
	good := w.due(node)
	w.endRun(w.begin(good), good.Message.ID, cron.RunOK, nil)
	slots := []time.Time{good.Run.ScheduledFor.Add(-interval), good.Run.ScheduledFor}
	p := cron.EnqueueParams{
		Node: node, JobID: j.ID, IdempotencyKey: keyOf("ann", "cron.backfill", "k1"), Slots: slots,
		Make: func(d cron.DueJob, _ time.Time) ([]cron.Launch, error) {
			var list []cron.Launch
			for _, slot := range slots {
				list = append(list, backfillOf(d, slot, false))
			}
			return list, nil
		},
	}
	first := try(w.cron().EnqueueRuns(w.ctx, p)).ok(w)
	ids := []string{cron.RunID(cron.TriggerBackfill, j.ID, slots[0]), cron.RunID(cron.TriggerBackfill, j.ID, slots[1])}
	equal(w, "asked for and existing", [][]string{first.IDs, first.Existing}, [][]string{ids, ids[1:]})
	slots = append(slots, good.Run.ScheduledFor.Add(-2*interval)) // slots that a changed schedule would have
	w.everywhere(func(st cron.JobStore) {
		again := try(st.EnqueueRuns(w.ctx, p)).ok(w)
		equal(w, "repeated", again, cron.Enqueued{IDs: ids, Existing: ids[1:]})
	})
	equal(w, "runs", len(w.history(j.ID)), 2)
}

func cancelOnce(w *world) {
	node := w.node()
	j := w.job(nil)
	first := w.due(node)
	p := cron.CancelParams{JobID: j.ID, IdempotencyKey: keyOf("ann", "cron.cancel", "k1"), Audit: &chat.Audit{Who: "ann", Verb: "cancel", Object: j.ID}}
	equal(w, "cancelled", len(w.cancel(p)), 1)
	second := w.byHand(node, j)
	w.everywhere(func(st cron.JobStore) {
		again := try(st.CancelRuns(w.ctx, p)).ok(w)
		equal(w, "repeated", again, cron.Cancelled{IDs: []string{first.Run.ID}})
	})
	equal(w, "the later run", w.ledger(second.Run.ID).State, cron.RunQueued)
	equal(w, "rows of the log", len(w.audits()), 1)
	p.IdempotencyKey.Key = "k2"
	equal(w, "cancelled under another key", len(w.cancel(p)), 1)
}

func cronKeyReused(w *world) {
	node := w.node()
	j := w.job(nil)
	other := func(method string) *chat.IdempotencyKey {
		o := keyOf("ann", method, "k1")
		o.Hash = "other"
		return o
	}
	put := putParams(w.draft())
	put.IdempotencyKey = keyOf("ann", "cron.add", "k1")
	try(w.cron().PutJob(w.ctx, put)).ok(w)
	l := w.byHand(node, j)
	w.clock.advance(time.Millisecond)
	run := manual(node, j.ID, keyOf("ann", "cron.run", "k1"))
	try(w.cron().EnqueueRuns(w.ctx, run)).ok(w)
	cancel := cron.CancelParams{RunID: l.Run.ID, IdempotencyKey: keyOf("ann", "cron.cancel", "k1")}
	w.cancel(cancel)
	w.clock.advance(time.Millisecond)
	l = w.byHand(node, j)

	put = putParams(w.draft())
	put.IdempotencyKey = other("cron.add")
	try(w.cron().PutJob(w.ctx, put)).fails(w, chat.ErrKeyReused)
	run.IdempotencyKey = other("cron.run")
	try(w.cron().EnqueueRuns(w.ctx, run)).fails(w, chat.ErrKeyReused)
	cancel.RunID, cancel.IdempotencyKey = l.Run.ID, other("cron.cancel")
	try(w.cron().CancelRuns(w.ctx, cancel)).fails(w, chat.ErrKeyReused)
	page := try(w.cron().Jobs(w.ctx, cron.JobFilter{})).ok(w)
	equal(w, "jobs", page.Total, 2)
	equal(w, "runs", len(w.history(j.ID)), 2)
	equal(w, "the run that was to be cancelled", w.ledger(l.Run.ID).State, cron.RunQueued)
}

func cronRefusalIsNotKept(w *world) {
	refused := errors.New("not now")
	put := putParams(w.draft())
	change := put.Change
	put.IdempotencyKey = keyOf("ann", "cron.add", "k1")
	put.Change = func(*cron.Job, time.Time) (*cron.Job, error) { return nil, refused }
	try(w.cron().PutJob(w.ctx, put)).fails(w, refused)
	put.Change = change
	made := try(w.cron().PutJob(w.ctx, put)).ok(w)
	equal(w, "made", made.Created, true)
	cancel := cron.CancelParams{JobID: "nothing", IdempotencyKey: keyOf("ann", "cron.cancel", "k1")}
	for range 2 {
		try(w.cron().CancelRuns(w.ctx, cancel)).fails(w, chat.ErrNotFound)
	}
}

func addsAtOnce(w *world) {
	const callers = 8
	o := keyOf("ann", "cron.add", "k1")
	base := w.draft()
	other := w.h.Open()
	made, errs := make([]cron.PutResult, callers), make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		st, j := []store.Store{w.st, other}[i%2], base
		j.ID, j.Key = fmt.Sprintf("job-%d", i), fmt.Sprintf("key-%d", i)
		all.Go(func() {
			p := putParams(j)
			p.IdempotencyKey = o
			made[i], errs[i] = w.cronOf(st).PutJob(w.ctx, p)
		})
	}
	all.Wait()
	first := 0
	for i := range callers {
		w.ok(errs[i])
		equal(w, "job", made[i].Job.ID, made[0].Job.ID)
		if !made[i].Repeated {
			first++
		}
	}
	equal(w, "calls that made it", first, 1)
	page := try(w.cron().Jobs(w.ctx, cron.JobFilter{})).ok(w)
	equal(w, "jobs", page.Total, 1)
}
