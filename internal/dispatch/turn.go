package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/events"
	"laneway/internal/files"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/tool"
	"laneway/internal/usage"
)

// errTurnTimeout is the cause of a turn that exceeded its time limit.
var errTurnTimeout = errors.New("the turn exceeded its time limit")

// errNoAgent is the error of a turn whose agent this process does not have. A job, a sub-turn or a
// message of another replica may name one.
var errNoAgent = errors.New("this process lacks the agent")

// turn is one execution during start, agent and finish.
type turn struct {
	claim   store.Claim
	rows    []store.Waiting // the messages that the store has confirmed, ascending; the last one leads
	agent   Agent
	started store.Started
	began   time.Time // local time when the start was committed
	run     *events.Run
	attempt attempt // the job's part of the turn, or plain
	// output is the directory for the agent's files; nil until the agent requests it. Tool calls
	// use it concurrently with the goroutine of the turn, until it has ended.
	outputMu    sync.Mutex
	output      *files.Turn
	outputEnded bool
	// journal has the tool calls of the agent, in this attempt and in earlier ones.
	journal *journal
	// usage counts its usage. asked reports that its agent was called. Both are used only on the
	// goroutine of the turn.
	usage *usage.Turn
	asked bool
	// over is the budget of today that ended it; nil = no budget did. It is used only on the
	// goroutine of the turn.
	over *usage.State
	// past is the size of the conversation that its agent received; it is used only on the
	// goroutine of the turn.
	past past
	// outside: the agent's conversation contains text from outside. It is set before the agent
	// runs.
	outside bool
	// audience is who reads its answer; it is set before its agent runs.
	audience chat.Audience
	// steps are its tool calls; they are used only on the goroutine of the turn.
	steps steps
	// waits are its calls that wait for sub-turns; nil until just before its agent runs.
	waits *waits
}

// turns runs turns: start in the store, agent, files, end.
type turns struct {
	*parts

	queue    *queue
	signs    *signs
	tools    *tool.Table
	clocks   clocks
	outputs  *outputs
	spending *spending
	// questions asks people on behalf of the agents of the turns.
	questions *questions
	running   runningTurns
	tails     tails
	// compactions are those of this process. accept makes a message of the gateway itself durable
	// and passes it to its queue.
	compactions *compactions
	accept      func(ctx context.Context, m chat.Message) error
}

// run is called by the scheduler on the goroutine that owns the slot. The scheduler counts its
// error as the result of the turn; the durable outcome has been written by then.
func (ts *turns) run(ctx context.Context, st *scheduler.Turn) error {
	t, ok, err := ts.start(ctx, st)
	if err != nil || !ok {
		return err
	}
	defer ts.events.Stop(t.run)
	defer ts.running.remove(st)
	defer ts.outputs.end(ctx, t)
	began := time.Now()
	res, err := ts.execute(ctx, t, st)
	if t.waits != nil {
		t.waits.wait()
	}
	if refused := st.Settle(); refused != nil { // a stop was first: whatever the agent returned, the person was informed that it stops
		err = refused
	}
	ts.spending.end(ctx, t, res.Usage)
	end := ts.judge(ctx, t, res, err)
	t.past.measure(t, res)
	ts.outputs.take(ctx, t, &end, res.Attachments)
	t.noteEmpty(&end)
	ts.finish(ctx, t, end)
	took, waited := time.Since(began), t.started.StartedAt.Sub(t.rows[0].AcceptedAt)
	ts.counters.turnEnded(t.run.Lane, end.outcome, took, waited)
	ts.counters.tokens(t.run.Lane, end.usage.InputTokens, end.usage.OutputTokens)
	ts.log.InfoContext(ctx, "turn ended", "run_id", t.run.RunID, "session", t.run.Session.String(), "agent", t.run.Session.Agent, "lane", t.run.Lane,
		"waited", waited.Round(time.Millisecond).String(), "took", took.Round(time.Millisecond).String(), "outcome", string(end.outcome), "reason", end.reason)
	if end.outcome == chat.OutcomeFailed || end.outcome == chat.OutcomeDead {
		return fmt.Errorf("turn %s: %s", end.reason, end.message)
	}
	return nil
}

