// Command agent-http is an HTTP agent for the runner http: it authenticates the caller, streams its
// answer, stops when the turn is stopped, and does nothing twice.
//
//	AGENT_SECRET=… go run ./docs/examples/agent-http [HOST:PORT]
//
// It answers each message with its words, one by one. It keeps its answers in memory by the id of
// the run, so that a turn that runs again after a crash gets the same answer. A real agent stores
// them together with its effects.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxBody = 32 << 20
	// maxAge is how old a signature may be, so that a recorded request cannot be replayed later.
	maxAge = 5 * time.Minute
)

// request has the members of a turn that this program uses; docs/agents.md lists all of them.
type request struct {
	RunID  string `json:"runId"`
	Prompt string `json:"prompt"`
}

// line is one line of the answer.
type line struct {
	Delta string `json:"delta,omitempty"`
	Error string `json:"error,omitempty"`
	Done  bool   `json:"done,omitempty"`
}

type server struct {
	secret []byte
	pause  time.Duration // between words

	mu    sync.Mutex
	given map[string]string // answers by run
}

// ServeHTTP answers a turn, and a GET with an empty body, with which the gateway checks that the
// agent is reachable and has the secret.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	}
	if !s.proves(r.Header.Get("X-Laneway-Signature"), body) {
		http.Error(w, "not signed by the gateway", http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodGet {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var req request
	if err := json.Unmarshal(body, &req); err != nil || req.RunID == "" {
		http.Error(w, "not a turn", http.StatusBadRequest)
		return
	}
	s.answer(r.Context(), w, req)
}

// answer streams lines. The context ends when the gateway closes the connection, because the turn
// was stopped or has timed out.
func (s *server) answer(ctx context.Context, w http.ResponseWriter, req request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	send := func(l line) {
		_ = json.NewEncoder(w).Encode(l)          // if the gateway has disconnected, ctx has ended
		_ = http.NewResponseController(w).Flush() // send each line at once
	}
	for _, word := range strings.SplitAfter(s.text(req), " ") {
		send(line{Delta: word})
		select {
		case <-time.After(s.pause): //nolint:forbidigo // simulates work
		case <-ctx.Done():
			return
		}
	}
	send(line{Done: true}) // without this line the gateway treats the answer as incomplete
}

// text returns the answer of a run, the same for each attempt.
func (s *server) text(req request) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text, known := s.given[req.RunID]; known {
		return text
	}
	text := fmt.Sprintf("%d: %s", len(s.given)+1, req.Prompt)
	s.given[req.RunID] = text
	return text
}

// proves verifies `t=<unix seconds>,v1=<hex>`: HMAC-SHA256 of the time, a dot and the body, not
// older than maxAge.
func (s *server) proves(header string, body []byte) bool {
	first, second, _ := strings.Cut(header, ",")
	at, ok := strings.CutPrefix(first, "t=")
	given, versioned := strings.CutPrefix(second, "v1=")
	seconds, err := strconv.ParseInt(at, 10, 64)
	sum, bad := hex.DecodeString(given)
	if !ok || !versioned || err != nil || bad != nil || time.Since(time.Unix(seconds, 0)).Abs() > maxAge {
		return false
	}
	mac := hmac.New(sha256.New, s.secret)
	_, _ = mac.Write([]byte(at + ".")) // a hash never fails
	_, _ = mac.Write(body)
	return hmac.Equal(sum, mac.Sum(nil))
}

func main() {
	secret := os.Getenv("AGENT_SECRET") //nolint:forbidigo // a program of its own
	if secret == "" {
		fmt.Fprintln(os.Stderr, "set AGENT_SECRET to the secret of the agent in the gateway's configuration")
		os.Exit(2) //nolint:forbidigo // as above
	}
	address := "127.0.0.1:9100"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if err := serve(address, secret); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // as above
	}
}

func serve(address, secret string) error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address) //nolint:forbidigo // a program of its own
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, "listening on", listener.Addr()); err != nil {
		return err
	}
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: &server{secret: []byte(secret), pause: 50 * time.Millisecond, given: map[string]string{}}}
	return srv.Serve(listener)
}
