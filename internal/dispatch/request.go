package dispatch

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// request builds the request of a turn to its agent.
func (ts *turns) request(ctx context.Context, t *turn) (agent.Request, error) {
	lead := t.rows[len(t.rows)-1]
	ts.tools.Await(ctx, t.agent.Tools.Servers) // otherwise the first turns after a start lack the tools of a server that is still connecting
	req := ts.baseRequest(ctx, t)
	req.Clock = ts.clocks.clock(ctx, t, req.Tools)
	req.SystemPrompt, req.Thinking, req.Params = t.agent.SystemPrompt, lead.Content.Options.Thinking, lead.Content.Options.Params
	if task := lead.Content.Options.Task; task != nil {
		req.Awaited = task.Parent != "" && !task.Announce
	}
	req.Model, req.CallOnce = t.started.Notes[noteModel], t.attempt.Unattended()
	if dir := t.started.Notes[noteDir]; slices.Contains(t.agent.Dirs, dir) {
		req.Dir = dir
	}
	if lead.Content.Options.Model != "" {
		req.Model = lead.Content.Options.Model
	}
	if extra := lead.Content.Options.SystemPrompt; extra != "" {
		req.SystemPrompt = joinNonEmpty("\n\n", req.SystemPrompt, extra)
	}
	budget := t.budget(&req)
	t.past.room, t.past.window = budget, t.agent.ContextWindow
	var history []chat.TranscriptEntry
	if !t.attempt.Isolated() {
		err := ts.node.WhileAlive(ctx, func(ctx context.Context) (err error) { // a database that is temporarily unavailable must not end the turn
			history, t.past.tokens, err = ts.history(ctx, lead.Session, t.started.SessionID, t.run.RunID, budget)
			return err
		})
		if err != nil {
			return req, err
		}
	}
	req.History = agent.CutHistory(history, budget)
	if slices.ContainsFunc(req.History, func(e chat.TranscriptEntry) bool { return e.Origin != nil }) {
		req.Zone = ts.clocks.zone(ctx, t)
	}
	t.outside = hasOutside(req.History)
	req.BeforeRound = func(ctx context.Context) error { return ts.spending.allow(ctx, t) }
	if t.agent.EstimateUsage {
		t.journal.estimate = func() int { return estimateRequest(req) }
	}
	return req, nil
}

// resolve completes what messages answer that is from this gateway: it finds the stored text, what
// has made it, and its entry in the conversation, by any message or file that shows it. What is not
// found keeps the text of its network. Only messages of the same chat are found.
func (ts *turns) resolve(ctx context.Context, rows []store.Waiting) {
	for i := range rows {
		r := &rows[i]
		if !ts.resolves(r) {
			continue
		}
		a, to := r.Content.Answered, r.Content.Options.ReplyTo
		shows, _ := ts.channels[to.Channel].(channel.Converser)
		var m store.SentMessage
		err := ts.node.WhileAlive(ctx, func(ctx context.Context) (err error) {
			m, err = ts.store.SentMessage(ctx, to, a.Message)
			return err
		})
		if err != nil {
			if !errors.Is(err, chat.ErrNotFound) {
				ts.log.WarnContext(ctx, "an answered message cannot be looked up; its network's text is used", "message_id", r.MessageID, "err", err)
			}
			continue
		}
		found, whole := *a, m.Words()
		found.Text, found.Outside = whole, m.FromOutside
		if m.File == nil && m.To > m.From {
			found.Text = cmp.Or(shows.Shows(whole, m.From, m.To), whole)
		}
		found.Part = m.File != nil || m.From > 0 || found.Text != cmp.Or(shows.Shows(whole, 0, math.MaxInt), whole)
		found.Origin = m.SentAt.In(ts.clocks.zoneOf(ctx, r.Principal)).Format("15:04")
		if m.Origin != nil && m.Origin.By != r.Session.String() { // else a tool has sent it from here
			found.Origin = strings.TrimSuffix(m.Origin.Who(), ",") + ", " + found.Origin
		}
		run := cmp.Or(m.RunID, m.ID)
		tr, err := ts.store.Transcript(ctx, store.TranscriptQuery{Session: r.Session, RunID: run, NoCount: true, Limit: entriesOfRun})
		if found.Run = run; err != nil || !agent.Stands(&found, tr.Entries) {
			found.Run = ""
		}
		r.Content.Answered = found.Bound()
	}
}

// resolves reports whether a message answers one that resolve looks for.
func (ts *turns) resolves(r *store.Waiting) bool {
	a := r.Content.Answered
	_, ok := ts.channels[r.Content.Options.ReplyTo.Channel].(channel.Converser)
	return ok && a != nil && a.Ours && a.Message != ""
}

// entriesOfRun is how many entries of a run are searched for an answered one.
const entriesOfRun = 20