// start lets the store choose the messages of the turn, which writes its start. ok is false when
// nothing is to run: no message may start now, or another replica owns the session.
func (ts *turns) start(ctx context.Context, st *scheduler.Turn) (*turn, bool, error) {
	front := st.Front()
	key, err := chat.ParseSessionKey(front.Session, "")
	if err != nil {
		return nil, false, fmt.Errorf("starting a turn: %w", err)
	}
	resolved := map[int64]store.Waiting{}
	var planned []store.Waiting // of the last try
	p := store.BeginParams{
		Session: key, Lane: front.Row.Lane, Principal: front.Principal,
		Settings: func(newest *store.Waiting) scheduler.Settings {
			return ts.queue.configured(key, newest.Channel, &newest.Content)
		},
		Plan: func(c store.Claim, batch []store.Waiting) (store.StartParams, bool) {
			planned = batch
			return ts.plan(c, st.Lane(), batch, resolved)
		},
	}
	p.Known, p.Inputs = st.RunsOfSession()
	var (
		b    store.Begun
		last error // of the last try
	)
	begin := func(ctx context.Context) (err error) {
		asked := time.Now()
		p.Node, last = ts.node.Alive()
		if last == nil {
			b, last = ts.store.Begin(ctx, p)
		}
		ts.counters.stored("start", time.Since(asked))
		return last
	}
	for {
		err := ts.node.WhileAlive(ctx, begin)
		if err != nil && store.CommitUnknown(last) { // it was stopped meanwhile, and would stay running in the store if it was committed
			err = ts.node.Final(ctx, "starting a turn", begin)
		}
		for _, m := range b.Stopped {
			ts.queue.stale.Add(1)
			ts.counters.refused(refusedStale)
			ts.queue.publishEnded(ctx, m, chat.OutcomeStale, string(chat.OutcomeStale))
		}
		switch {
		case errors.Is(err, chat.ErrFenced):
			ts.counters.fenced("start")
			st.BeganNothing(scheduler.Nothing{})
			return nil, false, nil
		case err != nil:
			if context.Cause(ctx) == nil { // a defect: the next message must not start as if it had succeeded
				ts.queue.endWaiting(ctx, planned, chat.OutcomeFailed, string(chat.FailUnknown))
			}
			st.BeganNothing(scheduler.Nothing{Unknown: true})
			return nil, false, fmt.Errorf("starting a turn: %w", err)
		case len(b.Unplanned) > 0:
			ts.resolve(ctx, b.Unplanned)
			for _, r := range b.Unplanned {
				resolved[r.Seq] = r
			}
			continue
		}
		break
	}
	left := ts.queue.left(b.Next)
	if b.RunID == "" || len(b.Started.Seqs) == 0 {
		st.BeganNothing(scheduler.Nothing{Wait: b.Wait, Left: left, Seen: b.Last})
		return nil, false, nil
	}
	t := &turn{claim: b.Claim, rows: rowsWith(b.Messages, b.Started.Seqs), started: b.Started, began: time.Now(), agent: ts.agents[key.Agent]}
	ids := make([]string, len(t.rows))
	for i, r := range t.rows {
		ids[i] = r.MessageID
		if m, ok := resolved[r.Seq]; ok {
			t.rows[i] = m
		}
	}
	lead := t.rows[len(t.rows)-1]
	t.attempt = ts.attemptOf(lead)
	t.journal = &journal{parts: ts.parts, claim: t.claim, runID: b.RunID, again: t.started.Attempt > 1, mark: outsideMark{set: t.started.Outside}}
	t.journal.add(t.rows, t.started.Seqs)
	t.usage = ts.spending.of(t)
	t.journal.usage = t.usage
	t.run = ts.events.Start(events.RunInfo{
		Session: lead.Session, RunID: b.RunID, Lane: st.Lane(), Principal: t.started.Principal,
		Sender: lead.Content.Sender.ID, Unattended: t.attempt.Unattended(), Replace: t.started.Attempt > 1,
	})
	ts.running.add(st, t)
	ts.events.PublishSession(lead.Session, t.run.Principal, "run.started", t.run.RunID)
	// Its messages are in the transcript: the next turn of the session may write its own after them.
	st.Began(scheduler.Batch{RunID: b.RunID, Messages: ids, Last: lead.Seq, Thread: lead.Row().Thread, Left: left, Seen: b.Last})
	t.attempt.Started(ctx, t.ofAttempt(), t.started.Job)
	return t, true, nil
}

