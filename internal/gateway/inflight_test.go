package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
)

// callPlaces is how many concurrent calls a principal that sees only its own data may run.
const callPlaces = 8

// say sends messages with the numbers from..to-1 and this text.
func (s *socket) say(from, to int, text string) {
	for i := from; i < to; i++ {
		key := fmt.Sprint("k", i)
		s.request(key, "chat.send", send(key, text, key))
	}
	synctest.Wait()
}

// accepted reads n responses, which must be ok.
func (s *socket) accepted(n int) {
	s.t.Helper()
	for range n {
		if f := s.next(func(f frame) bool { return f.Type == "res" }); !f.OK {
			s.t.Errorf("answer %s: %+v", f.ID, f.Error)
		}
	}
}

func (t *bubble) wantBlocked(when string, n int) { t.Helper(); t.wantAtOnce(when, &t.core.blocked, n) }

// wantAtOnce compares a number of calls that wait in the core.
func (t *bubble) wantAtOnce(when string, calls *int, n int) {
	t.Helper()
	synctest.Wait()
	t.core.set(func() {
		if *calls != n {
			t.Errorf("%s: %d calls run at once, want %d", when, *calls, n)
		}
	})
}

func (t *bubble) hold() (release func()) {
	block := make(chan struct{})
	t.core.set(func() { t.core.block = block })
	return func() {
		t.core.set(func() { t.core.block = nil })
		close(block)
	}
}

func TestAPrincipalRunsFewCallsAtOnce(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		release := t.hold()
		one, two, other := t.open().login(annaToken), t.open().login(annaToken), t.open().login(writeToken)
		one.say(0, 6, "hello")
		two.say(6, 12, "hello")
		t.wantBlocked("one principal on two sockets", callPlaces)
		other.say(12, 30, "hello")
		t.wantBlocked("a principal that sees all besides", callPlaces+18)
		if f := one.call("status", nil); !f.OK {
			t.Errorf("status while the calls wait: %+v", f.Error)
		}
		release()
		one.accepted(6)
		two.accepted(6)
		other.accepted(18)
		for _, s := range []*socket{one, two, other} {
			s.ws.Close()
		}
	})
}

// A principal has largeFit messages of largeMessage bytes in flight. The remaining bytes are too
// few for the longest message.
const (
	largeMessage = 900_000
	largeFit     = 4
)

// sayLarge sends large messages with the numbers from..to-1 in a goroutine and closes read when the
// gateway has read them: a pipe has no buffer.
func (s *socket) sayLarge(from, to int) (read <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := from; i < to; i++ {
			key := fmt.Sprint("k", i)
			raw, err := json.Marshal(map[string]any{"type": "req", "id": key, "method": "chat.send", "params": send(key, "hello", key)})
			if err != nil {
				s.t.Error(err)
			}
			_ = s.ws.WriteMessage(websocket.TextMessage, append(raw, strings.Repeat(" ", largeMessage-len(raw))...)) // fails when the connection ends
		}
	}()
	synctest.Wait()
	return done
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestAPrincipalWithManyBytesUnderWayIsNotReadOn(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		release := t.hold()
		one, two, other := t.open().login(writeToken), t.open().login(writeToken), t.open().login(annaToken)
		one.sayLarge(0, largeFit/2)
		two.sayLarge(largeFit/2, largeFit)
		t.wantBlocked("when they are read", largeFit)
		read := two.sayLarge(largeFit, largeFit+1)
		if isClosed(read) {
			t.Errorf("message %d of %d bytes was read while the others have no answer", largeFit+1, largeMessage)
		}
		if f := one.call("health", nil); !f.OK {
			t.Errorf("a short message besides: %+v", f.Error)
		}
		if !isClosed(other.sayLarge(100, 101)) {
			t.Error("another principal is not read")
		}
		release()
		one.accepted(largeFit / 2)
		two.accepted(largeFit/2 + 1)
		other.accepted(1)
		if !isClosed(read) {
			t.Error("the message that waited was not read")
		}
		for _, s := range []*socket{one, two, other} {
			s.ws.Close()
		}
	})
}

func TestAConnectionThatIsNotReadOnInTimeIsClosed(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		release := t.hold()
		one, two := t.open().login(writeToken), t.open().login(writeToken)
		one.sayLarge(0, largeFit)
		began := time.Now()
		defer time.AfterFunc(time.Minute, func() { _ = two.ws.Close() }).Stop() // otherwise ticks keep a connection alive that is not closed
		read := two.sayLarge(largeFit, largeFit+1)
		code, reason, _ := two.closed()
		if took := time.Since(began); code != 1013 || took != 25*time.Second {
			t.Errorf("close %d %q after %s, want 1013 after 25s", code, reason, took)
		}
		release()
		one.ws.Close()
		two.ws.Close()
		<-read
	})
}

