package httprunner_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/httprunner"
	"laneway/internal/chat"
	"laneway/internal/secret"
	"laneway/internal/signature"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "0123456789abcdef0123456789abcdef"

// format is one format of an answer.
type format struct {
	kind string
	// piece, usage and end write a part of the answer; end completes it.
	piece func(text string) string
	usage string
	end   string
	// failure is a failure reported in the middle of the answer; "" means that the connection
	// breaks.
	failure func(reason chat.FailReason) string
}

func line(name string, value any) string {
	raw, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func jsonLines() format {
	return format{
		kind:  "application/x-ndjson",
		piece: func(text string) string { return line("delta", text) + "\n" },
		usage: line("usage", map[string]int{"inputTokens": 3, "outputTokens": 4}) + "\n",
		end:   "\n" + line("done", true) + "\n",
		failure: func(reason chat.FailReason) string {
			return fmt.Sprintf(`{"error":"It went wrong.","reason":%q}`, reason) + "\n"
		},
	}
}

func events() format {
	f := jsonLines()
	data := func(line string) string { return ": still here\n\ndata: " + strings.TrimSpace(line) + "\n\n" }
	return format{
		kind: "text/event-stream; charset=utf-8", piece: func(text string) string { return data(f.piece(text)) }, usage: data(f.usage), end: data(f.end),
		failure: func(reason chat.FailReason) string { return data(f.failure(reason)) },
	}
}

func plainText() format {
	return format{kind: "text/plain; charset=utf-8", piece: func(text string) string { return text }}
}

//nolint:paralleltest // the suite checks for leftover goroutines
func TestContractWithLines(t *testing.T) { agenttest.Run(t, subject(jsonLines())) }

//nolint:paralleltest // the suite checks for leftover goroutines
func TestContractWithEvents(t *testing.T) { agenttest.Run(t, subject(events())) }

//nolint:paralleltest // the suite checks for leftover goroutines
func TestContractWithPlainText(t *testing.T) {
	s := subject(plainText())
	s.Usage, s.Reasons = false, append(s.Reasons, chat.FailConnection)
	agenttest.Run(t, s)
}

func subject(f format) agenttest.Subject {
	active := &atomic.Int64{}
	return agenttest.Subject{
		Open: func(t *testing.T, script agenttest.Script) agent.Runner {
			t.Helper()
			url := serve(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
				active.Add(1)
				defer active.Add(-1)
				play(t, w, r, body, f, script)
			})
			return open(t, httprunner.Config{URL: url, MaxAnswer: script.MaxAnswer, Retries: -1})
		},
		Alive: func() int { return int(active.Load()) },
		Reasons: []chat.FailReason{
			chat.FailServer, chat.FailOverloaded, chat.FailRateLimit, chat.FailAuth, chat.FailContextLength, chat.FailBadRequest, chat.FailBadResponse,
		},
		Usage: true,
	}
}

// open returns a runner with the key of the tests.
func open(t *testing.T, cfg httprunner.Config) *httprunner.Runner {
	t.Helper()
	cfg.Secret = secret.New(key)
	runner, err := httprunner.New(cfg, nil, nil)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(runner.Close)
	return runner
}

// serve starts an agent behind HTTP that refuses unsigned requests.
func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, body []byte)) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		at, proof, ok := signature.Parse(r.Header.Get(signature.Header), time.Now())
		if err != nil || !ok || !signature.Proves(key, at, proof, body) {
			t.Errorf("a request is not signed: %v, %v", err, r.Header)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		answer(w, r, body)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/agent"
}

