package testmodel_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/testmodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	completions = "/v1/chat/completions"
	messages    = "/v1/messages"
)

// post sends a call and returns status, body and how the body ended.
func post(ctx context.Context, t *testing.T, model *testmodel.Server, path, body string) (int, string, error) {
	t.Helper()
	transport := model.Transport()
	if transport == nil {
		transport = &http.Transport{DisableKeepAlives: true}
	}
	client := &http.Client{Transport: transport}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, model.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return response.StatusCode, string(raw), err
}

func TestBothProtocolsStreamAndEnd(t *testing.T) {
	t.Parallel()
	model := testmodel.Start(t)
	model.Answer(func(testmodel.Call) testmodel.Reply {
		return testmodel.Reply{Pieces: []string{"one", "two"}, InputTokens: 7, OutputTokens: 8}
	})
	for path, wants := range map[string][]string{
		completions: {`"content":"one"`, `"content":"two"`, `"finish_reason":"stop"`, `"prompt_tokens":7`, "data: [DONE]\n\n"},
		messages:    {"event: message_start", `"text":"one"`, `"text":"two"`, `"stop_reason":"end_turn"`, `"output_tokens":8`, "event: message_stop"},
	} {
		status, body, err := post(t.Context(), t, model, path, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`)
		if status != http.StatusOK || err != nil {
			t.Errorf("%s: got %d and %v", path, status, err)
		}
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %s in %s", path, want, body)
			}
		}
	}
}

func TestCallsAreRecorded(t *testing.T) {
	t.Parallel()
	model := testmodel.Start(t)
	bodies := map[string]string{
		completions: `{"model":"m","user":"u1","messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}]}`,
		messages:    `{"model":"m","metadata":{"user_id":"u1"},"system":"s","messages":[{"role":"user","content":"hi"}]}`,
	}
	for path, body := range bodies {
		if _, answer, err := post(t.Context(), t, model, path, body); err != nil || !strings.Contains(answer, "hi") {
			t.Errorf("%s: got %q and %v, want the last message repeated", path, answer, err)
		}
	}
	for i, call := range model.Calls() {
		if call.Number != i+1 || call.User != "u1" || call.System != "s" || call.Last() != "hi" || call.Model != "m" || call.Stream {
			t.Errorf("call %d: got %+v", i, call)
		}
		if call.Field("model") != "m" || call.Field("missing") != nil {
			t.Errorf("call %d: fields %v, %v", i, call.Field("model"), call.Field("missing"))
		}
	}
	if n := model.Connections(); n != len(bodies) {
		t.Errorf("connections: got %d, want one for each of the %d calls", n, len(bodies))
	}
	if status, _, err := post(t.Context(), t, model, completions, "no json"); status != http.StatusBadRequest || err != nil {
		t.Errorf("a body that is no JSON: got %d and %v", status, err)
	}
	if status, _, err := post(t.Context(), t, model, "/v1/other", "{}"); status != http.StatusNotFound || err != nil {
		t.Errorf("an unknown path: got %d and %v", status, err)
	}
}

func TestCallsAtOnceAreCountedPerUser(t *testing.T) {
	t.Parallel()
	model := testmodel.Start(t)
	model.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{HangFirst: true} })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	for _, user := range []string{"a", "a", "b"} {
		go func() {
			_, _, err := post(ctx, t, model, completions, `{"user":"`+user+`"}`)
			done <- err
		}()
	}
	if err := model.WaitFor(t.Context(), 3, 3); err != nil {
		t.Fatal(err)
	}
	cancel()
	for range 3 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("a hanging call ended with %v", err)
		}
	}
	if err := model.WaitFor(t.Context(), 3, 0); err != nil {
		t.Fatal(err)
	}
	if a, b, all := model.Most("a"), model.Most("b"), model.MostOfAll(); a != 2 || b != 1 || all != 3 || model.Active() != 0 {
		t.Errorf("most at once: got a %d, b %d, all %d, active %d; want 2, 1, 3, 0", a, b, all, model.Active())
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reply  testmodel.Reply
		status int
		has    string
		cut    bool
		took   time.Duration
	}{
		"Status":      {testmodel.Reply{Status: 503, Kind: "overloaded_error"}, 503, `"type":"overloaded_error"`, false, 0},
		"HTML":        {testmodel.Reply{Status: 502, Body: "<html>"}, 502, "<html>", false, 0},
		"Delay":       {testmodel.Reply{Delay: time.Minute, Pieces: []string{"a"}}, 200, `"content":"a"`, false, time.Minute},
		"Cut":         {testmodel.Reply{Pieces: []string{"a"}, Cut: true}, 200, `"content":"a"`, true, 0},
		"Half":        {testmodel.Reply{Pieces: []string{"a"}, Half: true}, 200, `"content":"a"`, false, 0},
		"Garbage":     {testmodel.Reply{Garbage: "data: {"}, 200, "data: {", false, 0},
		"StreamError": {testmodel.Reply{StreamError: "oops"}, 200, `"type":"oops"`, false, 0},
		"DoneTwice":   {testmodel.Reply{TwiceDone: true}, 200, "[DONE]\n\ndata: [DONE]", false, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				model, end := testmodel.StartInMemory(t)
				defer end()
				model.Answer(func(testmodel.Call) testmodel.Reply { return tt.reply })
				start := time.Now()
				status, body, err := post(t.Context(), t, model, completions, `{"stream":true}`)
				if status != tt.status || !strings.Contains(body, tt.has) || (err != nil) != tt.cut {
					t.Errorf("got %d, %q, %v; want %d with %q, cut %t", status, body, err, tt.status, tt.has, tt.cut)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %s, want %s", took, tt.took)
				}
			})
		})
	}
}

func TestSlowBytesTakeTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		model, end := testmodel.StartInMemory(t)
		defer end()
		model.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{Pause: time.Second} })
		start := time.Now()
		_, body, err := post(t.Context(), t, model, completions, `{"stream":true}`)
		if took, want := time.Since(start), time.Duration(len(body))*time.Second; err != nil || took != want {
			t.Errorf("took %s for %d bytes (%v), want %s", took, len(body), err, want)
		}
	})
}

func TestTheEndReleasesHangingCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		model, end := testmodel.StartInMemory(t)
		model.Answer(func(testmodel.Call) testmodel.Reply { return testmodel.Reply{Pieces: []string{"a"}, Hang: true} })
		done := make(chan error, 1)
		go func() {
			_, _, err := post(t.Context(), t, model, messages, `{"stream":true}`)
			done <- err
		}()
		if err := model.WaitFor(t.Context(), 1, 1); err != nil {
			t.Fatal(err)
		}
		end()
		<-done // a call that hangs would end the bubble as a deadlock
		if _, _, err := post(t.Context(), t, model, messages, `{}`); err == nil {
			t.Error("the server answered after its end")
		}
	})
}
