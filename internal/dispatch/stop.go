package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/events"
	"laneway/internal/retry"
	"laneway/internal/store"
)

// stopAnswer is how long a stop waits for the store before it returns with what this process knows.
// The write continues after that: a slow database must not delay the reply to a stop.
const stopAnswer = 600 * time.Millisecond

// clockStep exceeds the step of the store's clock.
const clockStep = time.Second

// stopped has the ids of the work that a stop ended: cancelled runs, and messages that ended while
// they waited.
type stopped struct{ running, waiting []string }

func (m *stopped) add(more stopped) {
	for _, id := range more.running {
		if !slices.Contains(m.running, id) {
			m.running = append(m.running, id)
		}
	}
	for _, id := range more.waiting {
		if !slices.Contains(m.waiting, id) && !slices.Contains(m.running, id) {
			m.waiting = append(m.waiting, id)
		}
	}
}

func (m *stopped) nothing() bool { return len(m.running)+len(m.waiting) == 0 }

type stopResult struct {
	stopped stopped
	err     error
}

// Verbs of the audit log about sessions.
const (
	verbReset  = "sessions.reset"
	verbDelete = "sessions.delete"
)

// deleteWait is how long Delete waits for stopped turns to return.
const deleteWait = 5 * time.Second

// stops stops, resets and deletes.
type stops struct {
	*parts

	queue  *queue
	access *access
}

func (sp *stops) stop(ctx context.Context, p store.StopParams) (stopped, error) {
	if p.Reason == "" {
		p.Reason = reasonStop
		if p.Scope == store.StopAll {
			p.Reason = reasonStopAll
		}
	}
	if p.Scope == store.StopOne {
		p.Queue = sp.queue.configured(p.Session, p.Session.Target().Channel, &chat.Content{})
	}
	resume := func() {}
	if p.Scope == store.StopAll { // a message that the store is about to end must not start in the slot of a cancelled turn
		resume = sp.sched.Suspend(p.Session.String())
	}
	m := sp.signal(p)
	if p.Scope == store.StopOne && !m.nothing() { // the store writes the end of the turn that the signal stopped
		p.Scope, p.MessageID = store.StopRun, m.running[0]
	}
	done := make(chan stopResult, 1)
	sp.background.Go(func() {
		defer resume()
		ctx := context.WithoutCancel(ctx)
		r := sp.write(ctx, p)
		if p.Scope == store.StopOne && r.err == nil && r.stopped.nothing() { // sub-turns continue after a turn that does not wait for them
			r.stopped, r.err = sp.trees.stopLeft(ctx, p, "")
		}
		done <- r
	})
	t := time.NewTimer(stopAnswer)
	defer t.Stop()
	select {
	case r := <-done:
		if r.err != nil && m.nothing() {
			return m, r.err
		}
		m.add(r.stopped)
		return m, nil
	case <-t.C:
		return m, nil
	case <-ctx.Done():
		return m, context.Cause(ctx)
	}
}

// signal signals the turns of this process.
func (sp *stops) signal(p store.StopParams) (m stopped) {
	key, by := p.Session.String(), store.StopCause(p.Reason, p.By)
	switch p.Scope {
	case store.StopOne:
		m.running = sp.sched.Stop(key, by)
	case store.StopRun:
		m.running = sp.sched.StopRun(key, p.MessageID, by)
	case store.StopAll:
		m.running = sp.sched.StopAll(key, by, 0)
	}
	root := ""
	if p.Scope == store.StopAll {
		root = key
	}
	sp.trees.signal(root, m.running, by)
	return m
}

// write writes the stop and publishes the ends that it caused.
func (sp *stops) write(ctx context.Context, p store.StopParams) stopResult {
	var st store.Stopped
	by := store.StopCause(p.Reason, p.By)
	written := p
	written.By = by // the process that runs the stopped turn and the next attempt receive the reason
	began := time.Now()
	err := sp.node.Final(ctx, "writing a stop down", func(ctx context.Context) (err error) {
		st, err = sp.store.Stop(ctx, written)
		written.Again = time.Since(began) + clockStep // for the next attempt: this one may be committed although its response was lost
		return err
	})
	if err != nil {
		sp.log.ErrorContext(ctx, "a stop was signalled but not written", "session", p.Session.String(), "err", err)
		return stopResult{err: err}
	}
	var r stopResult
	key := p.Session.String()
	for _, w := range st.Waiting {
		r.stopped.waiting = append(r.stopped.waiting, w.MessageID)
		sp.queue.publishEnded(ctx, w, chat.OutcomeStopped, p.Reason)
	}
	if len(st.Waiting) > 0 {
		sp.queue.refresh(ctx, p.Session)
	}
	for _, run := range st.Running {
		if sp.signalRun(key, run, by) {
			r.stopped.running = append(r.stopped.running, run.RunID)
		}
	}
	if p.Scope == store.StopAll {
		sp.sched.StopAll(p.Session.String(), by, st.Cutoff)
	}
	sp.trees.stopBelow(ctx, p, st)
	return r
}