// plan makes the run of messages. It is pure, and says when it needs what [turns.resolve] finds.
func (ts *turns) plan(c store.Claim, lane string, batch []store.Waiting, resolved map[int64]store.Waiting) (p store.StartParams, ok bool) {
	lead := batch[len(batch)-1]
	p = store.StartParams{Claim: c, RunID: cmp.Or(lead.RunID, lead.MessageID), Lane: lane, Cron: ts.attemptOf(lead).Start(c.Node)}
	for _, r := range batch {
		if m, known := resolved[r.Seq]; known {
			r = m
		} else if ts.resolves(&r) {
			return p, false
		}
		p.Seqs = append(p.Seqs, r.Seq)
		p.Transcript = append(append(p.Transcript, keptContext(r)...), entryOf(r, p.RunID))
		for len(p.EntrySeqs) < len(p.Transcript) {
			p.EntrySeqs = append(p.EntrySeqs, r.Seq)
		}
	}
	return p, true
}

// entryOf returns the transcript entry of a message.
func entryOf(r store.Waiting, runID string) chat.TranscriptEntry {
	role := chat.RoleUser
	if r.Content.System {
		role = chat.RoleSystem
	}
	answered := r.Content.Answered.InText()
	if r.Content.Answered != nil && r.Content.Answered.Run != "" { // its entry is in the transcript
		answered = r.Content.Answered.Above()
	}
	text := joinNonEmpty("\n", answered, r.Content.Text)
	for _, file := range r.Content.Attachments { // later turns do not receive the file itself
		text = joinNonEmpty("\n", text, file.InText())
	}
	sender := r.Content.Sender
	sender.Outside = r.Content.External
	return chat.TranscriptEntry{RunID: runID, Role: role, Text: text, Sender: sender, Tokens: agent.EstimateTokens(text), Outside: fromOutside(r)}
}

// fromOutside reports whether the text of a message comes from outside.
func fromOutside(r store.Waiting) bool {
	return r.Content.External || r.Channel == hookRoute || r.Content.Answered.IsOutside()
}

// keptContext returns the context of a message that is added to the transcript. It belongs to no
// run.
func keptContext(r store.Waiting) []chat.TranscriptEntry {
	if !r.Content.Options.KeepContext {
		return nil
	}
	return r.Content.Context
}

// rowsWith returns the rows with one of the sequence numbers.
func rowsWith(rows []store.Waiting, seqs []int64) []store.Waiting {
	want := make(map[int64]bool, len(seqs))
	for _, s := range seqs {
		want[s] = true
	}
	kept := rows[:0:0]
	for _, r := range rows {
		if want[r.Seq] {
			kept = append(kept, r)
		}
	}
	return kept
}