// post sends n concurrent requests. The returned function waits for their answers, which must have
// the status.
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

// places is how many lists a principal reads concurrently.
const places = 4

// ask sends list requests with the numbers from..to-1.
func (s *socket) ask(from, to int) {
	for i := from; i < to; i++ {
		s.request(strconv.Itoa(i), "sessions.list", nil)
	}
	synctest.Wait()
}

// answers reads n responses and counts those that are ok, and those that report a timeout.
func (s *socket) answers(n int) (good, late int) {
	s.t.Helper()
	for range n {
		f := s.next(func(f frame) bool { return f.Type == "res" })
		switch {
		case f.OK:
			good++
		case f.Error.Details["code"] == "REQUEST_TIMEOUT" && f.Error.Retryable:
			late++
		default:
			s.t.Errorf("answer %s: %+v", f.ID, f.Error)
		}
	}
	return good, late
}

func (t *bubble) wantListing(when string, n int) { t.Helper(); t.wantAtOnce(when, &t.core.listing, n) }

func TestAPrincipalReadsFewListsAtOnce(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		hold := make(chan struct{})
		t.core.set(func() { t.core.lists = hold })
		one, two, other := t.open().login(readToken), t.open().login(readToken), t.open().login(annaToken)
		one.ask(0, 6)
		two.ask(0, 6)
		t.wantListing("one principal on two sockets", places)
		other.ask(0, 1)
		t.wantListing("another principal besides", places+1)
		if f := one.call("health", nil); !f.OK {
			t.Errorf("health while the lists wait: %+v", f.Error)
		}
		close(hold)
		for _, s := range []*socket{one, two} {
			if good, _ := s.answers(6); good != 6 {
				t.Errorf("%d good answers, want 6", good)
			}
		}
		if good, _ := other.answers(1); good != 1 {
			t.Error("the other principal has no answer")
		}
		for _, s := range []*socket{one, two, other} {
			s.ws.Close()
		}
	})
}

func TestAListThatWaitsTooLongIsRetryableAndLeavesItsPlace(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		hold := make(chan struct{})
		t.core.set(func() { t.core.lists = hold })
		s := t.open().login(readToken)
		began := time.Now()
		s.ask(0, 6)
		t.wantListing("before the timeout", places)
		if _, late := s.answers(6); late != 6 || time.Since(began) != 25*time.Second {
			t.Errorf("%d calls of 6 were late after %s, want all after 25s", late, time.Since(began))
		}
		t.wantListing("after the timeout", 0)
		close(hold)
		s.ask(6, 12)
		if good, _ := s.answers(6); good != 6 {
			t.Errorf("%d good answers afterwards, want 6", good)
		}
		s.ws.Close()
	})
}

// An answer that is not read keeps its place, because it is still in memory; the end of its
// connection releases it.
func TestAListIsReadUntilItsAnswerIsWritten(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		deaf := t.open().login(readToken)
		deaf.ask(0, places) // a pipe has no buffer: no answer is written before it is read
		hold := make(chan struct{})
		t.core.set(func() { t.core.lists = hold })
		s := t.open().login(readToken)
		s.ask(0, 1)
		t.wantListing("while the answers are not taken", 0)
		if good, _ := deaf.answers(1); good != 1 {
			t.Error("the first answer is missing")
		}
		t.wantListing("when one is taken", 1)
		s.ask(1, 3)
		t.wantListing("and no other", 1)
		deaf.ws.Close()
		t.wantListing("when the connection has ended", 3)
		close(hold)
		if good, _ := s.answers(3); good != 3 {
			t.Errorf("%d good answers, want 3", good)
		}
		s.ws.Close()
	})
}

// Before, the end of a connection released its places while its lists were still read. All waiting
// lists were then read at once, and used 580 MB.
func TestTheListsOfAConnectionThatIsGoneAreNotRead(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		hold := make(chan struct{})
		t.core.set(func() { t.core.lists = hold })
		gone, stays := t.open().login(readToken), t.open().login(readToken)
		gone.ask(0, 20)
		t.wantListing("of the first connection", places)
		stays.ask(0, 6)
		gone.ws.Close()
		t.wantListing("when it is gone, those of the other", places)
		close(hold)
		if good, _ := stays.answers(6); good != 6 {
			t.Errorf("%d good answers, want 6", good)
		}
		stays.ws.Close()
	})
}