// signalRun signals a run that the store has found. In this process, such a run started after the
// signal, or its answer is being written: then it is too late, and the result is false.
func (sp *stops) signalRun(key string, run store.RunningRun, by string) bool {
	if run.Node != sp.node.ID() {
		sp.node.HintStop(run.Node)
		return true
	}
	sp.sched.StopRun(key, run.RunID, by)
	return sp.sched.Stopping(key, run.RunID)
}

// reset stops all work of a session and begins an empty transcript; it returns the id of the new
// one. A repetition, identified by o, stops nothing and returns the id of the first call. A caller
// whom [chat.Caller.MayChange] refuses receives chat.CodeForbidden, and nothing was done.
func (sp *stops) reset(ctx context.Context, key chat.SessionKey, by chat.Caller, o *chat.IdempotencyKey) (string, error) {
	if err := sp.checkAgent(ctx, key.Agent); err != nil {
		return "", err
	}
	if err := sp.access.mayChange(ctx, key, by); err != nil {
		return "", err
	}
	if id, err := store.AnswerOf[string](ctx, sp.store.IdempotencyRecord, o); id != "" || err != nil {
		return id, err
	}
	if _, err := sp.stop(ctx, store.StopParams{Session: key, Scope: store.StopAll, By: by.Principal, Reason: reasonReset}); err != nil {
		return "", err
	}
	p := store.ResetParams{Session: key, Principal: by.Principal, NewID: newID(), IdempotencyKey: o, Audit: by.Audit(verbReset, key.String())}
	s, err := sp.store.ResetSession(ctx, p)
	if err != nil {
		return "", err
	}
	if s.SessionID == p.NewID {
		sp.events.PublishSession(key, s.Principal, reasonReset, "")
	}
	return s.SessionID, nil
}

// remove stops all work of a session and removes it, with its transcripts unless they are to be
// kept. A repetition stops and removes nothing. It sets the caller in p.
func (sp *stops) remove(ctx context.Context, p store.DeleteParams, by chat.Caller) (store.Deleted, error) {
	switch before, err := store.AnswerOf[*store.Deleted](ctx, sp.store.IdempotencyRecord, p.IdempotencyKey); {
	case err != nil:
		return store.Deleted{}, err
	case before != nil:
		return *before, nil
	}
	if _, err := sp.stop(ctx, store.StopParams{Session: p.Session, Scope: store.StopAll, By: by.Principal, Reason: reasonReset}); err != nil {
		return store.Deleted{}, err
	}
	if s, err := sp.store.Session(ctx, p.Session, ""); err == nil {
		side := chat.CompactionKey(p.Session.Agent, s.SessionID)
		if _, err := sp.stop(ctx, store.StopParams{Session: side, Scope: store.StopAll, By: by.Principal, Reason: reasonReset}); err != nil {
			return store.Deleted{}, err
		}
	}
	p.Audit = by.Audit(verbDelete, p.Session.String())
	ctx, cancel := context.WithTimeout(ctx, deleteWait)
	defer cancel()
	for {
		out, err := sp.store.DeleteSession(ctx, p)
		if !errors.Is(err, chat.ErrConflict) || p.ExpectID != "" || retry.Sleep(ctx, 50*time.Millisecond) != nil {
			if out.Deleted {
				sp.events.PublishSession(p.Session, "", events.ReasonDeleted, "")
			}
			for _, m := range out.Ended { // accepted after the stop
				sp.queue.publishEnded(ctx, m, chat.OutcomeStopped, reasonReset)
			}
			sp.dropFiles(ctx, out.Files)
			return out, err
		}
	}
}

const (
	// passingEvery is the interval in which sessions are deleted whose requests asked for it, and
	// passingAfter the time after their end in which callers still read it, in this process or in
	// another. Together with the deletion they take less than a minute.
	passingEvery = 15 * time.Second
	passingAfter = 15 * time.Second
	passingBatch = 100
)

