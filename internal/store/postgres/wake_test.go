package postgres_test

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

func TestWakeUpsReachTheOtherNode(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	here, there := open(t, postgres.Config{URL: url}), open(t, postgres.Config{URL: url})
	defer func() { _, _ = here.Close(), there.Close() }()
	hints, others := there.Wakeups("there", store.HintMessage), there.Wakeups("third", store.HintMessage)
	<-hints // the listener is ready: after connecting it sends every channel one hint
	<-others
	for range 100 {
		here.Notify("there", store.HintMessage, "")
	}
	select {
	case <-hints:
	case <-t.Context().Done():
		t.Fatal("no hint came")
	}
	select {
	case <-others:
		t.Fatal("a hint for one node woke another")
	default:
	}
	if there.Wakeups("there", store.HintMessage) != hints {
		t.Fatal("the same node got another channel")
	}
}

// A hint names up to 64 sessions; more are any.
func TestHintsNameTheirSessions(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	here, there := open(t, postgres.Config{URL: url}), open(t, postgres.Config{URL: url})
	defer func() { _, _ = here.Close(), there.Close() }()
	hints := there.Wakeups("there", store.HintMessage)
	<-hints
	if got := there.Hinted("there", store.HintMessage); !got.All {
		t.Errorf("after connecting: %+v, want any session", got)
	}
	for _, n := range []int{1, store.MaxHinted, store.MaxHinted + 1} {
		want := map[string]bool{}
		for i := range n {
			key := "agent:main:" + strconv.Itoa(i)
			want[key] = true
			here.Notify("there", store.HintMessage, key)
			here.Notify("there", store.HintMessage, key)
		}
		got, all := map[string]bool{}, false
		for len(got) < n && !all { // some may come with a later notification
			select {
			case <-hints:
			case <-t.Context().Done():
				t.Fatalf("heard of %d sessions, want %d", len(got), n)
			}
			heard := there.Hinted("there", store.HintMessage)
			for _, key := range heard.Keys {
				got[key] = true
			}
			all = heard.All
		}
		if !all && !maps.Equal(got, want) || all && n <= store.MaxHinted {
			t.Errorf("of %d sessions: %v, all %v", n, got, all)
		}
	}
}

func TestBroadcastsReachEveryOtherProcessInTheirOrder(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	here, there, third := open(t, postgres.Config{URL: url}), open(t, postgres.Config{URL: url}), open(t, postgres.Config{URL: url})
	defer func() { _, _, _ = here.Close(), there.Close(), third.Close() }()
	ready := []<-chan struct{}{there.Wakeups("there", store.HintMessage), third.Wakeups("third", store.HintMessage)}
	mine := here.Broadcasts()
	heard := []<-chan string{there.Broadcasts(), third.Broadcasts()}
	for _, listens := range ready {
		<-listens
	}
	long := strings.Repeat("x", 5_000)
	want := []string{"kept"}
	here.Broadcast("kept")
	here.Broadcast(long + long)  // does not fit into a notification
	here.Broadcast("two\nlines") // would be received as two messages
	for i := range 300 {
		text := strconv.Itoa(i)
		if i%100 == 0 {
			text = long + text
		}
		want = append(want, text)
		here.Broadcast(text)
	}
	for _, ch := range heard {
		for i, w := range want {
			select {
			case got := <-ch:
				if got != w {
					t.Fatalf("text %d: got %.20q, want %.20q", i, got, w)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("message %d did not arrive", i)
			}
		}
	}
	select {
	case text := <-mine:
		t.Errorf("the sender heard itself: %.20q", text)
	default:
	}
}

// TestEveryTextAfterListenArrives sends as soon as Listen has returned, when a listener that is
// still connecting would miss it.
func TestEveryTextAfterListenArrives(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	here := open(t, postgres.Config{URL: url})
	defer func() { _ = here.Close() }()
	for i := range 5 {
		there := open(t, postgres.Config{URL: url})
		if err := there.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
		here.Broadcast(strconv.Itoa(i))
		select {
		case got := <-there.Broadcasts():
			if got != strconv.Itoa(i) {
				t.Errorf("listener %d received %q", i, got)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("listener %d missed the message", i)
		}
		if err := there.Listen(t.Context()); err != nil {
			t.Errorf("a second call of Listen: %v", err)
		}
		_ = there.Close()
	}
	closed := open(t, postgres.Config{URL: url})
	_ = closed.Close()
	if err := closed.Listen(t.Context()); !errors.Is(err, chat.ErrStoreUnavailable) {
		t.Errorf("a closed store listens: %v", err)
	}
}

func TestWakeUpsSurviveABrokenListener(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	s := open(t, postgres.Config{URL: url})
	defer func() { _ = s.Close() }()
	hints := s.Wakeups("n", store.HintMessage)
	<-hints
	exec(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'laneway' AND datname = current_database()`)
	<-hints // after the break each listener reads once
	s.Notify("n", store.HintMessage, "")
	<-hints
}

func TestAReaderOfBroadcastsIsInformedThatSomeMayBeLost(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	s := open(t, postgres.Config{URL: url})
	defer func() { _ = s.Close() }()
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'laneway' AND datname = current_database()`)
	select {
	case text := <-s.Broadcasts():
		if text != "" {
			t.Errorf("the reader received %q, want the empty text", text)
		}
	case <-time.After(30 * time.Second):
		t.Error("the reader was not informed")
	}
}

func TestCloseEndsTheWaker(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.Config{URL: testpg.DB(t)})
	s.Wakeups("n", store.HintMessage)
	s.Notify("n", store.HintMessage, "")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Notify("n", store.HintMessage, "") // after Close nothing happens
	s.Wakeups("m", store.HintMessage)
}