func play(t *testing.T, w http.ResponseWriter, r *http.Request, body []byte, f format, script agenttest.Script) {
	t.Helper()
	var doc struct {
		Prompt string `json:"prompt"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Errorf("the request is no document: %v", err)
	}
	if status := status(script.Fail); status != 0 && len(script.Pieces) == 0 {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	pieces := script.Pieces
	if script.Repeat {
		pieces = []string{doc.Prompt}
	}
	if text := script.Text(); f.failure != nil && len(pieces) > 1 && len(pieces) == len(text) {
		pieces = strings.Split(text, "") // single bytes are not valid JSON strings
	}
	flush := func(text string) {
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
	for _, piece := range pieces {
		flush(f.piece(piece))
	}
	switch {
	case script.Hang:
		flush("")
		<-r.Context().Done()
	case script.Fail != "" && f.failure != nil:
		flush(f.failure(script.Fail))
	case script.Fail != "":
		panic(http.ErrAbortHandler)
	default:
		flush(f.usage + f.end)
	}
}

func status(reason chat.FailReason) int {
	return map[chat.FailReason]int{
		chat.FailServer: http.StatusBadGateway, chat.FailOverloaded: http.StatusServiceUnavailable, chat.FailRateLimit: http.StatusTooManyRequests,
		chat.FailAuth: http.StatusUnauthorized, chat.FailContextLength: http.StatusRequestEntityTooLarge, chat.FailBadRequest: http.StatusNotFound,
		chat.FailBadResponse: http.StatusFound,
	}[reason]
}

func respond(w http.ResponseWriter, kind, body string) {
	w.Header().Set("Content-Type", kind)
	_, _ = io.WriteString(w, body)
}

// run makes one turn against a server that answers with a body of the given media type.
func run(t *testing.T, kind, body string) (agent.Result, error) {
	t.Helper()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) { respond(w, kind, body) })
	return open(t, httprunner.Config{URL: url, Retries: -1}).Run(t.Context(), agenttest.Request("hello"), func(agent.Event) {})
}

func TestAnAnswerAtOnce(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"final":"Hello.","usage":{"input_tokens":3,"outputTokens":4,"model":"m"}}`,
		`{"delta":"Hello.","usage":{"inputTokens":3,"output_tokens":4,"model":"m"},"more":1}` + "\n",
	} {
		got, err := run(t, "application/json", body)
		want := agent.Result{Text: "Hello.", StopReason: agent.StopNormal, Usage: chat.Usage{InputTokens: 3, OutputTokens: 4, Model: "m"}}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", body, err, diff)
		}
	}
}

// TestHalfAnAnswerIsNotTakenForAWhole covers a response that ends without error although the agent
// did not finish.
func TestHalfAnAnswerIsNotTakenForAWhole(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind, body, text string
		reason           chat.FailReason
	}{
		"LinesWithoutEnd":  {"application/x-ndjson", "{\"delta\":\"half\"}\n", "half", chat.FailConnection},
		"EventsWithoutEnd": {"text/event-stream", "data: {\"delta\":\"half\"}\n\n", "half", chat.FailConnection},
		"BrokenLine":       {"application/x-ndjson", "{\"delta\":\"half\"}\n{\"del", "half", chat.FailConnection},
		"BrokenEvent":      {"text/event-stream", "data: {\"delta\":\"half\"}\n\ndata: {\"do", "half", chat.FailConnection},
		"Nothing":          {"application/x-ndjson", "", "", chat.FailConnection},
		"NoLine":           {"application/x-ndjson", "half\n", "", chat.FailBadResponse},
		"NoEvent":          {"text/event-stream", "data: half\n\n", "", chat.FailBadResponse},
		"NoDocument":       {"application/json", "[]", "", chat.FailBadResponse},
		"EmptyDocument":    {"application/json", "", "", chat.FailBadResponse},
		"WebPage":          {"text/html", "<p>Hello", "", chat.FailBadResponse},
		"AnotherType":      {"image/png", "PNG", "", chat.FailBadResponse},
		"LongLine":         {"application/x-ndjson", strings.Repeat("x", 4<<20+1), "", chat.FailBadResponse},
	} {
		got, err := run(t, tt.kind, tt.body)
		if reason := agent.ReasonOf(err); reason != tt.reason || got.Text != tt.text {
			t.Errorf("%s: got %q and %s (%v), want %q and %s", name, got.Text, reason, err, tt.text, tt.reason)
		}
	}
}

func TestACompleteAnswerNeedsNoMore(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ kind, body, text string }{
		"LastLineWithoutEnd": {"application/x-ndjson", "{\"delta\":\"a\"}\n{\"done\":true}", "a"},
		"FinalIsTheEnd":      {"application/jsonl", "{\"delta\":\"a\"}\n{\"final\":\"ab\"}\n{\"delta\":\"never\"}\n", "ab"},
		"LastEventIsPartial": {"text/event-stream", "data: {\"delta\":\"a\"}\n\ndata: {\"done\":true}\n", "a"},
		"EmptyText":          {"text/plain", "", ""},
		"BrokenCharacter":    {"text/plain", "a\xe6\x97", "a\uFFFD"},
	} {
		got, err := run(t, tt.kind, tt.body)
		if err != nil || got.Text != tt.text {
			t.Errorf("%s: got %q and %v, want %q", name, got.Text, err, tt.text)
		}
	}
}

func TestTheWordsOfTheAgentReachThePerson(t *testing.T) {
	t.Parallel()
	_, err := run(t, "application/x-ndjson", `{"error":"The calendar is locked.","reason":"overloaded"}`+"\n")
	failed := wanted(t, err)
	if failed.Message != "The calendar is locked." || failed.Reason != chat.FailOverloaded || !failed.Retryable {
		t.Errorf("got %+v", failed)
	}
	_, err = run(t, "application/json", `{"error":"No.","reason":"of my own"}`)
	if failed := wanted(t, err); failed.Message != "No." || failed.Reason != chat.FailProgram || failed.Retryable {
		t.Errorf("got %+v", failed)
	}
}