// execute runs the agent, unless the state of an earlier attempt requires the turn to end.
func (ts *turns) execute(ctx context.Context, t *turn, st *scheduler.Turn) (agent.Result, error) {
	lead := t.rows[len(t.rows)-1]
	unread := ts.openJournal(ctx, t)
	switch {
	case t.started.StopBy != "":
		return agent.Result{}, &scheduler.CancelCause{Reason: scheduler.ReasonStopped, By: t.started.StopBy}
	case t.started.Crashes >= store.MaxCrashes:
		return agent.Result{}, errDead
	case t.started.Crashes > 0 && ts.atMostOnce(t):
		return agent.Result{}, errInterrupted
	case unread != nil:
		return orCause(ctx, agent.Result{}, unread)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.timeout(lead), errTurnTimeout)
	defer cancel()
	t.waits = ts.waitsOf(ctx, t, st)
	t.audience = ts.audienceOf(ctx, t)
	if c, ok := t.attempt.(compaction); ok {
		return ts.compactAside(ctx, t, st, c)
	}
	by := &summariser{ts: ts, t: t}
	if res, done, err := t.attempt.Execute(ctx, ts.baseRequest(ctx, t), by, func(e agent.Event) { ts.emit(t, lead, e) }); done {
		if t.asked {
			res.Usage = by.used
		}
		return orCause(ctx, res, err)
	}
	req, err := ts.request(ctx, t)
	if err != nil {
		return agent.Result{}, err
	}
	if st != nil {
		req.TakeInput = ts.takeInput(ctx, t, st)
	}
	if ctx.Err() != nil {
		return agent.Result{}, context.Cause(ctx)
	}
	if !t.attempt.Unattended() {
		stopTyping := ts.signs.typing(ctx, lead.Content.Options.ReplyTo)
		defer stopTyping()
	}
	if err := req.BeforeRound(ctx); err != nil { // for agents without rounds
		return orCause(ctx, agent.Result{}, err)
	}
	t.asked = true
	if req.Client == nil {
		req.OpenTools = ts.openTools(t, &req)
	} else if len(req.Client.Rounds) > 0 { // what a program says that its tools returned
		t.journal.readOutside(ctx)
	}
	if t.agent.Outside.Reads {
		req.Outside = func() { t.journal.readOutside(ctx) }
	}
	if t.agent.Outside.Always {
		t.journal.readOutside(ctx)
	}
	res, err := ts.callAgent(ctx, t, req, func(e agent.Event) { ts.emit(t, lead, e) })
	t.estimate(&res)
	return orCause(ctx, res, err)
}

// orCause returns the cause of the context's end instead of an error that resulted from it.
func orCause(ctx context.Context, res agent.Result, err error) (agent.Result, error) {
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return res, cause
	}
	return res, err
}

// callAgent runs the agent. A panic becomes an error, with the stack in the log. The reported usage
// is clamped here, for every runner.
func (ts *turns) callAgent(ctx context.Context, t *turn, req agent.Request, emit func(agent.Event)) (res agent.Result, err error) {
	if t.agent.Runner == nil {
		return agent.Result{}, errNoAgent
	}
	lead := t.rows[len(t.rows)-1]
	defer func() {
		if p := recover(); p != nil {
			ts.log.ErrorContext(ctx, "an agent panicked", "session", lead.Session.String(), "run_id", req.RunID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = &agent.Error{Reason: chat.FailPanic, Message: "the agent broke down on this message; the operator can find out why"}
		}
	}()
	res, err = t.agent.Runner.Run(ctx, req, emit)
	res.Usage = res.Usage.Clamped()
	return res, err
}

// emit publishes events of the running agent.
func (ts *turns) emit(t *turn, lead store.Waiting, e agent.Event) {
	switch e.Kind {
	case agent.EventDelta:
		if whole, ok := t.run.Grow(chat.CleanText(e.Text)); ok {
			t.steps.write()
			ts.showSoFar(t, lead, whole)
		}
	case agent.EventTool:
		if whole, ok := t.run.Tool(e.Tool); ok {
			t.steps.take(e.Tool)
			ts.showSoFar(t, lead, whole)
		}
	case agent.EventUsage: // written at the end
	}
}

// showSoFar shows the person of a turn its text so far and its step. The text of a job is not shown
// before it is known that it is delivered.
func (ts *turns) showSoFar(t *turn, lead store.Waiting, text string) {
	if t.attempt.Unattended() {
		return
	}
	p := t.steps.preview(text)
	p.Shown, p.Record = t.started.Preview, ts.signs.recordPreview(t)
	ts.signs.preview(lead.Content.Options.ReplyTo, t.run.RunID, p)
}

func (ts *turns) atMostOnce(t *turn) bool {
	if t.agent.AtMostOnce {
		return true
	}
	for _, r := range t.rows {
		if r.Content.Options.AtMostOnce {
			return true
		}
	}
	return false
}

// turnTime returns the timeout of a turn of the agent, unless its message has another one.
func turnTime(a Agent) time.Duration {
	if a.Timeout == 0 {
		return DefaultTimeout
	}
	return a.Timeout
}

func (t *turn) timeout(lead store.Waiting) time.Duration {
	limit := turnTime(t.agent)
	switch ms := lead.Content.Options.TimeoutMs; {
	case ms > 0:
		limit = time.Duration(ms) * time.Millisecond
	case ms < 0:
		limit = maxTimeout
	}
	return min(limit, maxTimeout)
}

// runningTurns are the turns that have started and not returned, by the turn of the scheduler.
// After a lost lease two of them may have the same run id: the old one, which is ending, and the
// one that repeats it.
type runningTurns struct {
	mu sync.Mutex
	by map[*scheduler.Turn]*turn // copies with the parts that do not change
}

func (r *runningTurns) add(st *scheduler.Turn, t *turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[*scheduler.Turn]*turn{}
	}
	r.by[st] = &turn{run: t.run, claim: t.claim, rows: t.rows, agent: t.agent, started: t.started, began: t.began, journal: t.journal}
}

