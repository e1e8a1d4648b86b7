package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/tool"
)

const (
	// orphansEvery is the interval of the search for allowed calls whose process ended before it made them.
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

// callID is the id of a message about a call, so that a call sends the message once.
func callID(what string, p tool.Pending) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("laneway:"+what+":"+p.Key)).String()
}

func pending(asked store.Question) (p tool.Pending, err error) {
	if err := json.Unmarshal(asked.Body, &p); err != nil {
		return p, fmt.Errorf("reading an allowed call: %w", err)
	}
	return p, nil
}

// end records the result of an allowed call.
func (q *questions) end(ctx context.Context, asked store.Question, p tool.Pending, result chat.ToolResult) error {
	first := false
	err := q.node.Final(ctx, "recording the result of an allowed call", func(ctx context.Context) (err error) {
		first, err = q.store.EndQuestion(ctx, asked.ID, result)
		return err
	})
	if err != nil {
		return fmt.Errorf("recording the result of an allowed call: %w", err)
	}
	if first {
		q.note(ctx, p, result)
	}
	return nil
}

// report sends the person the result of a call, once, and records it. With this order, a process that ends in between causes a repeated
// report, which has the same id, instead of a lost one.
func (q *questions) report(ctx context.Context, asked store.Question, p tool.Pending, result chat.ToolResult) error {
	if err := q.send(ctx, callID("answer", p), p.Asked, p.Session, store.Outgoing{Text: shortened(result.Text)}); err != nil {
		return err
	}
	return q.end(ctx, asked, p, result)
}

// maxReported is how much of a result is sent to a person, in bytes. It fits into one message of every network.
const maxReported = 2000

func shortened(text string) string {
	if len(text) <= maxReported {
		return text
	}
	return chat.Cut(text, maxReported) + fmt.Sprintf("\n[%d bytes in all]", len(text))
}

// note adds the call to the transcript, for later turns of the session.
func (q *questions) note(ctx context.Context, p tool.Pending, result chat.ToolResult) {
	text := callNote(chat.ToolCall{Name: p.Tool, Args: p.Args}, &result)
	_, err := q.store.AppendTranscript(ctx, p.Session, p.Asked.Principal, []chat.TranscriptEntry{{
		Role: chat.RoleSystem, Text: text, Tokens: agent.EstimateTokens(text), StopReason: chat.StopTool, Outside: result.Foreign,
	}})
	if err != nil {
		q.log.WarnContext(ctx, "an allowed call is not in the transcript", "session", p.Session.String(), "err", err)
	}
}

// run makes allowed calls of other servers, including those of processes that have ended, until ctx is done. It waits for the calls that it
// started.
func (q *questions) run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	orphans := time.NewTicker(orphansEvery)
	defer orphans.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case asked := <-q.outside.allowed:
			calls.Go(func() { q.makeOutside(ctx, asked) })
		case <-orphans.C:
			if node, err := q.node.Alive(); err == nil {
				q.adopt(ctx, node)
			}
		}
	}
}

// makes records that this process makes a call, before the store gives it the call; the result records the end.
func (q *questions) makes(id string) (end func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inHand[id] = false
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.inHand[id] = true
	}
}

// take takes the calls that no process makes. A call that began or ended during the read is not one of them; one that ended before without a recorded result is
// found by the next read.
func (q *questions) take(ctx context.Context, node string) ([]store.Question, error) {
	p := store.TakeQuestionsParams{Node: node, InHand: q.outside.all(), Limit: orphansBatch}
	var ended []string
	q.mu.Lock()
	for id, over := range q.inHand {
		p.InHand = append(p.InHand, id)
		if over {
			ended = append(ended, id)
		}
	}
	q.mu.Unlock()
	list, err := q.store.TakeQuestions(ctx, p)
	begun := q.outside.all()
	q.mu.Lock()
	defer q.mu.Unlock()
	list = slices.DeleteFunc(list, func(asked store.Question) bool {
		_, known := q.inHand[asked.ID]
		return known || slices.Contains(begun, asked.ID)
	})
	for _, id := range ended {
		if q.inHand[id] { // it has not begun again
			delete(q.inHand, id)
		}
	}
	return list, err
}

func (q *questions) adopt(ctx context.Context, node string) {
	list, err := q.take(ctx, node)
	if err != nil {
		q.log.DebugContext(ctx, "allowed calls that no process makes were not read", "err", err)
		return
	}
	for _, asked := range list {
		p, err := pending(asked)
		if err == nil {
			err = q.report(ctx, asked, p, q.resume(ctx, p))
		}
		if err != nil {
			q.log.WarnContext(ctx, "an allowed call that no process made failed", "question", asked.ID, "err", err)
		}
	}
}

// resume makes the call of a process that has ended, unless it must not be made twice.
func (q *questions) resume(ctx context.Context, p tool.Pending) chat.ToolResult {
	if q.tools.Outside(p.Tool) {
		return chat.ToolResult{Text: "The gateway stopped during the call of " + p.Tool + "; it may or may not have happened.", IsError: true}
	}
	return q.tools.Make(ctx, p)
}
