package openai_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/testmodel"
)

// heard is the result of a turn with its deltas.
type heard struct {
	deltas []string
	result agent.Result
	err    error
	took   time.Duration
}

func ask(ctx context.Context, runner *openai.Runner, req agent.Request) heard {
	var h heard
	start := time.Now()
	h.result, h.err = runner.Run(ctx, req, func(event agent.Event) {
		if event.Kind == agent.EventDelta {
			h.deltas = append(h.deltas, event.Text)
		}
	})
	h.took = time.Since(start)
	return h
}

// bubble runs a turn against a model in memory, in virtual time, and checks what was emitted and
// the calls.
func bubble(t *testing.T, cfg openai.Config, answer func(testmodel.Call) testmodel.Reply, check func(heard, []testmodel.Call)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		model, end := testmodel.StartInMemory(t)
		model.Answer(answer)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		h := ask(ctx, open(t, model, cfg), agenttest.Request("hi"))
		cancel()
		end()
		check(h, model.Calls())
	})
}

func always(reply testmodel.Reply) func(testmodel.Call) testmodel.Reply {
	return func(testmodel.Call) testmodel.Reply { return reply }
}

// TestFaultsEndInTime checks the reason, the time and the number of calls for every way in which a
// model can fail, and that text is never emitted twice.
func TestFaultsEndInTime(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reply   testmodel.Reply
		reason  chat.FailReason
		text    string
		calls   int
		longest time.Duration
	}{
		"NoFirstByte":               {testmodel.Reply{HangFirst: true}, chat.FailFirstByte, "", 1, time.Minute},
		"LateFirstByte":             {testmodel.Reply{Delay: 61 * time.Second}, chat.FailFirstByte, "", 1, time.Minute},
		"JustInTime":                {testmodel.Reply{Delay: 59 * time.Second, Pieces: []string{"a"}}, "", "a", 1, time.Minute},
		"SilenceInTheMiddle":        {testmodel.Reply{Pieces: []string{"a"}, Hang: true}, chat.FailSilence, "a", 1, time.Minute},
		"OneBytePerSecond":          {testmodel.Reply{Pieces: []string{strings.Repeat("a", 100)}, EachByte: true, Pause: time.Second}, chat.FailSilence, "", 1, 3 * time.Minute},
		"CutInTheMiddle":            {testmodel.Reply{Pieces: []string{"a"}, Cut: true}, chat.FailConnection, "a", 1, time.Second},
		"CutBeforeText":             {testmodel.Reply{Cut: true}, chat.FailConnection, "", 4, 10 * time.Second},
		"HalfAStream":               {testmodel.Reply{Pieces: []string{"a"}, Half: true}, chat.FailConnection, "a", 1, time.Second},
		"GarbageInTheMiddle":        {testmodel.Reply{Pieces: []string{"a"}, Garbage: "data: \x00{]\n\n"}, chat.FailBadResponse, "a", 1, time.Second},
		"GarbageCutShort":           {testmodel.Reply{Pieces: []string{"a"}, Garbage: `data: {"choices":[{"del`}, chat.FailConnection, "a", 1, time.Second},
		"TooLongAnEvent":            {testmodel.Reply{Garbage: "data: " + strings.Repeat("x", 5<<20)}, chat.FailBadResponse, "", 1, time.Second},
		"HTMLInsteadOfAStream":      {testmodel.Reply{Body: "<html>log in</html>"}, chat.FailBadResponse, "", 1, time.Second},
		"HTMLBadGateway":            {testmodel.Reply{Status: 502, Body: "<html>bad gateway</html>"}, chat.FailServer, "", 4, 10 * time.Second},
		"Overloaded":                {testmodel.Reply{Status: 529}, chat.FailOverloaded, "", 4, 10 * time.Second},
		"RateLimited":               {testmodel.Reply{Status: 429}, chat.FailRateLimit, "", 4, 10 * time.Second},
		"OutOfCredit":               {testmodel.Reply{Status: 429, Code: "insufficient_quota"}, chat.FailRateLimit, "", 1, time.Second},
		"PaymentRequired":           {testmodel.Reply{Status: 402}, chat.FailRateLimit, "", 1, time.Second},
		"WrongKey":                  {testmodel.Reply{Status: 401}, chat.FailAuth, "", 1, time.Second},
		"Redirect":                  {testmodel.Reply{Status: 307, Header: map[string]string{"Location": "http://elsewhere.test/"}}, chat.FailBadResponse, "", 1, time.Second},
		"TooLongForTheContext":      {testmodel.Reply{Status: 400, Message: "the request exceeds the available context size"}, chat.FailContextLength, "", 1, time.Second},
		"RefusedInTheStream":        {testmodel.Reply{StreamError: "rate_limit_exceeded"}, chat.FailRateLimit, "", 4, 10 * time.Second},
		"RefusedInTheStreamTooLate": {testmodel.Reply{Pieces: []string{"a"}, StreamError: "rate_limit_exceeded"}, chat.FailRateLimit, "a", 1, time.Second},
		"DoneTwice":                 {testmodel.Reply{Pieces: []string{"a"}, TwiceDone: true}, "", "a", 1, time.Second},
		"NoDone":                    {testmodel.Reply{Pieces: []string{"a"}, NoDone: true}, "", "a", 1, time.Second},
		"KeptOpenAfterDone":         {testmodel.Reply{Pieces: []string{"a"}, KeepOpen: true}, "", "a", 1, time.Second},
		"NoStreamAtAll":             {testmodel.Reply{Pieces: []string{"a", "b"}, Whole: true}, "", "ab", 1, time.Second},
		"ErrorWithStatus200":        {testmodel.Reply{Body: `{"error":{"message":"busy","code":503}}`, Type: "application/json"}, chat.FailOverloaded, "", 4, 10 * time.Second},
		"JSONThatIsNoAnswer":        {testmodel.Reply{Body: `{"hello":"world"}`, Type: "application/json"}, chat.FailBadResponse, "", 1, time.Second},
		"PlainTextIsNoStream":       {testmodel.Reply{Body: "hello", Type: "text/plain"}, chat.FailBadResponse, "", 1, time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, openai.Config{}, always(tt.reply), func(h heard, calls []testmodel.Call) {
				if reason := agent.ReasonOf(h.err); reason != tt.reason {
					t.Errorf("reason: got %q (%v), want %q", reason, h.err, tt.reason)
				}
				if h.result.Text != tt.text || strings.Join(h.deltas, "") != tt.text {
					t.Errorf("text: got %q, deltas %q, want %q", h.result.Text, h.deltas, tt.text)
				}
				if len(calls) != tt.calls {
					t.Errorf("calls: got %d, want %d", len(calls), tt.calls)
				}
				if h.took > tt.longest {
					t.Errorf("took %s, want at most %s", h.took, tt.longest)
				}
			})
		})
	}
}