func wanted(t *testing.T, err error) *agent.Error {
	t.Helper()
	failed, ok := err.(*agent.Error) //nolint:errorlint // the error itself
	if !ok {
		t.Fatalf("got %v (%T), want an *agent.Error", err, err)
	}
	return failed
}

// TestARepetitionHasTheSameKeyAndASignatureOfItsOwn: the agent recognizes the repetition, and a
// late attempt is not refused for its age.
func TestARepetitionHasTheSameKeyAndASignatureOfItsOwn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys, signatures []string
	var bodies [][]byte
	url := serve(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		mu.Lock()
		defer mu.Unlock()
		keys, signatures, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(signatures, r.Header.Get("X-Laneway-Signature")), append(bodies, body)
		if len(keys) == 1 {
			w.Header().Set("Retry-After", "1.1") // the time in a signature has a resolution of one second
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		respond(w, "text/plain", "Done.")
	})
	got, err := open(t, httprunner.Config{URL: url}).Run(t.Context(), agenttest.Request("hello"), func(agent.Event) {})
	if err != nil || got.Text != "Done." || !slices.Equal(keys, []string{"run-1", "run-1"}) {
		t.Fatalf("got %q and %v under the keys %q, want the answer of the second attempt", got.Text, err, keys)
	}
	if signatures[0] == signatures[1] || !bytes.Equal(bodies[0], bodies[1]) {
		t.Errorf("signatures %q of bodies %q, want two of one body", signatures, bodies)
	}
}

func TestATurnOfAJobIsNotRepeatedHere(t *testing.T) {
	t.Parallel()
	calls := 0
	url := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		calls++
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	req := agenttest.Request("hello")
	req.CallOnce = true
	_, err := open(t, httprunner.Config{URL: url}).Run(t.Context(), req, func(agent.Event) {})
	if failed := wanted(t, err); calls != 1 || !failed.Retryable {
		t.Errorf("got %d calls and %+v, want one and a failure that can be repeated", calls, failed)
	}
}

func TestTheRequestHasEverythingThatAnAgentNeeds(t *testing.T) {
	t.Parallel()
	var got map[string]any
	url := serve(t, func(w http.ResponseWriter, r *http.Request, body []byte) {
		if err := json.Unmarshal(body, &got); err != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v, %v", err, r.Header)
		}
		respond(w, "text/plain", "ok")
	})
	req := agenttest.Request("now")
	req.Deadline, req.SystemPrompt, req.Attempt = time.UnixMilli(1_800_000_000_123), "Be brief.", 2
	req.History = []chat.TranscriptEntry{{Seq: 1, Role: chat.RoleUser, Text: "before"}}
	req.Messages = append(req.Messages, chat.Content{Text: "from a page", External: true})
	if _, err := open(t, httprunner.Config{URL: url}).Run(t.Context(), req, func(agent.Event) {}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"session": "agent:main:main", "agent": "main", "runId": "run-1", "attempt": 2.0, "idempotencyKey": "agent:main:main/run-1",
		"deadlineMs": 1_800_000_000_123.0, "systemPrompt": "Be brief.", "prompt": agent.Prompt(req),
	} {
		if got[name] != want {
			t.Errorf("%s: got %v, want %v", name, got[name], want)
		}
	}
	if history, ok := got["history"].([]any); !ok || len(history) != 1 {
		t.Errorf("history: got %v", got["history"])
	}
	if messages, ok := got["messages"].([]any); !ok || len(messages) != 2 {
		t.Errorf("messages: got %v", got["messages"])
	}
}

func TestNothingShowsTheSecretOrTheAddress(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	url := serve(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("Retry-After", "0.01")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":{"message":"your secret is `+key+`"}}`)
	})
	runner, err := httprunner.New(httprunner.Config{URL: url, Secret: secret.New(key), Retries: 1}, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runner.Close)
	_, err = runner.Run(t.Context(), agenttest.Request("hello"), func(agent.Event) {})
	if text := err.Error() + log.String(); strings.Contains(text, key) || strings.Contains(text, url) {
		t.Errorf("the secret or the address is in %s", text)
	}
}

func TestConfigurationsThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, cfg := range []httprunner.Config{
		{URL: "http://127.0.0.1:1/"},
		{URL: "ftp://127.0.0.1/", Secret: secret.New(key)},
		{URL: "http://127.0.0.1/?x=1", Secret: secret.New(key)},
		{Secret: secret.New(key)},
		{URL: "http://127.0.0.1:1/", Secret: secret.New(key), Retries: 11},
	} {
		if _, err := httprunner.New(cfg, nil, nil); err == nil {
			t.Errorf("%+v: got no error", cfg)
		}
	}
}
