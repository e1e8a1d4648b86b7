package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/tool"
	"laneway/internal/words"
)

// The limits of trees of sub-turns.
const (
	maxDepth    = 3  // levels below the root
	maxChildren = 8  // sub-turns of one turn
	maxTree     = 32 // sub-turns below one root
)

// trees are the sub-turns of turns. A sub-turn is a message in its own session, and its id is
// derived from the call that requested it. This type implements the relation: the parent, what a
// sub-turn inherits, how its parent waits for it, and what happens to it when its parent ends. The
// store has the same data, so that a process that takes over needs nothing from memory.
type trees struct {
	*parts

	queue *queue
	stops *stops

	mu sync.Mutex
	// children are the sub-turns that this process has accepted and that have not ended, by the run
	// of the parent. A stop signals them before the store is called.
	children map[string][]child
	// ended are the sub-turns whose results are to be announced. wake buffers one signal for the
	// loop that announces them.
	ended []endedTask
	wake  chan struct{}
}

// child is a sub-turn that has not ended.
type child struct {
	id       string
	session  chat.SessionKey
	root     string // session of the root of its tree
	announce bool
}

// endedTask is a sub-turn with its result.
type endedTask struct {
	message store.Waiting
	end     chat.RunEnd
}

// turnTasks are the sub-turns of one turn; it implements [tool.Tasks].
type turnTasks struct {
	*trees

	t *turn
}

var _ tool.Tasks = turnTasks{}

// place returns the place of a turn in a tree: the place of its message, or the root.
func (t *turn) place() chat.Task {
	texts := t.journal.messages()
	lead := texts[len(texts)-1]
	for _, m := range slices.Backward(texts) {
		if task := m.Content.Options.Task; task != nil {
			return *task
		}
	}
	return chat.Task{Root: t.run.RunID, Session: lead.Session.String(), Channel: lead.Channel, ReplyTo: lead.Content.Options.ReplyTo}
}

// Colleagues returns the agents other than the turn's own.
func (tt turnTasks) Colleagues() []string {
	var ids []string
	for _, a := range tt.cfg.Agents {
		if a.Info.ID != tt.t.run.Session.Agent {
			ids = append(ids, a.Info.ID)
		}
	}
	return ids
}

// Start accepts a sub-turn and submits it to its lane.
func (tt turnTasks) Start(ctx context.Context, n tool.NewTask) error {
	m, err := tt.message(n)
	if err != nil {
		return err
	}
	p := store.SpawnParams{
		Claim: tt.t.claim, RunID: tt.t.run.RunID, Root: m.Content.Options.Task.Root, Announce: n.Announce, MaxChildren: maxChildren, MaxTree: maxTree,
	}
	var acc store.Accepted
	err = tt.node.WhileAlive(ctx, func(ctx context.Context) error {
		node, err := tt.node.Alive()
		if err != nil {
			return err
		}
		p.Accept = store.AcceptParams{Node: node, Take: true, Message: m, Queue: scheduler.Settings{MaxConcurrent: tt.queue.configured(m.Session, m.Channel, &m.Content).MaxConcurrent}}
		acc, err = tt.store.Spawn(ctx, p)
		return err
	})
	switch {
	case errors.Is(err, store.ErrManyChildren):
		return chat.Errorf(chat.CodeLimit, "this turn has started %d tasks, which is the limit; do the rest here", maxChildren)
	case errors.Is(err, store.ErrManyInTree):
		return chat.Errorf(chat.CodeLimit, "%d tasks were started for this request, which is the limit; do the rest here", maxTree)
	case errors.Is(err, store.ErrRunStops):
		return chat.Errorf(chat.CodeConflict, "this turn is being stopped")
	case err != nil:
		return err
	}
	tt.counters.accepted(chat.ChannelTask, acc.Duplicate)
	if !acc.Duplicate || acc.Existing.State != store.StateDone {
		tt.add(tt.t.run.RunID, child{id: m.ID, session: m.Session, root: m.Content.Options.Task.Session, announce: n.Announce})
	}
	tt.queue.take(ctx, m, acc)
	return nil
}

