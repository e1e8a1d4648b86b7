package dispatch

import (
	"context"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// summarise requests a summary from the agent of a turn, within its budgets. The text of the result is never empty.
func (ts *turns) summarise(ctx context.Context, t *turn, s agent.Summary) (agent.Result, error) {
	if err := ts.allow(ctx, t); err != nil {
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

// Room implements [agent.Summariser]: half of the window for a conversation, so that the rest suffices when an estimate is wrong.
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
