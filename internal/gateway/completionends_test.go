package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func TestCompletionSaysHowARunEndedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text   string
		refuse error
		status int
		code   string
	}{
		"timeout":    {text: "fail", status: 504, code: "run_timeout"},
		"queue full": {text: "x", refuse: chat.ErrQueueFull, status: 429, code: "queue_full"},
		"draining":   {text: "x", refuse: chat.ErrDraining, status: 503, code: "gateway_draining"},
		"database":   {text: "x", refuse: chat.ErrStoreUnavailable, status: 503, code: "database_unavailable"},
		"defect":     {text: "x", refuse: io.ErrUnexpectedEOF, status: 500, code: "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			b.fakeBackend.set(func() { b.fakeBackend.refuse = tc.refuse })
			got := b.post(completionsPath, ask(tc.text))
			if _, code := got.fault(t); got.status != tc.status || code != tc.code {
				t.Errorf("got %d %s, want %d %s", got.status, code, tc.status, tc.code)
			}
			if again := got.header.Get("Retry-After") != ""; again != (tc.status == 429 || tc.status == 503) {
				t.Errorf("Retry-After: %v", got.header)
			}
		})
	}
}

func TestFailureInTheMiddleOfAStreamIsAnEvent(t *testing.T) {
	t.Parallel()
	b := start(t)
	got := b.post(completionsPath, ask("one fail", params{"stream": true}))
	chunks := readSSE(t, bytes.NewReader(got.body)).chunks(t)
	last := chunks[len(chunks)-1]
	if got.status != http.StatusOK || last.Error == nil || last.Error.Code != "run_timeout" || last.Error.Type != "server_error" {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestStoppedRunIsAConflictForItsCompletion(t *testing.T) {
	t.Parallel()
	b := start(t)
	done := make(chan answer, 1)
	go func() {
		done <- b.post(completionsPath, ask("wait"), header("X-Laneway-Session-Key", "agent:main:api:write:u"))
	}()
	b.fakeBackend.untilRunning("agent:main:api:write:u")
	if got := b.login(adminToken).must("chat.abort", params{"sessionKey": "agent:main:api:write:u"}); got["aborted"] != true {
		t.Fatalf("abort: %v", got)
	}
	got := <-done
	if _, code := got.fault(t); got.status != http.StatusConflict || code != "run_cancelled" || got.header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %s %v", got.status, got.body, got.header)
	}
}

// untilRunning waits until a session has a running turn.
func (h *fakeBackend) untilRunning(key string) {
	h.t.Helper()
	seen := make(chan struct{}, 1)
	look := func(chat.Event) {
		h.mu.Lock()
		r := h.sessions[key]
		running := r != nil && r.running != nil
		h.mu.Unlock()
		if running {
			select {
			case seen <- struct{}{}:
			default:
			}
		}
	}
	defer h.Subscribe(look, nil)()
	look(chat.Event{})
	select {
	case <-seen:
	case <-time.After(patience):
		h.t.Fatalf("no turn of %s runs", key)
	}
}

func TestClientThatGoesTakesItsRunAlong(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stream bool
		detach string
	}{"whole": {}, "streamed": {stream: true}, "detached": {detach: "1"}, "streamed and detached": {stream: true, detach: "1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			ctx, leave := context.WithCancel(context.Background())
			gone := make(chan struct{})
			req := b.postRequest(ctx, completionsPath, ask("wait done", params{"stream": tc.stream}), header("X-Laneway-Session-Key", "agent:main:api:write:u"), header("X-Laneway-Detach", tc.detach))
			go func() {
				defer close(gone)
				tr := &http.Transport{DisableKeepAlives: true}
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			b.fakeBackend.untilRunning("agent:main:api:write:u")
			leave()
			<-gone
			if tc.detach == "" {
				select {
				case <-b.fakeBackend.stopped:
				case <-time.After(patience):
					t.Fatal("the run was not stopped")
				}
				if p := b.fakeBackend.stops[0]; p.Scope != store.StopRun || p.By != "write" || p.MessageID == "" {
					t.Errorf("stop %+v", p)
				}
				return
			}
			b.fakeBackend.proceed()
			if err := b.stop(); err != nil { // waits for the handler
				t.Fatal(err)
			}
			if len(b.fakeBackend.stops) != 0 {
				t.Errorf("a detached run was stopped: %+v", b.fakeBackend.stops)
			}
		})
	}
}

func TestGatewayThatStopsLeavesRunsOfCompletionsAlone(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		b := start(t)
		done := make(chan answer, 1)
		go func() {
			done <- b.post(completionsPath, ask("wait", params{"stream": stream}), header("X-Laneway-Session-Key", "agent:main:api:write:u"))
		}()
		b.fakeBackend.untilRunning("agent:main:api:write:u")
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		got := <-done
		if !stream {
			if _, code := got.fault(t); got.status != http.StatusServiceUnavailable || code != "gateway_draining" {
				t.Errorf("%d %s", got.status, got.body)
			}
		} else if chunks := readSSE(t, bytes.NewReader(got.body)).chunks(t); chunks[len(chunks)-1].Error.Code != "gateway_draining" {
			t.Errorf("%s", got.body)
		}
		if len(b.fakeBackend.stops) != 0 {
			t.Errorf("stream %v: stopped %+v", stream, b.fakeBackend.stops)
		}
	}
}

func TestStreamThatWaitsSaysThatItIsThere(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		body, err := json.Marshal(ask("wait done", params{"stream": true}))
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+completionsPath, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+writeToken)
		resp, err := t.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		go func() {
			pass(50 * time.Second)
			t.fakeBackend.proceed()
		}()
		got := readSSE(t.T, resp.Body)
		chunks := got.chunks(t.T)
		if len(got.comments) != 3 || chunks[len(chunks)-1].Choices[0].FinishReason == nil {
			t.Errorf("want three comments in 50 s: %+v", got)
		}
	})
}
