package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
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

func (t *bubble) wantBlocked(when string, n int) {
	t.Helper()
	synctest.Wait()
	t.fakeBackend.set(func() {
		if t.fakeBackend.blocked != n {
			t.Errorf("%s: %d calls run at once, want %d", when, t.fakeBackend.blocked, n)
		}
	})
}

func (t *bubble) hold() (release func()) {
	block := make(chan struct{})
	t.fakeBackend.set(func() { t.fakeBackend.block = block })
	return func() {
		t.fakeBackend.set(func() { t.fakeBackend.block = nil })
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

// A principal has largeFit messages of largeMessage bytes in flight. The remaining bytes are too few for the longest message.
const (
	largeMessage = 900_000
	largeFit     = 4
)

// sayLarge sends large messages with the numbers from..to-1 in a goroutine and closes read when the gateway has read them: a pipe has no
// buffer.
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
