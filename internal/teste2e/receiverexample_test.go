package teste2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/signature"
	"laneway/internal/testrun"
)

// delivery is a request of the gateway and the answer of the receiver.
type delivery struct {
	header http.Header
	body   []byte
	status int
}

// wiretap is a relay between gateway and receiver that records deliveries. It answers the first delivery itself, with a failure.
type wiretap struct {
	url string

	mu  sync.Mutex
	all []delivery
}

func (w *wiretap) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	d := delivery{header: r.Header.Clone(), body: body, status: http.StatusServiceUnavailable}
	w.mu.Lock()
	first := len(w.all) == 0
	w.mu.Unlock()
	if err == nil && !first {
		d.status, err = post(w.url, d.header, d.body)
	}
	if err != nil {
		d.status = http.StatusBadGateway
	}
	w.mu.Lock()
	w.all = append(w.all, d)
	w.mu.Unlock()
	rw.WriteHeader(d.status)
}

func (w *wiretap) deliveries() []delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]delivery{}, w.all...)
}

// post repeats a delivery.
func post(url string, header http.Header, body []byte) (int, error) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header = header
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// The receiver of the documentation accepts each delivery of a gateway once, and refuses modified recordings.
func TestTheExampleOfAWebhookReceiverTakesDeliveriesOnce(t *testing.T) {
	t.Parallel()
	const secret = "webhook-secret-Zk7Qw3Rt9Yb2Nc5Vm8"
	address, took, stop := serveExample(t, buildExample(t, "laneway/docs/examples/webhook-receiver"), "WEBHOOK_SECRET="+secret)

	tap := &wiretap{url: "http://" + address + "/"}
	between := httptest.NewServer(tap)
	defer between.Close()
	g := Install(t, "", cronConfig+"webhook_allowed_hosts: [127.0.0.1]\ncron: {webhook_secret: "+secret+"}\n")
	g.Start()
	for _, name := range []string{"digest", "another"} {
		if _, errs, code := g.CLI(t.Context(), "", "cron", "add", "--name", name, "--at", "in 1s", "--message", "said by "+name, "--webhook", between.URL); code != 0 {
			t.Fatal(errs)
		}
	}
	testrun.Eventually(t, "both are delivered, one of them at the second attempt", func() bool {
		return OpenOracle(t, g, "").Count("SELECT count(*) FROM cron_run_logs WHERE delivery = 'delivered'") == 2
	})
	all := tap.deliveries()
	if len(all) != 3 || all[1].status != http.StatusNoContent || all[2].status != http.StatusNoContent {
		t.Fatalf("%d deliveries: %+v", len(all), all)
	}
	good := all[2]
	signed := func(secret string, at time.Time, body string) http.Header {
		h := good.header.Clone()
		h.Set("X-Laneway-Signature", signature.Sign(secret, at, []byte(body)))
		return h
	}
	body := string(good.body)
	other := good.header.Clone()
	other.Set("Idempotency-Key", "another-key")
	unsigned := good.header.Clone()
	unsigned.Del("X-Laneway-Signature")
	for _, tc := range []struct {
		name   string
		header http.Header
		body   string
		want   int
	}{
		{"played again as it was", good.header, body, http.StatusOK},
		{"signed again for another attempt", signed(secret, time.Now(), body), body, http.StatusOK},
		{"played again under another key", other, body, http.StatusBadRequest},
		{"a changed body", good.header, strings.Replace(body, "said by", "SAID by", 1), http.StatusUnauthorized},
		{"an old time", signed(secret, time.Now().Add(-6*time.Minute), body), body, http.StatusUnauthorized},
		{"another secret", signed("webhook-secret-of-another-one-1234", time.Now(), body), body, http.StatusUnauthorized},
		{"no signature", unsigned, body, http.StatusUnauthorized},
	} {
		if status, err := post(tap.url, tc.header, []byte(tc.body)); err != nil || status != tc.want {
			t.Errorf("%s: %d, %v; want %d", tc.name, status, err, tc.want)
		}
	}
	if all[0].header.Get("Idempotency-Key") != all[1].header.Get("Idempotency-Key") && all[0].header.Get("Idempotency-Key") != good.header.Get("Idempotency-Key") {
		t.Error("the second attempt has another key than the first")
	}
	stop() // all its output was read
	said := strings.Split(strings.TrimSpace(took.String()), "\n")
	slices.Sort(said)
	if want := []string{`"another" ok: "said by another"`, `"digest" ok: "said by digest"`}; !slices.Equal(said, want) {
		t.Errorf("the receiver did %q, want %q", said, want)
	}
}