// baseRequest returns the part that every execution of a turn has: its identity, its deadline, its
// messages and a place for files.
func (ts *turns) baseRequest(ctx context.Context, t *turn) agent.Request {
	key := t.rows[len(t.rows)-1].Session
	deadline, _ := ctx.Deadline()
	req := agent.Request{
		Session: key, RunID: t.run.RunID, Attempt: t.started.Attempt, IdempotencyKey: key.String() + "/" + t.run.RunID, Deadline: deadline,
		OutputDir: ts.outputs.of(t), Asker: ts.questions.asker(t), Left: t.started.Program,
		KeepProgram: func(ctx context.Context, p chat.Program) error {
			return ts.node.WhileAlive(ctx, func(ctx context.Context) error { return ts.store.RecordProgram(ctx, t.claim, t.run.RunID, p) })
		},
	}
	if ts.cfg.Files != nil {
		req.Files = ts.cfg.Files
	}
	began, inputs := t.journal.split(t.rows)
	if req.Client = t.rows[len(t.rows)-1].Content.Client; req.Client == nil {
		req.Tools = ts.toolbox(t)
	}
	if req.Client == nil && (req.Tools != nil || t.journal.last() > 0) {
		req.Journal = &turnJournal{journal: t.journal, inputs: inputs}
	}
	for _, r := range began {
		if r.Content.Options.KeepContext { // it is in the transcript
			r.Content.Context = nil
		}
		req.Messages = append(req.Messages, r.Content)
	}
	return req
}

func joinNonEmpty(sep string, a, b string) string {
	if a == "" {
		return b
	}
	return a + sep + b
}

// budget returns how many estimated tokens of history fit: the window less a quarter for the
// answer, the prompt and the new messages.
func (t *turn) budget(req *agent.Request) int {
	window := t.agent.ContextWindow
	if window == 0 {
		return defaultHistory
	}
	left := roomOf(t.agent, t.agent.ratio(req.Model, req.Session), req)
	for _, r := range t.rows {
		left -= agent.EstimateTokens(r.Content.Text) + agent.EstimateTokens(r.Content.Answered.InText())
	}
	return left
}

// roomOf returns how many estimated tokens of an agent's window are available for the conversation:
// three quarters, less the prompt and the tools.
func roomOf(a Agent, ratio agent.Ratio, req *agent.Request) int {
	return ratio.Window(a.ContextWindow-a.ContextWindow/4) - agent.EstimateTokens(req.SystemPrompt) - toolTokens(req.Tools)
}

// ratio returns how the provider of an agent counts tokens in a session; model is the one that was
// chosen there, "" = the agent's own.
func (a Agent) ratio(model string, key chat.SessionKey) agent.Ratio {
	if model == "" {
		model = a.Info.Model
	}
	return a.Gauge.Ratio(model, key.String())
}

func toolTokens(tools agent.Toolbox) int {
	n := 0
	if tools != nil {
		for _, spec := range tools.Specs() {
			n += agent.EstimateTokens(spec.Name + spec.Description + string(spec.Schema))
		}
	}
	return n
}

// summarise requests a summary from the agent of a turn, within its budgets. The text of the result
// is never empty.
func (ts *turns) summarise(ctx context.Context, t *turn, s agent.Summary) (agent.Result, error) {
	if err := ts.spending.allow(ctx, t); err != nil {
		return agent.Result{}, err
	}
	req := ts.baseRequest(ctx, t)
	if !s.Session.IsZero() {
		req.Session = s.Session
	}
	req.Tools, req.Journal, req.OutputDir, req.Asker = nil, nil, nil, nil
	req.SystemPrompt, req.History = s.Prompt, s.Conversation
	req.Messages = []chat.Content{{Text: s.Question, System: true}}
	req.Params = map[string]any{"max_tokens": s.Tokens}
	if t.agent.EstimateUsage {
		t.journal.estimate = func() int { return estimateRequest(req) }
	}
	t.asked = true
	res, err := ts.callAgent(ctx, t, req, func(agent.Event) {}) // no person reads a summary while it is written
	t.estimate(&res)
	if err != nil {
		res.Text = ""
		return res, err
	}
	if res.Text = strings.TrimSpace(chat.CleanText(res.Text)); res.Text == "" {
		return res, agent.NewError(chat.FailBadResponse, "the agent has written no summary", nil)
	}
	return res, nil
}

// summariser requests several summaries from the agent of a turn. Each is counted when it ends.
type summariser struct {
	ts   *turns
	t    *turn
	used chat.Usage
}

var _ agent.Summariser = (*summariser)(nil)

// Room implements [agent.Summariser]: half of the window for a conversation, so that the rest
// suffices when an estimate is wrong.
func (s *summariser) Room() (conversation, summary int) {
	window := s.t.agent.ContextWindow
	if window == 0 {
		window = defaultHistory
	}
	return window / 2, min(window/8, mostSummary)
}

// Summarise implements [agent.Summariser].
func (s *summariser) Summarise(ctx context.Context, q agent.Summary) (string, error) {
	res, err := s.ts.summarise(ctx, s.t, q)
	if u := res.Usage; u.InputTokens+u.OutputTokens > 0 {
		s.t.usage.Count(u)
		s.used.Add(u)
	}
	return chat.Cut(res.Text, 4*q.Tokens), orNothing(ctx, err)
}

// orNothing returns the cause of the context's end instead of an error that resulted from it.
func orNothing(ctx context.Context, err error) error {
	_, err = orCause(ctx, agent.Result{}, err)
	return err
}
