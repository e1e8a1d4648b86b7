package gateway_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

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

func (t *bubble) wantListing(when string, n int) {
	t.Helper()
	synctest.Wait()
	t.fakeBackend.set(func() {
		if t.fakeBackend.listing != n {
			t.Errorf("%s: %d lists are read at once, want %d", when, t.fakeBackend.listing, n)
		}
	})
}

func TestAPrincipalReadsFewListsAtOnce(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		hold := make(chan struct{})
		t.fakeBackend.set(func() { t.fakeBackend.lists = hold })
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
		t.fakeBackend.set(func() { t.fakeBackend.lists = hold })
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

// An answer that is not read keeps its place, because it is still in memory; the end of its connection releases it.
func TestAListIsReadUntilItsAnswerIsWritten(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		deaf := t.open().login(readToken)
		deaf.ask(0, places) // a pipe has no buffer: no answer is written before it is read
		hold := make(chan struct{})
		t.fakeBackend.set(func() { t.fakeBackend.lists = hold })
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

// Before, the end of a connection released its places while its lists were still read. All waiting lists were then read at once, and used
// 580 MB.
func TestTheListsOfAConnectionThatIsGoneAreNotRead(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		hold := make(chan struct{})
		t.fakeBackend.set(func() { t.fakeBackend.lists = hold })
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
