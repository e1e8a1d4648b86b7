// Command webhook-receiver shows how a program handles the webhooks of laneway: it authenticates
// the caller, refuses old deliveries, does nothing twice, and answers quickly.
//
//	WEBHOOK_SECRET=… go run ./docs/examples/webhook-receiver [HOST:PORT]
//
// It keeps the keys that it has seen in memory; a real receiver stores them together with its
// effects.
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
	maxBody = 1 << 20
	// maxAge is how old a signature may be, so that a recorded delivery cannot be replayed later.
	maxAge = 5 * time.Minute
	// remember is how long a key is kept, which is much longer than laneway retries.
	remember = 24 * time.Hour
)

// event has the members of a delivery that this program uses; docs/cron.md lists all of them.
type event struct {
	RunID   string `json:"runId"`
	Status  string `json:"status"`
	Summary string `json:"summary"`
	Job     struct {
		Name string `json:"name"`
	} `json:"job"`
}

// receiver handles deliveries. It calls Take once for each run.
type receiver struct {
	secret []byte
	now    func() time.Time
	take   func(e event) error

	mu   sync.Mutex
	seen map[string]time.Time
}

// ServeHTTP answers 2xx when the delivery is done, 4xx when it must not be repeated, and 5xx when
// it may be.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	}
	if !r.proves(req.Header.Get("X-Laneway-Signature"), body) {
		http.Error(w, "not signed by laneway", http.StatusUnauthorized)
		return
	}
	// The key in the header is not signed: an attacker who recorded a delivery could give it
	// another one. The key in the body is signed.
	var e event
	if err := json.Unmarshal(body, &e); err != nil || e.RunID == "" || e.RunID != req.Header.Get("Idempotency-Key") {
		http.Error(w, "not an event", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock() // one at a time, so that a repetition waits for the first delivery
	if at, known := r.seen[e.RunID]; known && r.now().Sub(at) < remember {
		w.WriteHeader(http.StatusOK) // already done: confirm it again
		return
	}
	if err := r.take(e); err != nil {
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	r.seen[e.RunID] = r.now()
	w.WriteHeader(http.StatusNoContent)
}

// proves verifies `t=<unix seconds>,v1=<hex>`: HMAC-SHA256 of the time, a dot and the body, not
// older than maxAge.
func (r *receiver) proves(header string, body []byte) bool {
	first, second, _ := strings.Cut(header, ",")
	at, ok := strings.CutPrefix(first, "t=")
	given, versioned := strings.CutPrefix(second, "v1=")
	seconds, err := strconv.ParseInt(at, 10, 64)
	sum, bad := hex.DecodeString(given)
	if !ok || !versioned || err != nil || bad != nil || r.now().Sub(time.Unix(seconds, 0)).Abs() > maxAge {
		return false
	}
	mac := hmac.New(sha256.New, r.secret)
	_, _ = mac.Write([]byte(at + ".")) // a hash never fails
	_, _ = mac.Write(body)
	return hmac.Equal(sum, mac.Sum(nil))
}

func main() {
	secret := os.Getenv("WEBHOOK_SECRET") //nolint:forbidigo // a program of its own
	if secret == "" {
		fmt.Fprintln(os.Stderr, "set WEBHOOK_SECRET to the value of cron.webhook_secret")
		os.Exit(2) //nolint:forbidigo // as above
	}
	address := "127.0.0.1:9099"
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
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: &receiver{
		secret: []byte(secret), now: time.Now, seen: map[string]time.Time{},
		take: func(e event) error {
			_, err := fmt.Fprintf(os.Stdout, "%q %s: %q\n", e.Job.Name, e.Status, e.Summary)
			return err
		},
	}}
	return srv.Serve(listener)
}
