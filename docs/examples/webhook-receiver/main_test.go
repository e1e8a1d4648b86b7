package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"laneway/internal/signature"
)

const secret = "0123456789abcdef0123456789abcdef"

func TestTheReceiverTakesWhatIsProvenOnceAndNothingElse(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 3, 2, 8, 0, 0, 0, time.UTC)
	taken, fail := 0, errors.New("the database is away")
	r := &receiver{secret: []byte(secret), now: func() time.Time { return now }, seen: map[string]time.Time{}, take: func(e event) error {
		if e.Job.Name != "digest" {
			t.Errorf("got %+v", e)
		}
		if err := fail; err != nil {
			fail = nil
			return err
		}
		taken++
		return nil
	}}
	const body, second = `{"runId":"k","job":{"name":"digest"}}`, `{"runId":"k2","job":{"name":"digest"}}`
	for _, c := range []struct {
		name, signature, body, key string
		want, taken                int
	}{
		{"unsigned", "", body, "k", http.StatusUnauthorized, 0},
		{"another secret", signature.Sign("another secret", now, []byte(body)), body, "k", http.StatusUnauthorized, 0},
		{"changed body", signature.Sign(secret, now, []byte(body)), body + " ", "k", http.StatusUnauthorized, 0},
		{"too old", signature.Sign(secret, now.Add(-6*time.Minute), []byte(body)), body, "k", http.StatusUnauthorized, 0},
		{"from the future", signature.Sign(secret, now.Add(6*time.Minute), []byte(body)), body, "k", http.StatusUnauthorized, 0},
		{"another key than the one that is signed", signature.Sign(secret, now, []byte(body)), body, "k2", http.StatusBadRequest, 0},
		{"no key", signature.Sign(secret, now, []byte(body)), body, "", http.StatusBadRequest, 0},
		{"no event", signature.Sign(secret, now, []byte("x")), "x", "k", http.StatusBadRequest, 0},
		{"too large", "", strings.Repeat("x", maxBody+1), "k", http.StatusRequestEntityTooLarge, 0},
		{"not now", signature.Sign(secret, now, []byte(body)), body, "k", http.StatusServiceUnavailable, 0},
		{"good", signature.Sign(secret, now, []byte(body)), body, "k", http.StatusNoContent, 1},
		{"repeated", signature.Sign(secret, now.Add(time.Second), []byte(body)), body, "k", http.StatusOK, 1},
		{"another run", signature.Sign(secret, now, []byte(second)), second, "k2", http.StatusNoContent, 2},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(c.body))
		req.Header.Set("X-Laneway-Signature", c.signature)
		req.Header.Set("Idempotency-Key", c.key)
		rec := httptest.NewRecorder()
		r.ServeHTTP(rec, req)
		if rec.Code != c.want || taken != c.taken {
			t.Errorf("%s: answered %d with %d taken, want %d and %d", c.name, rec.Code, taken, c.want, c.taken)
		}
	}
}
