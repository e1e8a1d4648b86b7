package dispatch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/events"
	"laneway/internal/files"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// errTurnTimeout is the cause of a turn whose time is over.
var errTurnTimeout = errors.New("the turn's time is over")

// defaultHistory is how many tokens of history an agent gets whose context window is unknown.
const defaultHistory = 24_000

// turn is one execution on its way through start, agent and finish.
type turn struct {
	claim   store.Claim
	rows    []store.Waiting // the messages that it really has, ascending; the last one leads
	agent   Agent
	started store.Started
	began   time.Time // local, when the store had said that it started
	run     *events.Run
	cron    *cronTurn // nil = no attempt of a run
	// output is where the agent leaves files; nil until it asks for a place. It is touched on the goroutine of the turn only.
	output *files.Turn
}

// runningTurns are the turns that have started and not returned, by the turn of the scheduler. After a lost lease two of them may have the same run
// id: the old one on its way out, and the one that runs it again.
type runningTurns struct {
	mu sync.Mutex
	by map[*scheduler.Turn[work]]runningTurn
}

// runningTurn is what others than the goroutine of a turn may know of it; it does not change.
type runningTurn struct {
	run     *events.Run
	agent   Agent
	started store.Started
	began   time.Time
}

func (r *runningTurns) add(st *scheduler.Turn[work], t *turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[*scheduler.Turn[work]]runningTurn{}
	}
	r.by[st] = runningTurn{run: t.run, agent: t.agent, started: t.started, began: t.began}
}

func (r *runningTurns) remove(st *scheduler.Turn[work]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.by, st)
}

func (r *runningTurns) get(st *scheduler.Turn[work]) (runningTurn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.by[st]
	return t, ok
}

// runTurn is what the scheduler calls on the goroutine that owns the slot. Its error is the scheduler's figure of how the turn ended; the
// durable outcome is written by then.
func (d *Dispatcher) runTurn(ctx context.Context, st *scheduler.Turn[work]) error {
	t, ok, err := d.startTurn(ctx, st)
	if err != nil || !ok {
		return err
	}
	defer d.events.Stop(t.run)
	defer d.running.remove(st)
	defer d.endOutput(ctx, t)
	began := time.Now()
	res, err := d.execute(ctx, t, st)
	if refused := st.Settle(); refused != nil { // a stop was faster: whatever the agent says, the person was told that it stops
		err = refused
	}
	end := d.judge(ctx, t, res, err)
	d.takeFiles(ctx, t, &end, res.Attachments)
	d.finishTurn(ctx, t, end)
	d.obs.TurnEnded(t.run.Lane, end.outcome, time.Since(began), t.started.StartedAt.Sub(t.rows[0].AcceptedAt))
	if end.outcome == chat.OutcomeFailed || end.outcome == chat.OutcomeDead {
		return fmt.Errorf("turn %s: %s", end.reason, end.message)
	}
	return nil
}

// startTurn writes the start under the fence. ok is false when there is nothing to run: every message has an outcome meanwhile, or the
// session belongs to somebody else.
func (d *Dispatcher) startTurn(ctx context.Context, st *scheduler.Turn[work]) (*turn, bool, error) {
	t := &turn{}
	for _, it := range st.Items() {
		w := it.Payload
		t.rows = append(t.rows, w.rows...)
		if w.claim.Epoch >= t.claim.Epoch {
			t.claim = w.claim
		}
	}
	lead := t.rows[len(t.rows)-1]
	t.cron = d.cronTurnOf(lead)
	p := store.StartParams{Claim: t.claim, RunID: st.RunID(), Lane: st.Lane(), Cron: t.cron.start(t.claim.Node)}
	for _, r := range t.rows {
		p.Seqs = append(p.Seqs, r.Seq)
		p.Transcript = append(p.Transcript, said(r, st.RunID()))
	}
	d.starting.add(lead.Session, p.Seqs)
	err := d.node.WhileAlive(ctx, func(ctx context.Context) (err error) {
		t.started, err = d.store.Start(ctx, p)
		return err
	})
	d.starting.remove(lead.Session, p.Seqs)
	switch {
	case errors.Is(err, chat.ErrFenced):
		d.obs.Fenced("start")
		if t.cron != nil { // its claim may have been withdrawn, and its session with it
			d.handover.release(lead.Session, t.claim.Epoch)
		}
		return nil, false, nil
	case err != nil:
		d.endUnstarted(ctx, t.rows)
		return nil, false, fmt.Errorf("starting a turn: %w", err)
	case len(t.started.Seqs) == 0:
		return nil, false, nil
	}
	t.began = time.Now()
	t.cron.know(t.started.Job)
	t.rows = keep(t.rows, t.started.Seqs)
	t.agent = d.agents[lead.Session.Agent]
	t.run = d.events.Start(events.RunInfo{
		Session: lead.Session, RunID: st.RunID(), Lane: st.Lane(), Principal: t.started.Principal,
		Sender: lead.Content.Sender.ID, Replace: t.started.Attempt > 1,
	})
	d.running.add(st, t)
	d.events.PublishSession(lead.Session, t.run.Principal, "run.started", t.run.RunID)
	st.Began() // its messages are in the transcript: the next turn of the session may write its own behind them
	d.cronStarted(ctx, t)
	return t, true, nil
}

