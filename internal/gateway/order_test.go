package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/gateway"
)

// slowAccepts is a backend that accepts a message when the test allows it, and records the order of its calls.
type slowAccepts struct {
	*fakeBackend

	mu      sync.Mutex
	arrived []string
	came    chan string              // the text of each call
	allowed map[string]chan struct{} // by text; other messages are accepted at once
}

func (b *slowAccepts) ReceiveFrom(ctx context.Context, m chat.Message, by gateway.Caller) (chat.Receipt, error) {
	b.mu.Lock()
	b.arrived = append(b.arrived, m.Content.Text)
	b.mu.Unlock()
	b.came <- m.Content.Text
	if allowed := b.allowed[m.Content.Text]; allowed != nil {
		<-allowed
	}
	return b.fakeBackend.ReceiveFrom(ctx, m, by)
}

func (b *slowAccepts) order() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.arrived)
}

func startSlow(t *testing.T, slow ...string) (*bench, *slowAccepts) {
	t.Helper()
	h := newFakeBackend(t)
	b := &slowAccepts{fakeBackend: h, came: make(chan string, 256), allowed: map[string]chan struct{}{}}
	for _, text := range slow {
		b.allowed[text] = make(chan struct{})
	}
	return serve(t, h, b), b
}

func sendOf(session, text string) params {
	return params{"sessionKey": session, "message": text, "idempotencyKey": "k-" + text}
}

func TestFramesOfOneConnectionToOneSessionAreAcceptedInOrder(t *testing.T) {
	t.Parallel()
	b, backend := startSlow(t)
	s := b.login(adminToken)
	for round := range 10 {
		var want []string
		for i := range 20 {
			text := fmt.Sprintf("m%d-%d", round, i)
			want = append(want, text)
			key := "main"
			if i%2 == 1 {
				key = "agent:main:main" // the same session
			}
			s.request(text, "chat.send", sendOf(key, text))
		}
		got := make([]string, 0, len(want))
		for range want {
			got = append(got, <-backend.came)
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d: accepted as %q", round, got)
		}
	}
}

func TestOnlyLaterFramesOfTheSameSessionWaitForAnAcceptance(t *testing.T) {
	t.Parallel()
	b, backend := startSlow(t, "first")
	s := b.login(adminToken)
	s.request("1", "chat.send", sendOf("main", "first"))
	s.request("2", "agent", params{"message": "second", "idempotencyKey": "k-second"}) // to the main session as well
	s.request("3", "chat.send", sendOf("other", "third"))
	s.request("4", "chat.send", sendOf("main", "/stop"))
	answered := func(id string) func(frame) bool { return func(f frame) bool { return f.ID == id } }
	s.next(answered("3"))
	if f := s.call("health", params{"probe": true}); !f.OK {
		t.Errorf("health: %+v", f.Error)
	}
	for range 3 {
		<-backend.came
	}
	got := backend.order()
	if slices.Sort(got); !slices.Equal(got, []string{"/stop", "first", "third"}) {
		t.Errorf("before the first message was accepted, the backend got %q", got)
	}
	close(backend.allowed["first"])
	if text := <-backend.came; text != "second" {
		t.Errorf("%q came after the first message", text)
	}
}
