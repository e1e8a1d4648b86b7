package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/store"
	"laneway/internal/tool"
)

const (
	// orphansEvery is how often allowed calls are looked for whose process has ended before it made them.
	orphansEvery = 5 * time.Second
	orphansBatch = 20
)

var _ tool.Questions = (*questions)(nil)

// Ask implements [tool.Questions].
func (q *questions) Ask(ctx context.Context, p tool.Pending) error {
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding a call: %w", err)
	}
	return q.put(ctx, callID("question", p), question{
		id: p.ID(), who: p.Asked, session: p.Session, agent: p.Session.Agent, what: p.Words(), options: allowOrDeny(), life: store.QuestionLife,
	}, store.Question{Body: body})
}

// callID is the id of a message about a call: the same call sends it once.
func callID(what string, p tool.Pending) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("laneway:"+what+":"+p.Key)).String()
}

// work makes an allowed call and records its result.
func (q *questions) work(ctx context.Context, asked store.Question) (tool.Pending, chat.ToolResult, error) {
	var p tool.Pending
	if err := json.Unmarshal(asked.Body, &p); err != nil {
		return p, chat.ToolResult{}, fmt.Errorf("reading an allowed call: %w", err)
	}
	result := q.tools.Make(ctx, p)
	first := false
	err := q.node.Final(ctx, "recording the result of an allowed call", func(ctx context.Context) (err error) {
		first, err = q.store.EndQuestion(ctx, asked.ID, result)
		return err
	})
	if err != nil {
		return p, result, fmt.Errorf("recording the result of an allowed call: %w", err)
	}
	if first {
		q.note(ctx, p, result)
	}
	return p, result, nil
}

// note is the line of the call in the transcript, which later turns of the session read.
func (q *questions) note(ctx context.Context, p tool.Pending, result chat.ToolResult) {
	text := callNote(chat.ToolCall{Name: p.Tool, Args: p.Args}, &result)
	_, err := q.store.AppendTranscript(ctx, p.Session, p.Asked.Principal, []chat.TranscriptEntry{{
		Role: chat.RoleSystem, Text: text, Tokens: agent.EstimateTokens(text), StopReason: "tool",
	}})
	if err != nil {
		q.log.WarnContext(ctx, "an allowed call is not in the transcript", "session", p.Session.String(), "err", err)
	}
}

// run makes allowed calls whose process has ended, until ctx is over.
func (q *questions) run(ctx context.Context) {
	for retry.Sleep(ctx, orphansEvery) == nil {
		if node, err := q.node.Alive(); err == nil {
			q.adopt(ctx, node)
		}
	}
}

func (q *questions) adopt(ctx context.Context, node string) {
	list, err := q.store.TakeQuestions(ctx, node, orphansBatch)
	if err != nil {
		q.log.DebugContext(ctx, "allowed calls of ended processes were not read", "err", err)
		return
	}
	for _, asked := range list {
		p, result, err := q.work(ctx, asked)
		if err == nil {
			err = q.send(ctx, callID("answer", p), p.Asked, p.Session, store.Outgoing{Text: result.Text})
		}
		if err != nil {
			q.log.WarnContext(ctx, "an allowed call of an ended process failed", "question", asked.ID, "err", err)
		}
	}
}
