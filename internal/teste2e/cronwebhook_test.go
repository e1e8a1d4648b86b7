package teste2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/signature"
	"laneway/internal/testrun"
)

// The job is made on the command line, and its receiver is unavailable at first.
func TestAWebhookIsCalledOnceSignedAndOnlyWhereItMay(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const secret = "0123456789abcdef0123456789abcdef"
		var mu sync.Mutex
		var keys, bodies []string
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
			at, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("X-Laneway-Signature"), "t="), ",")
			seconds, bad := strconv.ParseInt(at, 10, 64)
			if err != nil || bad != nil || r.Header.Get("X-Laneway-Signature") != signature.Sign(secret, time.Unix(seconds, 0), body) {
				t.Errorf("the signature is %q (%v, %v)", r.Header.Get("X-Laneway-Signature"), err, bad)
			}
			if r.Header.Get("Authorization") != "Bearer tok-0123456789" {
				t.Errorf("the token is %q", r.Header.Get("Authorization"))
			}
			if len(keys) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer receiver.Close()
		g := Install(t, database, cronConfig+"webhook_allowed_hosts: [127.0.0.1]\ncron: {webhook_secret: "+secret+", webhook_token: tok-0123456789}\n")
		g.Start()
		o := OpenOracle(t, g, database)
		add := func(url string) (string, int) {
			_, stderr, code := g.CLI(t.Context(), "", "cron", "add", "--name", "hook", "--at", "in 1s", "--message", "hello", "--webhook", url)
			return stderr, code
		}
		for _, url := range []string{"http://localhost:9/x", "http://[::1]:9/x", "http://169.254.169.254/latest", "ftp://127.0.0.1/x", "http://a:b@127.0.0.1/x"} {
			if stderr, code := add(url); code != 1 || strings.Count(strings.TrimSpace(stderr), "\n") > 0 || !strings.Contains(stderr, "--webhook: ") {
				t.Errorf("%s: exit %d, %q", url, code, stderr)
			}
		}
		if n := o.Count("SELECT count(*) FROM cron_jobs WHERE owner <> 'system'"); n != 0 {
			t.Errorf("%d refused jobs are stored", n)
		}
		if stderr, code := add(receiver.URL); code != 0 {
			t.Fatalf("exit %d, %s", code, stderr)
		}
		testrun.Eventually(t, "delivered", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok' AND delivery = 'delivered' AND provider_message_id = 'http-200'") == 1
		})
		mu.Lock()
		defer mu.Unlock()
		if len(keys) != 2 || keys[0] != keys[1] || !strings.HasPrefix(keys[0], "schedule:") || bodies[0] != bodies[1] || !strings.Contains(bodies[0], `"summary":"hello"`) {
			t.Errorf("the receiver got %q %q", keys, bodies)
		}
	})
}

// Jobs answer NO_REPLY: the receiver is notified that the run ended and why there is no text.
func TestAWebhookGetsNoTextOfASuppressedAnswer(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		bodies := make(chan map[string]any, 8)
		receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var body map[string]any
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Errorf("the body: %v", err)
			}
			bodies <- body
		}))
		defer receiver.Close()
		g := Install(t, database, cronConfig+"webhook_allowed_hosts: [127.0.0.1]\n")
		g.Start()
		c, o := connect(t, g), OpenOracle(t, g, database)
		for name, tt := range map[string]struct {
			says     string
			delivery map[string]any
			want     []any // suppressed, summary
		}{
			"quiet":      {"NO_REPLY", map[string]any{"mode": "webhook", "to": receiver.URL}, []any{"no_reply", nil}},
			"also quiet": {"NO_REPLY", map[string]any{"mode": "none", "completionDestination": map[string]any{"mode": "webhook", "to": receiver.URL}}, []any{"no_reply", nil}},
			"loud":       {"hello", map[string]any{"mode": "webhook", "to": receiver.URL}, []any{nil, "hello"}},
		} {
			j := addJob(t, c, name, every(time.Hour), map[string]any{"delivery": tt.delivery, "payload": map[string]any{"kind": "agentTurn", "message": tt.says}})
			run := runByHand(t, c, j.ID)
			select {
			case body := <-bodies:
				if got := []any{body["suppressed"], body["summary"]}; body["runId"] != run || body["status"] != "ok" || got[0] != tt.want[0] || got[1] != tt.want[1] {
					t.Errorf("%s: the receiver got %v, want suppressed and summary %v", name, body, tt.want)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s: the receiver got nothing", name)
			}
			if name == "quiet" {
				testrun.Eventually(t, "the ledger says why", func() bool {
					return o.Count("SELECT count(*) FROM cron_run_logs WHERE id = '"+run+"' AND state = 'ok' AND delivery = 'delivered' AND suppressed_by = 'no-reply'") == 1
				})
			}
		}
	})
}