// message returns the message of a sub-turn: it has the principal of its parent and no additional
// permissions.
func (tt turnTasks) message(n tool.NewTask) (chat.Message, error) {
	place, texts := tt.t.place(), tt.t.journal.messages()
	lead := texts[len(texts)-1]
	if n.Agent == "" {
		n.Agent = tt.t.run.Session.Agent
	}
	if _, ok := tt.agents[n.Agent]; !ok {
		known := slices.Sorted(maps.Keys(tt.agents))
		return chat.Message{}, chat.Errorf(chat.CodeUnknownAgent, "there is no agent %q here; the agents are %s%s",
			chat.Cut(chat.Printable(n.Agent), 64), strings.Join(known, ", "), words.Meant(n.Agent, known))
	}
	if place.Depth >= maxDepth {
		return chat.Message{}, chat.Errorf(chat.CodeLimit, "tasks of tasks are possible to a depth of %d; do this here", maxDepth)
	}
	place.Depth++
	place.Parent, place.ParentSession, place.Announces, place.Announce = tt.t.run.RunID, tt.t.run.Session.String(), "", n.Announce
	place.Asks, place.Audience = tt.t.asks(), tt.t.audience
	place.NoActs = tt.t.noActs(place.Asks, tt.personOf(tt.t.atRoot(lead, place), tt.t.run.Principal))
	return chat.Message{
		Session: chat.TaskKey(n.Agent, n.ID), ID: n.ID, Lane: n.Lane, Principal: lead.Principal, Channel: chat.ChannelTask,
		Content: chat.Content{Text: n.Text, Sender: lead.Content.Sender, Options: chat.Options{NoMerge: true, Mode: chat.ModeQueue, Task: &place}},
	}, nil
}

// pollEach is how many checks of a waiting parent pass between reads of the store, see
// [events.Publisher.Wait]: the end of a sub-turn of this process wakes it.
const pollEach = 5

// Wait waits without a slot for the end of a sub-turn. In a drain it waits only for a sub-turn that
// has started. Otherwise the turn ends, and the next process runs it again with its sub-turn.
func (tt turnTasks) Wait(ctx context.Context, id string) (end chat.RunEnd, err error) {
	looks := 0
	read := func(ctx context.Context, id string) (chat.RunEnd, bool, error) {
		looks++
		draining := tt.node.Draining()
		if !draining && looks > 1 && looks%pollEach != 0 {
			return chat.RunEnd{}, false, nil
		}
		if draining {
			if m, err := tt.store.MessageByID(ctx, id); err == nil && m.State != store.StateRunning && m.State != store.StateDone {
				tt.t.waits.leave()
			}
		}
		return tt.endOf(ctx, id)
	}
	err = tt.t.waits.during(ctx, func(ctx context.Context) (err error) {
		end, err = tt.events.Wait(ctx, id, read)
		return err
	})
	return end, err
}

func (tr *trees) add(parent string, c child) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.children == nil {
		tr.children = map[string][]child{}
	}
	if !slices.Contains(tr.children[parent], c) {
		tr.children[parent] = append(tr.children[parent], c)
	}
}

func (tr *trees) remove(parent, id string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	left := slices.DeleteFunc(tr.children[parent], func(c child) bool { return c.id == id })
	if len(left) == 0 {
		delete(tr.children, parent)
		return
	}
	tr.children[parent] = left
}

// below returns the sub-turns of runs, and those of trees whose root is in a session, at all
// depths, as known to this process.
func (tr *trees) below(session string, runs ...string) []child {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var all []child
	if session != "" {
		for _, list := range tr.children {
			for _, c := range list {
				if c.root == session {
					all, runs = append(all, c), append(runs, c.id)
				}
			}
		}
	}
	for len(runs) > 0 {
		for _, c := range tr.children[runs[0]] {
			if !slices.Contains(all, c) {
				all, runs = append(all, c), append(runs, c.id)
			}
		}
		runs = runs[1:]
	}
	return all
}