func TestATurnSucceedsAfterRetries(t *testing.T) {
	t.Parallel()
	bubble(t, openai.Config{}, func(call testmodel.Call) testmodel.Reply {
		if call.Number <= 3 {
			return testmodel.Reply{Status: []int{500, 429, 503}[call.Number-1]}
		}
		return testmodel.Reply{Pieces: []string{"at last"}}
	}, func(h heard, calls []testmodel.Call) {
		if h.err != nil || h.result.Text != "at last" || len(calls) != 4 {
			t.Errorf("got %q, %v after %d calls, want the answer after 4", h.result.Text, h.err, len(calls))
		}
		if h.took < 1750*time.Millisecond/2 {
			t.Errorf("took %s, too short for three pauses", h.took)
		}
	})
}

func TestRetryAfterIsKept(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{"20": 20 * time.Second, "0.5": 250 * time.Millisecond, "soon": 250 * time.Millisecond} {
		bubble(t, openai.Config{}, func(call testmodel.Call) testmodel.Reply {
			if call.Number == 1 {
				return testmodel.Reply{Status: 429, Header: map[string]string{"Retry-After": header}}
			}
			return testmodel.Reply{}
		}, func(h heard, _ []testmodel.Call) {
			if h.err != nil || h.took < want || h.took > want+time.Second {
				t.Errorf("Retry-After %s: took %s (%v), want %s or little more", header, h.took, h.err, want)
			}
		})
	}
}