// said is a message as the transcript keeps it.
func said(r store.Waiting, runID string) chat.TranscriptEntry {
	role := chat.RoleUser
	if r.Content.System {
		role = chat.RoleSystem
	}
	return chat.TranscriptEntry{RunID: runID, Role: role, Text: r.Content.Text, Sender: r.Content.Sender, Tokens: agent.EstimateTokens(r.Content.Text)}
}

func keep(rows []store.Waiting, seqs []int64) []store.Waiting {
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

// endUnstarted gives messages an outcome whose turn was stopped before the store could be told that it began.
func (d *Dispatcher) endUnstarted(ctx context.Context, rows []store.Waiting) {
	var cause *scheduler.CancelCause
	if !errors.As(context.Cause(ctx), &cause) {
		d.endWaiting(ctx, rows, chat.OutcomeFailed, string(chat.FailUnknown)) // a defect: the next message must not pass over it in silence
		return
	}
	switch cause.Reason {
	case scheduler.ReasonStopped:
		why := reasonOf(cause.By)
		d.endWaiting(ctx, rows, chat.OutcomeStopped, why)
	case scheduler.ReasonSuperseded:
		d.endWaiting(ctx, rows, chat.OutcomeSuperseded, store.ReasonSuperseded)
	default: // they wait for the next process, or for the sweep
	}
}

// execute runs the agent. It returns before anything ran when an earlier life of the run says so.
func (d *Dispatcher) execute(ctx context.Context, t *turn, st *scheduler.Turn[work]) (agent.Result, error) {
	lead := t.rows[len(t.rows)-1]
	switch {
	case t.started.StopBy != "":
		return agent.Result{}, &scheduler.CancelCause{Reason: scheduler.ReasonStopped, By: t.started.StopBy}
	case t.started.Crashes >= store.MaxCrashes:
		return agent.Result{}, errDead
	case t.started.Crashes > 0 && d.atMostOnce(t):
		return agent.Result{}, errInterrupted
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.timeout(lead), errTurnTimeout)
	defer cancel()
	if res, done, err := d.executeCron(ctx, t); done {
		return orCause(ctx, res, err)
	}
	req, err := d.request(ctx, t)
	if err != nil {
		return agent.Result{}, err
	}
	if st != nil {
		req.TakeInput = d.takeInput(ctx, t, st)
	}
	if ctx.Err() != nil {
		return agent.Result{}, context.Cause(ctx)
	}
	if t.cron == nil { // nobody waits for the answer of a job
		stopTyping := d.typing(ctx, lead.Content.Options.ReplyTo)
		defer stopTyping()
	}
	res, err := d.callAgent(ctx, t, req)
	return orCause(ctx, res, err)
}

// orCause is the error with which the context ended instead of what somebody made of that.
func orCause(ctx context.Context, res agent.Result, err error) (agent.Result, error) {
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return res, cause
	}
	return res, err
}

// callAgent runs the agent; a panic of it is an error like any other, with the stack in the log.
func (d *Dispatcher) callAgent(ctx context.Context, t *turn, req agent.Request) (res agent.Result, err error) {
	lead := t.rows[len(t.rows)-1]
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "an agent panicked", "session", lead.Session.String(), "run_id", req.RunID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = &agent.Error{Reason: chat.FailPanic, Message: "the agent broke down on this message; the operator can find out why"}
		}
	}()
	return t.agent.Runner.Run(ctx, req, func(e agent.Event) { d.emit(t, lead, e) })
}

