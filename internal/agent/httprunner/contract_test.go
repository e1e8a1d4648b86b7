package httprunner_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
	// failure is a failure reported in the middle of the answer; "" means that the connection breaks.
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