func (r *runningTurns) remove(st *scheduler.Turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, st)
}

func (r *runningTurns) get(st *scheduler.Turn) (*turn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.by[st]
	return t, ok
}

// ids returns the run ids of the turns.
func (r *runningTurns) ids() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make(map[string]bool, len(r.by))
	for _, t := range r.by {
		ids[t.run.RunID] = true
	}
	return ids
}

// takeInput returns a function with which a runner fetches messages that people write to the
// session while its turn runs (mode steer). The messages join the run in the store before the
// runner sees them, so that a crash loses none. The store is asked only when something may wait.
func (ts *turns) takeInput(ctx context.Context, t *turn, st *scheduler.Turn) func() []chat.Content {
	return func() []chat.Content {
		select {
		case <-st.AcceptInput(): // the runner supports input; before its first call, mode steer waits like mode queue
		default:
			return nil
		}
		if !st.TakesInput() {
			return nil
		}
		input, err := ts.join(ctx, t, st)
		if err != nil {
			ts.log.WarnContext(ctx, "messages could not join their turn", "session", t.run.Session.String(), "run_id", t.run.RunID, "err", err)
		}
		return input
	}
}

// joinPage is how many messages that wait a turn reads at a time.
const joinPage = 32

// join adds the messages that wait for a turn to it.
func (ts *turns) join(ctx context.Context, t *turn, st *scheduler.Turn) (input []chat.Content, err error) {
	var (
		waiting []store.Waiting
		total   int
		joined  []int64
		s       store.Session
	)
	err = ts.node.WhileAlive(ctx, func(ctx context.Context) (err error) {
		if s, err = ts.store.Session(ctx, t.run.Session, ""); err == nil {
			waiting, total, err = ts.store.PendingInputs(ctx, t.run.Session, 0, joinPage)
		}
		return err
	})
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	newest, lead := waiting[len(waiting)-1], t.rows[len(t.rows)-1]
	list := make([]scheduler.Row, len(waiting))
	for i := range waiting {
		list[i] = waiting[i].Row()
	}
	take := scheduler.SteeredInto(list, lead.Row().Thread, ts.queue.configured(newest.Session, newest.Channel, &newest.Content), scheduler.QueueMode(s.Mode))
	rows := slices.Clone(waiting[:len(take)])
	if len(rows) == 0 {
		return nil, nil
	}
	ts.resolve(ctx, rows)
	p := store.StartParams{Claim: t.claim, RunID: t.run.RunID, Lane: t.run.Lane, Round: t.journal.last()}
	for _, r := range rows {
		p.Seqs = append(p.Seqs, r.Seq)
		p.Transcript, p.EntrySeqs = append(p.Transcript, entryOf(r, t.run.RunID)), append(p.EntrySeqs, r.Seq)
	}
	err = ts.node.WhileAlive(ctx, func(ctx context.Context) (err error) {
		joined, err = ts.store.Join(ctx, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.journal.add(rows, joined)
	var ids []string
	for _, r := range rowsWith(rows, joined) {
		ids, input = append(ids, r.MessageID), append(input, r.Content)
	}
	var left *scheduler.Wake
	if rest := waiting[len(take):]; len(rest) > 0 {
		left = ts.queue.left(rest[0].Front(s.Mode, total-len(take), s.LastSeq))
	}
	seen := s.LastSeq
	if len(joined) < len(take) || left == nil && total > len(waiting) { // it is not known what waits first
		seen = -1
	}
	st.Took(ids, seen, left)
	return input, nil
}