func TestALongRetryAfterIsLeftToTheCallerOfTheTurn(t *testing.T) {
	t.Parallel()
	reply := testmodel.Reply{Status: 429, Header: map[string]string{"Retry-After": "3600"}}
	bubble(t, openai.Config{}, always(reply), func(h heard, calls []testmodel.Call) {
		var failed *agent.Error
		if !errors.As(h.err, &failed) || !failed.Retryable || len(calls) != 1 || h.took > time.Second {
			t.Errorf("got %v after %d calls and %s, want a retryable error at once", h.err, len(calls), h.took)
		}
	})
}

func TestCancelEndsTheWaitForARetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		model, end := testmodel.StartInMemory(t)
		model.Answer(always(testmodel.Reply{Status: 429, Header: map[string]string{"Retry-After": "20"}}))
		stop := errors.New("stopped")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, stop)
		h := ask(ctx, open(t, model, openai.Config{}), agenttest.Request("hi"))
		cancel()
		end()
		if h.took > 5*time.Second {
			t.Errorf("took %s, want at most 5s", h.took)
		}
		if agent.ReasonOf(h.err) != chat.FailRateLimit {
			t.Errorf("got %v, want the rate limit, since the wait would not have helped", h.err)
		}
	})
}

func TestNothingShowsTheKeyOrTheAddress(t *testing.T) {
	t.Parallel()
	echoesKey := testmodel.Reply{Status: http.StatusUnauthorized, Message: "Incorrect API key provided: " + key}
	bubble(t, openai.Config{}, always(echoesKey), func(h heard, _ []testmodel.Call) {
		if h.err == nil || strings.Contains(h.err.Error(), key) || !strings.Contains(h.err.Error(), "[hidden]") {
			t.Errorf("error %q, want the key hidden", h.err)
		}
	})
	runner, err := openai.New(openai.Config{BaseURL: "http://user:hunter2@127.0.0.1:1/v1", Model: "m", Retries: -1}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer runner.Close()
	h := ask(t.Context(), runner, agenttest.Request("hi"))
	if agent.ReasonOf(h.err) != chat.FailConnection || strings.Contains(h.err.Error(), "hunter2") || strings.Contains(h.err.Error(), "/v1") {
		t.Errorf("error %q, want a connection error without the URL", h.err)
	}
}

// TestHangingModelsGiveEverySlotBack checks that thirty turns with a model that sends nothing all
// end after the time for the first byte, and that the model server has no open call afterwards.
func TestHangingModelsGiveEverySlotBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		model, end := testmodel.StartInMemory(t)
		defer end()
		model.Answer(always(testmodel.Reply{HangFirst: true}))
		runner := open(t, model, openai.Config{SendUser: true})
		turns := make(chan heard)
		for range 30 {
			go func() { turns <- ask(t.Context(), runner, agenttest.Request("hi")) }()
		}
		for range 30 {
			if h := <-turns; agent.ReasonOf(h.err) != chat.FailFirstByte || h.took != time.Minute {
				t.Errorf("got %v after %s, want %s after 1m", h.err, h.took, chat.FailFirstByte)
			}
		}
		if err := model.WaitFor(t.Context(), 30, 0); err != nil {
			t.Fatal(err)
		}
		if most := model.Most("agent:main:main"); most != 30 {
			t.Errorf("at once: got %d, want 30", most)
		}
	})
}