func (d *Dispatcher) atMostOnce(t *turn) bool {
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

// turnTime is how long a turn of the agent may take unless its message says otherwise.
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

// request gathers what the agent is to know.
func (d *Dispatcher) request(ctx context.Context, t *turn) (agent.Request, error) {
	lead := t.rows[len(t.rows)-1]
	deadline, _ := ctx.Deadline()
	req := agent.Request{
		Session: lead.Session, RunID: t.run.RunID, Attempt: t.started.Attempt,
		IdempotencyKey: lead.Session.String() + "/" + t.run.RunID, Deadline: deadline,
		SystemPrompt: t.agent.SystemPrompt, Thinking: lead.Content.Options.Thinking, Params: lead.Content.Options.Params,
		Model: t.started.Notes[noteModel], OutputDir: d.outputOf(t), CallOnce: t.cron != nil,
	}
	if lead.Content.Options.Model != "" {
		req.Model = lead.Content.Options.Model
	}
	if extra := lead.Content.Options.SystemPrompt; extra != "" {
		req.SystemPrompt = joinNonEmpty("\n\n", req.SystemPrompt, extra)
	}
	budget := t.budget(&req)
	var history []chat.TranscriptEntry
	if !t.cron.isolated() {
		err := d.node.WhileAlive(ctx, func(ctx context.Context) (err error) { // a database that is away for a moment is no reason to give the turn up
			history, err = d.history(ctx, lead.Session, t.started.SessionID, t.run.RunID, budget)
			return err
		})
		if err != nil {
			return req, err
		}
	}
	for _, r := range t.rows {
		req.Messages = append(req.Messages, r.Content)
		history = append(history, r.Content.Context...)
	}
	req.History = agent.CutHistory(history, budget)
	return req, nil
}

func joinNonEmpty(sep string, a, b string) string {
	if a == "" {
		return b
	}
	return a + sep + b
}

// budget is how many tokens of history fit: the window less the answer's quarter, the prompt and the new messages.
func (t *turn) budget(req *agent.Request) int {
	window := t.agent.ContextWindow
	if window == 0 {
		return defaultHistory
	}
	left := window - window/4 - agent.EstimateTokens(req.SystemPrompt)
	for _, r := range t.rows {
		left -= agent.EstimateTokens(r.Content.Text)
	}
	return left
}

// historyPage is how many bytes of a transcript are read at once.
const historyPage = 256 << 10

// history reads the transcript before the run, newest pages first, until the budget is used up: it holds what the budget allows and one page, or one entry
// if that is larger.
func (d *Dispatcher) history(ctx context.Context, key chat.SessionKey, sessionID, runID string, budget int) ([]chat.TranscriptEntry, error) {
	var out []chat.TranscriptEntry
	for offset := 0; budget > 0; {
		tr, err := d.store.Transcript(ctx, store.TranscriptQuery{Session: key, SessionID: sessionID, Limit: 200, Offset: offset, MaxBytes: historyPage})
		if err != nil {
			return nil, fmt.Errorf("reading the history: %w", err)
		}
		older := make([]chat.TranscriptEntry, 0, len(tr.Entries))
		for _, e := range tr.Entries {
			if !e.Command && e.RunID != runID {
				older = append(older, e)
				budget -= agent.EstimateEntry(e)
			}
		}
		out = append(older, out...)
		if offset += len(tr.Entries); len(tr.Entries) == 0 || offset >= tr.Total {
			break
		}
	}
	return out, nil
}

// emit tells watchers what the agent does while it works.
func (d *Dispatcher) emit(t *turn, lead store.Waiting, e agent.Event) {
	switch e.Kind {
	case agent.EventDelta:
		whole, ok := t.run.Grow(chat.CleanText(e.Text))
		if !ok {
			return
		}
		if to := lead.Content.Options.ReplyTo; t.cron.heldBack(to) == "" {
			d.preview(to, t.run.RunID, whole)
		}
	case agent.EventTool:
		t.run.Tool(e.Tool)
	case agent.EventUsage: // written at the end
	}
}

// estimate is asked by the scheduler before a second turn of a session starts at the same time.
func (d *Dispatcher) estimate(ctx context.Context, session string) (tokens, window int) {
	key, err := chat.ParseSessionKey(session, d.DefaultAgent())
	if err != nil {
		return 0, 0
	}
	window = d.agents[key.Agent].ContextWindow
	if window == 0 {
		return 0, 0
	}
	history, err := d.history(ctx, key, "", "", window)
	if err != nil {
		d.log.WarnContext(ctx, "no token estimate", "session", session, "err", err)
		return 0, 0
	}
	for _, e := range history {
		tokens += agent.EstimateEntry(e)
	}
	return tokens, window
}
