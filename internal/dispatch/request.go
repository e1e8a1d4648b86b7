package dispatch

import (
	"context"
	"fmt"
	"slices"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// defaultHistory is how many tokens of history an agent with an unknown context window receives.
const defaultHistory = 24_000

// historyPage is the size in bytes of a page of a transcript.
const historyPage = 256 << 10

// request builds the request of a turn to its agent.
func (ts *turns) request(ctx context.Context, t *turn) (agent.Request, error) {
	lead := t.rows[len(t.rows)-1]
	ts.tools.Await(ctx, t.agent.Tools.Servers) // otherwise the first turns after a start lack the tools of a server that is still connecting
	req := ts.baseRequest(ctx, t)
	req.Clock = ts.clock(ctx, t, req.Tools)
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
			history, err = ts.history(ctx, lead.Session, t.started.SessionID, t.run.RunID, budget)
			return err
		})
		if err != nil {
			return req, err
		}
	}
	for _, e := range history {
		t.past.tokens += agent.EstimateEntry(e)
	}
	req.History = agent.CutHistory(history, budget)
	t.outside = hasOutside(req.History)
	req.BeforeRound = func(ctx context.Context) error { return ts.allow(ctx, t) }
	if t.agent.EstimateUsage {
		t.journal.estimate = func() int { return estimateRequest(req) }
	}
	return req, nil
}

// baseRequest returns the part that every execution of a turn has: its identity, its deadline, its messages and a place for files.
func (ts *turns) baseRequest(ctx context.Context, t *turn) agent.Request {
	key := t.rows[len(t.rows)-1].Session
	deadline, _ := ctx.Deadline()
	req := agent.Request{
		Session: key, RunID: t.run.RunID, Attempt: t.started.Attempt, IdempotencyKey: key.String() + "/" + t.run.RunID, Deadline: deadline,
		OutputDir: ts.outputOf(t), Asker: ts.questions.asker(t),
	}
	if ts.cfg.Files != nil {
		req.Files = ts.cfg.Files
	}
	began, inputs := t.journal.split(t.rows)
	if req.Tools = ts.toolbox(t); req.Tools != nil || t.journal.last() > 0 {
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

// budget returns how many estimated tokens of history fit: the window less a quarter for the answer, the prompt and the new messages.
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

// roomOf returns how many estimated tokens of an agent's window are available for the conversation: three quarters, less the prompt and the
// tools.
func roomOf(a Agent, ratio agent.Ratio, req *agent.Request) int {
	return ratio.Window(a.ContextWindow-a.ContextWindow/4) - agent.EstimateTokens(req.SystemPrompt) - toolTokens(req.Tools)
}

// ratio returns how the provider of an agent counts tokens in a session; model is the one that was chosen there, "" = the agent's own.
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

// history reads the conversation before the run: the newest summary, and the entries after the range that it covers, newest pages first,
// until the budget is used up. It holds in memory at most the budget and one page, or one entry if that is larger.
func (ts *turns) history(ctx context.Context, key chat.SessionKey, sessionID, runID string, budget int) ([]chat.TranscriptEntry, error) {
	var out []chat.TranscriptEntry
	var summary chat.TranscriptEntry
	for offset := 0; budget > 0; {
		tr, err := ts.store.Transcript(ctx, store.TranscriptQuery{
			Session: key, SessionID: sessionID, Limit: 200, Offset: offset, MaxBytes: historyPage, Summary: offset == 0,
		})
		if err != nil {
			return nil, fmt.Errorf("reading the history: %w", err)
		}
		if offset == 0 && tr.Summary.Seq > 0 {
			summary = tr.Summary
			budget -= agent.EstimateEntry(summary)
		}
		older := make([]chat.TranscriptEntry, 0, len(tr.Entries))
		for _, e := range tr.Entries {
			if spoken(e) && e.RunID != runID && e.Seq > summary.Covers.To {
				older = append(older, e)
				budget -= agent.EstimateEntry(e)
			}
		}
		out = append(older, out...)
		if offset += len(tr.Entries); len(tr.Entries) == 0 || offset >= tr.Total || tr.Entries[0].Seq <= summary.Covers.To+1 {
			break
		}
	}
	if summary.Seq > 0 {
		out = append([]chat.TranscriptEntry{summary}, out...)
	}
	return out, nil
}

// hasOutside reports whether an entry has text from outside.
func hasOutside(rows []chat.TranscriptEntry) bool {
	return slices.ContainsFunc(rows, func(e chat.TranscriptEntry) bool { return e.Outside })
}

// spoken reports whether an entry is part of the conversation: neither a command nor a summary of other entries.
func spoken(e chat.TranscriptEntry) bool { return !e.Command && e.Covers.To == 0 }

// estimate is called by the scheduler before a second turn of a session starts concurrently. It uses the provider's last count.
func (ts *turns) estimate(ctx context.Context, session string) (tokens, window int) {
	key, err := chat.ParseSessionKey(session, ts.cfg.Agents[0].Info.ID)
	if err != nil {
		return 0, 0
	}
	window = ts.agents[key.Agent].ContextWindow
	if window == 0 {
		return 0, 0
	}
	tokens, err = ts.size(ctx, key, window)
	if err != nil {
		ts.log.WarnContext(ctx, "no token estimate", "session", session, "err", err)
		return 0, 0
	}
	return tokens, window
}

// size returns how many tokens a conversation has: the provider's count of its last turn and an estimate of the entries after that, or an
// estimate of all that an agent would receive.
func (ts *turns) size(ctx context.Context, key chat.SessionKey, most int) (tokens int, err error) {
	ratio := ts.agents[key.Agent].ratio("", key)
	if counted, ok := ts.compactions.counted(key); ok {
		tr, err := ts.store.Transcript(ctx, store.TranscriptQuery{Session: key, After: counted.seq, MaxBytes: historyPage, Summary: true})
		if err != nil {
			return 0, fmt.Errorf("reading the newest rows: %w", err)
		}
		if tr.SessionID == counted.sessionID && tr.Summary.Seq <= counted.seq {
			for _, e := range tr.Entries {
				tokens += agent.EstimateEntry(e)
			}
			return counted.tokens + ratio.Counted(tokens), nil
		}
	}
	history, err := ts.history(ctx, key, "", "", ratio.Window(most))
	for _, e := range history {
		tokens += agent.EstimateEntry(e)
	}
	return ratio.Counted(tokens), err
}
