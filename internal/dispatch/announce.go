package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/tool"
)

// leftLimit is how many sub-turns one search for the remains of a crash returns. stopLimit is how many a stop finds below a session or a
// turn, and stopsAtOnce how many of them it writes concurrently.
const (
	leftLimit   = 100
	stopLimit   = 10_000
	stopsAtOnce = 8
)

// taskSender is the sender of announcements. Consecutive waiting announcements share a turn.
const taskSender = "task"

// MessageEnded is called when a message has its outcome. If it was a sub-turn for which no parent waits, its result is announced.
func (tr *trees) MessageEnded(m store.Waiting, end chat.RunEnd) {
	task := m.Content.Options.Task
	if task == nil || task.Parent == "" {
		return
	}
	tr.remove(task.Parent, m.MessageID)
	if !task.Announce {
		return
	}
	tr.mu.Lock()
	tr.ended = append(tr.ended, endedTask{m, end})
	tr.mu.Unlock()
	select {
	case tr.wake <- struct{}{}:
	default: // the loop was already woken
	}
}

// announceEnded announces the sub-turns that ended since the last call, in the order of their ends.
func (tr *trees) announceEnded(ctx context.Context) {
	tr.mu.Lock()
	list := tr.ended
	tr.ended = nil
	tr.mu.Unlock()
	for _, e := range list {
		tr.announce(ctx, e.message, e.end)
	}
}

// announce accepts the message that announces a result, once, and records that. A sub-turn that was stopped is not announced.
func (tr *trees) announce(ctx context.Context, m store.Waiting, end chat.RunEnd) {
	task := m.Content.Options.Task
	if end.Outcome != chat.OutcomeStopped && end.Outcome != chat.OutcomeSuperseded {
		if err := tr.accept(ctx, announcement(m, *task, end)); err != nil {
			tr.log.WarnContext(ctx, "the end of a sub-turn was not announced; it is tried again", "run_id", m.MessageID, "err", err)
			return
		}
	}
	err := tr.node.WhileAlive(ctx, func(ctx context.Context) error { return tr.store.Announced(ctx, m.MessageID) })
	if err != nil {
		tr.log.WarnContext(ctx, "an announcement was not noted; it is tried again", "run_id", m.MessageID, "err", err)
	}
}

// accept accepts an announcement, which occupies no place in the queue of its session.
func (tr *trees) accept(ctx context.Context, m chat.Message) error {
	rules := tr.queue.settings(m, "")
	var (
		acc  store.Accepted
		node string
	)
	err := tr.node.WhileAlive(ctx, func(ctx context.Context) (err error) {
		if node, err = tr.node.Alive(); err != nil {
			return err
		}
		acc, err = tr.store.Accept(ctx, store.AcceptParams{Node: node, Take: true, Message: m, Joins: true, Mode: chat.ModeQueue, RunLimit: rules.MaxConcurrent})
		return err
	})
	if err != nil {
		return fmt.Errorf("accepting an announcement: %w", err)
	}
	tr.obs.Accepted(chat.ChannelTask, acc.Duplicate)
	tr.queue.take(ctx, m, acc, node)
	return nil
}

// announcement returns the message about the result of a sub-turn for the session of its parent. Its text comes from outside of that
// session, so it grants no permission to create or send. Sub-turns of its turn belong to the same tree.
func announcement(m store.Waiting, task chat.Task, end chat.RunEnd) chat.Message {
	key, err := chat.ParseSessionKey(task.ParentSession, m.Session.Agent)
	if err != nil { // it was made from a key
		key = m.Session
	}
	text := fmt.Sprintf("The task %s (%q) has ended. Its answer:\n\n%s", m.MessageID, chat.Cut(chat.Printable(m.Content.Text), notedText), tool.Answer(end.Text))
	if end.Outcome != chat.OutcomeAnswered {
		text = fmt.Sprintf("The task %s (%q) ended without an answer (%s): %s", m.MessageID, chat.Cut(chat.Printable(m.Content.Text), notedText), end.Outcome, end.Message)
	}
	options := chat.Options{}
	if task.ParentSession == task.Session {
		options.ReplyTo = task.ReplyTo
	}
	task.Depth--
	task.Parent, task.ParentSession, task.Announce, task.Announces = "", "", false, m.MessageID
	options.Task = &task
	return chat.Message{
		Session: key, ID: announceID(m.MessageID), Lane: laneOf(task.Depth), Principal: m.Principal, Channel: chat.ChannelTask,
		Content: chat.Content{Text: text, Sender: chat.Sender{ID: taskSender}, External: true, Options: options},
	}
}