// signal cancels the sub-turns of this process below the work that a stop affected.
// [trees.stopBelow] writes their outcomes.
func (tr *trees) signal(session string, runs []string, by string) {
	for _, c := range tr.below(session, runs...) {
		tr.sched.StopRun(c.session.String(), c.id, by)
	}
}

// parentEnded stops sub-turns of a turn that has ended: all of them if the turn was stopped,
// otherwise those that it waited for.
func (tr *trees) parentEnded(ctx context.Context, t *turn, end ending) {
	if end.requeue || end.nothing {
		return
	}
	tr.mu.Lock()
	list := slices.Clone(tr.children[t.run.RunID])
	tr.mu.Unlock()
	for _, c := range list {
		left := store.Task{State: store.StateRunning, ParentOutcome: end.outcome, Announce: c.announce}
		if left.Left() {
			tr.background.Go(func() { tr.stopOne(context.WithoutCancel(ctx), c.session, c.id, store.StopReason(end.reason+" ")) })
		}
	}
}

func (tr *trees) stopOne(ctx context.Context, session chat.SessionKey, id, reason string) {
	p := store.StopParams{Session: session, Scope: store.StopRun, MessageID: id, By: "parent", Reason: reason}
	if _, err := tr.stops.stop(ctx, p); err != nil {
		tr.log.WarnContext(ctx, "a sub-turn whose parent has ended was not stopped; it is tried again", "run_id", id, "err", err)
	}
}

// announceID returns the id of the message that announces the result of a sub-turn.
func announceID(id string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("laneway:announce:"+id)).String()
}

// laneOf returns the lane of a turn at a depth of a tree.
func laneOf(depth int) string {
	if depth == 0 {
		return scheduler.LaneMain
	}
	return scheduler.LaneSubagent
}

// leftLimit is how many sub-turns one search for the remains of a crash returns. stopLimit is how
// many a stop finds below a session or a turn, and stopsAtOnce how many of them it writes
// concurrently.
const (
	leftLimit   = 100
	stopLimit   = 10_000
	stopsAtOnce = 8
)

// taskSender is the sender of announcements. Consecutive waiting announcements share a turn.
const taskSender = "task"

// MessageEnded is called when a message has its outcome. If it was a sub-turn for which no parent
// waits, its result is announced.
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

// announce accepts the message that announces a result, once, and records that. A sub-turn that was
// stopped is not announced.
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
	var (
		acc  store.Accepted
		node string
	)
	err := tr.node.WhileAlive(ctx, func(ctx context.Context) (err error) {
		if node, err = tr.node.Alive(); err != nil {
			return err
		}
		acc, err = tr.store.Accept(ctx, store.AcceptParams{Node: node, Take: true, Message: m, Queue: tr.queue.configured(m.Session, m.Channel, &m.Content)})
		return err
	})
	if err != nil {
		return fmt.Errorf("accepting an announcement: %w", err)
	}
	tr.counters.accepted(chat.ChannelTask, acc.Duplicate)
	tr.queue.take(ctx, m, acc)
	return nil
}

// announcement returns the message about the result of a sub-turn for the session of its parent.
// Its text comes from outside of that session, so it grants no permission to create or send.
// Sub-turns of its turn belong to the same tree.
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

// stopBelow stops the sub-turns of the turns that a stop affected. It lists them after their
// parents are marked, because a marked parent starts no sub-turn.
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
			tr.stops.signal(one)
			tr.stops.write(ctx, one)
		})
	}
	writes.Wait()
}

// stopLeft stops sub-turns below a session whose parents have ended without waiting for them: with
// StopAll all of them, otherwise those in the tree of the oldest one. visible restricts them to
// those of a principal. It returns what it stopped.
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

// run announces the results of sub-turns, and repairs the remains of a crash, until ctx is done. It
// still announces the results that are known by then.
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
