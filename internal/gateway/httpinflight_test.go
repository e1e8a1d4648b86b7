package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// post sends n concurrent requests. The returned function waits for their answers, which must have the status.
func (t *bubble) post(n int, path string, body func(i int) string, change func(r *http.Request, body string)) (answered func(status int)) {
	t.Helper()
	var all sync.WaitGroup
	statuses := make(chan int, n)
	for i := range n {
		all.Go(func() {
			text := body(i)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+path, strings.NewReader(text))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			change(req, text)
			resp, err := t.http.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			statuses <- resp.StatusCode
		})
	}
	synctest.Wait()
	return func(status int) {
		t.Helper()
		all.Wait()
		close(statuses)
		for got := range statuses {
			if got != status {
				t.Errorf("status %d, want %d", got, status)
			}
		}
	}
}

func TestCompletionsHaveThePlacesOfTheirCredential(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		release := t.hold()
		s := t.open().login(annaToken)
		s.say(0, 4, "hello")
		answered := t.post(12, completionsPath, func(i int) string {
			return fmt.Sprintf(`{"model":"laneway","messages":[{"role":"user","content":"hello %d"}]}`, i)
		}, func(r *http.Request, _ string) { r.Header.Set("Authorization", "Bearer "+annaToken) })
		t.wantBlocked("4 calls of a socket and 12 completions", callPlaces)
		release()
		s.accepted(4)
		answered(http.StatusOK)
		s.ws.Close()
	})
}

func TestACompletionWithoutAPlaceInTimeIsRetryable(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		release := t.hold()
		s := t.open().login(annaToken)
		s.say(0, callPlaces, "hello")
		began := time.Now()
		t.post(1, completionsPath, func(int) string { return `{"model":"laneway","messages":[{"role":"user","content":"hello"}]}` },
			func(r *http.Request, _ string) { r.Header.Set("Authorization", "Bearer "+annaToken) })(http.StatusServiceUnavailable)
		if took := time.Since(began); took != 25*time.Second {
			t.Errorf("it was answered after %s, want 25s", took)
		}
		release()
		s.ws.Close()
	})
}

func TestTheCallsOfAHookHaveThePlacesOfOneCredential(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		release := t.hold()
		answered := t.post(12, "/hooks/deploy", func(i int) string { return fmt.Sprint("version ", i) },
			func(r *http.Request, body string) { signed(body)(r) })
		t.wantBlocked("12 calls of one hook", callPlaces)
		release()
		answered(http.StatusAccepted)
	}, withHooks)
}

// A body is not read while the unanswered messages of its credential use all bytes.
func TestABodyWaitsForTheBytesOfItsCredential(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		release := t.hold()
		s := t.open().login(annaToken)
		s.sayLarge(0, largeFit)
		began := time.Now()
		body := `{"model":"laneway","messages":[{"role":"user","content":"` + strings.Repeat("x", largeMessage) + `"}]}`
		t.post(1, completionsPath, func(int) string { return body },
			func(r *http.Request, _ string) { r.Header.Set("Authorization", "Bearer "+annaToken) })(http.StatusServiceUnavailable)
		if took := time.Since(began); took != 25*time.Second {
			t.Errorf("it was answered after %s, want 25s", took)
		}
		release()
		s.ws.Close()
	})
}