// stopBelow stops the sub-turns of the turns that a stop affected. It lists them after their parents are marked, because a marked parent
// starts no sub-turn.
func (tr *trees) stopBelow(ctx context.Context, p store.StopParams, met store.Stopped) {
	f := store.TaskFilter{Open: true, Limit: stopLimit}
	for _, run := range met.Running {
		f.Parents = append(f.Parents, run.RunID)
	}
	for _, m := range met.Waiting {
		f.Parents = append(f.Parents, m.MessageID)
	}
	if p.Scope == store.StopAll {
		tr.stopListed(ctx, p, store.TaskFilter{RootSession: p.Session, Open: true, Limit: stopLimit})
	}
	if len(f.Parents) > 0 {
		tr.stopListed(ctx, p, f)
	}
}

// stopListed stops sub-turns and everything below them.
func (tr *trees) stopListed(ctx context.Context, p store.StopParams, f store.TaskFilter) {
	list, err := tr.store.Tasks(ctx, f)
	if err != nil {
		tr.log.WarnContext(ctx, "the sub-turns of what was stopped were not read; they are stopped later", "session", p.Session.String(), "err", err)
		return
	}
	var writes sync.WaitGroup
	slots := make(chan struct{}, stopsAtOnce)
	for _, task := range list {
		slots <- struct{}{}
		writes.Go(func() {
			defer func() { <-slots }()
			one := store.StopParams{Session: task.Session, Scope: store.StopRun, MessageID: task.ID, By: p.By, Reason: p.Reason}
			_, ended := tr.stops.signal(one)
			tr.stops.write(ctx, one, ended)
		})
	}
	writes.Wait()
}

// stopLeft stops sub-turns below a session whose parents have ended without waiting for them: with StopAll all of them, otherwise those in
// the tree of the oldest one. visible restricts them to those of a principal. It returns what it stopped.
func (tr *trees) stopLeft(ctx context.Context, p store.StopParams, visible string) (m stopped, err error) {
	list, err := tr.store.Tasks(ctx, store.TaskFilter{RootSession: p.Session, Visible: visible, Open: true, Limit: stopLimit})
	if err != nil || len(list) == 0 {
		return m, err
	}
	oldest := list[len(list)-1].Root
	for _, task := range slices.Backward(list) {
		if p.Scope != store.StopAll && task.Root != oldest {
			continue
		}
		one, err := tr.stops.stop(ctx, store.StopParams{Session: task.Session, Scope: store.StopRun, MessageID: task.ID, By: p.By, Reason: p.Reason})
		m.add(one)
		if err != nil && !errors.Is(err, chat.ErrNotFound) {
			return m, err
		}
	}
	return m, nil
}

// run announces the results of sub-turns, and repairs the remains of a crash, until ctx is done. It still announces the results that are
// known by then.
func (tr *trees) run(ctx context.Context) {
	every := 2 * cmp.Or(tr.cfg.Sweep, DefaultSweep)
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			tr.announceEnded(context.WithoutCancel(ctx))
			return
		case <-tr.wake:
			tr.announceEnded(context.WithoutCancel(ctx))
		case <-t.C:
			tr.repair(ctx)
			t.Reset(every)
		}
	}
}

// repair stops sub-turns that have lost their parent, and announces results that are not announced.
func (tr *trees) repair(ctx context.Context) {
	if _, err := tr.node.Alive(); err != nil || tr.node.Draining() {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, DefaultLease, errors.New("the repair of trees took too long"))
	defer cancel()
	list, err := tr.store.Tasks(ctx, store.TaskFilter{Left: true, Limit: leftLimit})
	if err != nil {
		tr.log.WarnContext(ctx, "left sub-turns were not read; trying again", "err", err)
		return
	}
	for _, task := range list {
		if task.Left() {
			tr.stopOne(ctx, task.Session, task.ID, reasonStop)
			continue
		}
		m, err := tr.store.MessageByID(ctx, task.ID)
		if err != nil || m.Content.Options.Task == nil {
			continue
		}
		end, done, err := tr.endOf(ctx, task.ID)
		if err == nil && done {
			tr.announce(ctx, m, end)
		}
	}
}