// runPassing deletes the sessions that are not kept after their end, until ctx is done.
func (sp *stops) runPassing(ctx context.Context) {
	for retry.Sleep(ctx, passingEvery) == nil {
		for more := true; more && ctx.Err() == nil; {
			keys, err := sp.store.Passed(ctx, passingAfter, passingBatch)
			deleted := 0
			for _, key := range keys {
				out, failed := sp.store.DeleteSession(ctx, store.DeleteParams{Session: key})
				if errors.Is(failed, chat.ErrConflict) { // a sub-turn runs
					continue
				}
				err = errors.Join(err, failed)
				if failed == nil {
					deleted++
					sp.dropFiles(ctx, out.Files)
				}
				if out.Deleted {
					sp.events.PublishSession(key, "", events.ReasonDeleted, "")
				}
			}
			if err != nil && ctx.Err() == nil {
				sp.log.WarnContext(ctx, "sessions that are not to be kept are still there; trying again", "err", err)
			}
			more = err == nil && deleted == passingBatch
		}
	}
}

// dropFiles removes the files of a deleted session, except those that another message names. A file
// that cannot be removed is removed later by its age.
func (sp *stops) dropFiles(ctx context.Context, list []chat.Attachment) {
	paths := store.Paths(list)
	if len(paths) == 0 || sp.cfg.Files == nil {
		return
	}
	named, err := sp.store.FilesNamed(ctx, paths)
	for _, path := range paths {
		if err == nil && !slices.Contains(named, path) {
			err = sp.cfg.Files.DropUpload(chat.Attachment{Path: path})
		}
	}
	if err != nil {
		sp.log.WarnContext(ctx, "files of a deleted session remain until retention removes them", "files", len(paths), "err", err)
	}
}

// ownLimit is how many waiting messages are searched for those of one person.
const ownLimit = 1000

// stopOwn stops only work of one person: runs whose leading message is theirs, and their waiting
// messages. Runs of this process are signalled before the store is called. Scope is StopOne (the
// oldest run, or the oldest waiting message, or the oldest tree of background tasks) or StopAll.
func (sp *stops) stopOwn(ctx context.Context, p store.StopParams, sender string) (stopped, error) {
	all, trees := p.Scope == store.StopAll, p
	p.Scope, p.Reason = store.StopRun, reasonStop
	if all {
		p.Reason = reasonStopAll
	}
	var m stopped
	stop := func(ids []string) error {
		for _, id := range ids {
			if !all && !m.nothing() {
				return nil
			}
			p.MessageID = id
			one, err := sp.stop(ctx, p)
			m.add(one)
			if err != nil && !errors.Is(err, chat.ErrNotFound) {
				return err
			}
		}
		return nil
	}
	if err := stop(sp.events.RunsOf(p.Session, sender)); err != nil || (!all && !m.nothing()) {
		return m, err
	}
	ids, err := sp.ownedBy(ctx, p.Session, sender)
	if err != nil {
		return m, err
	}
	err = stop(slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(m.running, id) }))
	if err != nil || (!all && !m.nothing()) {
		return m, err
	}
	left, err := sp.trees.stopLeft(ctx, trees, p.By)
	m.add(left)
	return m, err
}

// ownedBy lists the runs of other processes and the waiting messages of one person, by the id of
// their message.
func (sp *stops) ownedBy(ctx context.Context, key chat.SessionKey, sender string) ([]string, error) {
	s, err := sp.store.Session(ctx, key, "")
	if errors.Is(err, chat.ErrSessionNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, run := range s.ActiveRuns {
		lead, err := sp.store.MessageByID(ctx, run)
		if err == nil && lead.Content.Sender.ID == sender {
			ids = append(ids, run)
		}
	}
	for after, left := int64(0), ownLimit; left > 0; {
		waiting, _, err := sp.store.PendingInputs(ctx, key, after, left)
		if err != nil || len(waiting) == 0 {
			return ids, err
		}
		after, left = waiting[len(waiting)-1].Seq, left-len(waiting)
		for _, w := range waiting {
			if w.Content.Sender.ID == sender {
				ids = append(ids, w.MessageID)
			}
		}
	}
	return ids, nil
}

// Reasons of stops in chat events.
const (
	reasonStop    = store.ReasonStop
	reasonStopAll = "stopall"
	reasonReset   = "reset"
)
