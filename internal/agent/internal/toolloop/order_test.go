package toolloop_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// sending is a toolbox whose calls take the time in their arguments. Calls of "send" run in order, calls of "read" concurrently.
type sending struct {
	tools

	mu    sync.Mutex
	ended []string // ids of the calls
}

func (s *sending) Specs() []agent.ToolSpec {
	schema := []byte(`{"type":"object"}`)
	return []agent.ToolSpec{{Name: "send", Schema: schema, InOrder: true}, {Name: "read", Schema: schema}}
}

func (s *sending) Call(_ context.Context, _ string, call chat.ToolCall) chat.ToolResult {
	took, err := time.ParseDuration(call.Args[len(`{"for":"`) : len(call.Args)-len(`"}`)])
	if err != nil {
		return chat.ToolResult{Text: err.Error(), IsError: true}
	}
	time.Sleep(took)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, call.ID)
	return chat.ToolResult{Text: "sent"}
}

// TestCallsThatSendRunInTheOrderOfTheAnswer lets a model request sends that would overtake each other, between reads.
func TestCallsThatSendRunInTheOrderOfTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		box := &sending{}
		m := &model{calls: []chat.ToolCall{
			{ID: "send 1", Name: "send", Args: `{"for":"5s"}`},
			{ID: "read 1", Name: "read", Args: `{"for":"1s"}`},
			{ID: "send 2", Name: "send", Args: `{"for":"3s"}`},
			{ID: "send 3", Name: "send", Args: `{"for":"2ms"}`},
			{ID: "read 2", Name: "read", Args: `{"for":"2s"}`},
		}}
		begin := time.Now()
		if _, err := turnWith(t.Context(), m, box, &box.tools); err != nil {
			t.Fatal(err)
		}
		if want := []string{"read 1", "read 2", "send 1", "send 2", "send 3"}; !slices.Equal(box.ended, want) {
			t.Errorf("the calls ended as %q, want %q", box.ended, want)
		}
		if took := time.Since(begin); took != 8*time.Second+2*time.Millisecond {
			t.Errorf("the round took %s, want the sum of its sends", took)
		}
	})
}
