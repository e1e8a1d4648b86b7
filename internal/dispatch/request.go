package dispatch

import (
	"context"
	"fmt"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// defaultHistory is how many tokens of history an agent gets whose context window is unknown.
const defaultHistory = 24_000

// historyPage is how many bytes of a transcript are read at once.
const historyPage = 256 << 10

// request gathers what the agent is to know.
func (ts *turns) request(ctx context.Context, t *turn) (agent.Request, error) {
	lead := t.rows[len(t.rows)-1]
	req := ts.baseRequest(ctx, t)
	req.SystemPrompt, req.Thinking, req.Params = t.agent.SystemPrompt, lead.Content.Options.Thinking, lead.Content.Options.Params
	req.Model, req.CallOnce = t.started.Notes[noteModel], t.attempt.Unattended()
	if lead.Content.Options.Model != "" {
		req.Model = lead.Content.Options.Model
	}
	if extra := lead.Content.Options.SystemPrompt; extra != "" {
		req.SystemPrompt = joinNonEmpty("\n\n", req.SystemPrompt, extra)
	}
	budget := t.budget(&req)
	var history []chat.TranscriptEntry
	if !t.attempt.Isolated() {
		err := ts.node.WhileAlive(ctx, func(ctx context.Context) (err error) { // a database that is away for a moment is no reason to give the turn up
			history, err = ts.history(ctx, lead.Session, t.started.SessionID, t.run.RunID, budget)
			return err
		})
		if err != nil {
			return req, err
		}
	}
	for _, r := range t.rows {
		history = append(history, r.Content.Context...)
	}
	req.History = agent.CutHistory(history, budget)
	req.BeforeRound = func(ctx context.Context) error { return ts.allow(ctx, t) }
	if t.agent.EstimateUsage {
		t.journal.estimate = func() int { return estimateRequest(req) }
	}
	return req, nil
}

// baseRequest is what every execution of a turn gets: its identity, its deadline, its messages and a place for files.
func (ts *turns) baseRequest(ctx context.Context, t *turn) agent.Request {
	key := t.rows[len(t.rows)-1].Session
	deadline, _ := ctx.Deadline()
	req := agent.Request{
		Session: key, RunID: t.run.RunID, Attempt: t.started.Attempt, IdempotencyKey: key.String() + "/" + t.run.RunID, Deadline: deadline,
		OutputDir: ts.outputOf(t),
	}
	began, inputs := t.journal.split(t.rows)
	if req.Tools = ts.toolbox(t); req.Tools != nil || t.journal.last() > 0 {
		req.Journal = &turnJournal{journal: t.journal, inputs: inputs}
	}
	for _, r := range began {
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

// history reads the transcript before the run, newest pages first, until the budget is used up: it holds what the budget allows and one page, or one entry
// if that is larger.
func (ts *turns) history(ctx context.Context, key chat.SessionKey, sessionID, runID string, budget int) ([]chat.TranscriptEntry, error) {
	var out []chat.TranscriptEntry
	for offset := 0; budget > 0; {
		tr, err := ts.store.Transcript(ctx, store.TranscriptQuery{Session: key, SessionID: sessionID, Limit: 200, Offset: offset, MaxBytes: historyPage})
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

// estimate is asked by the scheduler before a second turn of a session starts at the same time.
func (ts *turns) estimate(ctx context.Context, session string) (tokens, window int) {
	key, err := chat.ParseSessionKey(session, ts.cfg.Agents[0].Info.ID)
	if err != nil {
		return 0, 0
	}
	window = ts.agents[key.Agent].ContextWindow
	if window == 0 {
		return 0, 0
	}
	history, err := ts.history(ctx, key, "", "", window)
	if err != nil {
		ts.log.WarnContext(ctx, "no token estimate", "session", session, "err", err)
		return 0, 0
	}
	for _, e := range history {
		tokens += agent.EstimateEntry(e)
	}
	return tokens, window
}
